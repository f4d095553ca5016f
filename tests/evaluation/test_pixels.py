"""The gray pixels of the crops as a baseline, against a network that embeds a crop as its mean color."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from familiar.core.vectors import normalize
from familiar.datasets.folders import scan_folders
from familiar.embedding.embedder import Embedder
from familiar.evaluation.context import EvaluationContext, build_context
from familiar.evaluation.report.summary import caveats
from familiar.evaluation.suites.catalog import SUITES, run_suites
from familiar.evaluation.suites.pixels import pixels, pixels_warning
from support.color_folders import color_folder, pattern_folder
from support.evaluation_results import measured_results, values


def context_of(root: Path, bundle: Path) -> EvaluationContext:
    return build_context(Embedder(bundle), scan_folders(root))


def slow_recall_at_1(rows: np.ndarray, labels: np.ndarray) -> float:
    similarity = rows @ rows.T
    np.fill_diagonal(similarity, -2)
    return float((labels[similarity.argmax(1)] == labels).mean())


def test_baseline_is_the_cosine_of_small_gray_crops(tmp_path: Path, mean_color_bundle: Path):
    context = context_of(pattern_folder(tmp_path / "patterns"), mean_color_bundle)
    crops = [context.crop(row).rgb_u8 for row in range(len(context.table))]
    gray = [
        cv2.resize(cv2.cvtColor(crop, cv2.COLOR_RGB2GRAY), (23, 28), interpolation=cv2.INTER_AREA) for crop in crops
    ]
    rows = normalize(np.stack([pixels_u8.ravel() for pixels_u8 in gray]).astype(np.float32) + 1)
    figures = values(pixels(context))
    assert figures["recall_at_1"] == slow_recall_at_1(rows, context.labels)
    network = slow_recall_at_1(context.embeddings, context.labels)
    assert figures["recall_at_1_gain"] == pytest.approx(network - figures["recall_at_1"])


def test_network_that_loses_is_told_so(tmp_path: Path, mean_color_bundle: Path):
    results = measured_results(context_of(pattern_folder(tmp_path / "patterns"), mean_color_bundle), ("pixels",))
    assert results.value("pixels.recall_at_1") == 1
    assert results.value("pixels.network_is_worse") is True
    warning = pixels_warning(results)
    assert warning.startswith("the network loses against the gray pixels")
    assert "against 100.00" in warning
    assert any("loses against the gray pixels" in caveat for caveat in caveats(results))


def test_network_that_wins_is_not_warned_of(tmp_path: Path, mean_color_bundle: Path):
    results = measured_results(context_of(color_folder(tmp_path / "colors"), mean_color_bundle), ("pixels",))
    assert results.value("pixels.network_is_worse") is False
    assert pixels_warning(results) == ""
    assert not any("gray pixels" in caveat for caveat in caveats(results))


def test_only_photos_of_one_species_have_the_baseline_unasked(make_context, tmp_path: Path, mean_color_bundle: Path):
    context = context_of(color_folder(tmp_path / "colors", identities=2), mean_color_bundle)
    assert SUITES["pixels"].applies(context)
    assert not SUITES["pixels"].applies(make_context(species=("cat",) * 48))
    assert "pixels.recall_at_1" in run_suites(context, ()).figures
