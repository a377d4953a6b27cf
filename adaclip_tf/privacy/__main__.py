r"""What a training run costs, on the command line.

    python -m adaclip_tf.privacy --num_examples=60000 --batch_size=600 --epochs=10 \
        --noise_multiplier=1.1 --delta=1e-5

prints the privacy statement with the epsilons of all accountants side by side. With `--target_epsilon=` in the place
of `--noise_multiplier=` it first finds the noise multiplier. `--plot=FILE` draws epsilon against epochs.
`--choice_runs=10` counts the best of a random number of runs, 10 on average (`adaclip_tf.privacy.choice`).

    python -m adaclip_tf.privacy --ledger=private/ledger.json --delta=1e-5

prints what a ledger holds, and the epsilon of all of it. Where the package is installed, `adaclip-privacy` is this
program. `--page=FILE` writes the statement as a web page for readers who are no engineers.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Sequence

from absl import flags

from adaclip_tf._internal import plotting
from adaclip_tf.privacy import accountants, calibration, curve, ledger, page, statement, wording
from adaclip_tf.privacy import choice as choice_lib
from adaclip_tf.privacy.mechanism import SAMPLINGS, Mechanism

# Flags of this program alone: importing the module must not claim names such as `batch_size` for everyone.
FLAGS = flags.FlagValues()

flags.DEFINE_integer("num_examples", None, "n, size of the training set.", flag_values=FLAGS)
flags.DEFINE_integer("batch_size", None, "B, expected size of a logical batch.", flag_values=FLAGS)
flags.DEFINE_float("epochs", None, "Passes over the data; may be a fraction.", flag_values=FLAGS)
flags.DEFINE_integer("steps", None, "Or the number of noised steps.", flag_values=FLAGS)
flags.DEFINE_float("noise_multiplier", None, "z, noise over sensitivity.", flag_values=FLAGS)
flags.DEFINE_float("target_epsilon", None, "Or the epsilon to find z for.", flag_values=FLAGS)
flags.DEFINE_float("delta", None, "delta; below 1 / num_examples.", flag_values=FLAGS)
flags.DEFINE_string("accountant", "rdp", "Name of the accountant for --target_epsilon.", flag_values=FLAGS)
flags.DEFINE_enum("sampling", "poisson", list(SAMPLINGS), "How batches are drawn.", flag_values=FLAGS)
flags.DEFINE_integer("examples_per_user", 1, "The most examples that one user has.", flag_values=FLAGS)
flags.DEFINE_integer("microbatch_size", 1, "Examples per microbatch.", flag_values=FLAGS)
flags.DEFINE_float("choice_runs", None, "Best of so many runs on average, their number drawn.", flag_values=FLAGS)
flags.DEFINE_enum("choice_law", "geometric", list(choice_lib.LAWS), "How that number is drawn.", flag_values=FLAGS)
flags.DEFINE_string("plot", None, "PNG file for a plot of epsilon against epochs.", flag_values=FLAGS)
flags.DEFINE_string("page", None, "HTML file for the statement, in words for everyone.", flag_values=FLAGS)
flags.DEFINE_string("ledger", None, "A ledger to print; takes --delta alone.", flag_values=FLAGS)
flags.DEFINE_boolean("help", False, "Show this help.", flag_values=FLAGS)


def run() -> int:
    """The console script `adaclip-privacy`."""
    return main(sys.argv)


def main(argv: Sequence[str]) -> int:
    """Runs the program; returns its exit code: 0, or 2 with one line on stderr for a bad argument."""
    try:
        rest = FLAGS(argv)[1:]
        if FLAGS.help:
            print(f"{__doc__}\n{FLAGS.get_help()}")
            return 0
        _check_flags(rest)
        print(_run())
    except (flags.Error, ValueError, OSError) as error:
        first_line = str(error).splitlines()[0]
        print(f"adaclip_tf.privacy: {first_line}", file=sys.stderr)
        return 2
    finally:
        FLAGS.unparse_flags()
    return 0


def _check_flags(rest: Sequence[str]) -> None:
    if rest:
        raise ValueError(f"Unexpected argument {rest[0]!r}; arguments are flags such as --epochs=10.")
    if FLAGS.ledger is not None:
        others = [n for n in FLAGS if FLAGS[n].present and n not in ("ledger", "delta")]
        if others or FLAGS.delta is None:
            raise ValueError("--ledger takes --delta, and no other flag.")
        if not os.path.exists(FLAGS.ledger):
            raise ValueError(f"--ledger={FLAGS.ledger} is not there.")
        return
    for name in ("num_examples", "batch_size", "delta"):
        if FLAGS[name].value is None:
            raise ValueError(f"--{name} is required; --help lists the flags.")
    for one, other in (("epochs", "steps"), ("noise_multiplier", "target_epsilon")):
        if (FLAGS[one].value is None) == (FLAGS[other].value is None):
            raise ValueError(f"Give either --{one} or --{other}.")
    if FLAGS.plot and FLAGS.choice_runs is not None:
        raise ValueError("--plot is of one run: leave out --choice_runs.")
    if FLAGS.plot and not os.path.isdir(os.path.dirname(os.path.abspath(FLAGS.plot))):
        raise ValueError(f"--plot={FLAGS.plot} is in a directory that does not exist.")
    accountants.named(FLAGS.accountant)
    if FLAGS.microbatch_size < 1:
        raise ValueError(f"--microbatch_size must be 1 or more; got {FLAGS.microbatch_size}.")


def _run() -> str:
    """The whole output."""
    if FLAGS.ledger is not None:
        return ledger.Ledger(FLAGS.ledger).describe(delta=FLAGS.delta)
    mechanism = Mechanism(
        1.0 if FLAGS.noise_multiplier is None else FLAGS.noise_multiplier,
        FLAGS.num_examples,
        FLAGS.batch_size,
        FLAGS.sampling,
        1.0 if FLAGS.microbatch_size == 1 else 2.0,
    )
    length = {"epochs": FLAGS.epochs, "steps": FLAGS.steps}
    choice = None if FLAGS.choice_runs is None else choice_lib.PrivateChoice(FLAGS.choice_runs, FLAGS.choice_law)
    lines = []
    if FLAGS.noise_multiplier is None:
        target = calibration.Target(FLAGS.target_epsilon, FLAGS.delta, FLAGS.accountant, FLAGS.examples_per_user)
        noise = calibration.noise_for_run(mechanism, target, **length, choice=choice)
        mechanism = mechanism.with_noise(noise)
        lines.append(
            f"noise_multiplier = {noise:.6g} meets epsilon {target.epsilon:g} by {target.accountant.upper()}.\n"
        )
    protected = {"delta": FLAGS.delta, "examples_per_user": FLAGS.examples_per_user}
    report = statement.report_on(mechanism, **length, **protected, choice=choice)
    lines.append(wording.describe(report))
    if FLAGS.page:
        page.write(report, FLAGS.page)
        lines.append(f"Wrote {os.path.abspath(FLAGS.page)}")
    if FLAGS.plot:
        try:
            plot_epsilon(FLAGS.plot, mechanism, steps=mechanism.count(**length), **protected)
        except OSError as error:
            raise ValueError(f"--plot={FLAGS.plot} cannot be written: {error}") from error
        lines.append(f"Wrote {os.path.abspath(FLAGS.plot)}")
    return "\n".join(lines)


def plot_epsilon(
    path: str, mechanism: Mechanism, *, steps: int, delta: float, examples_per_user: int = 1, points: int = 16
) -> None:
    """Draws epsilon against epochs, a line for each accountant."""
    grid = sorted({max(1, round(steps * k / points)) for k in range(1, points + 1)})
    with plotting.style():
        figure, axes = plotting.new_figure(6.4, 4.0)
        for name, line in zip(accountants.names(), itertools.cycle(("-", "--", ":", "-."))):
            spent = curve.EpsilonCurve(mechanism, delta=delta, accountant=name, examples_per_user=examples_per_user)
            epochs = [at / mechanism.epoch for at in grid]
            axes.plot(epochs, [spent(at) for at in grid], line, marker="", label=name.upper())
        axes.set_xlabel("epochs")
        axes.set_ylabel(f"epsilon at delta = {delta:g}")
        axes.set_title(
            f"n = {mechanism.num_examples:,}, B = {mechanism.batch_size:,}, "
            f"z = {mechanism.noise_multiplier:.4g}, {mechanism.sampling} batches"
        )
        axes.set_ylim(bottom=0.0)
        axes.set_xlim(left=0.0)
        axes.legend()
        figure.savefig(path, dpi=150, format="png")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
