import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import silhouette_samples, silhouette_score

from familiar.core.errors import NothingToMeasure
from familiar.core.vectors import normalize
from familiar.metrics.roc import roc_counts, roc_counts_all_pairs
from familiar.metrics.separation import (
    DunnIndices,
    dunn,
    silhouette,
    silhouettes,
    similarity_distributions,
)


def clouds(identities=6, per=5, noise=0.5, dim=4, seed=0):
    """Draw identities of 1 to `per` photos (the first has `per`), shuffled; vectors of any length."""
    rng = np.random.default_rng(seed)
    sizes = np.append(per, rng.integers(1, per + 1, identities - 1))
    labels = rng.permutation(np.repeat(np.arange(identities) * 3 - 4, sizes))
    rows = rng.normal(size=(identities, dim))[np.unique(labels, return_inverse=True)[1]]
    return 5 + rows + noise * rng.normal(size=(len(labels), dim)), labels


def slow_dunn(rows, labels):
    inliers = {}
    for label in set(labels):
        members_of_identity = rows[labels == label]
        distances = np.linalg.norm(members_of_identity - members_of_identity.mean(axis=0), axis=1)
        inliers[label] = members_of_identity[distances <= np.percentile(distances, 95) + 1e-9]
    within = [
        np.linalg.norm(a - b)
        for members_of_identity in inliers.values()
        for a, b in itertools.combinations(members_of_identity, 2)
    ]
    pairs = list(itertools.combinations(inliers, 2))
    members = min(np.linalg.norm(a - b) for i, j in pairs for a in inliers[i] for b in inliers[j])
    centroids = min(np.linalg.norm(inliers[i].mean(axis=0) - inliers[j].mean(axis=0)) for i, j in pairs)
    dropped = len(rows) - sum(len(members_of_identity) for members_of_identity in inliers.values())
    return members / max(within), centroids / max(within), centroids / np.mean(within), dropped


def indices(result):
    return result.members, result.centroids, result.centroids_to_mean, result.photos_dropped


def test_dunn_indices_equal_worked_example():
    # On a line: 20 photos at 0 and one at 50, which is dropped; two at 3 and 4; one at 8.
    rows = np.array([*[0.0] * 20, 50.0, 3.0, 4.0, 8.0])[:, None]
    labels = np.array([*[1] * 21, 2, 2, 3])
    # Nearest photos 0 and 3, nearest centroids 0 and 3.5; the widest identity has 1, its mean pair 1 / 191.
    assert indices(dunn(rows, labels)) == pytest.approx((3.0, 3.5, 3.5 * 191, 1))


@given(
    seed=st.integers(0, 999),
    identities=st.integers(2, 7),
    per=st.integers(3, 25),
    block_rows=st.sampled_from([None, 1, 3, 1000]),
)
def test_matches_slow_reference_for_any_block_size(seed, identities, per, block_rows):
    rows, labels = clouds(identities, per, seed=seed)
    assert indices(dunn(rows, labels, block_rows)) == pytest.approx(slow_dunn(rows, labels), rel=1e-6)
    actual = silhouettes(rows, labels, block_rows)
    if len(set(labels)) < len(labels):
        assert actual == pytest.approx(silhouette_samples(rows, labels), abs=1e-6)


@given(seed=st.integers(0, 999), scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e200]), shift=st.floats(-50, 50))
def test_is_invariant_to_scale_shift_names_and_order(seed, scale, shift):
    rows, labels = clouds(seed=seed)
    order = np.random.default_rng(seed).permutation(len(rows))
    moved, renamed = (scale * (rows + shift))[order], (7 - 2 * labels)[order]
    assert indices(dunn(moved, renamed)) == pytest.approx(indices(dunn(rows, labels)), rel=1e-6)
    assert silhouettes(moved, renamed) == pytest.approx(silhouettes(rows, labels)[order], abs=1e-6)


def test_dunn_keeps_both_photos_in_pair_and_drops_one_in_three():
    rows = np.array([0.0, 1.0, 10.0, 11.0, 13.0])[:, None]
    assert indices(dunn(rows, np.array([0, 0, 1, 1, 1]))) == pytest.approx((9.0, 10.0, 10.0, 1))
    # Where a pair's photos are near each other, rounding sets one of them farther from their centroid.
    rng = np.random.default_rng(0)
    pairs = np.repeat(rng.normal(size=(500, 3)), 2, axis=0) + 1e-7 * rng.normal(size=(1000, 3))
    assert dunn(pairs, np.arange(1000) // 2).photos_dropped == 0


def test_silhouette_matches_scikit_learn_on_float32_unit_vectors():
    rows, labels = clouds(identities=40, per=6, dim=32, noise=1.0)
    unit = normalize((rows - 5).astype(np.float32))
    actual = silhouette(unit, labels)
    assert actual == pytest.approx(silhouette_score(unit.astype(np.float64), labels), abs=1e-6)
    assert -1 < actual < 1


def test_silhouette_equals_worked_example():
    rows, labels = np.array([0.0, 1.0, 4.0, 5.0, 20.0])[:, None], np.array([0, 0, 1, 1, 2])
    expected = [(4.5 - 1) / 4.5, (3.5 - 1) / 3.5, (3.5 - 1) / 3.5, (4.5 - 1) / 4.5, 0.0]
    assert silhouettes(rows, labels) == pytest.approx(expected)
    assert silhouette(rows, labels) == pytest.approx(np.mean(expected))


def test_point_identities_have_no_dunn_index_but_silhouette_one():
    rows = np.repeat(np.eye(3, dtype=np.float32), 4, axis=0)
    labels = np.arange(12) // 4
    assert dunn(rows, labels) == DunnIndices(None, None, None, 0)
    assert silhouettes(rows, labels).tolist() == [1.0] * 12


def test_coincident_identities_have_zero_separation():
    rows, labels = np.array([0.0, 0.0, 0.0, 0.0, 1.0, 2.0])[:, None], np.array([0, 0, 1, 1, 2, 2])
    assert silhouettes(rows, labels)[:4].tolist() == [0.0] * 4
    result = dunn(rows, labels)
    assert (result.members, result.centroids, result.centroids_to_mean) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("row", [[0.0, 0.0, 0.0], [0.6, 0.8, 0.0], [1e-200, 3e-200, 0.0], [1e300, 1e300, 1.0]])
def test_rejects_collapsed_embeddings(row):
    rows = np.tile(row, (7, 1))
    for figure in (dunn, silhouette):
        with pytest.raises(NothingToMeasure, match="the same point"):
            figure(rows, np.arange(7) // 2)


def test_rejects_embeddings_equal_within_float32_rounding():
    rng = np.random.default_rng(0)
    rows = normalize(1 + 1e-7 * rng.normal(size=(30, 8)).astype(np.float32))
    assert len(np.unique(rows, axis=0)) > 1
    with pytest.raises(NothingToMeasure, match="the same point"):
        silhouette(rows, np.arange(30) // 3)


def test_rejects_too_few_identities_or_photos_and_nonfinite_rows():
    rows, labels = clouds()
    for figure in (dunn, silhouette):
        with pytest.raises(NothingToMeasure, match="got 0"):
            figure(np.empty((0, 3)), np.empty(0, np.int64))
        with pytest.raises(NothingToMeasure, match="two identities or more, got 1"):
            figure(rows, np.zeros(len(rows), np.int64))
        with pytest.raises(NothingToMeasure, match="no identity has two photos"):
            figure(rows, np.arange(len(rows)))
        for bad in (np.nan, np.inf):
            broken = rows.copy()
            broken[3, 1] = bad
            with pytest.raises(ValueError, match="the first is row 3"):
                figure(broken, labels)


@given(
    same=st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=40),
    different=st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=40),
)
def test_listed_pair_distributions_match_numpy(same, different):
    same, different = np.array(same), np.array(different)
    result = similarity_distributions(roc_counts(same, different))
    for scores, actual in ((same, result.same), (different, result.different)):
        assert actual.mean == pytest.approx(scores.mean(), abs=1e-12)
        assert actual.std == pytest.approx(scores.std(), abs=1e-9)
        expected = np.percentile(scores, [5, 25, 50, 75, 95], method="inverted_cdf")
        assert (actual.minimum, actual.maximum) == (scores.min(), scores.max())
        assert list(actual.percentiles) == [5, 25, 50, 75, 95]
        assert list(actual.percentiles.values()) == pytest.approx(expected.tolist())


def test_all_pair_distributions_match_exact_within_grid_step():
    rows, labels = clouds(identities=40, per=6, dim=8, noise=1.0)
    unit = normalize((rows - 5).astype(np.float32))
    left, right = np.triu_indices(len(unit), 1)
    scores, same = (unit @ unit.T)[left, right], labels[left] == labels[right]
    exact = similarity_distributions(roc_counts(scores[same], scores[~same]))
    result = similarity_distributions(roc_counts_all_pairs(unit, labels))
    assert result.d_prime == pytest.approx(exact.d_prime, rel=1e-3)
    for blockwise, expected in ((result.same, exact.same), (result.different, exact.different)):
        assert blockwise.mean == pytest.approx(expected.mean, abs=1e-4)
        assert blockwise.std == pytest.approx(expected.std, abs=1e-4)
        assert blockwise.minimum == pytest.approx(expected.minimum, abs=1 / 1024)
        assert blockwise.maximum == pytest.approx(expected.maximum, abs=1 / 1024)
        assert list(blockwise.percentiles.values()) == pytest.approx(list(expected.percentiles.values()), abs=1 / 1024)


def test_d_prime_equals_closed_form_for_normal_scores():
    rng = np.random.default_rng(0)
    result = similarity_distributions(roc_counts(rng.normal(0.7, 0.1, 200_000), rng.normal(0.1, 0.2, 200_000)))
    assert result.d_prime == pytest.approx(0.6 / np.sqrt((0.01 + 0.04) / 2), rel=0.01)


def test_constant_similarities_have_no_d_prime():
    rows = np.tile(normalize(np.array([[0.3, -0.2, 0.7]], np.float32)), (9, 1))
    for counts in (roc_counts_all_pairs(rows, np.arange(9) // 3), roc_counts(np.ones(4), np.ones(5))):
        result = similarity_distributions(counts)
        assert result.d_prime is None
        assert (result.same.mean, result.different.mean) == pytest.approx((1.0, 1.0))
        assert (result.same.std, result.different.std) == pytest.approx((0.0, 0.0))
