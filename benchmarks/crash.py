"""Kill processes that change a gallery, at uniformly random times, and check the gallery afterwards.

    crash.py [--kills 200] [--seed 0]

After each kill the gallery must open, be intact, contain every acknowledged transaction, equal one of the states of the
uninterrupted task, and reach the same final state when the task is repeated. The tests do 20 kills.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from collection.crash_runs import run_and_kill, run_uninterrupted
from collection.crash_scenarios import SCENARIOS, draw_photos


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="total number, divided evenly among the tasks")
    parser.add_argument("--seed", type=int, default=0, help="of the random times")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    print(
        "| task | s, uninterrupted | transactions | kills | inside a transaction | after the end | faulty galleries |"
    )
    print("|---|---|---|---|---|---|---|")
    bad: list[str] = []
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as root:
        photos = Path(root) / "photos"
        draw_photos(photos)
        for index, task in enumerate(SCENARIOS):
            start, scratch = Path(root) / task, Path(root) / "scratch"
            reference = run_uninterrupted(task, start, photos, scratch)
            count = (arguments.kills + index) // len(SCENARIOS)
            kills = [
                run_and_kill(task, reference, start, photos, scratch, rng.uniform(0, reference.seconds))
                for _ in range(count)
            ]
            inside, late = sum(kill.in_transaction for kill in kills), sum(kill.after_end for kill in kills)
            problems = [kill.problems for kill in kills if kill.problems]
            bad += [f"{task}: {'; '.join(each)}" for each in problems]
            figures = f"{len(reference.contents) - 1} | {count} | {inside} | {late} | {len(problems)}"
            print(f"| {task} | {reference.seconds:.2f} | {figures} |", flush=True)
    print(f"\n{time.perf_counter() - started:.0f} s in total")
    sys.exit("\n".join(bad) or None)


if __name__ == "__main__":
    main()
