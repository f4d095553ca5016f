import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.errors import BadDataset
from familiar.datasets.folders import DataSpec
from familiar.embedding.embedder import Embedder
from familiar.embedding.species.classifier import HeldOutAccuracy
from familiar.training import species as species_module
from familiar.training.species import (
    fit_on_photos,
    fit_species_head,
    fit_temperature,
    measure_accuracy,
    softmax_regression,
)
from support.property_tests import expensive
from support.tiny_router import save_colored

NAMES = ("cat", "dog", "person")


def clouds(identity_count: int = 6, photos: int = 5, spread: float = 0.3, seed: int = 0):
    """Return (unit rows, species, identities) of three species, clustered around three of five axes."""
    generator = np.random.default_rng(seed)
    rows, species, identities = [], [], []
    for axis, name in enumerate(NAMES):
        for identity in range(identity_count):
            center = np.eye(5)[axis] + generator.normal(0, spread, 5)
            for _ in range(photos):
                row = center + generator.normal(0, spread, 5)
                rows.append(row / np.linalg.norm(row))
                species.append(name)
                identities.append(f"{name} {identity}")
    return np.array(rows, np.float32), species, identities


def fit(rows: np.ndarray, species: list[str], identities: list[str], **settings):
    names = settings.pop("names", tuple(dict.fromkeys(species)))
    return fit_species_head(rows, species, identities, names=names, space_id="s", **settings)


# Regression


@pytest.mark.parametrize("penalty", [1e-1, 1e-3, 1e-6])
def test_regression_equals_closed_form_for_two_points(penalty: float):
    """By symmetry the weights are w and -w, without bias, where penalty * w = sigmoid(-2 w)."""
    weights, bias = softmax_regression(np.array([[1.0], [-1.0]]), np.array([0, 1]), 2, penalty)
    w = weights[0, 0]
    np.testing.assert_allclose(weights, [[w], [-w]], atol=1e-9)
    np.testing.assert_allclose(bias, 0, atol=1e-9)
    assert w * penalty == pytest.approx(1 / (1 + math.exp(2 * w)), rel=1e-6)


@given(st.integers(2, 4), st.integers(1, 5), st.integers(0, 1000), st.sampled_from([1e-2, 1e-4]))
def test_regression_gradient_is_zero_at_solution(classes: int, width: int, seed: int, penalty: float):
    generator = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), generator.integers(0, classes, 20)])
    x = generator.normal(size=(len(labels), width))
    weights, bias = softmax_regression(x, labels, classes, penalty)
    counts = np.bincount(labels)
    slope = penalty * weights
    for row, label in zip(x, labels, strict=True):
        exponentials = np.exp(weights @ row + bias)
        for k in range(classes):
            slope[k] += (exponentials[k] / exponentials.sum() - (k == label)) * row / (classes * counts[label])
    np.testing.assert_allclose(slope, 0, atol=1e-8)
    assert bias.sum() == pytest.approx(0, abs=1e-9)


def test_regression_matches_scikit_learn():
    linear_model = pytest.importorskip("sklearn.linear_model")
    rows, species, _ = clouds()
    rows, species = rows[:70], species[:70]  # fewer persons
    labels = np.array([NAMES.index(name) for name in species])
    weights, bias = softmax_regression(rows.astype(np.float64), labels, 3, 1e-3)
    peer = linear_model.LogisticRegression(
        C=1 / (1e-3 * len(rows)), class_weight="balanced", tol=1e-10, max_iter=10_000
    ).fit(rows.astype(np.float64), labels)
    np.testing.assert_allclose(weights, peer.coef_, atol=1e-4)
    np.testing.assert_allclose(bias, peer.intercept_ - peer.intercept_.mean(), atol=1e-4)


def test_regression_weighs_species_equally():
    rows, species, _ = clouds()
    labels = np.array([NAMES.index(name) for name in species])
    x = rows.astype(np.float64)
    repeated = np.concatenate([np.arange(len(x)), *[np.flatnonzero(labels == 1)] * 9])
    once = softmax_regression(x, labels, 3)
    ten_times = softmax_regression(x[repeated], labels[repeated], 3)
    for expected, actual in zip(once, ten_times, strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_identical_rows_give_zero_weights():
    weights, bias = softmax_regression(np.ones((9, 2)), np.array([0] * 7 + [1] * 2), 2)
    np.testing.assert_allclose([*weights.ravel(), *bias], 0, atol=1e-9)


# Temperature


def test_temperature_equals_closed_form():
    """Two species, logits of one size, nine of ten right: sigmoid(2 c / T) is Platt's share of right ones."""
    c, n = 3.0, 10
    logits = np.array([[c, -c]] * 9 + [[-c, c]] + [[-c, c]] * 9 + [[c, -c]])
    share = (9 * (n + 1) + 1) / (10 * (n + 2))
    expected = 2 * c / math.log(share / (1 - share))
    assert fit_temperature(logits, np.array([0] * n + [1] * n)) == pytest.approx(expected, rel=1e-9)


def test_temperature_scales_with_logits():
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(300, 3)) * 2
    labels = np.array([generator.choice(3, p=np.exp(row) / np.exp(row).sum()) for row in logits])
    once = fit_temperature(logits, labels)
    assert once == pytest.approx(1.0, abs=0.25)
    assert fit_temperature(logits * 50, labels) == pytest.approx(once * 50)


def test_temperature_stays_finite():
    right, labels = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0, 1])
    assert 0 < fit_temperature(right, labels) < 10
    assert 100 < fit_temperature(-right, labels) < math.inf  # always wrong: no confidence
    assert 0 < fit_temperature(np.zeros((2, 2)), labels) < math.inf


# Held-out identities


def test_measure_equals_closed_form():
    probabilities = np.array([[0.95, 0.05], [0.6, 0.4], [0.02, 0.98], [0.9, 0.1], [0.3, 0.7]])
    held_out = measure_accuracy(probabilities, np.array([0, 0, 0, 0, 1]), 0.9)
    assert held_out == HeldOutAccuracy(accuracy=(3 / 4 + 1) / 2, confusion=((2, 1, 1), (0, 0, 1)))


def test_head_separates_clouds_and_reports_accuracy():
    head = fit(*clouds(identity_count=20))
    rows, species, _ = clouds(identity_count=20, seed=1)
    probabilities = head.probabilities(rows, "s")
    right = probabilities.argmax(axis=1) == [NAMES.index(name) for name in species]
    assert right.mean() > 0.85
    assert head.held_out.accuracy == pytest.approx(right.mean(), abs=0.1)
    assert head.training_counts == {name: {"identities": 20, "photos": 100} for name in NAMES}
    assert [sum(row) for row in head.held_out.confusion] == [100, 100, 100]
    assert probabilities.max(axis=1).mean() == pytest.approx(right.mean(), abs=0.1)


def test_folds_do_not_share_identities(monkeypatch: pytest.MonkeyPatch):
    rows, species, identities = clouds(identity_count=7, photos=3)
    identity_of = {row.tobytes(): identity for row, identity in zip(rows.astype(np.float64), identities, strict=True)}
    fitted: list[set[str]] = []
    plain = softmax_regression

    def spy(x: np.ndarray, labels: np.ndarray, classes: int, penalty: float):
        fitted.append({identity_of[row.tobytes()] for row in x})
        assert len(x) == 3 * len(fitted[-1])  # whole identities
        assert set(labels.tolist()) == {0, 1, 2}
        return plain(x, labels, classes, penalty)

    monkeypatch.setattr(species_module, "softmax_regression", spy)
    fit(rows, species, identities, folds=4)
    *folds, whole = fitted
    assert whole == set(identities)
    assert len(folds) == 4
    held_out = [whole - fold for fold in folds]
    assert set.union(*held_out) == whole
    assert sum(map(len, held_out)) == len(whole)


def test_held_out_accuracy_does_not_reward_memorization():
    """Identities in random directions: photos predict others of the same identity, but identities predict nothing."""
    generator = np.random.default_rng(0)
    centers = np.repeat(generator.normal(size=(40, 60)), 6, axis=0) + generator.normal(0, 0.1, (240, 60))
    rows = (centers / np.linalg.norm(centers, axis=1, keepdims=True)).astype(np.float32)
    identities = [str(row // 6) for row in range(240)]
    species = ["cat" if row // 6 % 2 else "dog" for row in range(240)]
    head = fit(rows, species, identities, names=("cat", "dog"))
    seen = head.probabilities(rows, "s").argmax(axis=1) == [("cat", "dog").index(name) for name in species]
    assert seen.mean() == 1.0
    assert head.held_out.accuracy < 0.75
    assert head.held_out.unsure_rate > 0.8


@pytest.mark.slow
@expensive()
@given(st.randoms())
def test_head_is_invariant_to_row_order(random):
    rows, species, identities = clouds(identity_count=3, photos=2)
    order = list(range(len(rows)))
    random.shuffle(order)
    first = fit(rows, species, identities, names=NAMES)
    second = fit(rows[order], [species[i] for i in order], [identities[i] for i in order], names=NAMES)
    np.testing.assert_allclose(first.weights, second.weights, atol=1e-6)
    assert first.held_out == second.held_out
    assert first.temperature == pytest.approx(second.temperature)


# Invalid input


def test_rejects_one_species():
    rows, species, identities = clouds()
    with pytest.raises(ValueError, match="two species"):
        fit(rows[:30], species[:30], identities[:30])
    with pytest.raises(BadDataset, match="dog: has photos of 0 identities"):
        fit(rows[:30], species[:30], identities[:30], names=("cat", "dog"))


def test_accepts_two_identities_per_species():
    rows, species, identities = clouds(identity_count=2, photos=3)
    assert [sum(row) for row in fit(rows, species, identities).held_out.confusion] == [6, 6, 6]


def test_rejects_species_with_one_identity():
    rows, species, identities = clouds()
    with pytest.raises(BadDataset, match="dog: has photos of 1 identities"):
        fit(rows[:31], species[:31], identities[:31])


@pytest.mark.parametrize("wrong", [np.nan, 0.0, 3.0])
def test_rejects_rows_that_are_not_unit_vectors(wrong: float):
    rows, species, identities = clouds()
    rows[7] = wrong
    with pytest.raises(ValueError, match="the first is row 7"):
        fit(rows, species, identities)


def test_rejects_inconsistent_labels():
    rows, species, identities = clouds()
    with pytest.raises(ValueError, match="two species"):
        fit(rows, species, ["Mia"] * len(rows))
    with pytest.raises(ValueError, match="person"):
        fit(rows, species, identities, names=("cat", "dog"))


def test_fits_photos_in_folders_with_equal_names(mean_color_bundle: Path, tmp_path: Path):
    generator = np.random.default_rng(0)
    color_of = {"cat": (200, 30, 30), "dog": (30, 200, 30)}
    for name, rgb in color_of.items():
        for photo in range(12):
            folder = tmp_path / name / "photos" / f"id {photo % 4}"
            folder.mkdir(parents=True, exist_ok=True)
            tint = tuple(int(value) for value in np.array(rgb) + generator.integers(-20, 20, 3))
            save_colored(folder / f"{photo}.png", tint, photo)  # type: ignore[arg-type]
    (tmp_path / "dog" / "photos" / "id 0" / "fake.png").write_text("no photo")
    tables = {name: DataSpec((str(tmp_path / name / "photos"),)).read() for name in color_of}
    done: list[int] = []
    head, skipped = fit_on_photos(
        Embedder(mean_color_bundle, threads=1), tables, min_probability=0.8, on_batch=done.append
    )
    assert head.names == ("cat", "dog")
    assert head.space_id == "mean-color"
    assert head.min_probability == 0.8
    assert head.training_counts == {name: {"identities": 4, "photos": 12} for name in color_of}
    assert head.held_out.accuracy == 1.0
    assert "fake.png" in str(skipped[0])
    assert done == [12, 25]
