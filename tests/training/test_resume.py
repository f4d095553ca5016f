"""Runs that are killed (SIGKILL, as by a power cut) and resumed repeatedly end like uninterrupted runs.

Run as a script, this file is the process from which each attempt is forked, so that torch is imported only once.
"""

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from familiar.core.errors import BadRecipe
from familiar.datasets.folders import DataSpec
from familiar.datasets.shards.packing import pack
from familiar.training import loop
from familiar.training.checkpoint import load_state
from familiar.training.fitting import fit
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder
from support.tiers import small_and_exhaustive
from support.tiny_run import TINY, history

pytestmark = pytest.mark.slow

# Dropout and augmentation are on; the margin still increases in the interrupted epochs.
RECIPE = TINY.with_settings(["budget.epochs=4", "loss.margin_rad=0 to 0.2 over 0.75"])
RECIPES = {
    "shuffled": RECIPE,
    "identities": RECIPE.with_settings(["sampler.name=identities", "sampler.identities=4", "sampler.photos=3"]),
}
KILLED = -signal.SIGKILL


@dataclass
class Attempts:
    """The process that attempts are forked from."""

    process: "subprocess.Popen[str]"

    def begin(self, recipe: Recipe, data: DataSpec, run: RunFolder, die_at: int = 0) -> int:
        """Start an attempt and return its process id.

        Args:
            recipe, data, run: of the training.
            die_at: the step of writing files at which the attempt is killed, counted from 1; 0 for never.
        """
        resume = run.recipe_json.exists()
        request = [recipe.to_json(), data.sources[0], str(run.path), resume, die_at]
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def end(self) -> int:
        """Wait for the attempt; return its exit code, or minus the signal."""
        return os.waitstatus_to_exitcode(self._answer())

    def run_to_end(self, recipe: Recipe, data: DataSpec, run: RunFolder, die_at: int = 0) -> int:
        self.begin(recipe, data, run, die_at)
        return self.end()

    def _answer(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def attempts() -> Iterator[Attempts]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        attempts = Attempts(process)
        assert attempts.end() == 0, "the process has started"
        yield attempts


@dataclass
class Unbroken:
    run: RunFolder
    seconds: float


@pytest.fixture(scope="module", params=small_and_exhaustive(*RECIPES))
def unbroken(request: pytest.FixtureRequest, attempts: Attempts, cats: DataSpec, tmp_path_factory: Any) -> Unbroken:
    run = RunFolder(tmp_path_factory.mktemp("unbroken"))
    started = time.perf_counter()
    assert attempts.run_to_end(RECIPES[request.param], cats, run) == 0
    return Unbroken(run, time.perf_counter() - started)


def leaves(state: Any) -> Iterator[tuple[str, Any]]:
    """Yield every value of nested containers with its path."""
    if isinstance(state, dict | list | tuple):
        for key, value in state.items() if isinstance(state, dict) else enumerate(state):
            yield from ((f"{key}.{rest}", leaf) for rest, leaf in leaves(value))
    else:
        yield "", state


def assert_same_run(run: RunFolder, unbroken: RunFolder) -> None:
    for name in ("last", "best", "embedder", "recipe_json", "split_json", "data_json"):
        assert getattr(run, name).read_bytes() == getattr(unbroken, name).read_bytes(), name
    assert history(run) == history(unbroken)
    assert run.steps_csv.read_bytes() == unbroken.steps_csv.read_bytes()
    assert len(history(run)) == RECIPE.budget.epochs
    actual, expected = (dict(leaves(load_state(folder.state))) for folder in (run, unbroken))
    assert actual.keys() == expected.keys()
    assert sum(isinstance(value, torch.Tensor) for value in actual.values()) > 500
    for name, value in actual.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, expected[name]), name
        elif not name.startswith("records."):
            assert value == expected[name], name


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [0, 1])
def test_run_killed_at_random_times_resumes_identically(
    attempts: Attempts, unbroken: Unbroken, cats: DataSpec, tmp_path: Path, seed: int
) -> None:
    run, recipe = RunFolder(tmp_path / "run"), unbroken.run.recipe()
    codes = []
    for share in sorted(np.random.default_rng(seed).uniform(0.05, 0.8, 5)):
        process = attempts.begin(recipe, cats, run)
        time.sleep(share * unbroken.seconds)
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            os.kill(process, signal.SIGKILL)
        codes.append(attempts.end())
    assert {*codes} <= {KILLED, 0}
    assert codes.count(KILLED) > 1
    assert attempts.run_to_end(recipe, cats, run) == 0
    assert_same_run(run, unbroken.run)


# Before or after a file is renamed into place: split.json (no run yet), twice recipe.json; then, resumed, steps.csv, an
# epoch's history and last; before its steps are flushed; its state (twice); then best, history, last, state of a
# validated one.
STEPS = (2, 8, 9, 2, 5, 8, 10, 12, 13, 5, 8, 11, 16)
WHOLE_EPOCHS = (0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2)


@pytest.mark.parametrize(
    ("steps", "whole_epochs", "more"),
    small_and_exhaustive(((8, 9, 13, 16), (0, 0, 1, 2), 0), (STEPS, WHOLE_EPOCHS, 20)),
)
def test_run_killed_while_writing_resumes_identically(
    attempts: Attempts,
    unbroken: Unbroken,
    cats: DataSpec,
    tmp_path: Path,
    steps: tuple[int, ...],
    whole_epochs: tuple[int, ...],
    more: int,
) -> None:
    """Kills at given steps, then up to `more` times at random steps."""
    run, recipe = RunFolder(tmp_path / "run"), unbroken.run.recipe()
    for step, epochs in zip(steps, whole_epochs, strict=True):
        assert attempts.run_to_end(recipe, cats, run, die_at=step) == KILLED
        assert (len(load_state(run.state)["records"]) if run.state.exists() else 0) == epochs
    generator = np.random.default_rng(0)
    for _ in range(more):
        if attempts.run_to_end(recipe, cats, run, die_at=int(generator.integers(7, 21))) == 0:
            break
    else:
        assert attempts.run_to_end(recipe, cats, run) == 0
    assert_same_run(run, unbroken.run)


@pytest.mark.exhaustive
@pytest.mark.parametrize("die_at", small_and_exhaustive(5, 4, 6))
def test_run_killed_while_writing_embedder_restores_it(
    attempts: Attempts, unbroken: Unbroken, cats: DataSpec, die_at: int
) -> None:
    """Resuming a finished run only writes the steps and the embedder again."""
    recipe = unbroken.run.recipe()
    before = unbroken.run.embedder.read_bytes()
    assert attempts.run_to_end(recipe, cats, unbroken.run, die_at=die_at) == KILLED
    assert unbroken.run.embedder.read_bytes() == before
    unbroken.run.embedder.unlink()
    assert attempts.run_to_end(recipe, cats, unbroken.run) == 0
    assert unbroken.run.embedder.read_bytes() == before


class Interrupted(Exception):
    """Ends a training in this process."""


@pytest.mark.parametrize("kind", small_and_exhaustive("shards", "shuffled", "identities"))
def test_run_interrupted_within_an_epoch_continues_from_its_last_saved_step(
    kind: str, cats: DataSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)
    # Small batches, so that an epoch has several.
    recipe, data = RECIPES.get(kind, RECIPE).with_settings(["sampler.batch_size=4", "sampler.identities=2"]), cats
    if kind == "shards":
        pack(cats.read(), tmp_path / "shards", shard_bytes=100_000)
        recipe, data = recipe.with_settings(["sampler.shard_buffer=10"]), DataSpec((str(tmp_path / "shards"),))
    unbroken, run = RunFolder(tmp_path / "unbroken"), RunFolder(tmp_path / "run")
    fit(recipe, data, unbroken.path)
    all_steps = unbroken.steps_csv.read_text().splitlines()[1:]
    steps_per_epoch = len(all_steps) // recipe.budget.epochs
    assert steps_per_epoch > 3
    done: list[int] = []

    def interrupt(after: int) -> Any:
        def on_step(progress: Any) -> None:
            done.append(progress.record.step)
            if progress.record.step == after:
                raise Interrupted

        return on_step

    # In the first epoch; at its end, when the step before was saved; in the next, twice.
    for after in (3, steps_per_epoch, steps_per_epoch + 2, steps_per_epoch + 3):
        with pytest.raises(Interrupted):
            fit(
                recipe,
                data,
                run.path,
                resume=run.recipe_json.exists(),
                save_every_steps=2,
                on_step=interrupt(after),
            )
    fit(recipe, data, run.path, resume=True, save_every_steps=2, on_step=interrupt(0))
    assert len(done) <= len(all_steps) + 2 * 4  # after an interruption at most two steps were repeated
    assert_same_run(run, unbroken)


def test_run_that_ends_by_time_within_an_epoch_continues_from_its_last_step(
    cats: DataSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)
    recipe = RECIPE.with_settings(["sampler.batch_size=4", "budget.seconds=1000", "validation.every_epochs=1"])
    unbroken, run = RunFolder(tmp_path / "unbroken"), RunFolder(tmp_path / "run")
    fit(recipe, cats, unbroken.path)
    clock, steps = time.perf_counter, []
    skipped_seconds = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + skipped_seconds)

    def spend_time(progress: Any) -> None:
        nonlocal skipped_seconds
        steps.append(progress)
        skipped_seconds += 2000 if progress.record.epoch == 2 and progress.step == 3 else 0

    result = fit(recipe, cats, run.path, on_step=spend_time)
    assert (result.stopped, result.epochs) == ("time", 2)
    assert (steps[-1].record.epoch, steps[-1].step) == (2, 3)
    assert steps[-1].steps > 3
    assert history(run)[-1]["validation_accuracy"]
    assert run.embedder.exists()
    assert fit(recipe, cats, run.path, resume=True).stopped == "finished"
    assert run.last.read_bytes() == unbroken.last.read_bytes()
    assert run.steps_csv.read_bytes() == unbroken.steps_csv.read_bytes()
    assert history(run) == history(unbroken)


def test_mined_triplets_are_not_saved_within_an_epoch(cats: DataSpec, tmp_path: Path) -> None:
    recipe = RECIPE.with_settings(["loss.name=semi_hard", "mining.mode=offline", "mining.every_steps=2"])
    with pytest.raises(BadRecipe, match=r"mining\.mode=offline: .* leave out --save-every-steps"):
        fit(recipe, cats, tmp_path / "run", save_every_steps=2)


# Code of the process that attempts are forked from.


def die_while_writing(die_at: int) -> None:
    """Kill this process at a step of writing files: before the flush of a file, before a rename, or after it."""
    steps, fsync, replace = 0, os.fsync, Path.replace

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def dying_fsync(file: int) -> None:
        if stat.S_ISREG(os.fstat(file).st_mode):
            step()
        fsync(file)

    def dying_replace(path: Path, target: Path) -> Path:
        step()
        result = replace(path, target)
        step()
        return result

    os.fsync, Path.replace = dying_fsync, dying_replace


def attempt(recipe: str, data: str, run: str, resume: bool, die_at: int) -> None:
    die_while_writing(die_at)
    loop.draw_curves = lambda *_: None  # drawing takes longer than training
    fit(Recipe.from_json(recipe), DataSpec((data,)), Path(run), resume=resume)


def serve() -> None:
    """Fork for each line; print the process id, and the status when it has ended."""
    print(0, flush=True)  # noqa: T201
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                attempt(*json.loads(line))
                code = 0
            finally:
                os._exit(code)
        print(child, flush=True)  # noqa: T201
        print(os.waitpid(child, 0)[1], flush=True)  # noqa: T201


if __name__ == "__main__":
    serve()
