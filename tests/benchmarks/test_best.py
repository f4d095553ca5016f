"""Tests that `papers.best` selects by the held-out identities only."""

from pathlib import Path

import pytest
from papers import best
from papers.bench import Bench, Training
from papers.shared import CATS, DEV_TRAIN, PEOPLE

from familiar.evaluation.results.figures import Figure

HELD_OUT_AUC = {
    "people-112": 0.90,
    "people-192": 0.93,
    "people-triplets": 0.86,
    "people-harder": 0.92,
    "pets-people-112": 0.82,
    "pets-people-flatten": 0.83,
    "pets-people-192": 0.84,
}


def bench_with_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **more: float) -> Bench:
    """Return a bench with held-out results; any other result raises."""
    bench = Bench(tmp_path / "photos", tmp_path / "runs", tmp_path / "pictures")
    aucs = HELD_OUT_AUC | {name.replace("_", "-"): auc for name, auc in more.items()}

    def results(training: Training, label: str) -> dict[str, dict[str, float]]:
        assert label == best.HELD_OUT
        return {"figures": {"verification.auc": Figure(aucs[training.name.removeprefix("best/")])}}

    monkeypatch.setattr(bench, "results", results)
    return bench


@pytest.mark.parametrize(("auc_flattened", "head"), [(0.91, "flatten"), (0.89, "gdconv")])
def test_final_people_combines_best_settings_and_better_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, auc_flattened: float, head: str
) -> None:
    final = best.final_people(bench_with_results(tmp_path, monkeypatch, people_flatten=auc_flattened))
    assert "input.size_px=192" in final.settings
    assert final.settings.index("split.test=0") > final.settings.index("split.test=0.1")  # the later counts
    assert ("model.head=flatten" in final.settings) == (head == "flatten")


def test_final_pets_uses_best_settings_and_held_out_species(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    final = best.final_pets(bench_with_results(tmp_path, monkeypatch))
    assert {"input.size_px=192", "model.head=flatten"} <= set(final.settings)
    assert final.data[-1:] == best.HELD_OUT_SPECIES.data


def test_no_training_uses_final_test_data() -> None:
    for training in (*best.PEOPLE_CANDIDATES.values(), *best.PETS_CANDIDATES.values()):
        assert not set(training.data) & {*CATS.data, *best.HELD_OUT_SPECIES.data}
        if set(PEOPLE) & set(training.data):
            assert training.options[: len(DEV_TRAIN)] == DEV_TRAIN
