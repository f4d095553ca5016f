"""Fuzz some or all readers, each in a process of its own, and report what was found.

python -m fuzzing --seconds 300 --output findings [READER...]
"""

import argparse
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from fuzzing.catalog import READERS

BASE_MB = 1024  # room for the process with all that it imports: 0.1 to 0.9 GiB
MEMORY_MB = 1024  # what an input may take
TIMEOUT_SECONDS = 15  # by the clock; the sandbox measures seconds of CPU
PROCESS_TIMEOUT_SECONDS = 120  # of readers that start other processes, with limits of their own
MAX_DEATHS = 20
PULSE = re.compile(r"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+)")


@dataclass
class Outcome:
    """What the fuzzing of one reader led to.

    Attributes:
        executions: inputs that were read.
        coverage: edges of the package's code that were reached.
        features: edges with how often each was passed, as libFuzzer counts them.
        seconds: how long it ran.
        findings: the causes.
    """

    executions: int = 0
    coverage: int = 0
    features: int = 0
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list[str])


def fuzz(name: str, folder: Path, seconds: float) -> Outcome:
    """Fuzz a reader; a process that dies of an input is started again.

    Args:
        name: of the reader.
        folder: for its inputs; what is there is used.
        seconds: how long.
    """
    outcome = Outcome()
    folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + seconds
    for _ in range(MAX_DEATHS):
        remaining = int(end - time.monotonic())
        if remaining < 1:
            break
        started = time.monotonic()
        timeout = PROCESS_TIMEOUT_SECONDS if READERS[name].starts_processes else TIMEOUT_SECONDS
        options = [f"-max_total_time={remaining}", f"-timeout={timeout}", f"-rss_limit_mb={MEMORY_MB + BASE_MB}"]
        process = subprocess.run(
            [sys.executable, "-m", "fuzzing.fuzz_reader", name, str(folder), *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=Path(__file__).parents[1],  # where the package `fuzzing` is found, whatever the caller's folder
            check=False,
        )
        log = process.stderr.decode(errors="replace")
        (folder / "log.txt").write_text(log[-200_000:])
        outcome.seconds += time.monotonic() - started
        pulses = PULSE.findall(log)
        done = re.findall(r"Done (\d+) runs", log)
        outcome.executions += int(done[-1] if done else pulses[-1][0] if pulses else 0)
        if pulses:
            outcome.coverage = max(outcome.coverage, int(pulses[-1][1]))
            outcome.features = max(outcome.features, int(pulses[-1][2]))
        if process.returncode == 0:
            break
        if not pulses:
            outcome.findings.append(f"did not start: {log.strip().splitlines()[-1:]}")
            break
    for work in folder.glob("fuzz-*"):
        shutil.rmtree(work)
    findings = folder / "findings"
    outcome.findings += [path.read_text().splitlines()[0] for path in sorted(findings.glob("*.txt"))]
    outcome.findings += [path.name for pattern in ("crash-*", "timeout-*", "oom-*") for path in findings.glob(pattern)]
    return outcome


def main() -> int:
    """Run the command line; return 1 if there are findings."""
    parser = argparse.ArgumentParser(prog="python -m fuzzing", description="Fuzz readers and report what was found.")
    parser.add_argument("readers", nargs="*", metavar="READER", help="; ".join(READERS))
    parser.add_argument("--seconds", type=float, default=60, help="for each reader")
    parser.add_argument("--output", type=Path, required=True, help="folder of inputs and findings; a later run goes on")
    options = parser.parse_args()
    if unknown := set(options.readers) - READERS.keys():
        parser.error(f"no reader {', '.join(unknown)}")
    failed = False
    sys.stdout.write(f"{'reader':16} {'seconds':>7} {'executions':>10} {'edges':>6} {'features':>8}  findings\n")
    for name in options.readers or READERS:
        outcome = fuzz(name, options.output.resolve() / name, options.seconds)
        failed |= bool(outcome.findings)
        sys.stdout.write(
            f"{name:16} {outcome.seconds:7.0f} {outcome.executions:10,} {outcome.coverage:6} {outcome.features:8}  "
            f"{len(outcome.findings)}\n" + "".join(f"    {finding}\n" for finding in outcome.findings)
        )
        sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
