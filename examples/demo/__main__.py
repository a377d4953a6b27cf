"""The demonstration: the paper's MLP on MNIST at epsilon 1, once with AdaCliP and once with Abadi et al.

    make demo

shows epsilon grow in the progress bar, prints a table, and writes a figure, TensorBoard logs and both privacy
statements into runs/demo. Without MNIST (see examples/common/data.py for where it is looked for) it says so and takes
scikit-learn's digits.
"""

from __future__ import annotations

import sys

import tensorflow as tf
from absl import app, flags

from examples.demo import experiment, report


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}; see --help for the flags.")
    tf.get_logger().setLevel("ERROR")
    output = flags.FLAGS.output
    verbose = 1 if sys.stdout.isatty() else 2
    results = experiment.run(output, data_dir=flags.FLAGS.data_dir, quick=flags.FLAGS.quick, verbose=verbose)
    print()
    print(report.table(results))
    print()
    for path in report.write(results, output):
        print(f"wrote {path}")
    print(f"open with: .venv/bin/tensorboard --logdir {output}")
    print(experiment.check(results))


if __name__ == "__main__":  # other programs in this folder have flags of the same names
    flags.DEFINE_string("output", "runs/demo", "Folder for the figure, the table, logs and statements.")
    flags.DEFINE_string("data_dir", None, "Folder with MNIST's files, if they are at hand.")
    flags.DEFINE_bool("quick", False, "Digits and two epochs: seconds, to see that everything runs.")
    app.run(main)
