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
    assert all(difference.interval == (0.0, 0.0) for difference in same)
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
def test_rejects_replicates_with_different_length(pair):
    short = {name: values[:-1] for name, values in pair[1].replicates.items()}
    with pytest.raises(BadResults, match="in common"):
        compare(pair[0], replace(pair[1], replicates=short))


@pytest.mark.slow
def test_rejects_results_without_common_metric(pair):
    with pytest.raises(BadResults, match="ten identities"):
        compare(pair[0], replace(pair[1], replicates={}))
