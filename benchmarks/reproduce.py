"""Reproduce published works: train, evaluate, and write the tables of each.

    reproduce.py PHOTOS RUNS --row NAME [--row NAME ...]

PHOTOS contains lfw_112, cats23_gpriamo, dogs29_stdove, pandas31_faces, holstein2025_cows, mnist and weights; trainings
are written to RUNS, tables to RUNS/tables, pictures to docs/reproductions. Finished trainings and evaluations are not
repeated, and interrupted ones are resumed, so the command can be stopped at any time and repeated.
"""

import argparse
import importlib.metadata
import subprocess
from datetime import date
from pathlib import Path

import torch
from papers import (
    circle,
    digits,
    facenet,
    harmonic,
    ladder,
    losses,
    pets,
    prefixes,
    published_pets,
    published_variants,
    tradeoffs,
    upgrade,
    view2,
)
from papers.bench import Bench
from papers.history import read_history

from familiar.core.cpu import available_cores
from familiar.core.files import write_atomically

PROJECT = Path(__file__).resolve().parent.parent
PICTURES = PROJECT / "docs" / "reproductions"
VERSIONS = ("torch", "timm", "onnxruntime", "numpy")
SECTIONS = {
    "digits": digits,
    "circle": circle,
    "facenet": facenet,
    "losses": losses,
    "harmonic": harmonic,
    "prefixes": prefixes,
    "upgrade": upgrade,
    "pets": pets,
    "published-pets": published_pets,
    "published-variants": published_variants,
    "tradeoffs": tradeoffs,
    "view2": view2,
    "ladder": ladder,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, help="folder of data sets and weights")
    parser.add_argument("runs", type=Path, help="folder of trainings")
    parser.add_argument("--row", action="append", required=True, choices=list(SECTIONS), help="a section to reproduce")
    parser.add_argument("--jobs", type=int, default=available_cores(), help="trainings in parallel")
    options = parser.parse_args()
    commit = git("describe", "--always", "--dirty", "--exclude=*")
    for name in options.row:
        section = SECTIONS[name]
        bench = Bench(options.photos.resolve(), options.runs.resolve(), PICTURES, options.jobs, commit=commit)
        text = f"# {section.TITLE}\n\n{section.measure(bench)}\n\n{_provenance(name, bench)}\n"
        file = bench.runs / "tables" / f"{name}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, text.encode())
        print(text)


def git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(PROJECT), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _provenance(name: str, bench: Bench) -> str:
    versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in VERSIONS)
    minutes = sum(read_history(bench.run(training)).seconds for training in set(bench.requested)) / 60
    return (
        f"{date.today().isoformat()}; `python benchmarks/reproduce.py PHOTOS RUNS --row {name}`; "
        f"{len(set(bench.requested))} trainings, {minutes:.0f} minutes in total, {bench.jobs} in parallel on "
        f"{available_cores()} cores{_gpu()}, started at commits {', '.join(bench.commits())}; measured at commit "
        f"{bench.commit}; {versions}."
    )


def _gpu() -> str:
    return f" and one {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""


if __name__ == "__main__":
    main()
