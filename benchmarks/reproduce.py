"""Reproduce published works: train, evaluate, and write a section of docs/benchmarks/reproductions.md for each.

    reproduce.py PHOTOS RUNS --row NAME [--row NAME ...]

PHOTOS contains lfw_112, cats23_gpriamo, dogs29_stdove, pandas31_faces, holstein2025_cows, orl_faces, mnist and weights;
trainings are written to RUNS. Finished trainings and evaluations are not repeated, and interrupted ones are resumed, so
the command can be stopped at any time and repeated. A finished section is written to that page and its
pictures to docs/reproductions, and both are committed (unless --no-commit).
"""

import argparse
import importlib.metadata
import re
import subprocess
import sys
from datetime import date
from pathlib import Path

import torch
from papers import best, circle, digits, facenet, harmonic, ladder, losses, pets, published_pets, tradeoffs
from papers.bench import Bench
from papers.history import read_history

from familiar.core.cpu import available_cores
from familiar.core.files import write_atomically

PROJECT = Path(__file__).resolve().parent.parent
RESULTS = PROJECT / "docs" / "benchmarks" / "reproductions.md"
PICTURES = PROJECT / "docs" / "reproductions"
VERSIONS = ("torch", "timm", "onnxruntime", "numpy")
SECTIONS = {
    "digits": digits,
    "circle": circle,
    "facenet": facenet,
    "losses": losses,
    "harmonic": harmonic,
    "pets": pets,
    "published-pets": published_pets,
    "tradeoffs": tradeoffs,
    "best": best,
    "ladder": ladder,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, help="folder of data sets and weights")
    parser.add_argument("runs", type=Path, help="folder of trainings")
    parser.add_argument("--row", action="append", required=True, choices=list(SECTIONS), help="a section to reproduce")
    parser.add_argument("--jobs", type=int, default=available_cores(), help="trainings in parallel")
    parser.add_argument("--no-commit", action="store_true", help="do not commit the section and its pictures")
    options = parser.parse_args()
    if not options.no_commit and git("status", "--porcelain", str(RESULTS)):
        sys.exit(f"{RESULTS.name} has uncommitted changes; commit them first, or use --no-commit")
    for name in options.row:
        section = SECTIONS[name]
        commit = git("describe", "--always", "--dirty", "--exclude=*")
        bench = Bench(options.photos.resolve(), options.runs.resolve(), PICTURES, options.jobs, commit=commit)
        body = section.measure(bench)
        publish(name, section.TITLE, f"{_provenance(name, bench)}\n\n{body}")
        if not options.no_commit:
            commit_section(name, section.TITLE)


def publish(name: str, title: str, text: str) -> None:
    """Write a section of docs/benchmarks/reproductions.md, in place of its earlier version or at the end."""
    section = f"<!-- reproduce.py: {name} -->\n## {title}\n\n{text.strip()}\n<!-- end of {name} -->\n"
    page = RESULTS.read_text(encoding="utf-8")
    earlier = re.compile(rf"<!-- reproduce\.py: {name} -->.*?<!-- end of {name} -->\n", re.DOTALL)
    page = earlier.sub(lambda _: section, page) if earlier.search(page) else f"{page.rstrip()}\n\n{section}"
    write_atomically(RESULTS, page.encode())


def commit_section(name: str, title: str) -> None:
    made = [str(RESULTS), *map(str, PICTURES.glob(f"{name}-*.png"))]
    git("add", *made)
    git("commit", "--message", f"Measured: {title}", "--only", *made)


def git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(PROJECT), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"git {arguments[0]}: {(done.stderr or done.stdout).strip()}")
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
