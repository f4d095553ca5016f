import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.errors import NothingToMeasure
from familiar.core.vectors import normalize
from familiar.metrics import bootstrap as module
from familiar.metrics.bootstrap import intervals, mean_replicates, verification_replicates
from familiar.metrics.pairs import Pairs, negatives_above, pair_similarities, sample_pairs
from familiar.metrics.retrieval import RankedQueries, rank_queries, summarize
from familiar.metrics.roc import pair_totals, roc_counts, roc_counts_all_pairs
from familiar.metrics.verification import accuracy_at, verification_metrics


def photos(identities=12, per=4, dim=6, noise=0.5, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(identities), per))
    rows = rng.normal(size=(identities, dim))[labels] + noise * rng.normal(size=(len(labels), dim))
    return normalize(rows.astype(np.float32)), labels


def verification_intervals(*pairs, **settings):
    return intervals(verification_replicates(*pairs, **settings))


def retrieval_intervals(ranked, ks=(1, 5, 10), **settings):
    return intervals(mean_replicates(ranked.figures(ks), ranked.identity, **settings))


def ranked_at(identity, first_match_rank):
    queries = len(identity)
    return RankedQueries(
        query=np.arange(queries),
        identity=identity,
        first_match_rank=first_match_rank,
        ndcg_at_10=np.ones(queries),
        map_at_r=np.ones(queries),
        negatives_ahead=np.zeros(queries, np.int64),
        without_match=0,
    )


def drawing(monkeypatch, *weights):
    """Let the bootstrap draw these weights."""
    monkeypatch.setattr(module, "identity_weights", lambda *_: iter(np.array(weights, np.float64)))


labels_lists = st.lists(st.integers(0, 5), min_size=0, max_size=25).map(lambda values: np.array(values, np.int64))


@given(labels=labels_lists, count=st.integers(0, 200), seed=st.integers(0, 99), balanced=st.booleans())
def test_sampled_pairs_are_distinct_with_requested_count(labels, count, seed, balanced):
    pairs = sample_pairs(labels, count, seed, balanced)
    same_total, different_total = pair_totals(labels)
    assert len(pairs.left) == min(count, same_total + different_total)
    assert (pairs.left < pairs.right).all()
    assert len({*zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)}) == len(pairs.left)
    np.testing.assert_array_equal(pairs.same, labels[pairs.left] == labels[pairs.right])
    if balanced:
        shortfall = max(0, len(pairs.left) - count // 2 - different_total)
        assert pairs.same.sum() == min(same_total, count // 2 + shortfall)


def test_sample_pairs_returns_all_pairs_when_count_exceeds_them():
    labels = np.array([0, 1, 0, 2, 1])
    pairs = sample_pairs(labels, 10)
    expected = {*zip(*np.triu_indices(5, 1), strict=True)}
    assert {*zip(pairs.left, pairs.right, strict=True)} == expected


@pytest.mark.slow
def test_pairs_are_drawn_evenly():
    labels = np.array([0, 0, 0, 1, 1])
    drawn = np.zeros((5, 5))
    for seed in range(3000):
        pairs = sample_pairs(labels, 3, seed, balanced=False)
        drawn[pairs.left, pairs.right] += 1
    shares = drawn[np.triu_indices(5, 1)] / 3000
    assert shares == pytest.approx(0.3, abs=5 * np.sqrt(0.3 * 0.7 / 3000))  # five standard errors


def test_sample_pairs_is_deterministic_by_seed():
    labels = np.arange(1000) // 4
    first, again, other = (sample_pairs(labels, 100, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.left, again.left)
    assert (first.left != other.left).any()


def test_sample_pairs_supports_billions_of_pairs():
    labels = np.arange(100_000) // 2
    for balanced, same in ((True, 500), (False, 0)):  # by chance 1 pair in 100,000 is of one identity
        pairs = sample_pairs(labels, 1000, seed=4, balanced=balanced)
        assert pairs.same.sum() == same
        assert pairs.left.max() < 100_000


def test_pair_similarities_match_all_pairs_auc():
    embeddings, labels = photos()
    scores = pair_similarities(embeddings, pairs := sample_pairs(labels, 2000))
    assert verification_metrics(roc_counts(scores[pairs.same], scores[~pairs.same])).auc == pytest.approx(
        verification_metrics(roc_counts_all_pairs(embeddings, labels)).auc, abs=1e-12
    )
    twins = Pairs(np.array([0]), np.array([1]), np.array([True]))
    row = normalize(np.full((1, 7), 0.3, np.float32))
    assert pair_similarities(np.concatenate([row, row]), twins).tolist() == [1.0]
    assert pair_similarities(np.concatenate([row, -row]), twins).tolist() == [-1.0]


def test_unit_weights_reproduce_metrics(monkeypatch):
    embeddings, labels = photos(identities=60)
    pairs = sample_pairs(labels, 3000)
    scores = pair_similarities(embeddings, pairs)
    drawing(monkeypatch, np.ones(60))
    result = verification_intervals(scores, labels[pairs.left], labels[pairs.right], threshold=0.4)
    counts = roc_counts(scores[pairs.same], scores[~pairs.same])
    metrics = verification_metrics(counts)
    expected = {name: getattr(metrics, name) for name in module._METRICS} | {
        "accuracy_at_threshold": accuracy_at(counts, 0.4, balanced=True),
        "tar_at_far_1e-2": metrics.tar_at_far["1e-2"],
    }
    assert result == {name: (pytest.approx(value),) * 2 for name, value in expected.items()}

    ranked = rank_queries(embeddings, labels)
    summary = summarize(ranked)
    expected = {f"recall_at_{k}": recall for k, recall in summary.recall_at_k.items()}
    expected |= {"mrr": summary.mrr, "ndcg_at_10": summary.ndcg_at_10, "map_at_r": summary.map_at_r}
    drawing(monkeypatch, np.ones(60))
    assert retrieval_intervals(ranked) == {name: (pytest.approx(value),) * 2 for name, value in expected.items()}


def test_duplicated_identity_adds_no_pairs_with_its_copy(monkeypatch):
    # Three identities with two photos each. Drawn (2, 1, 0): the pair of A twice, that of B once, and
    # each pair of A with B twice; no pair of A with its copy.
    labels = np.array([0, 0, 1, 1, 2, 2])
    pairs = sample_pairs(labels, 15)
    rng = np.random.default_rng(0)
    scores = rng.uniform(-1, 1, 15).astype(np.float32)
    left, right = labels[pairs.left], labels[pairs.right]
    times = np.array([2, 1, 0])
    same, different = pairs.same, ~pairs.same
    repeated = verification_metrics(
        roc_counts(
            np.repeat(scores[same], times[left[same]]),
            np.repeat(scores[different], times[left[different]] * times[right[different]]),
        )
    )
    assert (repeated.same_pairs, repeated.different_pairs) == (3, 8)
    drawing(monkeypatch, times)
    result = verification_intervals(scores, left, right)
    assert result == {name: (pytest.approx(getattr(repeated, name)),) * 2 for name in result}


def test_resamples_queries_by_identity_with_fixed_gallery(monkeypatch):
    ranked = ranked_at(np.array([7, 7, 9]), np.array([1, 2, 4]))
    drawing(monkeypatch, [0, 2], [2, 0])
    low, high = retrieval_intervals(ranked, ks=(1,))["mrr"]
    # 9 twice gives 1/4, 7 twice gives 3/4; the quantiles lie 2.5 % inside.
    assert (low, high) == (pytest.approx(0.25 + 0.025 / 2), pytest.approx(0.75 - 0.025 / 2))


def test_intervals_are_deterministic_by_seed():
    embeddings, labels = photos()
    pairs = sample_pairs(labels, 400)
    scores = pair_similarities(embeddings, pairs)
    listed = scores, labels[pairs.left], labels[pairs.right]
    first, again, other = (verification_intervals(*listed, replicates=20, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    ranked = rank_queries(embeddings, labels)
    assert retrieval_intervals(ranked, seed=1) == retrieval_intervals(ranked, seed=1)


@pytest.mark.slow
def test_recall_interval_coverage_matches_confidence():
    # Whole identities are easy or hard, so that photos of one are far from independent.
    truth, covered, widths = 0.7, 0, []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        identity = np.repeat(np.arange(60), 5)
        result = (rng.random(60) < truth)[identity]
        ranked = ranked_at(identity, np.where(result, 1, 2))
        low, high = retrieval_intervals(ranked, ks=(1,), seed=seed)["recall_at_1"]
        covered += low <= truth <= high
        widths.append(high - low)
    assert 0.90 <= covered / 200 <= 0.99
    assert np.mean(widths) == pytest.approx(2 * 1.96 * np.sqrt(0.7 * 0.3 / 60), rel=0.1)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_auc_interval_covers_true_value():
    # Same pairs score N(1, 1), half of the variance shared by an identity's photos; different ones N(0, 1).
    truth = 0.7602  # Phi(1 / sqrt 2)
    covered = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        labels = np.arange(150) // 3
        pairs = sample_pairs(labels, 450, seed)
        mood = rng.normal(size=50)[labels[pairs.left]]
        scores = rng.normal(size=len(mood))
        scores = np.where(pairs.same, 1 + np.sqrt(0.5) * (scores + mood), scores)
        low, high = verification_intervals(scores, labels[pairs.left], labels[pairs.right], replicates=100, seed=seed)[
            "auc"
        ]
        covered += low <= truth <= high
    assert covered >= 53


def test_rejects_pairs_without_different_identities():
    labels = np.zeros(4, np.int64)
    with pytest.raises(NothingToMeasure, match="different"):
        verification_intervals(np.ones(4), labels, labels)


def test_skips_replicates_without_same_and_different_pairs(monkeypatch):
    left, right = np.array([0, 1, 0]), np.array([0, 1, 1])
    scores = np.array([0.9, 0.8, 0.1])
    drawing(monkeypatch, [2, 0], [1, 1])
    assert verification_intervals(scores, left, right)["auc"] == (1.0, 1.0)
    drawing(monkeypatch, [2, 0], [0, 2])
    with pytest.raises(NothingToMeasure, match="replicate"):
        verification_intervals(scores, left, right)


def test_mean_replicates_are_weighted(monkeypatch):
    figures = {"share": np.array([1.0, 0.0, 0.5])}
    drawing(monkeypatch, [1, 1], [2, 0])
    result = mean_replicates(figures, np.array([4, 4, 8]), weights=np.array([3.0, 1.0, 4.0]))
    assert result["share"].tolist() == [(3 + 2) / 8, 3 / 4]


def test_replicates_are_paired_between_models():
    identity = np.repeat(np.arange(30), 3)
    better = np.random.default_rng(0).random(90)
    first, second = (mean_replicates({"x": values}, identity)["x"] for values in (better, better - 0.1))
    np.testing.assert_allclose(first - second, 0.1)
    assert np.ptp(first) > 0.05


def test_weighted_pairs_equal_repeated_pairs(monkeypatch):
    labels = np.array([0, 0, 1, 1, 2, 2])
    pairs = sample_pairs(labels, 15)
    scores = np.random.default_rng(1).uniform(-1, 1, 15).astype(np.float32)
    times = np.arange(15) % 3 + 1
    repeated = verification_metrics(
        roc_counts(
            np.repeat(scores[pairs.same], times[pairs.same]),
            np.repeat(scores[~pairs.same], times[~pairs.same]),
        )
    )
    drawing(monkeypatch, np.ones(3))
    result = verification_intervals(scores, labels[pairs.left], labels[pairs.right], weights=times.astype(np.float64))
    assert result == {name: (pytest.approx(getattr(repeated, name)),) * 2 for name in result}


def test_strangers_above_matches_slow_reference():
    embeddings, labels = photos(identities=30)
    result = negatives_above(embeddings, labels, 0.5)
    rows = embeddings.astype(np.float64)
    left, right = np.triu_indices(len(rows), 1)
    close = (labels[left] != labels[right]) & ((rows[left] * rows[right]).sum(axis=1) >= 0.5)
    expected = {*zip(left[close].tolist(), right[close].tolist(), strict=True)}
    assert {*zip(result.left.tolist(), result.right.tolist(), strict=True)} == expected
    assert len(result.left) == len(expected) > 20
    assert not result.same.any()
