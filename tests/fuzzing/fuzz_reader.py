"""Fuzz one reader in this process: `python -m fuzzing.fuzz_reader READER FOLDER [options of libFuzzer]`.

FOLDER gets the inputs that led to new code (`corpus`), and those that are findings (`findings`: the input, and a text
of what was wrong). Runs on after a finding, unless the process dies of it.
"""

import contextlib
import hashlib
import os
import sys
import tempfile
from pathlib import Path
from random import Random

import atheris

from fuzzing.mutators import MAX_BYTES

STRUCTURED_SHARE, REPAIRED_SHARE = 0.7, 0.9


def fuzz(name: str, folder: Path, options: list[str]) -> None:
    """Fuzz a reader for as long as libFuzzer's options say, and exit."""
    with atheris.instrument_imports(include=["familiar"]):
        from fuzzing.catalog import READERS
        from fuzzing.sandbox import Finding, Sandbox

        reader = READERS[name]
        work = Path(tempfile.mkdtemp(prefix="fuzz-", dir=folder))
        (work / "empty").mkdir()
        read = reader.prepare(work)
        for seed in reader.seeds():  # imports what is imported late
            with contextlib.suppress(Exception):
                read(seed)
    corpus, findings = folder / "corpus", folder / "findings"
    for made in (corpus, findings):
        made.mkdir(exist_ok=True)
    for seed in reader.seeds():
        (corpus / hashlib.sha1(seed).hexdigest()).write_bytes(seed)
    os.chdir(work / "empty")  # a path that is relative by mistake leads nowhere
    sandbox = Sandbox(work, starts_processes=reader.starts_processes)
    known = {path.stem for path in findings.glob("*.txt")}

    def report(data: bytes, finding: Finding) -> None:
        key = hashlib.sha1(finding.cause.encode()).hexdigest()[:12]
        if key not in known:
            known.add(key)
            (findings / f"{key}.input").write_bytes(data)
            (findings / f"{key}.txt").write_text(f"{finding.cause}\n{finding.detail}")

    def run(data: bytes) -> None:
        finding = sandbox.run(read, data)
        if finding is not None:
            report(data, finding)

    def mutate(data: bytes, max_bytes: int, seed: int) -> bytes:
        dice = Random(seed)
        changed = bytes(data)
        if dice.random() < STRUCTURED_SHARE:
            for _ in range(dice.choice((1, 1, 2, 3))):
                changed = reader.mutate(changed, dice)
        else:
            changed = atheris.Mutate(changed, max_bytes)
        if dice.random() < REPAIRED_SHARE:
            changed = reader.repair(changed)
        return changed[:max_bytes]

    arguments = [sys.argv[0], f"-artifact_prefix={findings}/", f"-max_len={MAX_BYTES}", *options, str(corpus)]
    atheris.Setup(arguments, run, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    # In a child: Linux starts a program with the peak memory of its parent, and libFuzzer would take that of pytest,
    # which may be above the limit, for an input's.
    if child := os.fork():
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    fuzz(sys.argv[1], Path(sys.argv[2]).resolve(), sys.argv[3:])
