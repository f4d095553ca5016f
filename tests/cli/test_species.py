"""`familiar species`, and bundles of several species as the --model of other commands."""

import json
from pathlib import Path

import numpy as np
import pytest

from familiar.detection.detectors import DETECTORS, DetectorSpec
from familiar.embedding.bundle import load_bundle
from familiar.embedding.photos import embed_photos
from support.cli import Familiar
from support.colored_species import ByColor, save_colored, tiny_species

COLORS = {"cat": (200, 30, 30), "dog": (30, 200, 30), "person": (30, 30, 200)}
DETECTOR = ("--detector", "by-color")


@pytest.fixture(autouse=True)
def by_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DETECTORS, "by-color", DetectorSpec("by color", ByColor))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two photos of each species."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for name, rgb in COLORS.items():
        for photo in range(2):
            save_colored(folder / f"{name}{photo}.png", rgb, photo)
    return folder


@pytest.fixture
def models(tmp_path: Path, mean_color_bundle: Path) -> tuple[str, ...]:
    """The options with which cats and dogs have bundles of their own."""
    tiny_species(mean_color_bundle, tmp_path)
    return ("--model", f"cat={tmp_path / 'cat.onnx'}", "--model", f"dog={tmp_path / 'dog.onnx'}")


@pytest.fixture
def file(familiar: Familiar, tmp_path: Path, models: tuple[str, ...]) -> Path:
    answer = familiar("species", *models[1::2], "--output", tmp_path / "family.json")
    assert answer.code == 0, answer.err
    assert answer.out.splitlines()[0] == f"cat: {tmp_path / 'cat.onnx'}"
    return tmp_path / "family.json"


def test_writes_a_file_that_people_can_read(familiar: Familiar, file: Path):
    assert json.loads(file.read_text()) == {"cat": "cat.onnx", "dog": "dog.onnx"}
    answer = familiar("species", "pet-nano", "person-nano", "--output", file, "--json")
    assert answer.code == 0, answer.err
    expected = {"cat": "pet-nano", "dog": "pet-nano", "person": "person-nano"}
    assert json.loads(answer.out)["species"] == json.loads(file.read_text()) == expected


def test_wrong_use_is_refused(familiar: Familiar, tmp_path: Path):
    output = ("--output", tmp_path / "family.json")
    assert "two models are for cat" in familiar("species", "pet-nano", "cat=pet-mobile", *output).err
    assert "no bundle found" in familiar("species", "cat=gone.onnx", "gone.onnx", *output).err
    answer = familiar("species", "pet-nano", "--output", tmp_path / "family.txt")
    assert (answer.code, "ends in .json" in answer.err) == (2, True)
    assert not (tmp_path / "family.json").exists()


@pytest.mark.parametrize("as_file", [True, False])
def test_embeds_each_photo_by_the_bundle_of_its_species(
    familiar: Familiar, photos: Path, file: Path, models: tuple[str, ...], tmp_path: Path, as_file: bool
):
    chosen = ("--model", file) if as_file else models
    answer = familiar("embed", photos, *chosen, *DETECTOR, "--output", tmp_path / "v.npz")
    assert answer.code == 0, answer.err
    assert "v.npz: 4 embeddings, 2 photos skipped" in answer.out
    assert "person0.png: there is no bundle for person, but for cat, dog" in answer.err
    with np.load(tmp_path / "v.npz") as stored:
        assert stored["species"].tolist() == ["cat", "cat", "dog", "dog"]
        for name, rows in (("cat", [0, 1]), ("dog", [2, 3])):
            bundle = load_bundle(tmp_path / f"{name}.onnx")
            assert stored[f"{name}_rows"].tolist() == rows
            assert str(stored[f"{name}_space_id"]) == bundle.metadata.space_id
            from familiar.embedding.embedder import Embedder

            paths = [Path(stored["paths"][row]) for row in rows]
            expected = embed_photos(Embedder(bundle), paths, "none").embeddings
            np.testing.assert_allclose(stored[f"{name}_embeddings"], expected, atol=1e-6)


def test_crop_needs_its_species(familiar: Familiar, photos: Path, file: Path):
    command = ("verify", photos / "cat0.png", photos / "cat1.png", "--model", file, "--detector", "none")
    answer = familiar(*command)
    assert answer.code == 1
    assert (
        "cat0.png: nothing says of which species this face is: name it, with --species and one of cat, dog"
        in answer.err
    )
    assert familiar(*command, "--species", "cat").out.startswith("cat and cat: the same identity")
    assert "no bundle for horse" in familiar(*command, "--species", "horse").err


def test_verify_never_compares_species(familiar: Familiar, photos: Path, file: Path):
    command = ("verify", photos / "cat0.png", photos / "dog0.png", "--model", file, *DETECTOR)
    assert familiar(*command).out == "cat and dog: different species\n"
    document = json.loads(familiar(*command, "--json").out)
    assert (document["same"], document["species"], document["similarity"]) == (False, ["cat", "dog"], 0.0)


def test_gallery_takes_several_models_and_remembers_them(
    familiar: Familiar, photos: Path, models: tuple[str, ...], tmp_path: Path
):
    album = tmp_path / "album"
    first = familiar("gallery", "enroll", album, photos, *models, *DETECTOR)
    assert first.code == 0, first.err
    assert "4 faces" in first.out
    save_colored(photos / "cat2.png", COLORS["cat"], 2)
    again = familiar("gallery", "enroll", album, photos)
    assert again.code == 0, again.err
    assert "1 new photo with 1 face" in again.out
    answer = json.loads(familiar("gallery", "search", album, photos / "dog0.png", "--json").out)
    assert {Path(hit["path"]).name for hit in answer["photos"]} == {"dog0.png", "dog1.png"}
    other = familiar("gallery", "enroll", album, photos, "--model", models[1].removeprefix("cat="))
    assert other.code == 1
    assert "its model is cat=" in other.err


def test_stats_say_for_each_species_where_its_threshold_comes_from(
    familiar: Familiar, photos: Path, tmp_path: Path, uncalibrated_bundle: Path
):
    models = ("--model", "cat,dog=pet-nano", "--model", f"person={uncalibrated_bundle}")
    assert familiar("gallery", "enroll", tmp_path / "album", photos, *models, *DETECTOR).code == 0
    lines = familiar("gallery", "stats", tmp_path / "album").out.splitlines()
    sources = {species: line for line in lines for species in COLORS if line.startswith(f"threshold  {species}: ")}
    assert "as the model was calibrated" in sources["cat"]
    assert "as the model was calibrated" in sources["dog"]
    assert "a guess: the model was never calibrated" in sources["person"]
