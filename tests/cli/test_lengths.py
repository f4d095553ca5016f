"""Harmonic embeddings as a user has them: an upgrade to longer ones, and a shorter bundle for phones."""

import json
from pathlib import Path
from typing import Any

import pytest

from familiar.embedding.bundle import load_bundle
from support.cli import Familiar
from support.small_gallery import draw_pets

pytestmark = pytest.mark.slow

DATA = "synthetic:cats:20x6"
TINY = (
    *("--recipe", "circle-simple", "--set", "input.size_px=32", "--set", "input.resize_px=32"),
    *("--set", "budget.epochs=1", "--set", "sampler.identities=4", "--set", "sampler.photos=3"),
)
LONGER = ("model.embedding_dim=16", "loss.prefixes=8,16", "loss.prefix_weights=0.5,0.5")


@pytest.mark.exhaustive
def test_longer_model_takes_a_gallery_over_and_a_phone_searches_it(familiar: Familiar, tmp_path: Path):
    old, new, phone, album = (tmp_path / name for name in ("old", "new", "phone.onnx", "album"))

    def run(*arguments: object) -> str:
        answer = familiar(*arguments)
        assert answer.code == 0, answer.err
        return answer.out

    run("train", DATA, *TINY, "--set", "model.embedding_dim=8", "--output", old)
    settings = [part for setting in LONGER for part in ("--set", setting)]
    compatible = ("--set", f"loss.compatible_with={old / 'model.onnx'}")
    run("train", DATA, *TINY, *settings, *compatible, "--output", new)
    run("export", new, "--output", phone, "--components", 8)
    photos = draw_pets(tmp_path / "photos", 3, 4)
    run("gallery", "enroll", album, tmp_path / "photos", "--model", old, "--detector", "none")
    run("gallery", "cluster", album)

    def nearest(model: Path, photo: Path = photos[5]) -> dict[str, Any]:
        options = ("--model", model, "--detector", "none", "--json")
        return json.loads(run("gallery", "search", album, photo, *options))["photos"][0]

    assert nearest(old)["path"] == str(photos[5])
    assert -1 <= nearest(new)["similarity"] <= 1, "a longer model searches the gallery as it is"
    (added,) = draw_pets(tmp_path / "more", 1, 1, seed=9)
    run("gallery", "enroll", album, tmp_path / "more", "--model", new, "--detector", "none")
    assert nearest(new, added)["similarity"] == pytest.approx(1, abs=5e-3), "stored at the gallery's length"
    photos[0].unlink()
    migrated = json.loads(run("gallery", "migrate", album, "--model", new, "--json"))
    assert (migrated["reembedded_faces"], migrated["kept_faces"], migrated["mapped_faces"]) == (12, 1, 0)
    for model in (new, phone):
        hit = nearest(model)
        assert hit["path"] == str(photos[5])
        assert hit["similarity"] == pytest.approx(1, abs=5e-3)
        assert hit["probability"] is not None
    whole, short = load_bundle(new).metadata, load_bundle(phone).metadata
    assert whole.prefix_calibrations[8].slope == pytest.approx(short.calibration.slope, rel=1e-3)
    answer = familiar("gallery", "enroll", album, tmp_path / "photos", "--model", phone, "--detector", "none")
    assert answer.code != 0, "too short to be stored"
