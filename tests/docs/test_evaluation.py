"""The documentation names every suite and every key of eval_results.json."""

import re
from pathlib import Path
from typing import Any

import pytest

from familiar.datasets.folders import DataSpec
from familiar.evaluation.context import EvaluationOptions
from familiar.evaluation.corruptions import CORRUPTIONS
from familiar.evaluation.run_evaluation import evaluate
from familiar.evaluation.suites.catalog import SUITES
from support.color_folders import color_folder
from support.middle_box import MiddleBox

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "explanation" / "evaluation.md").read_text(encoding="utf-8")
FORMATS = (DOCS / "reference" / "formats.md").read_text(encoding="utf-8")
NAMED_BY_DATA = ("missing", "figures", "reasons", "replicates")
DATA_KEYS = ("colors", "side", "routed species", "high_precision", "balanced", "high_recall", *CORRUPTIONS)


def keys(value: Any, parent: str = "") -> set[str]:
    """Collect the keys of all levels, except those that come from the data."""
    if isinstance(value, list):
        return set().union(*(keys(row, parent) for row in value))
    if not isinstance(value, dict):
        return set()
    below = set().union(*(keys(child, key) for key, child in value.items()))
    return below if parent in NAMED_BY_DATA else below | value.keys()


def test_every_suite_has_a_section():
    assert set(re.findall(r"^### (\w+)$", PAGE, re.MULTILINE)) == set(SUITES)


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_every_key_of_the_results_is_documented(mean_color_bundle: Path, tmp_path: Path):
    colors = color_folder(tmp_path / "colors")
    (tmp_path / "facts.csv").write_text("identity,side\nPerson_00,left\nPerson_01,left\n")
    options = EvaluationOptions(tuple(SUITES), slices=tmp_path / "facts.csv")
    data = DataSpec((str(colors),))
    results = evaluate(mean_color_bundle, data, tmp_path / "out", options, detector=MiddleBox())
    # There are no prefixes, no run and no pairs files.
    assert set(results.suites) >= set(SUITES) - {"harmonic", "overfitting", "lfw"}
    table = FORMATS.split("## Results file: eval_results.json")[1].split("\n## ")[0]
    missing = {
        key
        for key in keys(results.to_json()) | {key for path in results.figures for key in path.split(".")}
        if f"`{key}`" not in table and not re.fullmatch(r"1e-\d|\d+", key)
    }
    assert missing - {*DATA_KEYS} == set()
