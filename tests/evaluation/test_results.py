"""Results of format version 2, written before its keys were renamed, are read as those of version 3."""

import json
from pathlib import Path
from typing import Any

import pytest

from familiar.core.errors import BadResults
from familiar.evaluation.comparison import compare
from familiar.evaluation.results import FORMAT_VERSION, at_path, read_results
from familiar.evaluation.results_version_2 import RENAMED_KEYS, upgrade_from_version_2

# All suites on 96 photos, 12 replicates; prefixes, slices and sweeps are shortened.
VERSION_2 = Path(__file__).parent / "data" / "eval_results_version_2.json"


def stored() -> dict[str, Any]:
    return json.loads(VERSION_2.read_text(encoding="utf-8"))


def values_at(results: Any, path: tuple[str, ...]) -> list[Any]:
    """Collect the values at a path, in which "*" is any key or index."""
    if not path:
        return [results]
    children = dict(enumerate(results)) if isinstance(results, list) else results
    if not isinstance(children, dict):
        return []
    return [
        value for key, child in children.items() if path[0] in ("*", str(key)) for value in values_at(child, path[1:])
    ]


def all_keys(results: Any) -> set[str]:
    if isinstance(results, list):
        return set().union(*map(all_keys, results))
    return set(results).union(*map(all_keys, results.values())) if isinstance(results, dict) else set()


@pytest.mark.parametrize("path", RENAMED_KEYS)
def test_version_2_keys_are_renamed(path: str):
    old_path = tuple(path.split("."))
    new_path = (*old_path[:-1], RENAMED_KEYS[path])
    results = read_results(VERSION_2)
    assert len(values_at(results, new_path)) == len(values_at(stored(), old_path)) > 0
    assert not values_at(results, old_path)


def test_version_2_values_are_unchanged():
    before, after = stored(), read_results(VERSION_2)
    assert after["format_version"] == FORMAT_VERSION
    assert after["replicates"] == before["replicates"]
    assert after["retrieval"] == before["retrieval"]
    assert after["interval"] == {"confidence": 0.95, "resampled": "identities", "replicates": 12, "seed": 0}
    assert after["leaks"]["compared"] == {"evaluated": 96, "seen_in_training": 0}
    assert after["robustness"]["corruptions"] == before["robustness"]["degradations"]
    at_threshold = "verification.at_bundle_thresholds.balanced"
    assert at_path(after, f"{at_threshold}.on_validation") == at_path(before, f"{at_threshold}.promised")
    assert after["missing"].keys() >= {"robustness.corruptions.flip.severity", "verification.tar_at_far.1e-3"}
    assert len(after["missing"]) == len(before["absent"])


def test_keys_are_renamed_within_prefixes_and_slices():
    results = read_results(VERSION_2)
    assert results["harmonic"]["prefixes"][0]["verification"]["interval_pairs"] > 0
    (row,) = results["slices"]["columns"]["side"]
    assert row["triplets"]["sampling"] == "all"
    assert row["clustering"]["groups"]["domain_shift"] is not None
    assert not all_keys(results) & {path.rpartition(".")[2] for path in RENAMED_KEYS}


def test_names_from_the_data_are_not_renamed():
    results = stored()
    results["slices"]["columns"] = {"absent": [{"value": "over", "photos": 1, "triplets": {"which": "all"}}]}
    results["absent"] = {"slices.columns.absent.0.triplets.which": "reason"}
    upgraded = upgrade_from_version_2(results)
    assert upgraded["slices"]["columns"] == {
        "absent": [{"value": "over", "photos": 1, "triplets": {"sampling": "all"}}]
    }
    assert upgraded["missing"] == {"slices.columns.absent.0.triplets.sampling": "reason"}


def test_version_2_is_comparable_with_version_3(tmp_path: Path):
    path = tmp_path / "eval_results.json"
    path.write_text(json.dumps(read_results(VERSION_2)))
    differences = compare(read_results(VERSION_2), read_results(path))
    assert {difference.figure for difference in differences} == stored()["replicates"].keys()
    assert all(difference.difference == 0 for difference in differences)


def test_rejects_unknown_version(tmp_path: Path):
    for version in (1, FORMAT_VERSION + 1, "2"):
        path = tmp_path / f"{version}.json"
        path.write_text(json.dumps(stored() | {"format_version": version}))
        with pytest.raises(BadResults, match=rf"reads 2 and {FORMAT_VERSION}; evaluate again"):
            read_results(path)


def test_rejects_damaged_version_2_file(tmp_path: Path):
    path = tmp_path / "eval_results.json"
    path.write_text(json.dumps({"format_version": 2, "absent": [], "replicates": {}}))
    with pytest.raises(BadResults, match="not a complete"):
        read_results(path)


def test_at_path_returns_nested_value():
    assert at_path({"verification": {"tar_at_far": {"1e-2": 0.5}}}, "verification.tar_at_far.1e-2") == 0.5
