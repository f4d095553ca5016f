"""`familiar embed` and `evaluate` take photos that are crops of faces already as they are, and say so."""

import json
from pathlib import Path

import numpy as np
import pytest

from familiar.photos.listing import find_photos
from support.cli import Familiar
from support.color_album import draw_photo
from support.colored_squares import use_colored_squares
from support.mean_color_bundle import CALIBRATED, write_mean_color_bundle


@pytest.fixture
def pets_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_colored_squares(monkeypatch)
    return write_mean_color_bundle(tmp_path / "pets.onnx", CALIBRATED, detector="pets")


def draw_identities(folder: Path, *others: str) -> Path:
    """Red and green squares, beside others."""
    for number in range(12):
        identity = folder / f"{'red' if number % 2 else 'green'} {number // 4}"
        identity.mkdir(parents=True, exist_ok=True)
        draw_photo(identity / f"{number}.png", "red" if number % 2 else "green", *others, shade=number)
    return folder


MESSAGE = (
    "a face fills nearly all of each photo: they are crops already, and are taken as they are; --detector pets looks "
    "for faces in them all the same"
)


def test_embed_takes_crops_as_they_are(
    familiar: Familiar, tmp_path: Path, pets_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    crops, photos = draw_identities(tmp_path / "crops"), draw_identities(tmp_path / "photos", "blue", "blue")
    draw_photo(crops / "blue.png", "blue")  # no pet, and yet embedded, as it is taken whole
    command = ("--model", pets_model, "--json", "--output", tmp_path / "out.npz")
    assert json.loads(familiar("embed", crops, *command).out)["photos"] == len(find_photos([crops])) == 13
    assert caplog.messages == [MESSAGE]
    caplog.clear()
    assert json.loads(familiar("embed", crops, *command, "--detector", "pets").out)["photos"] == 12
    assert json.loads(familiar("embed", photos, *command).out)["photos"] == 12
    assert caplog.messages == []
    embeddings = np.load(tmp_path / "out.npz")["embeddings"]
    assert embeddings[:, 2].max() < 0.5  # without the blue beside the pets


def test_evaluate_takes_crops_as_they_are(
    familiar: Familiar, tmp_path: Path, pets_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    crops = draw_identities(tmp_path / "crops")
    draw_photo(crops / "red 0" / "blue.png", "blue")
    command = ("evaluate", pets_model, crops, "--suite", "retrieval", "--output", tmp_path / "out", "--json")
    assert json.loads(familiar(*command).out)["data"]["photos"] == 13
    assert MESSAGE in caplog.messages
    assert json.loads(familiar(*command, "--detector", "pets").out)["data"]["photos"] == 12
