"""What `familiar evaluate` prints: how embeddings were compared, and what faces and backgrounds give."""

from pathlib import Path

import pytest

from familiar.core.species_means import SpeciesMeans
from familiar.evaluation.corruptions import CORRUPTIONS
from support.cli import Familiar
from support.color_folders import color_folder, pattern_folder
from support.colored_squares import use_colored_squares
from support.mean_color_bundle import CALIBRATED, write_mean_color_bundle

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_report")]


def test_says_how_embeddings_were_compared(familiar: Familiar, tmp_path: Path, mean_color_bundle: Path):
    colors = color_folder(tmp_path / "colors", identities=3)
    means = SpeciesMeans({"colors": (0.5, 0.5, 0.5)}, CALIBRATED)
    centered = write_mean_color_bundle(tmp_path / "means.onnx", CALIBRATED, species_means=means)
    as_in_gallery = "12 photos of 3 identities (all), compared less the means of the photos, as a gallery compares them"
    as_they_are = "12 photos of 3 identities (all), compared as they are"
    for options, line in (
        ((centered,), as_in_gallery),
        ((centered, "--not-centered"), as_they_are),
        ((mean_color_bundle,), as_they_are),
        ((mean_color_bundle, "--not-centered"), as_they_are),
    ):
        answer = familiar("evaluate", *options, colors, "--output", tmp_path / "out", "--suite", "verification")
        assert answer.code == 0, answer.err
        assert line in answer.out.splitlines()


def test_prints_metrics_of_faces_and_backgrounds(
    familiar: Familiar, tmp_path: Path, mean_color_bundle: Path, monkeypatch: pytest.MonkeyPatch
):
    use_colored_squares(monkeypatch)
    colors = color_folder(tmp_path / "colors")
    pets = write_mean_color_bundle(tmp_path / "pets.onnx", CALIBRATED, detector="pets")
    arguments = (colors, "--output", tmp_path / "out", "--suite", "background", "--detector", "none")
    answer = familiar("evaluate", pets, *arguments)
    assert answer.code == 0, answer.err
    lines = answer.out.splitlines()
    assert any(line.startswith("in ") and line.endswith(" others none:") for line in lines)
    for name in ("whole", "face alone", "background alone"):
        assert any(line.startswith(f"  recall@1, {name} ") for line in lines)
        assert any(line.startswith(f"  ROC AUC, {name} ") for line in lines)
    assert "background could not be computed" in familiar("evaluate", mean_color_bundle, *arguments).err


def test_says_that_the_network_loses_against_gray_pixels(familiar: Familiar, tmp_path: Path, mean_color_bundle: Path):
    patterns = pattern_folder(tmp_path / "patterns", identities=4)
    answer = familiar("evaluate", mean_color_bundle, patterns, "--output", tmp_path / "out", "--suite", "pixels")
    assert "warning: the network loses against the gray pixels" in answer.err
    for line in ("  recall@1 of the gray pixels alone ", "  recall@1 gained by the network       -"):
        assert any(printed.startswith(line) for printed in answer.out.splitlines()), line


def test_prints_what_each_corruption_costs(familiar: Familiar, tmp_path: Path, mean_color_bundle: Path):
    colors = color_folder(tmp_path / "colors", identities=3)
    answer = familiar("evaluate", mean_color_bundle, colors, "--output", tmp_path / "out", "--suite", "robustness")
    assert "12 corrupted photos of 3 identities, searched for among the clean ones:" in answer.out.splitlines()
    for corruption in CORRUPTIONS:
        assert f"  {f'recall@1 lost, {corruption}':36} " in answer.out
