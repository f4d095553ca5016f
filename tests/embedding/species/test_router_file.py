import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from familiar.core.errors import BadBundle
from familiar.core.types import Crop
from familiar.embedding.embedder import Embedder
from familiar.embedding.species.router import RoutedEmbedder
from familiar.embedding.species.router_file import load_router, open_model, write_router
from support.tiny_router import colored, mosaic_bundle, reseal_router, tiny_router

RED, GREEN = (200, 20, 20), (20, 200, 20)


@pytest.fixture
def folder(mean_color_bundle: Path, tmp_path: Path) -> Path:
    """Create a folder with router.json and its bundles."""
    folder = tmp_path / "all"
    (folder / "bundles").mkdir(parents=True)
    features = Path(shutil.copy(mean_color_bundle, folder / "features.onnx"))
    write_router(folder / "router.json", tiny_router(features, folder / "bundles"))
    return folder


def crops() -> list[Crop]:
    return [Crop(colored(rgb, str(row), 48, row).rgb_u8, str(row)) for row, rgb in enumerate([RED, GREEN, RED])]


def test_write_and_load_round_trip_after_folder_move(folder: Path, tmp_path: Path):
    before = load_router(folder / "router.json").embed(crops())
    assert before.by_species["cat"].rows.tolist() == [0, 2]
    assert before.by_species["dog"].rows.tolist() == [1]
    moved = tmp_path / "moved elsewhere"
    folder.rename(moved)
    again = load_router(moved / "router.json", threads=1)
    after = again.embed(crops())
    for name in ("cat", "dog"):
        np.testing.assert_array_equal(after.by_species[name].embeddings, before.by_species[name].embeddings)
        np.testing.assert_array_equal(after.by_species[name].probabilities, before.by_species[name].probabilities)
    write_router(moved / "again.json", again)
    assert (moved / "again.json").read_bytes() == (moved / "router.json").read_bytes()
    stored = json.loads((moved / "router.json").read_bytes())
    assert stored["format"] == "familiar-router/1"
    assert stored["feature_bundle"]["path"] == "features.onnx"
    assert stored["species_bundles"]["cat"]["path"] == "bundles/cat.onnx"
    assert stored["classifier"]["training_counts"]["cat"] == {"identities": 2, "photos": 4}


def test_rejects_file_of_a_development_version(folder: Path):
    path = folder / "router.json"
    reseal_router(path, "format", format_version=2)
    message = r"router\.json: was made by a development version of familiar; make it again with `familiar species`"
    with pytest.raises(BadBundle, match=message):
        load_router(path)


@pytest.mark.slow
def test_rejects_change_at_every_byte(folder: Path):
    path = folder / "router.json"
    content = path.read_bytes()
    generator = np.random.default_rng(0)
    for position, bits in enumerate(generator.integers(1, 256, len(content)).tolist()):
        flipped = bytearray(content)
        flipped[position] ^= bits
        path.write_bytes(flipped)
        with pytest.raises(BadBundle, match=r"router\.json"):
            load_router(path)


def test_rejects_truncated_or_extended_file(folder: Path):
    path = folder / "router.json"
    content = path.read_bytes()
    cuts = [content[:length] for length in range(0, len(content), 97)]
    for wrong in [
        *cuts,
        content + b"\n",
        b"\xff" + content,
        b"[" * 100_000,
        b"[]",
        b"null",
        b"{}",
        bytes(100),
    ]:
        path.write_bytes(wrong)
        with pytest.raises(BadBundle, match=r"router\.json: is not a familiar router"):
            load_router(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        {"format": "familiar-router/2"},
        {"classifier": {}},
        {"classifier": []},
        {"feature_bundle": None},
        {"feature_bundle": {"path": 3, "file_id": "x"}},
        {"species_bundles": []},
        {"species_bundles": {"cat": {"path": "features.onnx"}}},
        {"species_bundles": {"cat": {"path": "a\0b", "file_id": ""}}},
    ],
)
def test_rejects_resealed_file_with_bad_fields(folder: Path, changed: dict[str, Any]):
    reseal_router(folder / "router.json", **changed)
    with pytest.raises(BadBundle, match=r"router\.json"):
        load_router(folder / "router.json")


def test_rejects_resealed_classifier_with_bad_fields(folder: Path):
    path = folder / "router.json"
    classifier = json.loads(path.read_bytes())["classifier"]
    for changed in (
        {"weights": "much"},
        {"weights": [[1, 2], [3]]},
        {"weights": [[1.0, 0.0]]},
        {"temperature": "warm"},
        {"temperature": None},
        {"names": None},
        {"held_out": {}},
        {"extra": 1},
        {"min_probability": 2},
    ):
        reseal_router(path, classifier=classifier | changed)
        with pytest.raises(BadBundle, match=r"router\.json: is not a complete router"):
            load_router(path)


def test_rejects_swapped_species_bundle(folder: Path):
    metadata = Embedder(folder / "features.onnx").metadata
    mosaic_bundle(folder / "bundles" / "cat.onnx", metadata, 32)
    with pytest.raises(BadBundle, match=r"router\.json: was made with another bundle for cat.*cat\.onnx"):
        load_router(folder / "router.json")


def test_rejects_swapped_feature_bundle(folder: Path):
    shutil.copy(folder / "bundles" / "dog.onnx", folder / "features.onnx")
    with pytest.raises(BadBundle, match=r"another bundle of the classifier.*features\.onnx"):
        load_router(folder / "router.json")


def test_rejects_missing_or_corrupt_bundle_by_name(folder: Path):
    dog = folder / "bundles" / "dog.onnx"
    content = bytearray(dog.read_bytes())
    dog.unlink()
    with pytest.raises(BadBundle, match=r"router\.json: its bundle for dog cannot be opened.*dog\.onnx"):
        load_router(folder / "router.json")
    content[50] ^= 1
    dog.write_bytes(content)
    with pytest.raises(BadBundle, match=r"its bundle for dog cannot be opened.*dog\.onnx.*changed"):
        load_router(folder / "router.json")


def test_opens_shared_bundle_file_once(folder: Path):
    router = load_router(folder / "router.json")
    shared = RoutedEmbedder(
        router.feature_embedder, router.classifier, {"cat": router.feature_embedder, "dog": router.feature_embedder}
    )
    write_router(folder / "shared.json", shared)
    again = load_router(folder / "shared.json")
    assert again.feature_embedder is again.embedders["cat"] is again.embedders["dog"]


def test_min_probability_round_trip(folder: Path):
    router = load_router(folder / "router.json")
    strict = replace(router.classifier, min_probability=0.999)
    write_router(folder / "strict.json", RoutedEmbedder(router.feature_embedder, strict, router.embedders))
    assert load_router(folder / "strict.json").classifier.min_probability == 0.999


def test_open_model_returns_router_or_embedder(folder: Path):
    assert isinstance(open_model(folder / "router.json"), RoutedEmbedder)
    assert isinstance(open_model(str(folder / "features.onnx")), Embedder)
    for missing in ("gone.json", "gone.onnx"):
        with pytest.raises(BadBundle, match=missing):
            open_model(folder / missing)
    (folder / "dir.json").mkdir()
    with pytest.raises(BadBundle, match=r"dir\.json"):
        open_model(folder / "dir.json")
