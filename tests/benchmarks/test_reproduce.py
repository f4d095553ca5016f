"""Tests of reproduce.py: finished work is not repeated, interrupted work resumes, tables are written."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import reproduce
from papers import figures
from papers.bench import FAILED, Bench, Evaluation, Training

from familiar.cli.main import TRAINING_FAILED
from familiar.evaluation.results.figures import Figure

TRAINING = Training("loss/0", "quickstart", ("cats", "synthetic:cats:4x2"), ("model.initial_weights=PHOTOS/w",))
EVALUATION = Evaluation("test", ("cats",), ("--pairs", "PHOTOS/pairs.txt"))


class Recorded(Bench):
    """A bench that records commands and writes the files that the real ones would."""

    def __init__(self, folder: Path, ends: int = 0) -> None:
        super().__init__(folder / "photos", folder / "runs", folder / "pictures", jobs=2)
        self.commands: list[list[str]] = []
        self.ends = ends

    def familiar(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        words = list(arguments)
        self.commands.append(words)
        output = Path(words[-1])
        output.mkdir(parents=True, exist_ok=True)
        made = {"train": ["recipe.json", "model.onnx"], "evaluate": ["eval_results.json"]}[words[0]]
        for name in made[:1] if self.ends else made:
            (output / name).touch()
        return subprocess.CompletedProcess(words, self.ends, "epoch 1\nfamiliar: all fell on one point\n")


def test_train_runs_one_command_with_resolved_photo_paths(tmp_path: Path) -> None:
    bench = Recorded(tmp_path)
    bench.jobs = 1
    bench.train([TRAINING], [EVALUATION])
    photos = tmp_path / "photos"
    trained, evaluated = bench.commands
    assert trained == [
        *("train", str(photos / "cats"), "synthetic:cats:4x2", "--recipe", "quickstart"),
        *("--set", f"model.initial_weights={photos}/w", "--output", str(tmp_path / "runs/loss/0")),
    ]
    run = tmp_path / "runs/loss/0"
    assert evaluated == [
        *("evaluate", str(run / "model.onnx"), str(photos / "cats"), "--pairs", str(photos / "pairs.txt")),
        *("--output", str(run / "test")),
    ]


def test_options_resolve_folders_of_photos_and_runs(tmp_path: Path) -> None:
    bench = Recorded(tmp_path)
    bench.train([Training("digits", "digits-softmax", (), options=("--identities", "RUNS/five.txt", "PHOTOS/pairs"))])
    assert bench.commands[0][3:6] == ["--identities", f"{tmp_path}/runs/five.txt", f"{tmp_path}/photos/pairs"]


@pytest.mark.parametrize(("source", "word"), [("mnist", "mnist:P/mnist"), ("mnist:test", "mnist:P/mnist:test")])
def test_mnist_source_resolves_to_photos_folder(tmp_path: Path, source: str, word: str) -> None:
    bench = Recorded(tmp_path)
    bench.train([Training("digits", "digits-softmax", (source,))])
    assert bench.commands[0][1] == word.replace("P/", f"{tmp_path}/photos/")


def test_finished_training_and_evaluation_are_not_repeated(tmp_path: Path) -> None:
    bench = Recorded(tmp_path)
    bench.train([TRAINING], [EVALUATION])
    bench.train([TRAINING], [EVALUATION])
    assert [words[0] for words in bench.commands] == ["train", "evaluate"]


def test_interrupted_training_is_resumed(tmp_path: Path) -> None:
    bench = Recorded(tmp_path)
    run = tmp_path / "runs/loss/0"
    run.mkdir(parents=True)
    (run / "recipe.json").touch()
    bench.train([TRAINING])
    assert "--resume" in bench.commands[0]


def test_failed_training_is_recorded_and_not_repeated(tmp_path: Path) -> None:
    bench = Recorded(tmp_path, ends=TRAINING_FAILED)
    for _ in range(2):
        bench.train([TRAINING], [EVALUATION], may_fail=True)
    assert len(bench.commands) == 1
    assert bench.failure(TRAINING) == "familiar: all fell on one point"
    assert (tmp_path / "runs/loss/0" / FAILED).exists()
    with pytest.raises(
        RuntimeError, match=r"loss/0: this section needs it, but the training ended early \(familiar: all fell"
    ):
        bench.train([TRAINING])


@pytest.mark.parametrize("ends", [1, 2, -9])
def test_other_exit_code_raises_and_training_is_resumed_later(tmp_path: Path, ends: int) -> None:
    bench = Recorded(tmp_path, ends=ends)
    with pytest.raises(RuntimeError, match=f"ended with {ends}:\nepoch 1\nfamiliar: all fell"):
        bench.train([TRAINING])
    assert bench.failure(TRAINING) is None
    bench.ends = 0
    bench.train([TRAINING], [EVALUATION])
    assert [words[0] for words in bench.commands] == ["train", "train", "evaluate"]
    assert "--resume" in bench.commands[1]


def test_rejects_run_or_evaluation_made_by_another_command(tmp_path: Path) -> None:
    bench = Recorded(tmp_path)
    bench.train([TRAINING], [EVALUATION])
    with pytest.raises(RuntimeError, match=r"loss/0: was made by another command \(differs in seed=1\)"):
        bench.train([replace(TRAINING, settings=(*TRAINING.settings, "seed=1"))])
    with pytest.raises(RuntimeError, match=r"test: was made by another command .*--tta"):
        bench.train([TRAINING], [replace(EVALUATION, options=(*EVALUATION.options, "--tta"))])


def test_moved_folder_is_not_trained_again(tmp_path: Path) -> None:
    Recorded(tmp_path / "before").train([TRAINING], [EVALUATION])
    (tmp_path / "before").rename(tmp_path / "after")
    moved = Recorded(tmp_path / "after")
    moved.train([TRAINING], [EVALUATION])
    assert not moved.commands


def test_commits_lists_first_commit_for_each_run(tmp_path: Path) -> None:
    bench = Recorded(tmp_path)
    for bench.commit, training in (("aaa", TRAINING), ("bbb", replace(TRAINING, name="loss/1"))):
        bench.train([training])
    bench.commit = "ccc"
    bench.train([TRAINING])
    assert bench.commits() == ["aaa", "bbb"]


def test_tables_are_written_into_the_folder_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Section:
        TITLE = "Digits"

        @staticmethod
        def measure(bench: Bench) -> str:
            return f"| {bench.photos.name} |"

    monkeypatch.setitem(reproduce.SECTIONS, "digits", Section)
    monkeypatch.setattr(sys, "argv", ["reproduce.py", str(tmp_path / "photos"), str(tmp_path), "--row", "digits"])
    reproduce.main()
    lines = (tmp_path / "tables" / "digits.md").read_text().splitlines()
    assert lines[:3] == ["# Digits", "", "| photos |"]
    assert "reproduce.py PHOTOS RUNS --row digits" in lines[-1]


def result(auc: float, replicates: list[float]) -> dict:
    figure = Figure(auc, auc - 0.02, auc + 0.01)
    return {"figures": {"verification.auc": figure}, "replicates": {"verification.auc": replicates}}


def test_figures_are_formatted_with_intervals() -> None:
    assert figures.number(0.9124) == ".912"
    assert figures.number(-0.05) == "-.050"
    assert figures.number(1.0) == "1.000"
    assert figures.number(None) == "-"
    assert figures.figure(result(0.9, [0.9]), "verification.auc") == ".900 [.880, .910]"
    assert figures.table(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_over_seeds_averages_each_bootstrap_draw() -> None:
    """The errors of two seeds cancel in every draw: their mean does not vary."""
    draws = np.linspace(-0.1, 0.1, 101)
    seeds = [result(0.8, (0.8 + draws).tolist()), result(0.6, (0.6 - draws).tolist())]
    assert figures.over_seeds(seeds, "verification.auc") == ".700 [.700, .700]"
    assert figures.spread(seeds, "verification.auc") == ".600 to .800"


def test_paired_difference_is_bold_if_interval_excludes_zero() -> None:
    draws = np.linspace(-0.1, 0.1, 101)
    worse, better = result(0.7, (0.7 + draws).tolist()), result(0.72, (0.72 + draws).tolist())
    assert figures.paired([worse], [better], "verification.auc") == "**+.020 [+.020, +.020]**"
    assert figures.paired([better], [worse], "verification.auc") == "**-.020 [-.020, -.020]**"
    noisy = result(0.72, (0.72 - draws).tolist())
    assert not figures.paired([worse], [noisy], "verification.auc").startswith("**")
