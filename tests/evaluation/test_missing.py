from familiar.evaluation.missing import missing_metrics, missing_reason
from familiar.evaluation.results.json_conversion import to_json
from familiar.evaluation.suites.catalog import run_suites


def test_every_null_metric_has_reason(make_context):
    names = ["retrieval", "verification", "clustering", "separation", "identification", "triplets"]
    for context in (make_context(identities=2, per=2), make_context(per=1), make_context(identities=3, per=1)):
        reasons = dict(missing_metrics(to_json(run_suites(context, names).metrics)))
        assert reasons
        assert all(missing_reason(path) for path in reasons), reasons


def test_finds_nulls_at_any_depth():
    metrics = {
        "a": None,
        "verification": {"tar_at_far": {"1e-4": None, "1e-2": 0.5}},
        "harmonic": {"prefixes": [{"retrieval": {"recall_at_1": 1.0}}, {"retrieval": {"recall_at_5": None}}]},
    }
    reasons = dict(missing_metrics(metrics))
    assert reasons.keys() == {"verification.tar_at_far.1e-4", "harmonic.prefixes.1.retrieval.recall_at_5"}
    assert reasons["verification.tar_at_far.1e-4"] == "takes 100,000 pairs of different identities"
    assert missing_reason("nonsense") is None
