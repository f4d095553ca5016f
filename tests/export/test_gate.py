from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.errors import GateRefused
from familiar.core.vectors import normalize
from familiar.export.gate import DEFAULT_GATE, Gate, GateMetrics, gate_metrics
from familiar.metrics import pairs
from familiar.metrics.pairs import count_all_pairs
from familiar.metrics.verification import roc_auc

SOURCE = GateMetrics(auc=0.98, eer=0.05, best_accuracy=0.9, recall_at_1=0.96, tar_at_far={"1e-3": None})


def rows(n=48, d=8, seed=0):
    """Draw rows of which some are nearest to their own identity, which the first components encode."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, n // 4, n)
    centers = generator.standard_normal((n, d))
    return normalize((centers[labels] + 0.8 * generator.standard_normal((n, d))).astype(np.float32)), labels


def slow_metrics(embeddings, labels):
    """Compute (AUC, EER within a step, balanced accuracy, recall@1, TAR at FAR .01) pair by pair."""
    scores = (embeddings.astype(np.float64) @ embeddings.T.astype(np.float64)).astype(np.float32)
    n = len(labels)
    same = [scores[a, b] for a in range(n) for b in range(a) if labels[a] == labels[b]]
    different = [scores[a, b] for a in range(n) for b in range(a) if labels[a] != labels[b]]
    auc = np.mean([(p > q) + 0.5 * (p == q) for p in same for q in different])
    rates = [
        (np.mean([q >= threshold for q in different]), np.mean([p < threshold for p in same]))
        for threshold in sorted({*same, *different, 2})
    ]
    accuracy = max(1 - (accepted + rejected) / 2 for accepted, rejected in rates)
    eer = min(max(point) for point in rates)
    hits = []
    for query in range(n):
        if np.count_nonzero(labels == labels[query]) > 1:
            others = [other for other in range(n) if other != query]
            hits.append(labels[max(others, key=lambda other: scores[query, other])] == labels[query])
    return (
        auc,
        eer,
        accuracy,
        np.mean(hits),
        max(1 - rejected for accepted, rejected in rates if accepted <= 0.01),
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_gate_metrics_match_slow_reference(seed):
    embeddings, labels = rows(seed=seed)
    metrics = gate_metrics(embeddings, labels)
    auc, eer, accuracy, recall, tar = slow_metrics(embeddings, labels)
    assert 0.6 < auc < 0.99
    assert 0.3 < recall < 1
    assert metrics.auc == pytest.approx(auc, abs=1e-9)
    assert metrics.best_accuracy == pytest.approx(accuracy, abs=1e-9)
    assert metrics.recall_at_1 == pytest.approx(recall)
    assert eer - 0.03 <= metrics.eer <= eer + 1e-9, "on the line between two thresholds, which is no worse"
    assert metrics.tar_at_far == {"1e-2": pytest.approx(tar), "1e-3": None, "1e-4": None}


def test_perfect_embeddings_score_one_and_collapsed_fail():
    labels = np.arange(12) // 3
    perfect = gate_metrics(np.eye(4, dtype=np.float32)[labels], labels)
    assert (perfect.auc, perfect.eer, perfect.best_accuracy, perfect.recall_at_1) == (1, 0, 1, 1)
    collapsed = gate_metrics(np.eye(4, dtype=np.float32)[labels * 0], labels)
    assert (collapsed.auc, collapsed.best_accuracy) == (0.5, 0.5)
    assert not DEFAULT_GATE.passes(perfect, collapsed)


@pytest.mark.parametrize("labels", [[0, 1, 2, 3], [0, 0, 0, 0], [5], []])
def test_gate_metrics_are_none_without_both_pair_kinds(labels):
    embeddings = np.eye(4, dtype=np.float32)[: len(labels)]
    assert gate_metrics(embeddings, np.array(labels, int)) is None


def test_same_pairs_are_sampled_above_limit(monkeypatch):
    embeddings, labels = rows(120, seed=1)
    labels //= 10
    exact = count_all_pairs(embeddings, labels)
    monkeypatch.setattr(pairs, "MAX_SAME_PAIRS", 600)
    drawn = count_all_pairs(embeddings, labels)
    assert exact.same > 600 >= drawn.same
    assert roc_auc(drawn) == pytest.approx(roc_auc(exact), abs=0.05)
    assert gate_metrics(embeddings, labels).auc == roc_auc(drawn)


@pytest.mark.parametrize(
    ("auc", "recall", "passes"),
    [
        (0.98, 0.96, True),
        (0.97, 0.94, True),  # exactly the allowed drop, though 0.98 - 0.97 is more than 0.01 in floating point
        (0.9699, 0.96, False),
        (0.98, 0.9399, False),
        (1.0, 1.0, True),
        (1.0, 0.5, False),
        (0.5, 1.0, False),
    ],
)
def test_gate_limits_loss_of_auc_and_recall(auc, recall, passes):
    exported = replace(SOURCE, auc=auc, recall_at_1=recall)
    assert DEFAULT_GATE.passes(SOURCE, exported) is passes
    if passes:
        DEFAULT_GATE.require(SOURCE, exported, "runs/cats in int8")
        return
    with pytest.raises(GateRefused) as refused:
        DEFAULT_GATE.require(SOURCE, exported, "runs/cats in int8")
    message = str(refused.value)
    assert message.startswith(
        f"runs/cats in int8 loses too much: ROC AUC 0.9800 -> {auc:.4f} (may drop by 0.01 at most), "
    )
    assert f"recall@1 0.9600 -> {recall:.4f} (by 0.02 at most); nothing was written. " in message
    for way_out in ("--precision mixed", "--set quantize.aware=true", "--max-auc-drop", "--max-recall-drop"):
        assert way_out in message
    assert "\n" not in message


@given(st.integers(1, 1000), st.integers(0, 1000), st.integers(0, 100))
def test_loss_equal_to_bound_passes(queries, correct, percent):
    """As for the recall@1 of a set of validation queries."""
    correct = min(correct, queries)
    after = correct - queries * percent // 100
    if after < 0:
        return
    exported = replace(SOURCE, recall_at_1=after / queries)
    source = replace(SOURCE, recall_at_1=correct / queries)
    assert Gate(0, percent / 100).passes(source, exported)
    if after > 0:
        assert not Gate(0, percent / 100).passes(source, replace(exported, recall_at_1=(after - 1) / queries))


def test_custom_bounds_apply_to_auc_and_recall_only():
    lost = replace(SOURCE, auc=0.9, recall_at_1=0.8)
    assert Gate(0.08, 0.16).passes(SOURCE, lost)
    assert not Gate(0.08, 0.1).passes(SOURCE, lost)
    assert not Gate(0.01, 0.16).passes(SOURCE, lost)
    assert Gate(0, 0).passes(SOURCE, replace(SOURCE, eer=0.5, best_accuracy=0.5)), "not asked for"
    assert not Gate(0, 0).passes(SOURCE, replace(SOURCE, auc=0.98 - 1e-6))
    with pytest.raises(GateRefused, match=r"by 0\.005 at most.*by 0\.16 at most\)"):
        Gate(0.005, 0.16).require(SOURCE, lost, "it")
