"""docs/evaluation.md names every suite and every key of eval_results.json."""

import re
from pathlib import Path
from typing import Any

import pytest

from familiar.datasets.folders import DataSpec
from familiar.evaluation.context import EvaluationOptions
from familiar.evaluation.evaluate import evaluate
from familiar.evaluation.suites.catalog import SUITES
from support.color_folders import color_folder

PAGE = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")
NAMED_BY_DATA = (*("absent", "by_source", "columns", "degradations", "sweeps", "interval", "percentiles", "reasons"),)


def keys(found: Any, at: str = "") -> set[str]:
    """Of all levels, but for those that name what was measured rather than a figure."""
    if isinstance(found, list):
        return set().union(*(keys(one, at) for one in found))
    if not isinstance(found, dict):
        return set()
    below = set().union(*(keys(value, key) for key, value in found.items()))
    return below if at in NAMED_BY_DATA else below | found.keys()


def test_every_suite_has_a_section():
    assert set(re.findall(r"^### (\w+)$", PAGE, re.MULTILINE)) == set(SUITES)


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_every_key_of_the_results_is_documented(mean_color_bundle: Path, tmp_path: Path):
    colors = color_folder(tmp_path / "colors")
    (tmp_path / "facts.csv").write_text("identity,side\nPerson_00,left\nPerson_01,left\n")
    asked = EvaluationOptions(tuple(SUITES), slices=tmp_path / "facts.csv")
    results = evaluate(mean_color_bundle, DataSpec((str(colors),)), tmp_path / "out", asked)
    measured = {name for name in SUITES if results[name] is not None}
    assert measured >= set(SUITES) - {"harmonic", "overfitting", "lfw"}  # no prefixes, no run, no pairs files
    table = PAGE.split("## eval_results.json")[1]
    missing = {key for key in keys(results) if f"`{key}`" not in table and not re.fullmatch(r"1e-\d", key)}
    assert missing - {"high_precision", "balanced", "high_recall"} == set()
