"""Results as JSON and back."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.errors import BadResults
from familiar.evaluation.results import FORMAT, EvaluationResults, interval_at, metric_at, read_results, write_results
from support.evaluation_results import empty_results, full_results


def rejection(folder: Path, document: Any) -> str:
    """Return the error for a file with a document, less the file's name."""
    path = folder / "eval_results.json"
    path.write_text(json.dumps(document))
    with pytest.raises(BadResults) as error:
        read_results(path)
    assert str(error.value).startswith(f"{path}: ")
    return str(error.value).removeprefix(f"{path}: ")


def test_rejects_file_of_a_development_version(tmp_path: Path):
    document = full_results().to_json()
    del document["format"]
    message = "was made by a development version of familiar; evaluate again"
    assert rejection(tmp_path, {"format_version": 3} | document) == message


def test_rejects_other_marks(tmp_path: Path):
    document = full_results().to_json()
    assert document["format"] == FORMAT == "familiar-evaluation/1"
    newer = "was made by a newer version of familiar (familiar-evaluation/12); update familiar"
    assert rejection(tmp_path, document | {"format": "familiar-evaluation/12"}) == newer
    for mark in (3, ["familiar-evaluation/1"], "familiar-evaluation/0", "familiar-router/2"):
        message = f"is of format {mark!r}, not familiar-evaluation/1; evaluate again"
        assert rejection(tmp_path, document | {"format": mark}) == message


def test_metric_at_walks_dataclasses_mappings_and_tuples():
    results = full_results()
    assert metric_at(results, "verification.tar_at_far.1e-2") == results.verification.tar_at_far["1e-2"]
    assert metric_at(results, "harmonic.prefixes.0.retrieval.mrr") == results.harmonic.prefixes[0].retrieval.mrr
    assert metric_at({"verification": {"tar_at_far": {"1e-2": 0.5}}}, "verification.tar_at_far.1e-2") == 0.5
    for path in ("verification.novel", "verification.auc.x", "harmonic.prefixes.9", "verification.to_json"):
        with pytest.raises(KeyError, match=path):
            metric_at(results, path)


def test_interval_is_next_to_its_metric_or_above_it():
    results = full_results()
    assert interval_at(results, "verification.tar_at_far.1e-2") == results.verification.interval["tar_at_far.1e-2"]
    blur = results.robustness.corruptions["blur"]
    assert interval_at(results, "robustness.corruptions.blur.auc_drop") == blur.interval["auc_drop"]
    assert interval_at({"tta": {"flip": {"auc_gain": 1, "interval": {"auc_gain": [0, 2]}}}}, "tta.flip.auc_gain") == (
        0,
        2,
    )
    assert interval_at(results, "verification.spearman") is None
    assert interval_at(results, "data.photos") is None


# --- Round trip -------------------------------------------------------------------------------------------------------


def test_results_are_equal_after_writing_and_reading(tmp_path: Path):
    for number, results in enumerate((full_results(), empty_results(), unmeasured())):
        path = tmp_path / f"{number}.json"
        write_results(path, results)
        assert read_results(path) == results
        assert EvaluationResults.from_json(json.loads(path.read_text())).to_json() == results.to_json()


def unmeasured() -> EvaluationResults:
    return empty_results(reasons={"verification": "verification: needs two identities"})


share = st.none() | st.floats(0, 1)


@given(
    auc=st.floats(0, 1),
    tar_at_far=st.dictionaries(st.text(), share),
    low=st.floats(-1, 1),
    skipped=st.lists(st.text()).map(tuple),
    reasons=st.dictionaries(st.sampled_from(["tta", "lfw", "triplets"]), st.text()),
    severity=st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
)
def test_any_values_are_equal_after_json(auc, tar_at_far, low, skipped, reasons, severity):
    results = full_results()
    verification = replace(results.verification, auc=auc, tar_at_far=tar_at_far, interval={"auc": (low, 1.0)})
    blur = replace(results.robustness.corruptions["blur"], severity=severity, recall_at_1_drop=None)
    changed = replace(
        results,
        data=replace(results.data, skipped=skipped),
        verification=verification,
        robustness=replace(results.robustness, corruptions={"blur": blur}),
        reasons=reasons,
        replicates={"verification.auc": (auc,)},
        **dict.fromkeys(reasons),
    )
    assert EvaluationResults.from_json(json.loads(json.dumps(changed.to_json()))) == changed


def test_suite_that_was_not_run_has_no_key_and_unmeasurable_suite_is_null():
    document = unmeasured().to_json()
    assert document["verification"] is None
    assert "retrieval" not in document
    assert unmeasured().has_suite("verification")
    assert not unmeasured().has_suite("retrieval")


def test_replicates_are_left_out_on_request():
    assert "replicates" not in full_results().to_json(with_replicates=False)


def test_replicates_are_written_one_per_line(tmp_path: Path):
    path = tmp_path / "r.json"
    results = replace(full_results(), replicates={"verification.auc": (0.5, 0.3333333)})
    write_results(path, results)
    assert '  "verification.auc": [0.5, 0.3333333]' in path.read_text().splitlines()
    write_results(path, empty_results())
    assert read_results(path).replicates == {}


# --- Damaged files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["", "[]", "{}", "no json", '{"format": "familiar-evaluation/1"}'])
def test_rejects_malformed_or_missing_results_file(tmp_path: Path, content: str):
    path = tmp_path / "eval_results.json"
    path.write_text(content)
    with pytest.raises(BadResults, match=r"eval_results\.json"):
        read_results(path)
    with pytest.raises(BadResults, match="gone"):
        read_results(tmp_path / "gone.json")


REMOVED = object()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("novel", 1, "the key novel is unknown"),
        ("verification.novel", 1, "the key verification.novel is unknown"),
        ("harmonic.prefixes.0.verification.probability", None, r"the key harmonic.*probability is unknown"),
        ("data.fingerprint", REMOVED, r"the key data\.fingerprint is missing"),
        ("replicates", REMOVED, "the key replicates is missing"),
        ("robustness.corruptions.blur.auc_drop", REMOVED, r"the key .*\.blur\.auc_drop is missing"),
        ("data", [], r"data is \[\], but should be an object"),
        ("data.photos", 1.5, r"data\.photos is 1\.5, but should be an integer"),
        ("data.photos", True, r"data\.photos is True, but should be an integer"),
        ("data.sources", "colors", r"data\.sources is 'colors', but should be a list"),
        ("data.split", "some", r"data\.split is 'some', but should be one of 'test', 'all'"),
        ("data.fingerprint", None, r"data\.fingerprint is None, but should be a string"),
        ("verification.auc", "high", r"verification\.auc is 'high', but should be a number"),
        ("verification.auc", None, r"verification\.auc is None, but should be a number"),
        ("verification.interval.auc", [0.5], r"verification\.interval\.auc has 1 entries, but should have 2"),
        ("verification.tar_at_far", [], r"verification\.tar_at_far is \[\], but should be an object"),
        ("model.thresholds_fitted", 1, r"model\.thresholds_fitted is 1, but should be true or false"),
        ("verification", None, "verification is null, but reasons does not say why"),
        ("reasons", None, "reasons is None, but should be an object"),
        ("replicates", {"verification.novel": [1.0]}, r"replicates\.verification\.novel has no values"),
        ("replicates", {"verification.auc": []}, r"replicates\.verification\.auc has no values"),
        ("replicates", {"verification.interval": [1.0]}, r"replicates\.verification\.interval"),
        ("replicates", [1], r"replicates is \[1\], but should be an object"),
    ],
)
def test_rejects_unknown_and_missing_keys_and_wrong_types(tmp_path: Path, path: str, value: Any, message: str):
    document = copy.deepcopy(full_results().to_json())
    *parents, last = path.split(".")
    part: Any = document
    for key in parents:
        part = part[int(key)] if isinstance(part, list) else part[key]
    if value is REMOVED:
        del part[last]
    else:
        part[last] = value
    file = tmp_path / "eval_results.json"
    file.write_text(json.dumps(document))
    with pytest.raises(BadResults, match=rf"eval_results\.json: is not a complete.*{message}.*evaluate again"):
        read_results(file)
