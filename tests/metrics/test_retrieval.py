import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from familiar.core.blockwise import similarities, unit_rows
from familiar.core.errors import NothingToMeasure
from familiar.core.vectors import normalize
from familiar.metrics.retrieval import rank_queries, retrieval_metrics, summarize


def photos(identities=6, per=3, dim=5, noise=0.6, seed=0):
    """Draw unit rows around one direction per identity, and their labels, shuffled."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(identities), per))
    centers = rng.normal(size=(identities, dim))
    rows = centers[labels] + noise * rng.normal(size=(len(labels), dim))
    return normalize(rows.astype(np.float32)), labels


def slow_ranks(scores, positive):
    """Rank each positive of a query, best first: all negatives at least as close rank before it."""
    positive_scores = sorted(scores[positive], reverse=True)
    return [rank + sum(scores[~positive] >= score) for rank, score in enumerate(positive_scores, start=1)]


def slow_retrieval(embeddings, labels, ks=(1, 5, 10)):
    """Return recall@k, (MRR, NDCG@10, mAP@R), the number of queries and their violated triplets."""
    first, ndcgs, precisions, violations = [], [], [], []
    scores = similarities(unit_rows(embeddings), unit_rows(embeddings))
    for query in range(len(labels)):
        others = np.arange(len(labels)) != query
        ranks = slow_ranks(scores[query, others], labels[others] == labels[query])
        if ranks:
            first.append(ranks[0])
            gain = sum(1 / np.log2(1 + rank) for rank in ranks if rank <= 10)
            ndcgs.append(gain / sum(1 / np.log2(1 + rank) for rank in range(1, min(10, len(ranks)) + 1)))
            # Precision among the i nearest for each i whose photo is a positive, over the R nearest.
            precision_at = [sum(rank <= i for rank in ranks) / i for i in range(1, len(ranks) + 1) if i in ranks]
            precisions.append(sum(precision_at) / len(ranks))
            violations.append(sum(rank - index for index, rank in enumerate(ranks, start=1)))
    first = np.array(first)
    means = np.mean(1 / first), np.mean(ndcgs), np.mean(precisions)
    return {k: np.mean(first <= k) for k in ks}, means, len(first), violations


def test_metrics_equal_worked_example():
    # On a half circle at 0, 30, 90 and 100 degrees: A B A B.
    angles = np.deg2rad([0.0, 30.0, 90.0, 100.0])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    result = rank_queries(rows, np.array([0, 1, 0, 1]))
    # A at 0: B30, A90. B at 30: A0, A90, B100. A at 90: B100, B30, A0. B at 100: A90, B30.
    assert result.first_match_rank.tolist() == [2, 3, 3, 2]
    metrics = summarize(result, ks=(1, 2, 3))
    assert metrics.recall_at_k == {1: 0.0, 2: 0.5, 3: 1.0}
    assert metrics.mrr == pytest.approx((1 / 2 + 1 / 3 + 1 / 3 + 1 / 2) / 4)
    assert metrics.ndcg_at_10 == pytest.approx((2 / np.log2(3) + 2 / np.log2(4)) / 4)
    assert metrics.map_at_r == 0.0  # each has one positive, and none is the nearest
    assert result.negatives_ahead.tolist() == [1, 2, 2, 1]


def test_map_at_r_equals_worked_example():
    # From the first A, all to one side: A B A A. Three positives, so the three nearest count: 1/1 and 2/3.
    angles = np.deg2rad([0.0, 10.0, 20.0, 30.0, 60.0])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    result = rank_queries(rows, np.array([0, 0, 1, 0, 0]))
    assert result.map_at_r[0] == pytest.approx((1 + 2 / 3) / 3)


def test_map_at_r_equals_closed_form_with_gallery():
    gallery = np.eye(3, dtype=np.float32)[[0, 0, 1, 2]]
    query = normalize(np.array([[3, 2, 1]], np.float32))
    # Its own identity is first, second and last: the fourth lies beyond R = 3.
    result = rank_queries(query, np.array([5]), gallery=(gallery, np.array([5, 5, 6, 5])))
    assert result.map_at_r == pytest.approx([(1 + 1) / 3])
    assert result.negatives_ahead.tolist() == [1]


@pytest.mark.slow
@given(
    seed=st.integers(0, 10_000),
    identities=st.integers(1, 8),
    per=st.sampled_from([2, 3, 7, 14, 40]),  # the last has more positives than are compared one by one
    coarse=st.booleans(),
    block_rows=st.sampled_from([None, 1, 3, 1000]),
)
def test_matches_slow_reference_for_any_block_size(seed, identities, per, coarse, block_rows):
    embeddings, labels = photos(identities, per, seed=seed, dim=2 if coarse else 5)
    if coarse:  # few directions, so that many similarities tie
        embeddings = normalize(np.round(embeddings) + np.float32(0.25))
    recall, means, queries, violations = slow_retrieval(embeddings, labels)
    ranked = rank_queries(embeddings, labels, block_rows=block_rows)
    metrics = summarize(ranked)
    assert metrics.recall_at_k == recall
    assert (metrics.mrr, metrics.ndcg_at_10, metrics.map_at_r) == pytest.approx(means, abs=1e-12)
    assert metrics.queries == queries
    assert ranked.negatives_ahead.tolist() == violations


def test_matches_pytorch_metric_learning_without_ties():
    torch = pytest.importorskip("torch")
    calculators = pytest.importorskip("pytorch_metric_learning.utils.accuracy_calculator")
    distances = pytest.importorskip("pytorch_metric_learning.distances")
    inference = pytest.importorskip("pytorch_metric_learning.utils.inference")
    rng = np.random.default_rng(5)
    labels = rng.permutation(np.repeat(np.arange(60), rng.integers(1, 12, 60)))
    centers = rng.normal(size=(60, 16))
    embeddings = normalize((centers[labels] + 0.9 * rng.normal(size=(len(labels), 16))).astype(np.float32))
    ours = retrieval_metrics(embeddings, labels)
    assert 0.2 < ours.map_at_r < ours.mrr < 0.95

    names = ("precision_at_1", "mean_reciprocal_rank", "mean_average_precision_at_r")
    calculator = calculators.AccuracyCalculator(
        include=names,
        device=torch.device("cpu"),
        knn_func=inference.CustomKNN(distances.CosineSimilarity()),
    )
    torch.set_default_dtype(torch.float64)  # or the mean of its reciprocal ranks has seven digits
    try:
        peer = calculator.get_accuracy(embeddings, labels)
    finally:
        torch.set_default_dtype(torch.float32)
    assert (ours.recall_at_k[1], ours.mrr, ours.map_at_r) == pytest.approx(
        tuple(peer[name] for name in names), abs=1e-9
    )


def test_figures_do_not_depend_on_the_number_of_threads(monkeypatch):
    embeddings, labels = photos(identities=20, per=5, noise=1.0)
    result = []
    for threads in (1, 2, 5):
        monkeypatch.setattr("familiar.core.blockwise.available_cores", lambda threads=threads: threads)
        result.append(retrieval_metrics(embeddings, labels, block_rows=7))
    assert result[0] == result[1] == result[2]


def test_ndcg_matches_scikit_learn_without_ties():
    embeddings, labels = photos(identities=5, per=14, noise=1.5)
    scores = similarities(unit_rows(embeddings), unit_rows(embeddings))
    others = ~np.eye(len(labels), dtype=bool)
    expected = [ndcg_score([labels[others[q]] == labels[q]], [scores[q, others[q]]], k=10) for q in range(len(labels))]
    assert rank_queries(embeddings, labels).ndcg_at_10 == pytest.approx(np.array(expected), abs=1e-12)


def test_collapsed_model_has_zero_recall():
    embeddings = np.tile(normalize(np.array([[0.3, -0.2, 0.7]], np.float32)), (40, 1))
    metrics = retrieval_metrics(embeddings, np.arange(40) // 2)
    assert metrics.recall_at_k == {1: 0.0, 5: 0.0, 10: 0.0}
    assert metrics.mrr == pytest.approx(1 / 39)  # behind all 38 strangers
    assert (metrics.ndcg_at_10, metrics.map_at_r) == (0.0, 0.0)


def test_perfect_model_scores_one():
    embeddings = np.repeat(np.eye(6, dtype=np.float32), 3, axis=0)
    metrics = retrieval_metrics(embeddings, np.arange(18) // 3)
    assert (metrics.recall_at_k[1], metrics.mrr) == (1.0, 1.0)
    assert (metrics.ndcg_at_10, metrics.map_at_r) == (1.0, 1.0)


def test_single_identity_scores_one():
    embeddings, _ = photos()
    metrics = retrieval_metrics(embeddings, np.zeros(18, np.int64))
    assert (metrics.mrr, metrics.map_at_r) == (1.0, 1.0)
    assert metrics.ndcg_at_10 == pytest.approx(1.0, abs=1e-15)


def test_skips_and_counts_queries_without_match():
    embeddings, labels = photos()
    single_photos = normalize(np.array([[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]], np.float32))
    ranked = rank_queries(np.concatenate([single_photos, embeddings]), np.concatenate([[98, 99], labels]))
    assert ranked.query.tolist() == list(range(2, 20))
    assert ranked.identity.tolist() == labels.tolist()
    assert summarize(ranked).queries_without_match == 2
    with pytest.raises(NothingToMeasure, match="none of 2 queries"):
        retrieval_metrics(single_photos, np.array([1, 2]))


def test_rejects_empty_input():
    with pytest.raises(NothingToMeasure):
        retrieval_metrics(np.empty((0, 4), np.float32), np.empty(0, np.int64))


def test_ranks_queries_against_gallery_and_counts_unmatched():
    gallery = np.eye(3, dtype=np.float32)
    queries = normalize(np.array([[3, 2, 1], [1, 2, 3], [1, 1, 1]], np.float32))
    ranked = rank_queries(queries, np.array([10, 11, 77]), gallery=(gallery, np.array([10, 11, 12])))
    assert ranked.first_match_rank.tolist() == [1, 2]  # the query is not its own answer, nor left out
    assert ranked.without_match == 1


def test_rejects_non_unit_rows():
    with pytest.raises(ValueError, match="not unit vectors"):
        retrieval_metrics(np.ones((4, 3), np.float32), np.array([0, 0, 1, 1]))


def test_equal_vectors_tie_exactly_for_any_block_size():
    row = normalize(np.random.default_rng(3).normal(size=(1, 127)).astype(np.float32))
    rows = unit_rows(np.tile(row, (101, 1)))
    assert (similarities(rows, rows) == 1.0).all()
    assert (similarities(rows[:1], rows[:3]) == 1.0).all()
    assert (similarities(rows, -rows) == -1.0).all()
    stored = unit_rows(np.tile(row.astype(np.float16).astype(np.float32), (2, 1)))  # norms a little off
    assert (similarities(stored, stored) == 1.0).all()


def test_similarities_are_bit_identical_for_any_block_and_tile(monkeypatch):
    rows = unit_rows(normalize(np.random.default_rng(4).normal(size=(300, 128)).astype(np.float32)))
    whole = similarities(rows, rows)
    assert (np.diag(whole) == 1.0).all()
    assert (similarities(rows[7:8], rows) == whole[7]).all()
    monkeypatch.setattr("familiar.core.blockwise._TILE_COLUMNS", 7)
    assert (similarities(rows, rows) == whole).all()
