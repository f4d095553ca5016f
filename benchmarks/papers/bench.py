"""Trainings and evaluations by the command line, as a user would run them; what is done already is not done again."""

import json
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

from familiar.cli.main import TRAINING_FAILED
from familiar.core.cpu import available_cores
from familiar.core.files import write_atomically
from familiar.evaluation.results import read_results
from familiar.training.run import RunFolder

ASKED = "asked.json"  # beside what a command left: the command, and the commit it was given at
FAILED = "failed.txt"  # in a run whose training failed: why, which is a result, so that it is not tried again
LAST_LINES = 20  # of what a failed command said


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
    commit: str = "?"
    asked: list[Training] = field(default_factory=list)  # whatever was to be trained, in this call or before
    _printing: threading.Lock = field(default_factory=threading.Lock)

    def train(self, trainings: Iterable[Training], judged: Sequence[Judged] = (), *, may_fail: bool = False) -> None:
        """Train and judge each, `jobs` at a time.

        RuntimeError where a command fails, or what is there was made by another command than is asked for now; unless
        `may_fail`, also where a training itself failed, which is a result, and is found again as `failure`.
        """
        trainings = list(trainings)
        self.asked += trainings
        with ThreadPoolExecutor(self.jobs) as pool:
            futures = [pool.submit(self._train_and_judge, training, judged) for training in trainings]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        if not may_fail:
            self.require(trainings)

    def run(self, training: Training) -> RunFolder:
        return RunFolder(self.runs / training.name)

    def failure(self, training: Training) -> str | None:
        """Why a training failed: a loss that is not finite, or embeddings that collapsed."""
        reason = self.runs / training.name / FAILED
        return reason.read_text().strip() if reason.exists() else None

    def require(self, trainings: Iterable[Training]) -> None:
        """RuntimeError where one of them failed, and the row says nothing without it."""
        for training in trainings:
            if reason := self.failure(training):
                raise RuntimeError(f"{self.runs / training.name}: this row needs it, and it ended early ({reason})")

    def results(self, training: Training, label: str) -> dict[str, Any]:
        return read_results(self.runs / training.name / label / "eval_results.json")

    def commits(self) -> list[str]:
        """At which the trainings were begun."""
        found = (self.run(training).path / ASKED for training in self.asked)
        return sorted({json.loads(path.read_text())["commit"] for path in found if path.exists()})

    def _train_and_judge(self, training: Training, judged: Sequence[Judged]) -> None:
        run = self.run(training)
        if self.failure(training) is None:
            self._train(training, run)
        if run.bundle.exists():
            for one in judged:
                self._judge(run.bundle, one, run.path / one.label)

    def _train(self, training: Training, run: RunFolder) -> None:
        arguments = ["train", *self._sources(training.data), "--recipe", training.recipe]
        for setting in self._placed(training.settings):
            arguments += ["--set", setting]
        arguments += self._placed(training.options)
        self._ask(run.path, arguments)
        if run.bundle.exists():
            return
        resume = ["--resume"] if run.recipe_json.exists() else []
        done = self.familiar(*arguments, *resume, "--output", str(run.path))
        if done.returncode == TRAINING_FAILED:
            (run.path / FAILED).write_text(done.stdout.strip().splitlines()[-1] + "\n")
        else:
            require_success(done)

    def _judge(self, model: Path, judged: Judged, output: Path) -> None:
        arguments = ["evaluate", str(model), *self._sources(judged.data), *self._placed(judged.options)]
        self._ask(output, arguments)
        if not (output / "eval_results.json").exists():
            require_success(self.familiar(*arguments, "--output", str(output)))

    def _ask(self, folder: Path, arguments: list[str]) -> None:
        """Write down what is asked for there, or see that it is what was asked before."""
        # Where photos and runs lie may change, and the same be asked.
        said = [word.replace(str(self.photos), "PHOTOS").replace(str(self.runs), "RUNS") for word in arguments]
        kept = folder / ASKED
        if not kept.exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(kept, json.dumps({"command": said, "commit": self.commit}, indent=1).encode())
        elif (before := json.loads(kept.read_text())["command"]) != said:
            changed = sorted(set(before) ^ set(said))
            raise RuntimeError(
                f"{folder}: was made by another command (differs in {', '.join(changed) or 'order'}); "
                "remove the folder to make it anew"
            )

    def familiar(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """One command, on its share of the cores."""
        threads = str(max(1, available_cores() // self.jobs))
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "familiar", *arguments],
            env=os.environ | {"OMP_NUM_THREADS": threads},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        with self._printing:
            said = done.stdout.strip().splitlines()[-1:] or [""]
            print(f"{time.perf_counter() - began:6.0f} s  {Path(arguments[-1])}: {said[0][:150]}", flush=True)
        return done

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


def kept(path: Path, work: Callable[[], dict[Any, Any]]) -> dict[str, Any]:
    """What stands in the file, or the work's result, which is then put there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(work()).encode())
    return json.loads(path.read_text())


def require_success(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode:
        said = "\n".join(done.stdout.strip().splitlines()[-LAST_LINES:])
        raise RuntimeError(f"{' '.join(done.args)}\nended with {done.returncode}:\n{said}")
