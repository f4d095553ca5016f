import json
import subprocess
import sys
from dataclasses import asdict

import pytest

from familiar.core.errors import BadRecipe, BadRun
from familiar.datasets.folders import DataSpec
from familiar.datasets.split import Split
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path / "run")


@pytest.fixture
def started(run):
    run.path.mkdir()
    run.recipe_json.write_text(Recipe(name="x").to_json())
    run.split_json.write_text(Split(0, ("a/1",), ("a/2",), ()).to_json())
    return run


def record(run, spec):
    others = {"compatible": None, "distilled": None, "initial": None}
    stored = {"spec": asdict(spec), "contents": "c", **others, "train": {}, "validation": {}}
    run.data_json.write_text(json.dumps(stored))


def test_file_names_match_documentation(run):
    paths = [run.recipe_json, run.data_json, run.split_json, run.history_csv, run.steps_csv, run.curves_png]
    paths += [run.best, run.last, run.state, run.embedder, run.bundle]
    assert [path.name for path in paths] == [
        *("recipe.json", "data.json", "split.json", "history.csv", "steps.csv", "curves.png"),
        *("best.safetensors", "last.safetensors", "state.pt", "embedder.safetensors", "model.onnx"),
    ]
    assert {path.parent for path in paths} == {run.path}
    assert not run.path.exists()


@pytest.mark.parametrize(
    "spec",
    [
        DataSpec(("synthetic:cats:12x4",)),
        DataSpec(("photos/Käter", "more"), ("Tom", "Jerry"), 7, 3),
        DataSpec(("photos",), ()),
    ],
)
def test_reads_recorded_spec_recipe_and_split(started, spec):
    record(started, spec)
    assert started.data_spec() == spec
    assert started.recipe() == Recipe(name="x")
    assert started.split().validation == ("a/2",)


def test_rejects_folder_without_run(run):
    for read in (run.recipe, run.data, run.data_spec, run.split):
        with pytest.raises(BadRun, match="run"):
            read()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'"text"', b"\xff\xfe", b'{"spec": {}}'])
def test_rejects_damaged_records(started, content):
    for path, read in ((started.data_json, started.data_spec), (started.split_json, started.split)):
        path.write_bytes(content)
        with pytest.raises(BadRun, match=path.name):
            read()
    started.recipe_json.write_bytes(content)
    with pytest.raises((BadRun, BadRecipe)):
        started.recipe()


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        (None, "was made by a development version of familiar; train again in another folder"),
        ("familiar-run/2", "was made by a newer version of familiar (familiar-run/2); update familiar"),
    ],
)
def test_rejects_run_of_another_version(started, mark, message):
    stored = json.loads(started.recipe_json.read_text())
    assert stored.pop("format") == "familiar-run/1"
    started.recipe_json.write_text(json.dumps(stored if mark is None else {"format": mark, **stored}))
    with pytest.raises(BadRun) as error:
        started.recipe()
    assert str(error.value) == f"{started.recipe_json}: {message}"


def test_rejects_incomplete_record(started):
    record(started, DataSpec(("photos",)))
    whole = json.loads(started.data_json.read_text())
    for part in whole:
        started.data_json.write_text(json.dumps({key: whole[key] for key in whole if key != part}))
        with pytest.raises(BadRun, match=r"data\.json"):
            started.data()
    for spec in (
        {},
        {**whole["spec"], "sources": 3},
        {**whole["spec"], "max_photos": 0},
        {**whole["spec"], "more": 1},
    ):
        started.data_json.write_text(json.dumps({**whole, "spec": spec}))
        with pytest.raises(BadRun, match=r"data\.json"):
            started.data_spec()


# The lock

HOLD_LOCK = """
import sys, time
from pathlib import Path
from familiar.training.run import RunFolder

with RunFolder(Path(sys.argv[1])).lock():
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_lock_rejects_second_process_until_first_is_killed(run):
    holder = subprocess.Popen([sys.executable, "-c", HOLD_LOCK, run.path], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "locked\n"
    with pytest.raises(BadRun) as caught, run.lock():
        pytest.fail("locked twice")
    assert str(caught.value).startswith(f"{run.path}: another process is training in this folder")
    assert run.path.is_dir(), "the folder of the other process stays"
    holder.kill()
    holder.communicate()
    with run.lock():
        (run.path / "file").touch()
    assert [path.name for path in run.path.iterdir()] == ["file"]


def test_lock_rejects_second_lock_in_same_process(run):
    with run.lock():
        with pytest.raises(BadRun, match="another process is training in this folder"), run.lock():
            pytest.fail("locked twice")
        with pytest.raises(BadRun, match="another process"), run.lock():
            pytest.fail("the first refusal released the lock")
    with run.lock():
        pass


@pytest.mark.parametrize("written", [[], ["recipe.json"]])
def test_failure_removes_only_empty_folder(run, written):
    def fail():
        with run.lock():
            assert run.path.is_dir()
            for name in written:
                (run.path / name).touch()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [path.name for path in run.path.parent.rglob("*")] == (["run", *written] if written else [])


def test_rejects_file_as_run_folder(tmp_path):
    (tmp_path / "run").write_text("a file")
    for path in (tmp_path / "run", tmp_path / "run" / "below"):
        with pytest.raises(BadRun, match="cannot be used as a run's folder") as caught, RunFolder(path).lock():
            pytest.fail("locked")
        assert "\n" not in str(caught.value)
    assert (tmp_path / "run").read_text() == "a file"


@pytest.mark.exhaustive
def test_lock_is_exclusive_between_processes(run, tmp_path):
    """Releasing deletes the lock's file; no process may then hold a lock on the deleted file."""
    run.path.mkdir()
    (run.path / "file").touch()
    marker = tmp_path / "marker"
    processes = [
        subprocess.Popen([sys.executable, "-c", TAKE_TURNS, run.path, marker], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate(timeout=60)[0] for process in processes] == ["never together\n"] * 3


TAKE_TURNS = """
import os, sys, time
from pathlib import Path
from familiar.core.errors import BadRun
from familiar.training.run import RunFolder

run, marker = RunFolder(Path(sys.argv[1])), Path(sys.argv[2])
turns, ends = 0, time.monotonic() + 1.5
while time.monotonic() < ends:
    try:
        with run.lock():
            marker.touch(exist_ok=False)
            os.sched_yield()
            marker.unlink()
            turns += 1
    except BadRun:
        continue
assert turns
print("never together")
"""
