import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score, normalized_mutual_info_score

from familiar.core.errors import NothingToMeasure
from familiar.core.vectors import normalize
from familiar.metrics.clustering import (
    PrecisionRecall,
    ami,
    ari,
    bcubed,
    contingency,
    kmeans_groups,
    nmi,
    pairwise,
    purity,
)

SCIKIT_LEARN = {
    nmi: normalized_mutual_info_score,
    ami: adjusted_mutual_info_score,
    ari: adjusted_rand_score,
}
partitions = st.integers(2, 30).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 6), min_size=n, max_size=n).map(np.array),
        st.lists(st.integers(-1, 6), min_size=n, max_size=n).map(np.array),
    )
)


def slow_bcubed(labels, groups):
    both = list(zip(labels, groups, strict=True))
    precision = np.mean([np.mean(labels[groups == group] == label) for label, group in both])
    recall = np.mean([np.mean(groups[labels == label] == group) for label, group in both])
    return precision, recall, 2 * precision * recall / (precision + recall)


def slow_pairwise(labels, groups, weights):
    """Return the total weights (correct, grouped, same) of pairs; `weights` by label."""
    right = grouped = same = 0
    for i, j in itertools.combinations(range(len(labels)), 2):
        is_same, single_cluster = labels[i] == labels[j], groups[i] == groups[j]
        weight = weights[labels[i]] * (1 if is_same else weights[labels[j]])
        right += weight * (is_same and single_cluster)
        grouped += weight * single_cluster
        same += weight * is_same
    return right, grouped, same


def clouds(identities=12, per=5, noise=0.1, dim=16, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(identities), per))
    rows = rng.normal(size=(identities, dim))[labels] + noise * rng.normal(size=(len(labels), dim))
    return normalize(rows.astype(np.float32)), labels


@given(partitions)
def test_bcubed_matches_slow_reference(partition):
    result = bcubed(*partition)
    assert (result.precision, result.recall, result.f) == pytest.approx(slow_bcubed(*partition), abs=1e-12)


@pytest.mark.slow
@given(partition=partitions, drawn=st.lists(st.integers(0, 3), min_size=7, max_size=7))
def test_weighted_pairwise_matches_slow_reference(partition, drawn):
    labels, groups = partition
    assume(any(drawn[label] for label in labels))
    right, grouped, same = slow_pairwise(labels, groups, drawn)
    weights = np.array(drawn, np.float64)[np.unique(labels)]
    if not same:
        with pytest.raises(NothingToMeasure, match="two photos"):
            contingency(labels, groups).pairwise(weights)
        return
    result = contingency(labels, groups).pairwise(weights)
    assert result.recall == pytest.approx(right / same)
    assert result.precision == (pytest.approx(right / grouped) if grouped else None)
    assert result.f == pytest.approx(2 * right / (grouped + same))


@given(partition=partitions, drawn=st.lists(st.integers(0, 3), min_size=7, max_size=7))
def test_weighted_bcubed_ignores_copies_with_same_identity(partition, drawn):
    labels, groups = partition
    assume(any(drawn[label] for label in labels))
    copies = [(label, copy, g) for label, g in zip(labels, groups, strict=True) for copy in range(drawn[label])]
    precisions, recalls = [], []
    for label, copy, group in copies:
        own_groups = [g for other, c, g in copies if (other, c) == (label, copy)]
        negative_groups = [g for other, _, g in copies if other != label]
        precisions.append(own_groups.count(group) / (own_groups.count(group) + negative_groups.count(group)))
        recalls.append(own_groups.count(group) / len(own_groups))
    result = contingency(labels, groups).bcubed(np.array(drawn, np.float64)[np.unique(labels)])
    assert result.precision == pytest.approx(np.mean(precisions))
    assert result.recall == pytest.approx(np.mean(recalls))


@pytest.mark.parametrize("weights", [[2.0, -1.0], [0.0, 0.0], [np.nan, 1.0]])
def test_rejects_invalid_weights(weights):
    table = contingency(np.array([0, 0, 1]), np.array([0, 0, 0]))
    for figure in (table.bcubed, table.pairwise):
        with pytest.raises(ValueError, match="weights"):
            figure(np.array(weights))


def test_metrics_equal_worked_example():
    # Two groups: four A and a B; an A and a B. Each photo's share of its own in its group, and in its identity.
    labels, groups = np.array([0, 0, 0, 0, 1, 0, 1]), np.array([0, 0, 0, 0, 0, 1, 1])
    result = bcubed(labels, groups)
    assert result.precision == pytest.approx((4 * 4 / 5 + 1 / 5 + 2 * 1 / 2) / 7)
    assert result.recall == pytest.approx((4 * 4 / 5 + 1 / 5 + 2 * 1 / 2) / 7)
    # Pairs: of the 11 grouped, the 6 of the four A are right; of the 10 + 1 same ones, those 6 are grouped.
    assert pairwise(labels, groups) == PrecisionRecall(6 / 11, 6 / 11, 6 / 11)
    assert purity(labels, groups) == pytest.approx(5 / 7)


def test_singletons_and_single_cluster_equal_closed_form():
    labels = np.repeat(np.arange(10), 4)
    singletons, single_cluster = np.arange(40), np.zeros(40, np.int64)
    assert pairwise(labels, singletons) == PrecisionRecall(None, 0.0, 0.0)
    result = bcubed(labels, singletons)
    assert (result.precision, result.recall, result.f) == pytest.approx((1.0, 0.25, 0.4))
    result = pairwise(labels, single_cluster)
    assert (result.precision, result.recall, result.f) == pytest.approx((60 / 780, 1.0, 120 / 840))
    result = bcubed(labels, single_cluster)
    assert (result.precision, result.recall, result.f) == pytest.approx((0.1, 1.0, 2 / 11))
    assert (nmi(labels, single_cluster), ami(labels, single_cluster), ari(labels, single_cluster)) == (0.0, 0.0, 0.0)
    assert (purity(labels, single_cluster), purity(labels, singletons)) == (0.1, 1.0)
    # Entropies log 10 and log 40, and all of the first is explained; but by chance it would be as well.
    assert nmi(labels, singletons) == pytest.approx(2 * np.log(10) / (np.log(10) + np.log(40)))
    assert ami(labels, singletons) == pytest.approx(0.0, abs=1e-12)
    assert ari(labels, singletons) == 0.0


@pytest.mark.slow
@given(partitions)
def test_metrics_match_scikit_learn(partition):
    assume(len(set(partition[0])) > 1)
    for ours, peer in SCIKIT_LEARN.items():
        assert ours(*partition) == pytest.approx(peer(*partition), abs=1e-9)
    labels, groups = partition
    most = [np.unique(labels[groups == group], return_counts=True)[1].max() for group in set(groups)]
    assert purity(labels, groups) == pytest.approx(sum(most) / len(labels))


@pytest.mark.parametrize("sizes", [np.full(400, 2), np.arange(1, 45), np.array([900, 40, *[1] * 60])])
def test_metrics_match_scikit_learn_on_many_identities(sizes):
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    mistaken = rng.random(len(labels)) < 0.3
    groups = np.where(mistaken, rng.integers(-5, 300, len(labels)), labels)
    for ours, peer in SCIKIT_LEARN.items():
        assert ours(labels, groups) == pytest.approx(peer(labels, groups), abs=1e-9)


@given(partition=partitions, seed=st.integers(0, 999))
def test_metrics_are_invariant_to_label_names_and_order(partition, seed):
    labels, groups = partition
    assume(1 < len(np.unique(labels)) < len(labels))
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    names, other_names = rng.permutation(7) * 10 - 3, rng.permutation(8) * 7 - 20
    renamed = names[labels][order], other_names[groups + 1][order]
    for figure in (nmi, ami, ari, purity):
        assert figure(*renamed) == pytest.approx(figure(*partition), abs=1e-12)
    for figure in (bcubed, pairwise):
        first, second = figure(*renamed), figure(*partition)
        assert (first.precision, first.recall, first.f) == pytest.approx((second.precision, second.recall, second.f))


@given(partitions)
def test_perfect_clusters_score_one(partition):
    labels = partition[0]
    assume(1 < len(np.unique(labels)) < len(labels))
    assert [figure(labels, -labels) for figure in (ami, ari, purity)] == [1.0, 1.0, 1.0]
    assert nmi(labels, -labels) == pytest.approx(1.0, abs=1e-12)
    assert bcubed(labels, -labels) == pairwise(labels, -labels) == PrecisionRecall(1.0, 1.0, 1.0)


def test_random_clusters_have_zero_ami_and_ari_but_high_nmi():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(1000), 2)
    groups = rng.permutation(labels)
    assert nmi(labels, groups) > 0.8
    assert ami(labels, groups) == pytest.approx(0.0, abs=0.03)
    assert ari(labels, groups) == pytest.approx(0.0, abs=0.01)


def test_rejects_no_photos_and_single_identity():
    nothing = np.empty(0, np.int64)
    for figure in (nmi, ami, ari, purity, bcubed, pairwise):
        with pytest.raises(NothingToMeasure, match="no photos"):
            figure(nothing, nothing)
    for figure in (nmi, ami, ari, purity):
        with pytest.raises(NothingToMeasure, match="two identities or more"):
            figure(np.zeros(5, np.int64), np.arange(5))


def test_kmeans_recovers_separated_clusters():
    embeddings, labels = clouds()
    groups = kmeans_groups(embeddings, 12)
    assert ari(labels, groups) == 1.0
    assert set(groups) == set(range(12))


def spread_within(rows, groups):
    return sum(np.square(rows[groups == g] - rows[groups == g].mean(axis=0)).sum() for g in np.unique(groups))


@pytest.mark.parametrize("noise", [0.5, 1.0])
def test_kmeans_inertia_is_near_scikit_learn(noise):
    embeddings, labels = clouds(identities=150, per=3, noise=noise, dim=32)
    peer = KMeans(150, n_init=1, random_state=0).fit(embeddings)
    ours = kmeans_groups(embeddings, 150)
    assert spread_within(embeddings, ours) < 1.02 * peer.inertia_
    assert ami(labels, ours) > ami(labels, peer.labels_) - 0.03


@given(seed=st.integers(0, 999), k=st.integers(1, 20))
def test_kmeans_assigns_each_photo_to_nearest_mean(seed, k):
    embeddings, _ = clouds(identities=7, per=3, noise=1.0, dim=3, seed=seed)
    groups = kmeans_groups(embeddings, k, seed)
    assert len(np.unique(groups)) == k
    means = np.stack([embeddings[groups == group].mean(axis=0) for group in range(k)])
    distances = np.linalg.norm(embeddings[:, None] - means, axis=2)
    assert (distances[np.arange(21), groups] <= distances.min(axis=1) + 1e-6).all()
    assert np.array_equal(groups, kmeans_groups(embeddings, k, seed))


def test_kmeans_makes_at_most_one_cluster_per_distinct_photo():
    three = normalize(np.array([[1, 2, 3], [3, 2, 1], [-1, 0, 1]], np.float32))
    groups = kmeans_groups(np.repeat(three, 5, axis=0), 10)
    assert len(np.unique(groups)) == 3
    assert ari(np.repeat(np.arange(3), 5), groups) == 1.0
    rng = np.random.default_rng(3)  # rows so close that float32 cannot distinguish them
    close_rows = rng.normal(size=127) + 1e-5 * rng.normal(size=(101, 127))
    assert len(np.unique(kmeans_groups(normalize(close_rows.astype(np.float32)), 20))) == 1


def test_kmeans_supports_one_cluster_and_one_per_photo():
    embeddings, _ = clouds()
    assert set(kmeans_groups(embeddings, 1)) == {0}
    assert len(set(kmeans_groups(embeddings, 60))) == 60


def test_kmeans_rejects_invalid_k_and_nan():
    embeddings, _ = clouds()
    for k in (0, 61):
        with pytest.raises(ValueError, match=rf"k must be in \[1, 60\], the number of photos, got {k}"):
            kmeans_groups(embeddings, k)
    embeddings[7] = np.nan
    with pytest.raises(ValueError, match="row 7"):
        kmeans_groups(embeddings, 3)
