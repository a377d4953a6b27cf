"""Prints what the library does with every case, in every mode asked for.

    python -m tests.attack --mode=graph,static --cases=batch_norm,lstm --sizes=8,32

Without `--cases` all are run, `--cases=lstm*` takes patterns, `--failing` prints only what is not as it should be.
"""

import argparse
import fnmatch
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--mode", default="graph", help="modes, separated by commas, or 'all'")
    parser.add_argument("--cases", default="*", help="names or patterns, separated by commas")
    parser.add_argument("--expect", default="", help="only cases of this expectation")
    parser.add_argument("--sizes", default="8", help="batch sizes, separated by commas")
    parser.add_argument("--removals", type=int, default=None, help="how many examples to remove; all by default")
    parser.add_argument("--failing", action="store_true", help="print only what is not as it should be")
    parser.add_argument("--width", type=int, default=150, help="characters of a message to print")
    arguments = parser.parse_args()

    from absl import logging

    from tests.attack import catalog, errors, harness
    from tests.attack.modes import MODES

    logging.set_verbosity(logging.ERROR)
    modes = list(MODES) if arguments.mode == "all" else arguments.mode.split(",")
    sizes = [int(size) for size in arguments.sizes.split(",")]
    patterns = arguments.cases.split(",")
    broken, run = 0, 0
    for name, case in catalog.load().items():
        if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns) or arguments.expect not in ("", case.expect):
            continue
        for mode in modes:
            start = time.perf_counter()
            try:
                outcome = harness.attack(
                    case, mode, sizes=[case.fixed] if case.fixed else sizes, removals=arguments.removals
                )
            except Exception as error:  # the case itself does not run; go on with the others
                outcome = harness.Outcome("crash", f"the case is broken: {errors.summary(error)}")
            wrong = harness.verdict(case, mode, outcome)
            run, broken = run + 1, broken + bool(wrong)
            if wrong or not arguments.failing:
                text = str(outcome)[: arguments.width]
                seconds = time.perf_counter() - start
                mark = "BROKEN" if wrong else "ok"
                print(f"{mark:6} {name:34} {mode:12} {case.expect:8} {seconds:5.1f}s  {text}", flush=True)
    print(f"{run} runs, {broken} not as they should be")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
