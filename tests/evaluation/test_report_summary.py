"""The summary of the report: its three sentences and its caveats."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from familiar.datasets.folders import scan_folders
from familiar.embedding.embedder import Embedder
from familiar.evaluation.context import EvaluationContext, build_context
from familiar.evaluation.report.examples import collect_examples, wilson_lower_bound
from familiar.evaluation.report.summary import (
    accuracy_sentence,
    caveats,
    failure_sentence,
    summary_sentences,
    threshold_sentence,
    threshold_shift,
)
from familiar.evaluation.results import EvaluationResults, Figure
from familiar.evaluation.results.document import ComparedPhotos, LeakedPicture, LeakResults
from familiar.evaluation.results.figures import make_figures
from support.color_folders import color_folder
from support.evaluation_results import empty_results, measured_results, with_figures


@pytest.fixture
def context(tmp_path: Path, mean_color_bundle: Path) -> EvaluationContext:
    return build_context(Embedder(mean_color_bundle), scan_folders(color_folder(tmp_path / "colors")))


def verification(far: float = 0.03, *, thresholds_fitted: bool = True) -> dict[str, Any]:
    balanced = {"similarity": 0.5, "far": far, "tar": 0.97, "on_validation": {"far": 0.03, "tar": 0.97}}
    return {
        "auc": Figure(0.991, 0.98, 0.995),
        "eer_threshold": 0.52,
        "different_pairs": 10_000,
        "thresholds_fitted": thresholds_fitted,
        "at_bundle_thresholds": {
            "high_precision": balanced | {"similarity": 0.7, "far": 0.0001, "tar": 0.8},
            "balanced": balanced,
        },
    }


def results_with(
    identities: int = 200, identities_seen_in_training: int = 0, figures: dict[str, Any] | None = None, **parts: Any
) -> EvaluationResults:
    results = empty_results(figures=make_figures(figures or {}), **parts)
    counts = {"identities": identities, "identities_seen_in_training": identities_seen_in_training}
    return replace(results, data=replace(results.data, **counts))


def test_accuracy_sentence_has_intervals_and_most_severe_caveat():
    retrieval = {"retrieval.recall_at_1": Figure(0.931, 0.9, 0.95)}
    sentence = accuracy_sentence(results_with(figures=retrieval | {"verification": verification()}))
    assert "93.10\u00a0%" in sentence
    assert "90.00 to 95.00\u00a0%" in sentence
    assert "99.10\u00a0%" in sentence
    assert sentence.endswith("99.50\u00a0%).")
    assert "only 23 identities" in accuracy_sentence(results_with(figures=retrieval, identities=23))
    assert "with 1 identity that says nothing" in accuracy_sentence(results_with(figures=retrieval, identities=1))
    trained = accuracy_sentence(results_with(figures=retrieval, identities=23, identities_seen_in_training=6))
    assert "6 of the 23 identities were trained on" in trained
    assert "only" not in trained
    picture = LeakedPicture(("a.png", "b.png"), ("a", "b"), exact=True, similarity=1.0)
    leaks = LeakResults(ComparedPhotos(36, 36), (picture, picture), (), excluded=0)
    assert "2 pictures</a> may be leaked" in accuracy_sentence(results_with(figures=retrieval, leaks=leaks))
    assert "leaked" not in accuracy_sentence(results_with(figures=retrieval, leaks=replace(leaks, excluded=2)))
    assert accuracy_sentence(results_with()) == "Neither retrieval nor verification was measured."


def test_threshold_sentence_recommends_threshold_or_states_reason():
    assert "Set the threshold to <strong>0.500</strong> (balanced)" in threshold_sentence(
        results_with(figures={"verification": verification()})
    )
    shifted = threshold_sentence(results_with(figures={"verification": verification(far=0.2)}))
    assert "do not transfer" in shifted
    assert "6.7 times as many false accepts as on its validation photos" in shifted
    assert "<strong>0.520</strong>" in shifted
    fixed = threshold_sentence(results_with(figures={"verification": verification(thresholds_fitted=False)}))
    assert "No threshold was ever fitted" in fixed
    assert "No threshold can be recommended" in threshold_sentence(results_with())


@pytest.mark.parametrize(
    ("far", "tar", "pairs", "clause"),
    [
        (0.03, 0.97, 10_000, ""),
        (0.06, 0.97, 10_000, ""),  # twice as many may be chance
        (0.0601, 0.97, 10_000, "2.0 times as many false accepts"),
        (0.0601, 0.97, 100, ""),  # six pairs say little
        (0.03, 0.91, 10_000, "accepted 97.00\u00a0% of same pairs on its validation"),
        (0.001, 0.97, 10_000, "stricter than necessary"),
        (0.001, 0.97, 100, ""),
    ],
)
def test_threshold_shift_reports_significant_rate_changes(far: float, tar: float, pairs: int, clause: str):
    metrics = verification(far) | {"different_pairs": pairs}
    metrics["at_bundle_thresholds"]["balanced"]["tar"] = tar
    text = threshold_shift(results_with(figures={"verification": metrics}))
    assert clause in text
    assert bool(clause) == bool(text)
    metrics["at_bundle_thresholds"]["balanced"]["on_validation"] = {"far": None, "tar": None}
    assert threshold_shift(results_with(figures={"verification": metrics})) == ""


def test_threshold_shift_reports_false_accepts_without_any_on_validation():
    metrics = verification(far=0.01)
    metrics["at_bundle_thresholds"]["balanced"]["on_validation"] = {"far": 0.0, "tar": 1.0}
    text = threshold_shift(results_with(figures={"verification": metrics}))
    assert text == "while it accepted no different pairs on its validation photos"


@pytest.mark.slow
def test_failing_identities_match_slow_reference(context: EvaluationContext):
    results = measured_results(context)
    examples = collect_examples(context, results)
    worst = examples.failing[0]
    labels, similarity = context.labels, context.embeddings @ context.embeddings.T
    np.fill_diagonal(similarity, -2)
    wrong = labels[similarity.argmax(1)] != labels
    mask = labels == context.table.names.index(f"colors/{worst.identity}")
    assert (worst.missed, worst.photos) == ((wrong & mask).sum(), mask.sum())
    assert examples.identities_without_miss == len(set(range(12)) - set(labels[wrong].tolist()))
    nearest_labels = labels[similarity.argmax(1)][wrong & mask]
    assert context.table.names.index(f"colors/{worst.confused_with}") in nearest_labels
    assert worst.identity in failure_sentence(results, examples)
    assert worst.identity in summary_sentences(results, examples)[1]
    part = {"photos": 9, "identities": 3}
    tabby = {"value": "tabby", **part, "retrieval.recall_at_1": 0.25}
    black = {"value": "black", **part, "retrieval.recall_at_1": 0.5}
    columns = {"size": [black | {"value": "small"}], "coat": [tabby, black], "sex": [{"value": "f", "retrieval": None}]}
    sliced = with_figures(results, slices={"columns": columns})
    assert "coat</bdi> is <strong><bdi>tabby</bdi></strong>: recall@1 25.00" in failure_sentence(sliced, examples)
    without = replace(examples, failing=(), searched_identities=0)
    assert "most similar pair of different identities" in failure_sentence(results, without)
    assert "fails for no identity" in failure_sentence(results, replace(examples, failing=(), searched_identities=12))
    assert "unknown" in failure_sentence(results, replace(without, negatives=None))


def test_wilson_low_equals_closed_form_and_penalizes_few_photos():
    # All of n missed: n / (n + z^2); none missed: 0.
    assert wilson_lower_bound(2, 2) == pytest.approx(2 / (2 + 1.96**2))
    assert wilson_lower_bound(0, 9) == pytest.approx(0.0, abs=1e-12)
    assert wilson_lower_bound(1, 1) < wilson_lower_bound(15, 22)


def test_collection_of_training_is_a_caveat():
    data = replace(
        results_with(60, 6).data,
        identities_seen_in_training=0,
        identities_seen_in_validation=2,
        collections_trained_on=("cats", "dogs"),
    )
    known = replace(results_with(60, 6), data=data)
    lower = "The model was trained on photos of the same collections: the metrics are lower on others."
    assert caveats(known)[0] == lower
    assert lower not in caveats(replace(known, data=replace(data, identities_seen_in_training=3)))


def test_caveats_are_listed_but_for_the_one_in_the_first_sentence():
    results = results_with(23, 6, reasons={"lfw": "lfw: no <pairs>"})
    results = replace(results, data=replace(results.data, identities_seen_in_validation=2, skipped=("a.png: empty",)))
    assert caveats(results) == [
        "Epoch and thresholds were chosen by 2 of the 23 identities: that makes the metrics too good, too.",
        "These are 23 identities only; the results for others may be quite different.",
        "The photos were not checked for train/test leakage.",
        '1 photo could <a href="#left-out">not be evaluated</a>.',
        "<bdi>lfw</bdi> could not be computed: <bdi>no &lt;pairs&gt;</bdi>.",
    ]
