"""Tests of the size comparison: folds of cats, their pooled metrics, training settings of each step."""

from pathlib import Path

import numpy as np
import pytest
from papers import ladder
from papers.bench import Bench

from familiar.core.vectors import normalize
from familiar.training.recipe import Recipe


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    for number in range(12):
        (tmp_path / "photos" / ladder.CATS / f"cat {number:02d}").mkdir(parents=True)
    (tmp_path / "photos" / ladder.CATS / "SOURCE.md").write_text("no cat")
    return Bench(tmp_path / "photos", tmp_path / "runs", tmp_path / "pictures")


def test_each_cat_is_held_out_once(bench: Bench):
    folds = [ladder.cats_of(bench.photos / ladder.CATS, fold) for fold in range(ladder.FOLDS)]
    assert sorted(cat for fold in folds for cat in fold) == [f"cat {number:02d}" for number in range(12)]
    assert [len(fold) for fold in folds] == [3, 3, 2, 2, 2]


@pytest.mark.parametrize("kind", ladder.NAMES)
def test_training_settings_match_each_ladder_step(bench: Bench, kind: str):
    for training in (ladder.people(bench, kind), ladder.pets(bench, kind, 1)):
        recipe = Recipe(name="x").with_settings(training.settings)
        assert recipe.model.name == ("nano_mobile" if kind == "nano" else "mobilenetv3_small_100")
        assert recipe.quantize.aware == (kind == "aware")
        teacher = str(bench.run(training).path).replace(kind, "teacher")
        assert recipe.distill.teacher == ((f"{teacher}/model.onnx",) if kind == "nano" else ())
        assert (recipe.model.initial_weights == teacher) == (kind == "aware")
    assert recipe.split.validate == ("cat 01", "cat 06", "cat 11"), "of its own fold"


@pytest.mark.slow
def test_pooled_figures_ignore_pairs_across_folds():
    generator = np.random.default_rng(0)
    folds = []
    for fold in range(3):
        labels = np.repeat([2 * fold, 2 * fold + 1], 4)
        centers = generator.normal(size=(6, 8))
        embeddings = normalize((centers[labels] + generator.normal(size=(8, 8))).astype(np.float32))
        folds.append((embeddings, labels))
    pooled = ladder.pooled([ladder.score_fold(*fold) for fold in folds])
    same, different, first = [], [], []
    for embeddings, labels in folds:
        scores = embeddings @ embeddings.T
        for row in range(8):
            others = [column for column in range(8) if column != row]
            first.append(labels[max(others, key=lambda column: scores[row, column])] == labels[row])
            for column in range(row):
                (same if labels[row] == labels[column] else different).append(scores[row, column])
    assert len(same) == 36
    assert len(different) == 48
    auc = np.mean([s > d for s in same for d in different])
    assert pooled["verification"].figures["auc"].value == pytest.approx(auc, abs=1e-6)
    accuracy = max(
        (np.mean(np.array(same) >= threshold) + np.mean(np.array(different) < threshold)) / 2
        for threshold in same + different
    )
    assert pooled["verification"].figures["best_accuracy"].value == pytest.approx(accuracy, abs=1e-6)
    assert pooled["retrieval"].figures["recall_at_1"].value == pytest.approx(np.mean(first))
    replicates = pooled["verification"].replicates
    assert all(len(values) == len(replicates["auc"]) for values in replicates.values())
    assert np.ptp(replicates["auc"]) > 0
