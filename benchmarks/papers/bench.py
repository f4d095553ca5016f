"""Run trainings and evaluations with the command line, as a user would; finished ones are not repeated."""

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
from familiar.evaluation.results import EvaluationResults, read_results
from familiar.training.run import RunFolder

REQUEST_FILE = "asked.json"  # next to a command's output: the command and the commit it was run at
FAILED = "failed.txt"  # the reason, in the folder of a failed training: a result, so it is not tried again
LAST_LINES = 20  # of a failed command's output


@dataclass(frozen=True)
class Training:
    """One `familiar train`: `name` is its folder in RUNS, `data` are folders of PHOTOS or synthetic sources."""

    name: str
    recipe: str
    data: tuple[str, ...]
    settings: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evaluation:
    """One `familiar evaluate`: `label` is the folder of its results in the run."""

    label: str
    data: tuple[str, ...]
    options: tuple[str, ...] = ()


@dataclass
class Bench:
    """Folders of photos, runs and pictures, and the number of trainings that run in parallel and share the cores."""

    photos: Path
    runs: Path
    pictures: Path
    jobs: int = 1
    commit: str = "?"
    requested: list[Training] = field(default_factory=list)  # all trainings requested, finished earlier or not
    _printing: threading.Lock = field(default_factory=threading.Lock)

    def train(
        self, trainings: Iterable[Training], evaluations: Sequence[Evaluation] = (), *, may_fail: bool = False
    ) -> None:
        """Train and evaluate, `jobs` trainings at a time.

        Args:
            trainings: what to train.
            evaluations: run for every model.
            may_fail: a training that fails by itself (non-finite loss, collapse) is a result, not an error; `failure`
                returns its reason.

        Raises:
            RuntimeError: if a command fails, or an existing output was made by a different command.
        """
        trainings = list(trainings)
        self.requested += trainings
        with ThreadPoolExecutor(self.jobs) as pool:
            futures = [pool.submit(self._train_and_evaluate, training, evaluations) for training in trainings]
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
        """Return why a training failed (non-finite loss or collapsed embeddings), or None."""
        reason = self.runs / training.name / FAILED
        return reason.read_text().strip() if reason.exists() else None

    def require(self, trainings: Iterable[Training]) -> None:
        """Raise RuntimeError if one of the trainings failed."""
        for training in trainings:
            if reason := self.failure(training):
                raise RuntimeError(
                    f"{self.runs / training.name}: this section needs it, but the training ended early ({reason})"
                )

    def results(self, training: Training, label: str) -> EvaluationResults:
        return read_results(self.runs / training.name / label / "eval_results.json")

    def commits(self) -> list[str]:
        """List the commits at which the trainings were started."""
        request_files = (self.run(training).path / REQUEST_FILE for training in self.requested)
        return sorted({json.loads(path.read_text())["commit"] for path in request_files if path.exists()})

    def _train_and_evaluate(self, training: Training, evaluations: Sequence[Evaluation]) -> None:
        run = self.run(training)
        if self.failure(training) is None:
            self._train(training, run)
        if run.bundle.exists():
            for evaluation in evaluations:
                self._evaluate(run.bundle, evaluation, run.path / evaluation.label)

    def _train(self, training: Training, run: RunFolder) -> None:
        arguments = ["train", *self._sources(training.data), "--recipe", training.recipe]
        for setting in self._with_paths(training.settings):
            arguments += ["--set", setting]
        arguments += self._with_paths(training.options)
        self._record_request(run.path, arguments)
        if run.bundle.exists():
            return
        resume = ["--resume"] if run.recipe_json.exists() else []
        # Trainings in parallel occupy the cores already: each loads its photos with its own threads, on a GPU too.
        workers = ["--workers", "0"] if self.jobs > 1 else []
        done = self.familiar(*arguments, *resume, *workers, "--output", str(run.path))
        if done.returncode == TRAINING_FAILED:
            (run.path / FAILED).write_text(done.stdout.strip().splitlines()[-1] + "\n")
        else:
            require_success(done)

    def _evaluate(self, model: Path, evaluation: Evaluation, output: Path) -> None:
        arguments = [
            "evaluate",
            str(model),
            *self._sources(evaluation.data),
            *self._with_paths(evaluation.options),
        ]
        self._record_request(output, arguments)
        if not (output / "eval_results.json").exists():
            require_success(self.familiar(*arguments, "--output", str(output)))

    def _record_request(self, folder: Path, arguments: list[str]) -> None:
        """Store the command in its output folder, or check that the stored one is the same."""
        # The folders of photos and runs may move without changing the command.
        command = [word.replace(str(self.photos), "PHOTOS").replace(str(self.runs), "RUNS") for word in arguments]
        request_file = folder / REQUEST_FILE
        if not request_file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(request_file, json.dumps({"command": command, "commit": self.commit}, indent=1).encode())
        elif (before := json.loads(request_file.read_text())["command"]) != command:
            changed = sorted(set(before) ^ set(command))
            raise RuntimeError(
                f"{folder}: was made by another command (differs in {', '.join(changed) or 'order'}); "
                "remove the folder to run it again"
            )

    def familiar(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one command with its share of the cores."""
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
            last_line = done.stdout.strip().splitlines()[-1:] or [""]
            print(f"{time.perf_counter() - began:6.0f} s  {Path(arguments[-1])}: {last_line[0][:150]}", flush=True)
        return done

    def _sources(self, data: Iterable[str]) -> list[str]:
        return [self._source(source) for source in data]

    def _source(self, source: str) -> str:
        if source.startswith("synthetic:"):
            return source
        if source.startswith("mnist"):
            return f"mnist:{self.photos / source}"  # mnist:PHOTOS/mnist:test
        return str(self.photos / source)

    def _with_paths(self, options: Iterable[str]) -> list[str]:
        return [option.replace("PHOTOS", str(self.photos)).replace("RUNS", str(self.runs)) for option in options]


def cached(path: Path, work: Callable[[], dict[Any, Any]]) -> dict[str, Any]:
    """Return the content of a JSON file, which is computed and written if it does not exist."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(work()).encode())
    return json.loads(path.read_text())


def require_success(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode:
        last_lines = "\n".join(done.stdout.strip().splitlines()[-LAST_LINES:])
        raise RuntimeError(f"{' '.join(done.args)}\nended with {done.returncode}:\n{last_lines}")
