"""Gains of test-time augmentation for a network that embeds a crop as its mean color."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from familiar.core.types import Photo
from familiar.datasets.folders import scan_folders
from familiar.embedding.embedder import Embedder
from familiar.evaluation.context import EvaluationContext, build_context
from familiar.evaluation.results.figures import names_between
from familiar.evaluation.suites.tta import enlarge, five_crops, tta
from familiar.photos.decoding import load_photo, save_photo
from familiar.photos.preprocessing import Preprocessing
from support.evaluation_results import intervals, values

WAYS = ("flip", "five_crops")


def halves(root: Path, identities: int, photos: int, side: int = 40, jitter: float = 60.0) -> Path:
    """Write photos of two colors, left and right of a random border: crops of a photo differ in their mean."""
    generator = np.random.default_rng(2)
    for identity in range(identities):
        colors = generator.integers(20, 230, (2, 3))
        folder = root / f"p{identity:02d}"
        folder.mkdir(parents=True)
        for photo in range(photos):
            left, right = np.clip(colors + generator.normal(0, jitter, (2, 3)), 1, 255).astype(np.uint8)
            pixels = np.broadcast_to(left, (side, side, 3)).copy()
            pixels[:, generator.integers(side) :] = right
            save_photo(Photo(pixels, "drawn", (side, side)), folder / f"{photo}.png")
    return root


@pytest.fixture
def left_half(mean_color_bundle: Path) -> Embedder:
    """An embedder of the mean color of the left half only, so that mirror images differ."""

    def network(crops_u8: np.ndarray) -> np.ndarray:
        left_mean = crops_u8[:, :, : crops_u8.shape[2] // 2].mean(axis=(1, 2), dtype=np.float32)
        return left_mean / np.linalg.norm(left_mean, axis=1, keepdims=True)

    return Embedder(mean_color_bundle, threads=2, network=network)


def slow_metrics(embeddings: np.ndarray, labels: np.ndarray, rows: np.ndarray) -> dict[str, float]:
    similarity = embeddings.astype(np.float64) @ embeddings.T.astype(np.float64)
    pairs = [(i, j) for i in rows for j in rows if i < j]
    auc = roc_auc_score([labels[i] == labels[j] for i, j in pairs], [similarity[pair] for pair in pairs])
    np.fill_diagonal(similarity, -2)
    return {"recall_at_1": (labels[similarity.argmax(1)] == labels)[rows].mean(), "auc": float(auc)}


def averaged(embeddings: list[np.ndarray]) -> np.ndarray:
    total = np.sum(embeddings, axis=0)
    return total / np.linalg.norm(total, axis=1, keepdims=True)


def each_way(context: EvaluationContext) -> dict[str, np.ndarray]:
    """Embed each variant of all photos in the most obvious way."""
    embedder, table = context.model, context.table
    crops = [context.crop(row) for row in range(len(table))]
    larger = enlarge(embedder.metadata.preprocessing)
    bundle = embedder.bundle
    enlarged_bundle = replace(bundle, metadata=replace(bundle.metadata, preprocessing=larger))
    enlarged = replace(context, model=type(embedder)(enlarged_bundle))
    large_crops = [enlarged.crop(row) for row in range(len(table))]
    assert {crop.size_px for crop in large_crops} == {38}
    parts = []
    for y_px, x_px in ((0, 0), (0, 6), (6, 0), (6, 6), (3, 3)):
        cut = [replace(crop, rgb_u8=crop.rgb_u8[y_px : y_px + 32, x_px : x_px + 32]) for crop in large_crops]
        parts.append(embedder.embed(cut))
    return {
        "plain": embedder.embed(crops),
        "flip": embedder.embed(crops, flip=True),
        "five_crops": averaged(parts),
    }


@pytest.mark.slow
def test_gains_match_slow_reference(left_half: Embedder, tmp_path: Path):
    cats, dogs = (halves(tmp_path / name, 6, 4) for name in ("cats", "dogs"))
    for folder in sorted(dogs.iterdir()):  # different from the cats
        for photo in folder.iterdir():
            save_photo(Photo(255 - load_photo(photo).rgb_u8, "drawn", (40, 40)), photo)
    context = build_context(left_half, scan_folders(cats, dogs))
    outcome, ways = tta(context), each_way(context)
    metrics = values(outcome)
    all_rows = np.arange(48)
    plain = slow_metrics(ways["plain"], context.labels, all_rows)
    assert (metrics["plain.recall_at_1"], metrics["plain.auc"]) == pytest.approx(
        (plain["recall_at_1"], plain["auc"]), abs=1e-4
    )
    for way in WAYS:
        assert names_between(outcome.figures, f"{way}.by_source", "photos") == ["cats", "dogs"]
        rows_by_part = {"": all_rows, "by_source.cats.": all_rows[:24], "by_source.dogs.": all_rows[24:]}
        for part, part_rows in rows_by_part.items():
            before = slow_metrics(ways["plain"], context.labels, part_rows)
            after = slow_metrics(ways[way], context.labels, part_rows)
            for name in ("recall_at_1", "auc"):
                assert metrics[f"{way}.{part}{name}_gain"] == pytest.approx(after[name] - before[name], abs=1e-4)
    assert metrics["flip.auc_gain"] > 0.005  # so the comparison means something
    assert (metrics["photos"], metrics["seed"]) == (48, 0)


def test_gains_are_relative_to_plain_photo_with_flip(left_half: Embedder, tmp_path: Path):
    table = scan_folders(halves(tmp_path / "data", 5, 3))
    plain, flipped = (values(tta(build_context(left_half, table, flip=flip))) for flip in (False, True))
    times = {path for path in plain if path.endswith("ms_per_photo")}
    assert [plain[path] for path in plain.keys() - times] == [flipped[path] for path in plain.keys() - times]


@pytest.mark.slow
def test_identical_copies_have_zero_gain(mean_color_bundle: Path, tmp_path: Path):
    table = scan_folders(halves(tmp_path / "data", 10, 3))
    outcome = tta(build_context(Embedder(mean_color_bundle), table))
    metrics = values(outcome)
    assert (metrics["flip.recall_at_1_gain"], metrics["flip.auc_gain"]) == (0, pytest.approx(0, abs=1e-9))
    assert intervals(outcome)["flip.recall_at_1_gain"] == (0, 0)
    assert (metrics["flip.passes"], metrics["five_crops.passes"]) == (2, 5)


@pytest.mark.slow
def test_intervals_contain_their_gains(left_half: Embedder, tmp_path: Path):
    outcome = tta(build_context(left_half, scan_folders(halves(tmp_path / "data", 12, 3))))
    for way in WAYS:
        for gain in ("recall_at_1_gain", "auc_gain"):
            low, high = intervals(outcome, way)[gain]
            assert low <= values(outcome, way)[gain] <= high
            assert outcome.figures[f"{way}.by_source.data.{gain}"] == outcome.figures[f"{way}.{gain}"]
        assert values(outcome, way)["by_source.data.photos"] == 36


def test_more_passes_take_more_time(left_half: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The clock advances only in the network: three milliseconds per pass."""
    clock = [0.0]
    run = left_half.run

    def slow(crops_u8: np.ndarray, *, flip: bool = False) -> np.ndarray:
        clock[0] += 0.003 * len(crops_u8)
        return run(crops_u8, flip=flip)

    monkeypatch.setattr(left_half, "run", slow)
    monkeypatch.setattr(left_half, "threads", 1)
    monkeypatch.setattr("time.thread_time", lambda: clock[0])
    metrics = values(tta(build_context(left_half, scan_folders(halves(tmp_path / "data", 2, 2)))))
    assert metrics["plain.ms_per_photo"] == pytest.approx(3)
    assert metrics["flip.ms_per_photo"] == pytest.approx(6)
    assert metrics["five_crops.ms_per_photo"] == pytest.approx(15)


@pytest.mark.parametrize(
    ("identities", "photos", "missing"),
    [(1, 1, {"recall_at_1", "auc"}), (1, 3, {"auc"}), (12, 1, {"recall_at_1", "auc"})],
)
def test_undefined_metrics_are_none(
    left_half: Embedder, tmp_path: Path, identities: int, photos: int, missing: set[str]
):
    outcome = tta(build_context(left_half, scan_folders(halves(tmp_path / "data", identities, photos))))
    assert {name for name, value in values(outcome, "plain").items() if value is None} == missing
    assert intervals(outcome) == {}
    for way in WAYS:
        part = values(outcome, way)
        undefined = {name.rpartition(".")[2] for name, value in part.items() if value is None}
        assert undefined == {f"{name}_gain" for name in missing}
        assert part["ms_per_photo"] > 0


def test_accepts_photos_smaller_than_crop(left_half: Embedder, tmp_path: Path):
    metrics = values(tta(build_context(left_half, scan_folders(halves(tmp_path / "data", 3, 2, side=5)))))
    assert metrics["photos"] == 6


def test_large_data_is_limited_to_probed_photos(left_half: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    context = build_context(left_half, scan_folders(halves(tmp_path / "data", 6, 3)))
    monkeypatch.setattr("familiar.evaluation.suites.tta.MAX_PHOTOS", 10)
    rows = context.sample_rows(10)
    metrics = values(tta(context))
    expected = slow_metrics(context.embeddings[rows], context.labels[rows], np.arange(10))
    assert metrics["photos"] == 10
    assert metrics["plain.recall_at_1"] == pytest.approx(expected["recall_at_1"])
    assert metrics["plain.auc"] == pytest.approx(expected["auc"], abs=1e-4)


@pytest.mark.parametrize(
    ("preprocessing", "size_px", "resize_px"),
    [
        (Preprocessing(size_px=112, resize_px=112), 132, 132),
        (Preprocessing(size_px=224, resize="center_crop", resize_px=256), 264, 264),
        (Preprocessing(size_px=112, resize="center_crop", resize_px=160), 132, 160),
        (Preprocessing(size_px=1024, resize_px=1024), 1024, 1024),
        (Preprocessing(size_px=16, resize_px=16), 19, 19),
    ],
)
def test_enlarged_scales_size_by_132_over_112(preprocessing: Preprocessing, size_px: int, resize_px: int):
    larger = enlarge(preprocessing)
    assert (larger.size_px, larger.resize_px) == (size_px, resize_px)
    assert replace(larger, size_px=preprocessing.size_px, resize_px=preprocessing.resize_px) == preprocessing


def test_five_crops_are_the_corners_and_the_middle():
    pixels = np.arange(5 * 5).reshape(5, 5, 1).repeat(3, axis=2).astype(np.uint8)
    crops = five_crops(pixels, 3)
    assert [crop[0, 0, 0] for crop in crops] == [0, 2, 10, 12, 6]
    assert {crop.shape for crop in crops} == {(3, 3, 3)}
