"""Trainings and evaluations by the command line, as a user would run them; what is done already is not done again."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from familiar.core.machine import available_cores
from familiar.evaluation.results import read_results
from familiar.training.run import RunFolder

FAILED = "failed.txt"  # in a run that ended with an error: why, so that it is not tried again


@dataclass(frozen=True)
class Training:
    """One `familiar train`: `name` is its folder below RUNS, `data` are sets of PHOTOS or drawn ones."""

    name: str
    recipe: str
    data: tuple[str, ...]
    settings: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judged:
    """What a model is asked: `label` is the folder of its results in the run."""

    label: str
    data: tuple[str, ...]
    options: tuple[str, ...] = ()


@dataclass
class Bench:
    """Where photos and runs are, and how many trainings run side by side, sharing the cores."""

    photos: Path
    runs: Path
    pictures: Path
    jobs: int = 1
    asked: list[Training] = field(default_factory=list)  # whatever was to be trained, in this call or before
    _printing: threading.Lock = field(default_factory=threading.Lock)

    def train(self, trainings: Iterable[Training], judged: Sequence[Judged] = ()) -> None:
        """Train and judge each, `jobs` at a time. RuntimeError where the command itself is wrong."""
        trainings = list(trainings)
        self.asked += trainings
        self.each(trainings, lambda training: self._train_and_judge(training, judged))

    def each(self, work: Iterable[Any], do: Callable[[Any], None]) -> None:
        """`do` for each piece of work, `jobs` at a time; the first error stops what has not begun."""
        with ThreadPoolExecutor(self.jobs) as pool:
            futures = [pool.submit(do, one) for one in work]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def run(self, training: Training) -> RunFolder:
        return RunFolder(self.runs / training.name)

    def failure(self, training: Training) -> str | None:
        """Why a training ended early, such as embeddings that collapsed."""
        reason = self.runs / training.name / FAILED
        return reason.read_text().strip() if reason.exists() else None

    def results(self, training: Training, label: str) -> dict[str, Any]:
        return read_results(self.runs / training.name / label / "eval_results.json")

    def judge(self, model: Path, judged: Judged, output: Path) -> None:
        """`familiar evaluate`, unless its results are there."""
        if (output / "eval_results.json").exists():
            return
        arguments = ["evaluate", model, *self._sources(judged.data), *self._placed(judged.options)]
        self.familiar(*arguments, "--output", output)

    def familiar(self, *arguments: object) -> None:
        """One command, on its share of the cores. CalledProcessError, with what it said, where it fails."""
        threads = str(max(1, available_cores() // self.jobs))
        command = [sys.executable, "-m", "familiar", *map(str, arguments)]
        began = time.perf_counter()
        done = subprocess.run(
            command,
            env=os.environ | {"OMP_NUM_THREADS": threads},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        with self._printing:
            said = done.stdout.strip().splitlines()[-1:] or [""]
            print(
                f"{time.perf_counter() - began:6.0f} s  {Path(str(arguments[-1]))}: {said[0][:150]}",
                flush=True,
            )
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, command, done.stdout)

    def _train_and_judge(self, training: Training, judged: Sequence[Judged]) -> None:
        run = self.run(training)
        if self.failure(training) is None and not run.bundle.exists():
            self._train(training, run)
        if run.bundle.exists():
            for one in judged:
                self.judge(run.bundle, one, run.path / one.label)

    def _train(self, training: Training, run: RunFolder) -> None:
        arguments = ["train", *self._sources(training.data), "--recipe", training.recipe]
        for setting in training.settings:
            arguments += ["--set", setting.replace("PHOTOS", str(self.photos))]
        arguments += self._placed(training.options)
        if run.recipe_json.exists():
            arguments.append("--resume")
        try:
            self.familiar(*arguments, "--output", run.path)
        except subprocess.CalledProcessError as error:
            if error.returncode != 1 or not run.recipe_json.exists():
                raise RuntimeError(error.stdout) from error
            (run.path / FAILED).write_text(error.stdout.strip().splitlines()[-1] + "\n")

    def _sources(self, data: Iterable[str]) -> list[str]:
        return [self._source(source) for source in data]

    def _source(self, source: str) -> str:
        if source.startswith("synthetic:"):
            return source
        if source.startswith("mnist"):
            return f"mnist:{self.photos / source}"  # mnist:PHOTOS/mnist:test
        return str(self.photos / source)

    def _placed(self, options: Iterable[str]) -> list[str]:
        return [option.replace("PHOTOS", str(self.photos)) for option in options]
