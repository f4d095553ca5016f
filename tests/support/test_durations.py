"""The durations that a run records, and the page made of them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.durations_page import page

MODULE = """
import time
import pytest

@pytest.fixture(scope="module")
def outer():
    time.sleep(0.2)

@pytest.fixture
def inner(outer):
    time.sleep(0.1)

@pytest.mark.parametrize("n", [1, 2])
def test_slow(inner, n):
    time.sleep(0.3)

def test_fast():
    pass
"""


@pytest.mark.exhaustive
@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_records_each_test_and_fixture_once(tmp_path: Path, workers: str):
    (tmp_path / "test_module.py").write_text(MODULE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "support.durations",
        "--durations-file",
        "durations.json",
    ]
    command += ["--numprocesses", workers, "--dist", "loadfile", str(tmp_path)]
    environment = {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    recorded = json.loads((tmp_path / "durations.json").read_text())
    calls = {name.rpartition("::")[2]: test["call"] for name, test in recorded["tests"].items()}
    assert calls.keys() == {"test_slow[1]", "test_slow[2]", "test_fast"}
    assert min(calls["test_slow[1]"], calls["test_slow[2]"]) >= 0.3
    set_up = [(fixture["name"].rpartition("::")[2], fixture["scope"]) for fixture in recorded["fixtures"]]
    assert set_up.count(("inner", "function")) == 2
    assert set_up.count(("outer", "module")) == 1
    outer, inner = (
        next(each["seconds"] for each in recorded["fixtures"] if each["name"].endswith(name))
        for name in ("outer", "inner")
    )
    assert outer >= 0.2 > inner >= 0.1, "a fixture's time is without that of the fixtures it asks for"
    assert len(recorded["collection_seconds"]) == max(1, int(workers))
    assert recorded["whole_run_seconds"] > sum(calls.values()) / 2


def test_page_lists_slowest_first_and_adds_up_fixtures():
    recorded = {
        "marks": "not exhaustive",
        "whole_run_seconds": 9.0,
        "collection_seconds": [2.0, 3.0],
        "tests": {
            "tests/a/test_a.py::test_short": {"worker": "gw0", "setup": 0.1, "call": 1.0, "teardown": 0.0},
            "tests/a/test_a.py::test_long": {"worker": "gw1", "setup": 0.1, "call": 5.0, "teardown": 0.0},
        },
        "fixtures": [
            {"name": "tests/a::cats", "scope": "session", "seconds": 1.5},
            {"name": "tests/a::cats", "scope": "session", "seconds": 1.0},
        ],
    }
    text = page(recorded)
    assert text.index("test_long` | 5.00") < text.index("test_short` | 1.00")
    assert "| `a::cats` | session | 2 | 2.50 |" in text
    assert "| tests/a | 2 | 6.2 |" in text
    assert "| collection, in each worker | 2 s, 3 s |" in text
