"""The peak memory of training, each time in a process of its own.

python -m benchmarks.memory mlp "Keras SGD" 600      # prints bytes; a case, a contender, a batch size
"""

from __future__ import annotations

import pathlib
import subprocess
import sys

from benchmarks import cases, timing


def peak(case, contender, batch_size):
    """Peak resident bytes of a process that trains three steps."""
    command = [sys.executable, "-m", "benchmarks.memory", case, contender, str(batch_size)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        return None
    return int(result.stdout.split()[-1])


def high_water_mark():
    """Peak resident bytes. Not `ru_maxrss`: a child process starts with its parent's."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM; peak memory can only be measured on Linux.")


def main(name: str, contender: str, batch_size: str) -> None:
    trainer = timing.Trainer(cases.find(name), contender, int(batch_size))
    trainer.run()
    print(high_water_mark())


if __name__ == "__main__":
    main(*sys.argv[1:])
