"""Pages of the documentation as programs: their code blocks, from top to bottom, in one namespace.

Blocks of `python` are run as they are printed; those with `>>>` as doctests, whose output is compared. What a page
speaks of without saying where it comes from (its reader's model and data) is in `GIVEN`.
"""

from __future__ import annotations

import ast
import doctest
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"

_DATA = """
import numpy as np, tensorflow as tf, adaclip_tf
from adaclip_tf import *
rng = np.random.default_rng(0)
x, y = rng.normal(size=(1200, 64)).astype("float32"), rng.integers(0, 3, 1200)
x_train, y_train, x_test, y_test, test_data = x, y, x[:50], y[:50], (x[:50], y[:50])
def make_model():
    return tf.keras.Sequential([tf.keras.Input((64,)), tf.keras.layers.Dense(3, activation="softmax")])
"""
_PRIVATE = """
model = make_model()
batches = poisson_batches((x, y), expected_batch_size=600)
model.compile(
    DPAdaClipSGD(0.1, noise_multiplier=8.0, expected_batch_size=600),
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy"],
)
"""
GIVEN = {
    "CONTRIBUTING.md": """
import dataclasses, tensorflow as tf, adaclip_tf
from adaclip_tf import core
from adaclip_tf.privacy import accountants
@dataclasses.dataclass(frozen=True)
class MyAccountant(accountants.Rdp):
    name: str = "mine"
""",
    "docs/distribution.md": _DATA + 'z, loss = 4.0, "sparse_categorical_crossentropy"\n',
    "docs/no_tuning.md": _DATA + "model = make_model()\n",
    "docs/privacy.md": _DATA
    + _PRIVATE
    + "import os; os.mkdir('private'); os.mkdir('model')\n"
    + "pca = PrivatePCA(num_components=2, noise_multiplier=9.0).fit(x)\n",
    "docs/security.md": _DATA
    + _PRIVATE
    + "budget = PrivacyBudget.of(batches, delta=1e-5)\nmodel.fit(batches, callbacks=[budget], verbose=0)\n",
    "docs/tensorboard.md": _DATA + _PRIVATE,
}


def pages() -> list[str]:
    """Every page with code blocks, by its path in the repository."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]
    return sorted(page.relative_to(ROOT).as_posix() for page in found if programs(page))


def programs(page: pathlib.Path) -> list[str]:
    """The blocks of code of a page."""
    return re.findall(r"^```(?:python|pycon)\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def plain_programs(page: str) -> list[str]:
    """The blocks without `>>>`."""
    return [program for program in programs(ROOT / page) if ">>> " not in program]


def run(page: str, only: int | None = None) -> dict:
    """Runs a page, or one block of it; returns its namespace.

    Fails where a block does, or where a doctest prints something else.
    """
    names: dict = {"__name__": "__main__"}
    exec(compile(GIVEN.get(page, ""), f"<given for {page}>", "exec"), names)
    runner = doctest.DocTestRunner()
    for number, program in enumerate(programs(ROOT / page), start=1):
        if only not in (None, number):
            continue
        title = f"<block {number} of {page}>"
        if ">>> " in program:
            test = doctest.DocTestParser().get_doctest(program, names, title, page, 0)
            result = runner.run(test, clear_globs=False)
            assert result.failed == 0, title
            names.update(test.globs)
        else:
            exec(compile(program, title, "exec"), names)
    return names


def calls(page: str) -> list[tuple[str, int, list[str]]]:
    """Every call of a bare name in the blocks: the name, how many arguments go by place, and the names of the rest."""
    found = []
    for program in plain_programs(page):
        for node in ast.walk(ast.parse(program)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if any(isinstance(argument, ast.Starred) for argument in node.args):
                    continue
                named = [keyword.arg for keyword in node.keywords if keyword.arg]
                found.append((node.func.id, len(node.args), named))
    return found


if __name__ == "__main__":  # python -m tests.project.pages PAGE BLOCK
    run(sys.argv[1], int(sys.argv[2]))
