"""Trains a model privately, as a config says.

    python -m examples.train --config=configs/digits.py
    python -m examples.train --config=configs/paper.py:mlp/adaclip/1 --config.h2=1e-5 --config.epochs=5 --seeds=5
    python -m examples.train --config=configs/digits.py --config.optimizer=fixed_clip --workdir=runs/digits
    python -m examples.train --config=configs/digits.py --strategy=mirrored --replicas=2
    python -m examples.launch --workers=2 --restarts=3 -- -m examples.train --strategy=multi_worker --workdir=runs/two

`--workdir` keeps checkpoints, TensorBoard logs and the privacy statement; the same command again goes on where it
stopped. Every field of the config (configs/base.py lists them) is a flag.
"""

from __future__ import annotations

import tensorflow as tf
from absl import app, flags
from ml_collections import config_flags

from examples.common import config_flags as config_fields
from examples.common import data, strategies, training

_CONFIG = config_flags.DEFINE_config_file("config", "configs/digits.py", "What to train, and how.")
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder to keep the run in, and to resume it from.")
_DATA_DIR = flags.DEFINE_string("data_dir", None, "Folder with data files; overrides config.data_dir.")
_SEEDS = flags.DEFINE_integer("seeds", 1, "How many runs, for a mean and a standard deviation.", lower_bound=1)
_STRATEGY = flags.DEFINE_enum("strategy", "none", strategies.NAMES, "What to train under, see docs/distribution.md.")
_REPLICAS = flags.DEFINE_integer("replicas", 2, "Devices of --strategy=mirrored.", lower_bound=1)
_VERBOSE = flags.DEFINE_enum("verbose", "auto", ["auto", "0", "1", "2"], "Keras's progress bar, as for fit.")


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}; see --help for the flags.")
    tf.get_logger().setLevel("ERROR")
    config = _CONFIG.value
    if _DATA_DIR.value:
        config.data_dir = _DATA_DIR.value
    verbose = _VERBOSE.value if _VERBOSE.value == "auto" else int(_VERBOSE.value)
    try:
        strategy = strategies.make(_STRATEGY.value, _REPLICAS.value)
        results = training.run_seeds(config, _SEEDS.value, _WORKDIR.value, verbose=verbose, strategy=strategy)
    except (ValueError, data.DataUnavailableError) as error:
        raise app.UsageError(str(error)) from error
    if strategies.writes(strategy):
        print(training.describe(results[0]))
        print(f"{config.dataset} from {results[0].source}, {config.model}, {config.optimizer}:")
        print(training.summary(results))
        if _WORKDIR.value:
            print(f"open with: .venv/bin/tensorboard --logdir {_WORKDIR.value}")
    training.check(config, results)


if __name__ == "__main__":
    app.run(main, flags_parser=config_fields.parse)
