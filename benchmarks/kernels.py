"""What XLA compiles for a first step: kernels, lines of code, and what a kernel costs that does next to nothing.

    python -m benchmarks.kernels cnn

Counts do not hang on what else the machine does. A process each, which dumps what XLA compiled.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import time

import tensorflow as tf

from benchmarks import cases, contenders, timing

FEW, MANY = 4, 44  # kernels


def count(case: str, contender: str) -> tuple[int, int]:
    """Kernels that LLVM compiles, and lines of its code, of a whole step."""
    with tempfile.TemporaryDirectory() as folder:
        flags = f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=.*(one_step|train_step).*"
        environment = {**os.environ, "XLA_FLAGS": flags}
        subprocess.run([sys.executable, "-m", "benchmarks.kernels", case, contender], env=environment, check=True)
        codes = [path.read_text() for path in pathlib.Path(folder).glob("*ir-with-opt.ll")]
    return sum(code.count("\ndefine ") for code in codes), sum(code.count("\n") for code in codes)


def cost_of_a_kernel() -> float:
    """Processor seconds for compiling one that doubles a vector."""

    def compile_time(number: int) -> float:
        vectors = [tf.ones([1000 + i]) for i in range(number)]
        doubled = tf.function(lambda *given: [2.0 * vector for vector in given], jit_compile=True, autograph=False)
        compiled = doubled.get_concrete_function(*vectors)
        start = time.process_time()
        compiled(*vectors)
        return time.process_time() - start

    compile_time(1)
    return (compile_time(MANY) - compile_time(FEW)) / (MANY - FEW)


def main(arguments: list[str]) -> None:
    case, *contender = arguments
    if contender:
        timing.Trainer(cases.find(case), contender[0], jit_compile=True)
        return
    print(f"A kernel takes {1e3 * cost_of_a_kernel():.1f} ms, TensorFlow {tf.__version__}.\n")
    print(f"| {case} | kernels | lines of LLVM code |\n|---|--:|--:|")
    for who in (contenders.BASELINE, *contenders.PRIVATE):
        kernels, lines = count(case, who)
        print(f"| {who} | {kernels} | {lines} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
