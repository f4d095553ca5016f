import dataclasses
import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.metrics import roc_curve as sklearn_roc_curve

from familiar.core.blockwise import similarities, unit_rows
from familiar.core.errors import NothingToMeasure
from familiar.core.vectors import normalize
from familiar.metrics import roc as module
from familiar.metrics.roc import RocCounts, pair_totals, roc_counts, roc_counts_all_pairs
from familiar.metrics.verification import (
    accuracy_at,
    average_precision,
    best_accuracy,
    equal_error_rate,
    rates_at,
    roc_auc,
    roc_curve,
    spearman,
    tar_at_far,
    verification_metrics,
)


def photos(identities=12, per=4, dim=6, noise=0.5, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(identities), per))
    rows = rng.normal(size=(identities, dim))[labels] + noise * rng.normal(size=(len(labels), dim))
    return normalize(rows.astype(np.float32)), labels


def listed_pairs(embeddings, labels):
    """Return the scores of the same and of the different pairs, each pair once."""
    left, right = np.triu_indices(len(labels), 1)
    rows = unit_rows(embeddings)
    scores = similarities(rows, rows)[left, right]
    same = labels[left] == labels[right]
    return scores[same], scores[~same]


def slow_eer(same, different):
    """Walk the vertices of the ROC and intersect it with FAR = 1 - TAR."""
    corners = [(0.0, 0.0)]
    thresholds = sorted({*same, *different}, reverse=True)
    corners += [(np.mean(different >= t), np.mean(same >= t)) for t in thresholds]
    for (far0, tar0), (far1, tar1) in itertools.pairwise(corners):
        before, after = far0 + tar0 - 1, far1 + tar1 - 1
        if after >= 0:
            share = -before / (after - before)
            return far0 + share * (far1 - far0)
    raise AssertionError("the last corner is (1, 1)")


scores_lists = st.lists(
    st.one_of(st.integers(-4, 4).map(lambda i: i / 4), st.floats(-1, 1, width=32)), min_size=1, max_size=40
).map(lambda values: np.array(values, np.float32))


def test_metrics_equal_worked_example():
    counts = roc_counts(np.array([0.9, 0.6, 0.3]), np.array([0.7, 0.3, 0.2, 0.1]))
    assert roc_auc(counts) == pytest.approx((4 + 3 + 2.5) / 12)
    assert average_precision(counts) == pytest.approx((1 / 1 + 2 / 3 + 3 / 5) / 3)
    assert best_accuracy(counts) == (pytest.approx(5 / 7), pytest.approx(0.8))  # 0.9 alone, 3 + 1 + 1 right
    assert best_accuracy(counts, balanced=True) == (pytest.approx((3 / 3 + 2 / 4) / 2), pytest.approx(0.25))
    # From (1/4, 2/3) to (2/4, 3/3) the tie at 0.3 leads aslant across FAR = 1 - TAR, a seventh of the way.
    assert equal_error_rate(counts) == (pytest.approx(1 / 4 + 1 / 4 / 7), pytest.approx(0.3))
    assert accuracy_at(counts, 0.3) == pytest.approx(5 / 7)
    assert rates_at(counts, 0.3)[0] == 0.5


@pytest.mark.slow
@given(same=scores_lists, different=scores_lists)
def test_metrics_match_scikit_learn_and_slow_references(same, different):
    counts = roc_counts(same, different)
    truth = np.repeat([1, 0], [len(same), len(different)])
    scores = np.concatenate([same, different])
    assert roc_auc(counts) == pytest.approx(roc_auc_score(truth, scores), abs=1e-9)
    assert average_precision(counts) == pytest.approx(average_precision_score(truth, scores), abs=1e-9)
    if len(set(scores.tolist())) > 1:
        assert spearman(counts) == pytest.approx(spearmanr(scores, truth).statistic, abs=1e-9)
    eer, eer_threshold = equal_error_rate(counts)
    assert eer == pytest.approx(slow_eer(same, different), abs=1e-9)
    assert scores.min() <= eer_threshold <= scores.max()

    candidates = [*scores, 2.0]
    natural = [np.mean((scores >= t) == truth) for t in candidates]
    balanced = [(np.mean(same >= t) + np.mean(different < t)) / 2 for t in candidates]
    for figure, expected, flag in [
        (best_accuracy(counts), natural, False),
        (best_accuracy(counts, True), balanced, True),
    ]:
        assert figure[0] == pytest.approx(max(expected), abs=1e-9)
        assert accuracy_at(counts, figure[1], balanced=flag) == pytest.approx(figure[0], abs=1e-9)
        decisions = scores >= np.float32(figure[1])  # as a caller with float32 similarities would decide
        assert accuracy_at(roc_counts(decisions[truth == 1] * 1.0, decisions[truth == 0] * 1.0), 0.5, flag) == (
            pytest.approx(figure[0], abs=1e-9)
        )
    for threshold in (*scores[:5], 0.1):
        far, tar = rates_at(counts, float(threshold))
        assert tar == pytest.approx(np.mean(same >= threshold), abs=1e-9)
        if threshold in scores:
            assert far == pytest.approx(np.mean(different >= threshold), abs=1e-9)


@given(same=scores_lists, different=scores_lists, far=st.sampled_from([0.25, 0.5, 1.0]))
def test_tar_uses_largest_far_within_target(same, different, far):
    point = tar_at_far(roc_counts(same, different), far)
    if len(different) < 10 / far:
        assert point is None
        return
    assert point is not None
    fars, tars, _ = sklearn_roc_curve(
        np.repeat([1, 0], [len(same), len(different)]),
        np.concatenate([same, different]),
        drop_intermediate=False,
    )
    allowed = fars <= far
    assert point.tar == pytest.approx(tars[allowed].max(), abs=1e-9)
    assert point.far == pytest.approx(fars[allowed].max(), abs=1e-9)


def test_tar_is_null_with_fewer_than_ten_false_accepts():
    counts = roc_counts(np.array([0.9]), np.linspace(0, 0.5, 1000))
    assert tar_at_far(counts, 0.01) is not None
    assert tar_at_far(counts, 0.0099) is None
    assert verification_metrics(counts).tar_at_far == {
        "1e-2": 1.0,
        "1e-3": None,
        "1e-4": None,
    }


def test_tar_is_zero_when_top_score_exceeds_target_far():
    point = tar_at_far(roc_counts(np.array([0.5, 0.9], np.float32), np.full(100, 0.9, np.float32)), 0.1)
    assert point is not None
    assert (point.far, point.tar) == (0.0, 0.0)
    assert np.float32(point.similarity) > np.float32(0.9)


def test_separated_scores_have_midpoint_threshold_and_no_errors():
    counts = roc_counts(np.array([0.5, 0.9]), np.array([-0.5, 0.25]))
    assert (roc_auc(counts), average_precision(counts)) == (1.0, 1.0)
    assert equal_error_rate(counts) == (0.0, 0.375)
    assert best_accuracy(counts) == (1.0, 0.375)


def test_inverted_scores_have_zero_auc():
    counts = roc_counts(np.array([-0.5, 0.25]), np.array([0.5, 0.9]))
    assert roc_auc(counts) == 0.0
    assert equal_error_rate(counts)[0] == 1.0
    assert best_accuracy(counts)[0] == 0.5


def test_weighted_pairs_equal_repeated_pairs():
    same, different = np.array([0.9, 0.2, 0.5]), np.array([0.6, 0.2, -0.1, 0.4])
    times_same, times_different = np.array([2, 1, 3]), np.array([1, 4, 2, 3])
    weighted = roc_counts(same, different, times_same.astype(float), times_different.astype(float))
    repeated = roc_counts(np.repeat(same, times_same), np.repeat(different, times_different))
    assert verification_metrics(weighted) == verification_metrics(repeated)


@pytest.mark.parametrize(
    ("same", "different", "reason"),
    [
        ([], [0.1], "no pair of the same"),
        ([0.1], [], "no pair of different"),
        ([], [], "no pair of the same"),
    ],
)
def test_rejects_scores_without_same_or_different_pairs(same, different, reason):
    with pytest.raises(NothingToMeasure, match=reason):
        roc_counts(np.array(same, np.float32), np.array(different, np.float32))


def test_rejects_nonfinite_score():
    with pytest.raises(ValueError, match="not finite"):
        roc_counts(np.array([0.1, np.nan]), np.array([0.2]))


@pytest.mark.slow
@given(
    seed=st.integers(0, 10_000),
    identities=st.integers(2, 12),
    per=st.integers(2, 6),
    coarse=st.booleans(),
    block_rows=st.sampled_from([None, 1, 5, 1000]),
)
def test_all_pairs_metrics_match_listed_pairs(seed, identities, per, coarse, block_rows):
    embeddings, labels = photos(identities, per, seed=seed)
    if coarse:  # few directions, so that same and different pairs tie
        embeddings = normalize(np.round(embeddings) + np.float32(0.25))
    same, different = listed_pairs(embeddings, labels)
    listed = roc_counts(same, different)
    counts = roc_counts_all_pairs(embeddings, labels, thresholds=[0.123], block_rows=block_rows)
    assert (counts.same, counts.different) == pair_totals(labels) == (len(same), len(different))
    for figure in (roc_auc, average_precision):
        assert figure(counts) == pytest.approx(figure(listed), abs=1e-9)
    for balanced in (False, True):
        assert best_accuracy(counts, balanced)[0] == pytest.approx(best_accuracy(listed, balanced)[0], abs=1e-9)
    assert equal_error_rate(counts)[0] == pytest.approx(equal_error_rate(listed)[0], abs=1e-9)
    assert equal_error_rate(counts)[1] == pytest.approx(equal_error_rate(listed)[1], abs=2 / 1024)
    assert accuracy_at(counts, float(np.float32(0.123))) == pytest.approx(
        accuracy_at(listed, float(np.float32(0.123))), abs=1e-9
    )
    for far in (0.1, 0.3):
        ours, expected = tar_at_far(counts, far), tar_at_far(listed, far)
        assert (ours.tar if ours else None) == (expected.tar if expected else None)


def test_all_pairs_agree_with_scikit_learn():
    embeddings, labels = photos(identities=30, per=5, noise=1.0)
    same, different = listed_pairs(embeddings, labels)
    truth, scores = np.repeat([1, 0], [len(same), len(different)]), np.concatenate([same, different])
    counts = roc_counts_all_pairs(embeddings, labels)
    assert roc_auc(counts) == pytest.approx(roc_auc_score(truth, scores), abs=1e-9)
    assert average_precision(counts) == pytest.approx(average_precision_score(truth, scores), abs=1e-9)


def test_counts_are_invariant_to_threads_and_lookup_size(monkeypatch):
    embeddings, labels = photos(identities=20)
    embeddings = normalize(np.round(2 * embeddings) + np.float32(0.25))  # ties among them
    result = []
    for threads, looked_up in [(1, 10**6), (2, 10**6), (5, 100)]:
        monkeypatch.setattr("familiar.core.blockwise.available_cores", lambda threads=threads: threads)
        monkeypatch.setattr(module, "_LOOKUP_BLOCK", looked_up)
        result.append(dataclasses.astuple(roc_counts_all_pairs(embeddings, labels, block_rows=7)))
    for other in result[1:]:
        for counts, expected in zip(other, result[0], strict=True):
            assert (counts == expected).all()


def test_small_same_blocks_count_every_same_pair(monkeypatch):
    embeddings, labels = photos()
    expected = verification_metrics(roc_counts_all_pairs(embeddings, labels))
    monkeypatch.setattr(module, "_SAME_BLOCK_ROWS", 3)
    assert verification_metrics(roc_counts_all_pairs(embeddings, labels)) == expected


def test_collapsed_model_has_chance_metrics():
    embeddings = np.tile(normalize(np.array([[0.3, -0.2, 0.7]], np.float32)), (30, 1))
    counts = roc_counts_all_pairs(embeddings, np.arange(30) // 3)
    metrics = verification_metrics(counts)
    assert (metrics.auc, metrics.eer, metrics.best_balanced_accuracy) == (0.5, 0.5, 0.5)
    assert metrics.average_precision == pytest.approx(30 / 435)
    assert metrics.spearman == 0.0
    assert metrics.tar_at_far["1e-2"] is None


def test_photo_with_two_identities_ties():
    rows = np.eye(2, dtype=np.float32)[[0, 0, 0, 1]]
    counts = roc_counts_all_pairs(rows, np.array([0, 0, 1, 1]))
    assert roc_auc(counts) == ((2 + 2 / 2) / 4 + (2 / 2) / 4) / 2


def test_opposite_vectors_are_counted():
    rows = np.array([[1, 0], [1, 0], [-1, 0], [-1, 0]], np.float32)
    assert verification_metrics(roc_counts_all_pairs(rows, np.array([0, 0, 1, 1]))).auc == 1.0
    assert verification_metrics(roc_counts_all_pairs(rows, np.array([0, 1, 0, 1]))).auc == 0.25


@pytest.mark.parametrize("labels", [np.zeros(5, np.int64), np.arange(5)])
def test_rejects_labels_without_same_or_different_pairs(labels):
    with pytest.raises(NothingToMeasure):
        roc_counts_all_pairs(np.eye(5, dtype=np.float32), labels)


def test_rejects_too_many_same_pairs(monkeypatch):
    monkeypatch.setattr(module, "MAX_SAME_PAIRS", 71)
    embeddings, labels = photos()  # 12 x 6 same pairs
    with pytest.raises(ValueError, match="sample"):
        roc_counts_all_pairs(embeddings, labels)


def test_rate_between_scores_is_accurate_within_grid_step():
    embeddings, labels = photos(identities=40)
    _, different = listed_pairs(embeddings, labels)
    counts = roc_counts_all_pairs(embeddings, labels)
    for threshold in (-0.2001, 0.30007, 0.7003):
        in_step = np.mean(np.abs(different - threshold) < 1 / 1024)
        assert rates_at(counts, threshold)[0] == pytest.approx(np.mean(different >= threshold), abs=in_step + 1e-9)


def test_different_pairs_are_interpolated_between_scores():
    counts = RocCounts(np.array([0.0, 1.0]), np.array([1.0, 1.0]), np.zeros(2), np.array([4.0, 0.0]))
    assert rates_at(counts, 0.25) == (0.75, 0.5)
    assert equal_error_rate(counts) == (0.5, 0.5)


def test_threshold_separates_adjacent_float32_scores():
    low = np.float32(0.5)
    high = np.nextafter(low, np.float32(1))  # the middle would round to 0.5
    assert best_accuracy(roc_counts(np.array([high]), np.array([low]))) == (1.0, float(high))


def test_roc_curve_matches_scikit_learn():
    same, different = np.array([0.9, 0.6, 0.3]), np.array([0.7, 0.3, 0.2, 0.1])
    far, tar = roc_curve(roc_counts(same, different))
    expected = sklearn_roc_curve([1, 1, 1, 0, 0, 0, 0], [*same, *different], drop_intermediate=False)
    assert {*zip(far, tar, strict=True)} == {*zip(expected[0], expected[1], strict=True)}


def test_thinned_roc_curve_keeps_ends_area_and_low_rates():
    rng = np.random.default_rng(0)
    counts = roc_counts(rng.normal(1, 1, 5000), rng.normal(0, 1, 50_000))
    far, tar = roc_curve(counts)
    assert len(far) <= 2000
    assert (far[0], tar[0], far[-1], tar[-1]) == (0, 0, 1, 1)
    assert (np.diff(far) >= 0).all()
    assert (np.diff(tar) >= 0).all()
    assert np.trapezoid(tar, far) == pytest.approx(roc_auc(counts), abs=1e-4)
    assert np.count_nonzero((far > 0) & (far < 1e-3)) > 20


def test_result_round_trips_through_json():
    embeddings, labels = photos()
    result = dataclasses.asdict(verification_metrics(roc_counts_all_pairs(embeddings, labels)))
    assert json.loads(json.dumps(result, allow_nan=False)) == result
