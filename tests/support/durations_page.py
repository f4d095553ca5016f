"""Write docs/test-durations.md: `python -m support.durations_page FILE PAGE`, FILE from `pytest --durations-file`."""

import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

SLOWEST = 50


def page(durations: dict[str, Any]) -> str:
    """Format what `support.durations` recorded as a Markdown page."""
    tests, fixtures = durations["tests"], durations["fixtures"]
    per_worker: dict[str, float] = defaultdict(float)
    for test in tests.values():
        per_worker[test["worker"]] += sum(value for key, value in test.items() if key != "worker")
    calls = {name: test.get("call", 0.0) for name, test in tests.items()}
    set_up: dict[tuple[str, str], list[float]] = defaultdict(list)
    for fixture in fixtures:
        set_up[fixture["name"], fixture["scope"]].append(fixture["seconds"])
    by_folder: dict[str, list[float]] = defaultdict(list)
    for name, test in tests.items():
        folder = "/".join(name.partition("::")[0].split("/")[:2])
        by_folder[folder].append(sum(value for key, value in test.items() if key != "worker"))

    lines = [
        "# Durations of the tests",
        "",
        "Made by `make test-durations`, which runs every test and writes this page. Seconds are those of one machine"
        f" with {os.cpu_count()} cores: compare rows of this page with each other, not with another machine.",
        f'This one is of the tests that `-m "{durations["marks"]}"` chooses.',
        "",
        "| | |",
        "|---|---|",
        f"| tests | {len(tests):,} |",
        f"| the whole run | {durations['whole_run_seconds']:.0f} s |",
        f"| collection, in each worker | {', '.join(f'{value:.0f} s' for value in durations['collection_seconds'])} |",
        f"| tests and fixtures, by worker | {', '.join(f'{value:.0f} s' for value in per_worker.values())} |",
        "",
        "## By package",
        "",
        "| tests in | tests | seconds |",
        "|---|---|---|",
        *(
            f"| {folder} | {len(seconds):,} | {sum(seconds):.1f} |"
            for folder, seconds in sorted(by_folder.items(), key=lambda item: -sum(item[1]))
        ),
        "",
        f"## The {SLOWEST} slowest tests",
        "",
        "Without their fixtures.",
        "",
        "| test | seconds |",
        "|---|---|",
        *(f"| `{_short(name)}` | {seconds:.2f} |" for name, seconds in _largest(calls)),
        "",
        f"## The {SLOWEST} slowest fixtures",
        "",
        "All times that each was set up, added. What a fixture needs of another counts there.",
        "",
        "| fixture | scope | times | seconds |",
        "|---|---|---|---|",
        *(
            f"| `{_short(name)}` | {scope} | {len(set_up[name, scope])} | {seconds:.2f} |"
            for (name, scope), seconds in _largest({key: sum(values) for key, values in set_up.items()})
        ),
        "",
    ]
    return "\n".join(lines)


def _largest(seconds: dict[Any, float]) -> list[tuple[Any, float]]:
    return sorted(seconds.items(), key=lambda item: -item[1])[:SLOWEST]


def _short(name: str) -> str:
    return name.removeprefix("tests/").replace("|", "/")


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(page(json.loads(source.read_text(encoding="utf-8"))), encoding="utf-8")
