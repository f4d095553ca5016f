"""Faces and backgrounds alone, for a network that embeds a crop as its mean color."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from familiar.core.errors import NothingToMeasure
from familiar.core.species_means import SpeciesMeans
from familiar.core.types import Face, Photo
from familiar.datasets.folders import IdentityTable, scan_folders
from familiar.datasets.synthetic import SyntheticPhoto
from familiar.detection.detectors import DETECTORS, CenterSquare, DetectorSpec, WholePhoto
from familiar.embedding.embedder import Embedder
from familiar.evaluation.centering import center_on_collection
from familiar.evaluation.context import EvaluationContext, build_context
from familiar.evaluation.suites.background import GRAY, PICTURES, background, split_picture
from familiar.evaluation.suites.catalog import SUITES, run_suites
from familiar.neighbors.centering import Centering
from familiar.photos.decoding import load_photo, save_photo
from support.evaluation_results import intervals, values
from support.mean_color_bundle import CALIBRATED, write_mean_color_bundle
from support.middle_box import MiddleBox

MEANS = SpeciesMeans({"cat": (0.6, 0.5, 0.4), "dog": (0.4, 0.5, 0.6)}, CALIBRATED)


@pytest.fixture
def pets_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle that names the detector "pets", which takes the middle of a picture for a head."""
    monkeypatch.setitem(DETECTORS, "pets", DetectorSpec("", MiddleBox))
    return write_mean_color_bundle(tmp_path / "pets.onnx", CALIBRATED, detector="pets")


@pytest.fixture
def embedder(pets_bundle: Path) -> Embedder:
    return Embedder(pets_bundle, threads=2)


def drawn_pets(identities: int = 6, photos: int = 4) -> IdentityTable:
    """Draw small cats and dogs."""
    numbers = [(species, pet) for species in ("cats", "dogs") for pet in range(identities)]
    return IdentityTable(
        tuple(SyntheticPhoto(*number, index, size_px=48) for number in numbers for index in range(photos)),
        np.repeat(np.arange(len(numbers)), photos),
        tuple(f"{species}/{pet}" for species, pet in numbers),
    )


def framed(root: Path, photos: int, identity_in: str, identities: int = 9, side: int = 32) -> IdentityTable:
    """Write photos of a square in a frame: one of them has the color of the identity, the other a random one."""
    generator = np.random.default_rng(3)
    for identity in range(identities):
        color = generator.integers(20, 230, 3)
        folder = root / f"p{identity:02d}"
        folder.mkdir(parents=True)
        for photo in range(photos):
            middle, frame = color, generator.integers(20, 230, 3)
            if identity_in == "background":
                middle, frame = frame, middle
            pixels = np.broadcast_to(frame, (side, side, 3)).astype(np.uint8)
            pixels[6:26, 6:26] = middle  # half of the side, and a tenth of that on each side
            save_photo(Photo(pixels, "drawn", (side, side)), folder / f"{photo}.png")
    return scan_folders(root)


def crops_context(embedder: Embedder, table: IdentityTable, **changes: Any) -> EvaluationContext:
    """Embed photos that are crops already."""
    return build_context(embedder, table, detector=WholePhoto(), **changes)


def slow_metrics(embeddings: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    similarity = embeddings.astype(np.float64) @ embeddings.T.astype(np.float64)
    pairs = [(i, j) for i in range(len(labels)) for j in range(i + 1, len(labels))]
    auc = roc_auc_score([labels[i] == labels[j] for i, j in pairs], [similarity[pair] for pair in pairs])
    np.fill_diagonal(similarity, -2)
    return float((labels[similarity.argmax(1)] == labels).mean()), float(auc)


def mean_colors(pictures: list[np.ndarray]) -> np.ndarray:
    means = np.array([picture.mean(axis=(0, 1), dtype=np.float64) for picture in pictures])
    return means / np.linalg.norm(means, axis=1, keepdims=True)


# --- Pictures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("box", "lines", "columns"),
    [
        ((10, 20, 30, 30), (19, 31), (8, 32)),
        ((0, 1, 20, 41), (0, 45), (0, 22)),  # at the left and the upper border
        ((20, 30, 50, 50), (28, 50), (17, 50)),
    ],
)
def test_box_grows_by_a_tenth_on_each_side(box: tuple[int, ...], lines: tuple[int, int], columns: tuple[int, int]):
    whole = np.random.default_rng(0).integers(0, 256, (50, 50, 3)).astype(np.uint8)
    face, rest = split_picture(whole, box)
    inside = np.zeros((50, 50), bool)
    inside[slice(*lines), slice(*columns)] = True
    assert (face[inside] == whole[inside]).all()
    assert (face[~inside] == 128).all()
    assert (rest[inside] == 128).all()
    assert (rest[~inside] == whole[~inside]).all()


@given(
    side=st.integers(1, 40),
    corners=st.tuples(*[st.floats(-10, 60)] * 4),
    seed=st.integers(0, 99),
)
def test_face_and_background_are_complementary(side: int, corners: tuple[float, ...], seed: int):
    whole = np.random.default_rng(seed).integers(0, 256, (side, side, 3)).astype(np.uint8)
    (left, right), (top, bottom) = sorted(corners[:2]), sorted(corners[2:])
    face, rest = split_picture(whole, (left, top, right, bottom))
    assert ((face == whole) | (rest == whole)).all()
    np.testing.assert_array_equal(face.astype(int) + rest - GRAY, whole)


# --- Metrics ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("centered", [False, True])
def test_metrics_of_drawn_pets_match_slow_reference(embedder: Embedder, centered: bool):
    metadata = replace(embedder.metadata, species_means=MEANS if centered else None)
    embedder = Embedder(replace(embedder.bundle, metadata=metadata), threads=2)
    context = center_on_collection(crops_context(embedder, drawn_pets()))
    outcome = background(context)
    crops = [context.crop(row).rgb_u8 for row in range(48)]
    split = [split_picture(crop, (8, 8, 24, 24)) for crop in crops]
    pictures = {"whole": crops, "face": [face for face, _ in split], "background": [rest for _, rest in split]}
    for name in PICTURES:
        embeddings = mean_colors(pictures[name])
        if centered:
            embeddings = Centering.fit(embeddings, MEANS.rows()).apply(embeddings)
        recall, auc = slow_metrics(embeddings, context.labels)
        part = values(outcome, name)
        assert part == {"recall_at_1": pytest.approx(recall), "auc": pytest.approx(auc, abs=1e-4)}, name
        assert intervals(outcome, name).keys() == part.keys()
        for metric, (low, high) in intervals(outcome, name).items():
            assert low < part[metric] < high
    metrics = values(outcome)
    assert (metrics["photos"], metrics["identities"], metrics["photos_without_face"], metrics["seed"]) == (48, 12, 0, 0)
    assert len({metrics[f"{part}.auc"] for part in PICTURES}) == 3


@pytest.mark.parametrize("identity_in", ["face", "background"])
def test_part_with_the_identity_is_recognized_and_the_other_is_not(
    embedder: Embedder, tmp_path: Path, identity_in: str
):
    metrics = values(background(crops_context(embedder, framed(tmp_path / "data", 6, identity_in))))
    other = {"face": "background", "background": "face"}[identity_in]
    assert metrics[f"{identity_in}.recall_at_1"] == 1
    assert metrics[f"{identity_in}.auc"] > 0.99
    assert metrics[f"{other}.recall_at_1"] < 0.3
    assert abs(metrics[f"{other}.auc"] - 0.5) < 0.1


def test_photos_without_face_are_counted_and_left_out(embedder: Embedder, tmp_path: Path):
    table = framed(tmp_path / "data", 4, "face", identities=10)
    for row in (0, 5, 6):
        pixels = load_photo(table.photos[row]).rgb_u8.copy()
        pixels[16, 16] = 0
        save_photo(Photo(pixels, "drawn", (32, 32)), table.photos[row])
    context = crops_context(embedder, table, rows=np.setdiff1d(np.arange(40), [7]))
    metrics = values(background(context))
    assert (metrics["photos"], metrics["photos_without_face"]) == (36, 3)
    others = crops_context(embedder, table, rows=np.setdiff1d(np.arange(40), [0, 5, 6, 7]))
    assert values(background(others)) == metrics | {"photos_without_face": 0}


def test_no_face_in_any_photo_is_not_measured(embedder: Embedder, tmp_path: Path):
    (tmp_path / "data" / "a").mkdir(parents=True)
    for photo in range(3):
        pixels = np.zeros((32, 32, 3), np.uint8)
        pixels[0, photo] = 200
        save_photo(Photo(pixels, "drawn", (32, 32)), tmp_path / "data" / "a" / f"{photo}.png")
    results = run_suites(crops_context(embedder, scan_folders(tmp_path / "data")), ("background",))
    assert results.figures == {}
    assert results.reasons["background"] == (
        "background: no face found in any of 3 photos; name another detector with --detector"
    )


@pytest.mark.parametrize(
    ("identities", "photos", "missing"),
    [(1, 1, {"recall_at_1", "auc"}), (1, 3, {"auc"}), (12, 1, {"recall_at_1", "auc"})],
)
def test_undefined_metrics_are_none(
    embedder: Embedder, tmp_path: Path, identities: int, photos: int, missing: set[str]
):
    table = framed(tmp_path / "data", photos, "face", identities)
    outcome = background(crops_context(embedder, table))
    for part in PICTURES:
        assert {name for name, value in values(outcome, part).items() if value is None} == missing
    assert intervals(outcome) == {}


def test_face_that_fills_the_picture_leaves_no_background(
    embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(DETECTORS, "pets", DetectorSpec("", lambda: MiddleBox(1.0)))
    outcome = background(crops_context(embedder, framed(tmp_path / "data", 3, "face")))
    assert values(outcome, "face") == values(outcome, "whole")
    assert values(outcome, "background") == {"recall_at_1": 0, "auc": 0.5}  # all are one point


def test_sample_is_limited(embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    context = crops_context(embedder, framed(tmp_path / "data", 4, "face"))
    monkeypatch.setattr("familiar.evaluation.suites.background.MAX_PHOTOS", 20)
    metrics = values(background(context))
    part = values(background(context.select_rows(context.sample_rows(20))))
    assert metrics["photos"] <= 20
    assert metrics == part


def test_flip_applies_to_all_pictures(embedder: Embedder, tmp_path: Path):
    seen: list[np.ndarray] = []

    def network(crops_u8: np.ndarray) -> np.ndarray:
        seen.append(crops_u8)
        return embedder.run(crops_u8)

    single = Embedder(embedder.bundle, threads=1, network=network)
    background(crops_context(single, framed(tmp_path / "data", 2, "face", identities=2), flip=True))
    for plain, mirrored in zip(seen[::2], seen[1::2], strict=True):
        np.testing.assert_array_equal(plain, mirrored[:, :, ::-1])


# --- The detector -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("detector", [WholePhoto(), CenterSquare()])
def test_crops_are_searched_by_the_detector_of_the_bundle(embedder: Embedder, tmp_path: Path, detector):
    context = build_context(embedder, framed(tmp_path / "data", 3, "face"), detector=detector)
    assert SUITES["background"].applies(context)
    assert values(background(context))["face.recall_at_1"] == 1


def test_detector_of_the_evaluation_is_used_again(embedder: Embedder, tmp_path: Path):
    """It crops the photos of 40 px, and finds the face in the crops of 32 px."""
    searched: list[tuple[int, int]] = []

    class Recording(MiddleBox):
        def detect(self, photo: Photo) -> list[Face]:
            searched.append(photo.size_px)
            return super().detect(photo)

    context = build_context(embedder, framed(tmp_path / "data", 2, "face", identities=2, side=40), detector=Recording())
    assert searched == [(40, 40)] * 4
    assert values(background(context))["photos"] == 4
    assert sorted(searched[4:]) == [(32, 32)] * 4 + [(40, 40)] * 4


def test_model_without_detector_needs_one(mean_color_bundle: Path, tmp_path: Path):
    context = build_context(Embedder(mean_color_bundle), framed(tmp_path / "data", 2, "face", identities=2))
    assert not SUITES["background"].applies(context)
    with pytest.raises(NothingToMeasure, match="--detector pets or --detector auto"):
        background(context)
    assert SUITES["background"].applies(replace(context, detector=MiddleBox()))
    assert values(background(replace(context, detector=MiddleBox())))["photos"] == 4
