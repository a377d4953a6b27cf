# Every target makes the virtual environment first, from the lock file, if it is missing or stale.
# `make help` lists the targets. `make test KERAS=2` and the like use the environment with Keras 2.

KERAS ?= 3
ifeq ($(KERAS),2)
VENV := .venv-keras2
PYTHON ?= $(shell command -v python3.11 || command -v python3.10 || command -v python3.9 || echo python3)
else
VENV := .venv
PYTHON ?= python3
endif
BIN := $(VENV)/bin
LOCK := requirements/keras$(KERAS).lock
STAMP := $(VENV)/.installed-from-lock
# Site and package have an environment of their own: without TensorFlow, and the tests' ones stay as they are.
DOCS_BIN := .venv-docs/bin
DOCS_STAMP := .venv-docs/.installed-from-lock
# So has Flower, whose packages would hold back those of the tests.
FLOWER_BIN := .venv-flower/bin
FLOWER_STAMP := .venv-flower/.installed-from-lock

export TF_CPP_MIN_LOG_LEVEL ?= 2
export PYTHONPATH := $(CURDIR)

.PHONY: help demo regression reproduce tabular bench test test-flower federated slow-test mutants lint format docs package lock lock-docs lock-flower clean

help:  ## List the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(STAMP): $(LOCK) requirements/install.sh
	PYTHON=$(PYTHON) sh requirements/install.sh $(VENV) $(LOCK)
	@touch $@

$(DOCS_STAMP): requirements/docs.lock requirements/install.sh
	PYTHON=$(PYTHON) sh requirements/install.sh .venv-docs requirements/docs.lock
	@touch $@

$(FLOWER_STAMP): requirements/flower.lock requirements/install.sh
	PYTHON=$(PYTHON) sh requirements/install.sh .venv-flower requirements/flower.lock
	@touch $@

demo: $(STAMP)  ## Train on a table at epsilon 1 with nothing tuned, beside DP-SGD and DP-Adam, a minute or two.
	$(BIN)/python -m examples.demo $(DEMO_ARGS)

regression: $(STAMP)  ## Run the paper's regression experiment.
	$(BIN)/python -m examples.regression

reproduce: $(STAMP)  ## Run the paper's experiments on MNIST, hours; stops and goes on as you like.
	$(BIN)/python -m examples.reproduce $(REPRODUCE_ARGS)

tabular: $(STAMP)  ## Compare training without tuning with tuned competitors, an hour; stops and goes on as you like.
	$(BIN)/python -m examples.tabular $(TABULAR_ARGS)

bench: $(STAMP)  ## Compare speed and memory with Keras's SGD and tensorflow-privacy, half an hour.
	$(BIN)/python -m benchmarks.speed $(BENCH_ARGS)

test: $(STAMP)  ## Run the default tests, a few minutes.
	$(BIN)/python -m pytest -n 2 --dist=worksteal $(PYTEST_ARGS)

test-flower: $(FLOWER_STAMP)  ## Run the tests of federated training on Flower, a minute; PYTEST_ARGS="-m slow" for the long ones.
	$(FLOWER_BIN)/python -m pytest -n 2 --dist=worksteal $(PYTEST_ARGS) tests/flower tests/examples/federated_test.py \
	    tests/examples/federated_processes_test.py tests/examples/federated_simulation_test.py

federated: $(FLOWER_STAMP)  ## Compare clips for federated training on Flower, and write docs/federated.md.
	$(FLOWER_BIN)/python -m examples.federated $(FEDERATED_ARGS)

slow-test: $(STAMP)  ## Run the long tests, with Chromium for TensorBoard's pages if it can be installed.
	@command -v chromium >/dev/null || (apt-get -qq update && apt-get -qq -y install chromium >/dev/null) \
	    || echo "Chromium is not installed and could not be; the browser test will be skipped."
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

mutants: $(STAMP) $(FLOWER_STAMP)  ## Break the library on purpose and write docs/mutants.md, hours; stops and goes on as you like.
	$(FLOWER_BIN)/python -m tests.mutants --only flower $(MUTANTS_ARGS)
	$(BIN)/python -m tests.mutants $(MUTANTS_ARGS)

lint: $(STAMP)  ## Check style, types and BUILD files.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	sh tools/buildifier.sh

format: $(STAMP)  ## Rewrite the code in the project's style.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python tools/build_targets.py
	sh tools/buildifier.sh --fix

docs: $(DOCS_STAMP)  ## Build the documentation site into build/site, with no warning.
	NO_MKDOCS_2_WARNING=1 $(DOCS_BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

package: $(DOCS_STAMP)  ## Build the source archive and the wheel into dist, and check them.
	rm -rf dist
	$(DOCS_BIN)/pyproject-build --no-isolation
	$(DOCS_BIN)/twine check --strict dist/*

lock: $(STAMP)  ## Choose versions anew from requirements/keras3.in, or keras2.in.
	$(BIN)/uv pip compile --quiet --universal --python-version $(if $(filter 2,$(KERAS)),3.9,3.10) --generate-hashes \
	    --no-annotate --no-header requirements/keras$(KERAS).in -o $(LOCK)

lock-docs: $(STAMP)  ## Choose versions anew from requirements/docs.in.
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	    --no-annotate --no-header requirements/docs.in -o requirements/docs.lock

lock-flower: $(STAMP)  ## Choose versions anew from requirements/flower.in.
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	    --no-annotate --no-header requirements/flower.in -o requirements/flower.lock

clean:  ## Remove the virtual environments and caches.
	rm -rf .venv .venv-keras2 .venv-docs .venv-flower .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist *.egg-info
