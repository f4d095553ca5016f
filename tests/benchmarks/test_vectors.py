"""Tests of truncated embeddings, and of queries in the gallery of another bundle."""

from pathlib import Path

import numpy as np
import pytest
from papers.figures import mean_of, value_at
from papers.vectors import BRIDGED, COMPATIBLE, NEITHER, OLD_OLD, across, cut_short

from familiar.datasets.folders import DataSpec
from familiar.evaluation.context import EvaluationOptions
from familiar.evaluation.results import EvaluationResults, read_results
from familiar.evaluation.run_evaluation import evaluate
from support.color_folders import color_folder

pytestmark = pytest.mark.slow


@pytest.fixture
def colors(tmp_path: Path) -> Path:
    """Write photos so similar that many are nearest to another identity's."""
    return color_folder(tmp_path / "colors", spread=60)


@pytest.fixture
def evaluated(mean_color_bundle: Path, colors: Path, tmp_path: Path) -> EvaluationResults:
    options = EvaluationOptions(("verification", "retrieval"))
    evaluate(mean_color_bundle, DataSpec((str(colors),)), tmp_path / "results", options)
    return read_results(tmp_path / "results" / "eval_results.json")


@pytest.mark.exhaustive
def test_full_length_matches_evaluate_and_length_1_has_auc_half(
    mean_color_bundle: Path, colors: Path, evaluated: EvaluationResults
) -> None:
    results = cut_short(mean_color_bundle, colors, (3, 1))
    assert results[3]["replicates"].keys() == evaluated.replicates.keys() != set()
    for path, drawn in evaluated.replicates.items():
        assert value_at(results[3], path) == pytest.approx(value_at(evaluated, path), abs=1e-6)
        np.testing.assert_allclose(results[3]["replicates"][path], drawn, atol=1e-6)
    # One component scaled to unit length is 1 for every color.
    assert value_at(results[1], "verification.auc") == 0.5


@pytest.mark.exhaustive
def test_across_with_one_bundle_matches_evaluation(
    mean_color_bundle: Path, colors: Path, evaluated: EvaluationResults
) -> None:
    table = DataSpec((str(colors),)).read()
    results = across(*[mean_color_bundle] * 4, table, table)
    expected = mean_of([evaluated], "retrieval.recall_at_1")
    assert expected[0] < 1  # 1 would mean that queries find themselves
    for way in (OLD_OLD, NEITHER, COMPATIBLE, BRIDGED["rotated"]):
        assert mean_of([results[way]], "across.recall_at_1") == pytest.approx(expected, abs=1e-6)
        assert value_at(results[way], "across.auc") == pytest.approx(evaluated.value("verification.auc"), abs=1e-6)
