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
from familiar.evaluation.results import FORMAT, EvaluationResults, Figure, read_results, write_results
from familiar.evaluation.results.figures import make_figures
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


def test_figures_are_read_by_path():
    results = full_results()
    assert (
        results.value("verification.auc")
        == results.number("verification.auc")
        == results.figures["verification.auc"].value
    )
    assert (results.value("verification.pairs"), results.number("verification.pairs")) == ("all", None)
    assert results.value("verification.novel") is None
    low, high = results.figures["verification.tar_at_far.1e-2"].interval
    assert low < results.value("verification.tar_at_far.1e-2") < high
    assert results.figures["verification.spearman"].interval is None


def test_reason_is_that_of_the_figure_or_of_what_it_is_part_of():
    missing = {"slices.columns.coat.0.triplets": "triplets: too few", "lfw.view_1": "no pairs"}
    results = empty_results(missing=missing)
    assert results.reason("lfw.view_1") == results.reason("lfw.view_1.accuracy") == "no pairs"
    assert results.reason("slices.columns.coat.0.triplets.violation_rate") == "too few"
    assert results.reason("verification.tar_at_far.1e-4") == "takes 100,000 pairs of different identities"


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
    severity=st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.text(),
)
def test_any_values_are_equal_after_json(auc, tar_at_far, low, skipped, reasons, severity):
    results = full_results()
    changed = replace(
        results,
        data=replace(results.data, skipped=skipped),
        figures=results.figures
        | make_figures(
            {
                "verification": {"auc": Figure(auc, low, 1.0), "tar_at_far": tar_at_far},
                "robustness": {"corruptions": {"blur": {"severity": severity, "recall_at_1_drop": None}}},
            }
        ),
        reasons=reasons,
        replicates={"verification.auc": (auc,)},
    )
    assert EvaluationResults.from_json(json.loads(json.dumps(changed.to_json()))) == changed


def test_unmeasurable_suite_was_run():
    assert unmeasured().has_suite("verification")
    assert not unmeasured().has_suite("retrieval")
    assert unmeasured().suites == ()


def test_replicates_are_left_out_on_request():
    assert "replicates" not in full_results().to_json(with_replicates=False)


def test_figures_and_replicates_are_written_one_per_line(tmp_path: Path):
    path = tmp_path / "r.json"
    figures = {"verification.auc": Figure(0.5, 0.25, 0.75)}
    results = replace(full_results(), figures=figures, replicates={"verification.auc": (0.5, 0.3333333)})
    write_results(path, results)
    assert '  "verification.auc": {"value": 0.5, "low": 0.25, "high": 0.75}' in path.read_text().splitlines()
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
        (("novel",), 1, "unknown key 'novel'"),
        (
            ("figures", "verification.auc", "novel"),
            1,
            r"figures\.verification\.auc: expected an object with value, low",
        ),
        (("data", "fingerprint"), REMOVED, r"the key data\.fingerprint is missing"),
        (("replicates",), REMOVED, "the key replicates is missing"),
        (
            ("figures", "verification.auc", "low"),
            REMOVED,
            r"figures\.verification\.auc: expected an object with value, low",
        ),
        (("data",), [], r"data: expected an object, got \[\]"),
        (("data", "photos"), 1.5, r"data\.photos: 1\.5 has the wrong type"),
        (("data", "photos"), True, r"data\.photos: True has the wrong type"),
        (("data", "sources"), "colors", r"data\.sources: 'colors' has the wrong type"),
        (("data", "split"), "some", r"data\.split: 'some' has the wrong type or value, expected test, all"),
        (("data", "fingerprint"), None, r"data\.fingerprint: None has the wrong type"),
        (("figures", "verification.auc"), 0.5, r"figures\.verification\.auc: expected an object .*, got 0\.5"),
        (("figures", "verification.auc", "value"), [], r"value is \[\], but should be a number, a text"),
        (("figures", "verification.auc", "low"), "0", "low and high should be numbers"),
        (("model", "thresholds_fitted"), 1, r"model\.thresholds_fitted: 1 has the wrong type"),
        (("reasons",), None, "reasons: expected an object, got None"),
        (("replicates",), {"verification.novel": [1.0]}, r"replicates\.verification\.novel has no values"),
        (("replicates",), {"verification.auc": []}, r"replicates\.verification\.auc has no values"),
        (("replicates",), {"verification.pairs": [1.0]}, r"replicates\.verification\.pairs"),
        (("replicates",), [1], r"replicates: expected an object, got \[1\]"),
    ],
)
def test_rejects_unknown_and_missing_keys_and_wrong_types(
    tmp_path: Path, path: tuple[str, ...], value: Any, message: str
):
    document = copy.deepcopy(full_results().to_json())
    *parents, last = path
    part: Any = document
    for key in parents:
        part = part[key]
    if value is REMOVED:
        del part[last]
    else:
        part[last] = value
    file = tmp_path / "eval_results.json"
    file.write_text(json.dumps(document))
    with pytest.raises(BadResults, match=rf"eval_results\.json: is not a complete.*{message}.*evaluate again"):
        read_results(file)
