from familiar.evaluation.missing import missing_metrics, missing_reason
from familiar.evaluation.suites.catalog import run_suites


def test_every_null_metric_has_reason(measured):
    names = ["retrieval", "verification", "clustering", "separation", "identification", "triplets"]
    for found in (measured(identities=2, per=2), measured(per=1), measured(identities=3, per=1)):
        parts = run_suites(found, names).metrics
        told = dict(missing_metrics(parts))
        assert told
        assert all(missing_reason(path) for path in told), told


def test_finds_nulls_at_any_depth():
    parts = {
        "a": None,
        "verification": {"tar_at_far": {"1e-4": None, "1e-2": 0.5}},
        "harmonic": {"prefixes": [{"retrieval": {"recall_at_1": 1.0}}, {"retrieval": {"recall_at_5": None}}]},
    }
    told = dict(missing_metrics(parts))
    assert told.keys() == {"verification.tar_at_far.1e-4", "harmonic.prefixes.1.retrieval.recall_at_5"}
    assert told["verification.tar_at_far.1e-4"] == "takes 100,000 pairs of strangers"
    assert missing_reason("nonsense") is None
