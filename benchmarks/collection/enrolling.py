"""Measure how fast a growing gallery enrolls vectors and opens.

    gallery.py enrolling [--counts 100000,1000000] [--folder DIR]

Enrolling alternates, part by part, with a bare `executemany` of the same rows into one table of names and vectors, with
the same durability (WAL, synchronous = FULL) and number of commits: the minimum that SQLite needs. The gallery is
opened in its own process, with every page of its file checked, then searched, which reads all vectors. Peak memory is
of that process (Linux).
"""

import argparse
import sqlite3
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from collection.vectors import DIM, synthetic
from familiar.core.calibration import Calibration, Threshold
from familiar.gallery.enroll.enroll import enroll_embeddings
from familiar.gallery.search.search import search_faces
from familiar.gallery.store.connection import DATABASE
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store

PART = 50_000  # vectors enrolled before the turn changes
COMMIT = 20_000
_THRESHOLD = Threshold(0.4, None, None)
SPACE = Space("synthetic", DIM, (DIM,), Calibration(_THRESHOLD, _THRESHOLD, _THRESHOLD, None, None, None, 0, 0))


def main(options: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="gallery.py enrolling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--counts", default="100000,1000000", help="numbers of vectors")
    parser.add_argument("--folder", type=Path, help="working folder (default: the system's temporary folder)")
    arguments = parser.parse_args(options)
    print("| vectors | enrolled/s | bare SQLite/s | bare / ours | file MB | open s | first search s | peak MB |")
    print("|---|---|---|---|---|---|---|---|")
    for count in [int(count) for count in arguments.counts.split(",")]:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as root, get_context("spawn").Pool(1) as pool:
            ours, bare = pool.apply(_enroll, (Path(root), count))
            megabytes = (Path(root) / "gallery" / DATABASE).stat().st_size / 1e6
            with get_context("spawn").Pool(1) as another:
                opened, searched, peak = another.apply(_open, (Path(root) / "gallery",))
        rates = f"{count / ours:,.0f} | {count / bare:,.0f} | {ours / bare:.2f}"
        print(
            f"| {count:,} | {rates} | {megabytes:,.0f} | {opened:.2f} | {searched:.2f} | {peak:,.0f} |",
            flush=True,
        )


def _enroll(root: Path, count: int) -> tuple[float, float]:
    """Measure the seconds of the gallery and of the bare database."""
    embeddings, _ = synthetic(count)
    names = [f"photo {index:07}.jpg" for index in range(count)]
    bare = sqlite3.connect(root / "bare.sqlite", isolation_level=None)
    bare.execute("PRAGMA journal_mode = WAL")
    bare.execute("PRAGMA synchronous = FULL")
    bare.execute("CREATE TABLE vectors (name TEXT, vector BLOB)")
    seconds = [0.0, 0.0]
    with Store.create(root / "gallery", SPACE) as gallery:
        for turn, start in enumerate(range(0, count, PART)):
            part = slice(start, start + PART)
            for which in (0, 1) if turn % 2 else (1, 0):
                started = time.perf_counter()
                if which:
                    _bare(bare, embeddings[part], names[part])
                else:
                    enroll_embeddings(gallery, embeddings[part], names[part], SPACE.space_id)
                seconds[which] += time.perf_counter() - started
    bare.close()
    return seconds[0], seconds[1]


def _bare(connection: sqlite3.Connection, embeddings: np.ndarray, names: list[str]) -> None:
    for start in range(0, len(embeddings), COMMIT):
        rows = embeddings[start : start + COMMIT].astype(np.float16)
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO vectors VALUES (?, ?)",
            ((name, row.tobytes()) for name, row in zip(names[start : start + COMMIT], rows, strict=True)),
        )
        connection.execute("COMMIT")


def _open(folder: Path) -> tuple[float, float, float]:
    """Measure the seconds to open and to search for the first time, and peak megabytes."""
    query = synthetic(1, seed=1)[0][0]
    started = time.perf_counter()
    with Store.open(folder) as gallery:
        opened = time.perf_counter()
        search_faces(gallery, query)
        searched = time.perf_counter()
    status = Path("/proc/self/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return opened - started, searched - opened, int(peak.split()[1]) * 1024 / 1e6
