"""Measure the startup of `familiar --help`, `import familiar` and a bare interpreter, alternately."""

import subprocess
import sys
import time
from statistics import median

ROUNDS = 25
COMMANDS = {
    "python, nothing else": [sys.executable, "-c", ""],
    "import familiar": [sys.executable, "-c", "import familiar"],
    "familiar --help": [sys.executable, "-m", "familiar", "--help"],
}


def main() -> None:
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, command in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - started)
    for name, times in seconds.items():
        print(f"{name:24} {median(times):.3f} s (of {ROUNDS}; slowest {max(times):.3f} s)")


if __name__ == "__main__":
    main()
