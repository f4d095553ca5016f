"""The worst negative and positive pairs, against a sort of all pairs."""

import numpy as np
import pytest

from familiar.metrics.mistakes import Mistakes, RankedPairs, worst_listed_mistakes, worst_mistakes
from familiar.metrics.pairs import Pairs, pair_similarities, sample_pairs


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def cloud(photos: int, identities: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, identities, photos) * 3 - 5  # neither dense nor positive
    centers = {label: generator.normal(size=6) for label in np.unique(labels)}
    rows = np.stack([centers[label] for label in labels]) + generator.normal(size=(photos, 6))
    return unit(rows), labels


def slow_mistakes(embeddings: np.ndarray, labels: np.ndarray, count: int) -> tuple[list, list]:
    order = np.argsort(labels, kind="stable").tolist()
    pairs = [
        (order[i], order[j], float(np.float32(embeddings[order[i]] @ embeddings[order[j]])))
        for i in range(len(order))
        for j in range(i + 1, len(order))
    ]
    negatives = [pair for pair in pairs if labels[pair[0]] != labels[pair[1]]]
    selves = [pair for pair in pairs if labels[pair[0]] == labels[pair[1]]]
    return (
        sorted(negatives, key=lambda pair: -pair[2])[:count],
        sorted(selves, key=lambda pair: pair[2])[:count],
    )


def listed(result: RankedPairs) -> list[tuple[int, int]]:
    return list(zip(result.left.tolist(), result.right.tolist(), strict=True))


@pytest.mark.parametrize("block_rows", [None, 1, 7])
@pytest.mark.parametrize(("photos", "identities", "count"), [(60, 9, 12), (60, 2, 5), (9, 3, 100)])
def test_matches_sort_over_all_pairs(photos: int, identities: int, count: int, block_rows: int | None):
    embeddings, labels = cloud(photos, identities)
    result = worst_mistakes(embeddings, labels, count, block_rows)
    for kind, slow in zip((result.negatives, result.positives), slow_mistakes(embeddings, labels, count), strict=True):
        assert listed(kind) == [(min(a, b), max(a, b)) for a, b, _ in slow]
        assert kind.similarity == pytest.approx(np.array([score for _, _, score in slow]), abs=1e-6)
        assert len(kind) == len(slow)


@pytest.mark.parametrize("block_rows", [None, 1, 4])
def test_ties_prefer_smaller_label_then_earlier_row(block_rows: int | None):
    collapsed = np.tile(np.array([[1, 0]], np.float32), (10, 1))
    labels = np.array([1, 0, 1, 0, 1, 0, 1, 0, 1, 0])
    result = worst_mistakes(collapsed, labels, 3, block_rows)
    assert listed(result.negatives) == [(0, 1), (1, 2), (1, 4)]
    assert listed(result.positives) == [(1, 3), (1, 5), (1, 7)]
    assert result.negatives.similarity.tolist() == [1, 1, 1]


def test_wrong_label_appears_in_both_lists():
    embeddings, labels = unit(np.repeat(np.eye(5), 4, axis=0) + 0.01), np.repeat(np.arange(5), 4)
    labels = labels.copy()
    labels[7] = 3  # a photo of the second under the fourth's name
    result = worst_mistakes(embeddings, labels, 3)
    assert {7} == set.intersection(*({a, b} for a, b in listed(result.negatives)))
    assert {7} == set.intersection(*({a, b} for a, b in listed(result.positives)))


@pytest.mark.parametrize("photos", [0, 1, 5])
def test_single_identity_has_only_same_identity_pairs(photos: int):
    embeddings = unit(np.random.default_rng(0).normal(size=(photos, 4)))
    result = worst_mistakes(embeddings, np.zeros(photos, np.int64), 4)
    assert len(result.negatives) == 0
    assert len(result.positives) == min(4, photos * (photos - 1) // 2)


def test_all_distinct_identities_have_only_different_pairs():
    embeddings, _ = cloud(6, 6)
    result = worst_mistakes(embeddings, np.arange(6), 100)
    assert (len(result.negatives), len(result.positives)) == (15, 0)
    assert (np.diff(result.negatives.similarity) <= 0).all()


def test_rejects_non_unit_rows():
    with pytest.raises(ValueError, match="unit"):
        worst_mistakes(np.ones((3, 4), np.float32), np.arange(3))


def test_worst_of_pairs_ranks_only_listed_pairs():
    embeddings, labels = cloud(50, 6)
    pairs = sample_pairs(labels, 80, seed=3)
    scores = pair_similarities(embeddings, pairs)
    result: Mistakes = worst_listed_mistakes(embeddings, pairs, 5)
    assert result.negatives.similarity.tolist() == sorted(scores[~pairs.same].tolist())[::-1][:5]
    assert result.positives.similarity.tolist() == sorted(scores[pairs.same].tolist())[:5]
    for kind, same in ((result.negatives, False), (result.positives, True)):
        assert ((labels[kind.left] == labels[kind.right]) == same).all()
        assert pair_similarities(embeddings, Pairs(kind.left, kind.right, kind.left == 0)) == pytest.approx(
            kind.similarity
        )
    none = np.empty(0, np.int64)
    assert len(worst_listed_mistakes(embeddings, Pairs(none, none, none == 0)).positives) == 0
