from dataclasses import replace

import numpy as np
import pytest

from familiar.core.errors import BadResults
from familiar.core.vectors import normalize
from familiar.evaluation.comparison import Difference, compare, summarize
from familiar.evaluation.results import EvaluationResults, Figure
from familiar.evaluation.suites.catalog import run_suites
from support.evaluation_results import empty_results


def results_of(context) -> EvaluationResults:
    run = run_suites(context, ["retrieval", "verification", "triplets"])
    replicates = {path: tuple(values.tolist()) for path, values in run.replicates.items()}
    return empty_results(figures=run.figures, replicates=replicates)


_PAIR = []


@pytest.fixture
def pair(make_context):
    """A model, and one whose embeddings are a little noisier; computed once."""
    if not _PAIR:
        _PAIR.extend(make_pair(make_context))
    return tuple(_PAIR)


def make_pair(make_context):
    good = make_context(identities=40, noise=0.6, dim=16)
    noise = np.random.default_rng(9).normal(size=good.embeddings.shape).astype(np.float32)
    worse = replace(good, embeddings=normalize(good.embeddings + 0.05 * noise))
    return results_of(good), results_of(worse)


@pytest.mark.slow
def test_better_model_is_significantly_better(pair):
    good, worse = pair
    differences = {difference.figure: difference for difference in compare(worse, good)}
    auc = differences["verification.auc"]
    assert auc.first == worse.value("verification.auc")
    assert auc.difference == pytest.approx(good.value("verification.auc") - worse.value("verification.auc"))
    assert auc.better == "second"
    assert differences["triplets.violation_rate"].better == "second"  # lower is better
    assert differences["triplets.violation_rate"].difference < 0
    assert "B is better" in summarize(tuple(differences.values()), ("A", "B"))
    reverse = {difference.figure: difference for difference in compare(good, worse)}
    assert reverse["verification.auc"].better == "first"
    assert reverse["verification.auc"].interval == pytest.approx(tuple(-side for side in reversed(auc.interval)))


@pytest.mark.slow
def test_paired_interval_is_narrower_than_model_intervals(pair):
    good, worse = pair
    auc = next(difference for difference in compare(worse, good) if difference.figure == "verification.auc")
    first, second = (results.figures["verification.auc"].interval for results in (worse, good))
    assert first[1] > second[0]  # the models' own intervals overlap
    assert auc.interval[1] - auc.interval[0] < (first[1] - first[0]) / 2


@pytest.mark.slow
def test_identical_models_have_no_difference(pair):
    same = compare(pair[0], pair[0])
    assert {difference.better for difference in same} == {None}
    assert {difference.interval for difference in same} == {(0.0, 0.0), None}
    assert "more than noise" in summarize(same, ("A", "B"))


def test_summary_reports_neither_when_each_model_wins_once():
    won = Difference("verification.auc", 0.5, 0.6, 0.1, (0.05, 0.15))
    lost = Difference("retrieval.mrr", 0.5, 0.4, -0.1, (-0.15, -0.05))
    assert "Neither" in summarize((won, lost), ("A", "B"))
    assert (won.better, lost.better) == ("second", "first")
    assert Difference("verification.eer", 0.2, 0.1, -0.1, (-0.2, -0.05)).better == "second"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("data", {"fingerprint": "other"}, "photos"),
        ("interval", {"seed": 1}, "draws"),
        ("figures", {"verification.same_pairs": Figure(1)}, "pairs"),
    ],
)
def test_rejects_results_with_different_photos_draws_or_pairs(pair, part, changes, message):
    before = getattr(pair[1], part)
    changed = replace(pair[1], **{part: before | changes if part == "figures" else replace(before, **changes)})
    with pytest.raises(BadResults, match=message):
        compare(pair[0], changed)


@pytest.mark.slow
def test_metrics_with_replicates_of_different_length_have_no_interval(pair):
    short = {name: values[:-1] for name, values in pair[1].replicates.items()}
    differences = compare(pair[0], replace(pair[1], replicates=short))
    assert {difference.interval for difference in differences} == {None}
    assert {difference.better for difference in differences} == {None}
    assert "ten identities" in summarize(differences, ("A", "B"))


def test_metrics_without_replicates_come_last_and_have_no_interval():
    figures = {
        "retrieval.queries": Figure(96),
        "retrieval.recall_at_1": Figure(0.5),
        "clustering.kmeans.ami": Figure(0.25),
        "clustering.kmeans.seed": Figure(0),
        "verification.auc": Figure(0.75),
        "verification.tar_at_far.1e-4": Figure(None),
        "verification.eer_threshold": Figure(0.5),
        "verification.at_bundle_thresholds.balanced.on_validation.tar": Figure(0.5),
        "robustness.corruptions.blur.recall_at_1_drop": Figure(0.125, 0.1, 0.2),
        "robustness.sweeps.blur.0.auc": Figure(0.5),
    }
    replicates = {"verification.auc": (0.7, 0.8)}
    first = empty_results(figures=figures, replicates=replicates)
    second = replace(first, figures=figures | {"clustering.kmeans.ami": Figure(0.5)})
    differences = compare(first, second)
    assert [(each.figure, each.difference, each.interval) for each in differences] == [
        ("verification.auc", 0, (0, 0)),
        ("retrieval.recall_at_1", 0, None),
        ("clustering.kmeans.ami", 0.25, None),
        ("robustness.corruptions.blur.recall_at_1_drop", 0, None),
    ]
    assert summarize(differences, ("A", "B")) == "No difference in 1 metrics is more than noise."


def test_rejects_results_without_common_metric():
    first = empty_results(figures={"verification.auc": Figure(0.5)})
    with pytest.raises(BadResults, match="same --suite"):
        compare(first, empty_results(figures={"retrieval.mrr": Figure(0.5)}))
