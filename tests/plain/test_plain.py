"""The package as the user with photos installs it: no torch, small, and at work. Runs in an environment of its own."""

import json
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from familiar import Gallery
from familiar.core.types import Photo
from familiar.datasets.folders import DataSpec, open_photo
from familiar.gallery.search.listing import unassigned_faces
from familiar.photos.decoding import save_photo

pytestmark = pytest.mark.plain

MAX_INSTALLED_MB = 370 if sys.version_info < (3, 12) else 400  # NumPy's and ONNX Runtime's newer wheels are larger
NOT_OURS = {
    "pip",
    "setuptools",
    "pytest",
    "pluggy",
    "iniconfig",
    "Pygments",
}  # the environment and the test runner
SHIPPED = sorted(
    path.stem for path in (Path(__file__).parents[2] / "src" / "familiar" / "embedding" / "zoo").glob("*.onnx")
)
WITHOUT_NETWORK = """
import runpy, sys

def refuse(event, _):
    if event.startswith("socket."):
        raise PermissionError(event)

sys.addaudithook(refuse)
runpy.run_module("familiar", run_name="__main__")
"""
ABSENT = ("torch", "torchvision", "timm", "onnx", "matplotlib", "sklearn")


def familiar(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "familiar", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_training_dependencies_are_not_installed():
    assert [name for name in ABSENT if find_spec(name)] == []


def test_installed_size_is_within_limits():
    files = [
        Path(str(file.locate()))
        for distribution in metadata.distributions()
        if distribution.metadata["Name"] not in NOT_OURS
        for file in distribution.files or ()
    ]
    installed_mb = sum(file.stat().st_size for file in set(files) if file.is_file()) / 1e6
    assert 50 < installed_mb <= MAX_INSTALLED_MB


def test_help_lists_every_command():
    shown = familiar("--help")
    assert shown.returncode == 0
    assert all(name in shown.stdout for name in ("quickstart", "train", "evaluate", "embed", "verify"))


def test_embed_and_verify_separate_colors(tmp_path: Path, mean_color_bundle: Path):
    bundle = mean_color_bundle
    red = save_photo(plain_photo(200, 30, 30), tmp_path / "red.png")
    also_red = save_photo(plain_photo(190, 35, 30), tmp_path / "also red.png")
    blue = save_photo(plain_photo(20, 30, 200), tmp_path / "blue.png")
    (tmp_path / "notes.png").write_text("no photo")

    embedded = familiar("embed", tmp_path, "--model", bundle, "--output", tmp_path / "out.npz", "--json")
    assert embedded.returncode == 0, embedded.stderr
    assert json.loads(embedded.stdout)["photos"] == 3
    assert "notes.png" in embedded.stderr
    with np.load(tmp_path / "out.npz") as stored:
        assert stored["embeddings"].shape == (3, 3)

    same = json.loads(familiar("verify", red, also_red, "--model", bundle, "--json").stdout)
    different = json.loads(familiar("verify", red, blue, "--model", bundle, "--json").stdout)
    assert same["same"]
    assert not different["same"]
    assert same["similarity"] > 0.9 > different["similarity"]


@pytest.mark.skipif(not SHIPPED, reason="the zoo holds no bundle yet")
def test_shipped_bundles_are_installed_and_work_without_network(tmp_path: Path):
    listed = json.loads(familiar("models", "--shipped", "--json").stdout)
    assert [row["name"] for row in listed] == SHIPPED
    drawn = DataSpec(("synthetic:cats:2x1",)).read().photos
    first, other = (
        save_photo(open_photo(photo, min_side_px=128), tmp_path / f"{row}.png") for row, photo in enumerate(drawn)
    )

    def answer(left: Path, right: Path, name: str) -> dict[str, Any]:
        arguments = ["verify", left.name, right.name, "--model", name, "--detector", "none", "--json"]
        command = [sys.executable, "-c", WITHOUT_NETWORK, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    for name in SHIPPED:
        itself, another = answer(first, first, name), answer(first, other, name)
        assert itself["same"]
        assert itself["similarity"] > 0.999 > another["similarity"]
        assert itself["probability"] > another["probability"]


def test_heads_of_pets_in_photos_are_found_without_network(tmp_path: Path):
    """A drawn cat and a drawn dog in one photo are two faces, each with its species."""
    pixels = np.full((320, 700, 3), 130, np.uint8)
    for source, x in (("synthetic:cats:2x1", 40), ("synthetic:dogs:2x1", 420)):
        pixels[50:274, x : x + 224] = open_photo(DataSpec((source,)).read().photos[1]).rgb_u8
    (tmp_path / "photos").mkdir()
    save_photo(Photo(pixels, "both", (700, 320)), tmp_path / "photos" / "both.png")
    arguments = ["gallery", "enroll", "album", "photos", "--model", "pet-nano", "--json"]
    command = [sys.executable, "-c", WITHOUT_NETWORK, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with Gallery.open(tmp_path / "album") as album:
        assert sorted(face.species or "" for face in unassigned_faces(album.store)) == ["cat", "dog"]


def test_avif_is_read_like_jpeg_and_heic_names_its_extra(tmp_path: Path, mean_color_bundle: Path):
    cat = open_photo(DataSpec(("synthetic:cats:1x1",)).read().photos[0])
    png, avif = (save_photo(cat, tmp_path / name) for name in ("a.png", "a.avif"))
    answer = familiar("verify", png, avif, "--model", mean_color_bundle, "--json")
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["similarity"] > 0.999
    heic = Path(__file__).parents[1] / "photos" / "data" / "rgb.heic"
    refused = familiar("verify", png, heic, "--model", mean_color_bundle)
    assert refused.returncode == 1
    assert "familiar-faces[heic]" in refused.stderr


def test_training_names_the_missing_extra(tmp_path: Path):
    refused = familiar("train", tmp_path, "--output", tmp_path / "run")
    assert refused.returncode == 1
    assert "familiar-faces[train]" in refused.stderr
    assert "Traceback" not in refused.stderr


def plain_photo(red: int, green: int, blue: int) -> Photo:
    pixels = np.full((48, 48, 3), (red, green, blue), np.uint8)
    return Photo(cv2.GaussianBlur(pixels, (3, 3), 0), "drawn", (48, 48))
