from familiar.evaluation.missing import missing_reason
from familiar.evaluation.suites.catalog import run_suites


def test_every_figure_without_value_has_a_reason(make_context):
    names = ["retrieval", "verification", "clustering", "separation", "identification", "triplets"]
    unknown = missing_reason("nonsense")
    for context in (make_context(identities=2, per=2), make_context(per=1), make_context(identities=3, per=1)):
        results = run_suites(context, names)
        without = {path for path, figure in results.figures.items() if figure.value is None}
        assert results.missing.keys() == without != set()
        assert unknown not in results.missing.values(), results.missing


def test_reason_is_that_of_the_end_of_the_path():
    assert missing_reason("harmonic.prefixes.1.retrieval.recall_at_5").startswith("there are no more candidates")
    assert missing_reason("verification.tar_at_far.1e-4") == "takes 100,000 pairs of different identities"
    assert missing_reason("nonsense") == "does not exist for these photos"
