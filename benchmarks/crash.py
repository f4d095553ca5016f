"""Kills a process at work on a gallery, at a moment drawn evenly from the work's length, and looks at what is left.

    crash.py [--kills 200] [--seed 0]

Each time the gallery must open, be whole, hold every transaction that was acknowledged, be one of those that the work
goes through when it is left alone, and come to the same end when the work is begun again. The tests do 20 of these.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from collection.crash_scenarios import WALKS, draw_photos, killed, rehearse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="spread evenly over the works")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    print("| work | s, left alone | transactions | kills | inside a transaction | after the end | gallery wrong |")
    print("|---|---|---|---|---|---|---|")
    bad: list[str] = []
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as root:
        photos = Path(root) / "photos"
        draw_photos(photos)
        for place, walk in enumerate(WALKS):
            start, scratch = Path(root) / walk, Path(root) / "scratch"
            alone = rehearse(walk, start, photos, scratch)
            count = (given.kills + place) // len(WALKS)
            kills = [killed(walk, alone, start, photos, scratch, rng.uniform(0, alone.seconds)) for _ in range(count)]
            inside, late = sum(kill.inside for kill in kills), sum(kill.too_late for kill in kills)
            wrong = [kill.wrong for kill in kills if kill.wrong]
            bad += [f"{walk}: {'; '.join(each)}" for each in wrong]
            figures = f"{len(alone.contents) - 1} | {count} | {inside} | {late} | {len(wrong)}"
            print(f"| {walk} | {alone.seconds:.2f} | {figures} |", flush=True)
    print(f"\n{time.perf_counter() - started:.0f} s in all")
    sys.exit("\n".join(bad) or None)


if __name__ == "__main__":
    main()
