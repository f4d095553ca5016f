from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnxruntime as ort
import pytest

from familiar.core.errors import BadBundle, FamiliarError, UnreadablePhoto
from familiar.core.types import Crop, Photo
from familiar.detection.detectors import CenterSquare
from familiar.detection.faces import crop_photo
from familiar.detection.heads import HeadDetector
from familiar.embedding import bundle as bundle_format
from familiar.embedding.bundle import load_bundle, serialize_bundle
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from familiar.photos.decoding import load_photo, save_photo
from familiar.photos.preprocessing import stack_crops


def color(*rgb: int, size: int = 32) -> np.ndarray:
    return np.full((size, size, 3), rgb, np.uint8)


@pytest.fixture
def embedder(mean_color_bundle: Path) -> Embedder:
    return Embedder(mean_color_bundle, threads=1)


def test_embeddings_equal_closed_form_unit_vectors(embedder: Embedder):
    crops = [Crop(color(30, 40, 0), "a"), Crop(color(0, 0, 9), "b")]
    np.testing.assert_allclose(embedder.embed(crops), [[0.6, 0.8, 0], [0, 0, 1]], atol=1e-6)


@pytest.mark.parametrize("batch_size", [1, 2, 7])
def test_batch_size_changes_nothing(embedder: Embedder, batch_size: int):
    generator = np.random.default_rng(0)
    crops = [Crop(generator.integers(0, 256, (32, 32, 3), np.uint8), str(i)) for i in range(7)]
    np.testing.assert_allclose(embedder.embed(crops, batch_size=batch_size), embedder.embed(crops), atol=1e-6)


def test_empty_input_returns_empty_embeddings(embedder: Embedder):
    assert embedder.embed([]).shape == (0, 3)
    assert embed_photos(embedder, []).embeddings.shape == (0, 3)


def test_flip_averages_and_renormalizes(embedder: Embedder):
    # A mean does not change by mirroring, so the network is replaced by the mean of the left half.
    def left_half(crops_u8: np.ndarray) -> np.ndarray:
        means = crops_u8[:, :, : crops_u8.shape[2] // 2].mean(axis=(1, 2), dtype=np.float32)
        return means / np.linalg.norm(means, axis=1, keepdims=True)

    embedder = Embedder(embedder.bundle, network=left_half)
    half = np.concatenate([color(90, 0, 0)[:, :16], color(0, 90, 0)[:, :16]], axis=1)
    crops = stack_crops([Crop(half, "half")], embedder.metadata.preprocessing.size_px)
    np.testing.assert_allclose(embedder.run(crops), [[1, 0, 0]], atol=1e-6)
    np.testing.assert_allclose(embedder.run(crops, flip=True), [[0.5**0.5, 0.5**0.5, 0]], atol=1e-6)


def test_rejects_network_without_unit_output(embedder: Embedder):
    black = [Crop(color(0, 0, 0), "black")]  # LpNormalization leaves a zero vector
    with pytest.raises(BadBundle, match="does not return unit vectors"):
        embedder.embed(black)


def test_rejects_sealed_file_without_model(mean_color_bundle: Path, tmp_path: Path):
    path = tmp_path / "no model.onnx"
    path.write_bytes(serialize_bundle(b"\x08\x08", load_bundle(mean_color_bundle).metadata))
    with pytest.raises(BadBundle, match="no model"):
        Embedder(path)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("opset", b"\x42\x02\x10\x12", b"\x42\x02\x10\x63"),  # 99 of 18
        ("format of ONNX", b"\x08\x08", b"\x08\x63"),  # 99 of 8
        ("operator", b"GlobalAveragePool", b"GlobalAveragePond"),
    ],
)
def test_rejects_network_newer_than_onnx_runtime(
    mean_color_bundle: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    name: str,
    before: bytes,
    after: bytes,
):
    bundle = load_bundle(mean_color_bundle)
    network, _ = bundle_format._verify_metadata(bundle.onnx, bundle.path)
    assert network.count(before) == 1
    path = tmp_path / f"{name}.onnx"
    path.write_bytes(serialize_bundle(network.replace(before, after), bundle.metadata))
    with pytest.raises(BadBundle, match=rf"{name}\.onnx: .*{ort.__version__}.*update onnxruntime \(.*\)$"):
        Embedder(path)
    assert capfd.readouterr() == ("", "")


def test_uses_requested_provider(mean_color_bundle: Path):
    crops = [Crop(color(30, 40, 0), "a")]
    embedder = Embedder(mean_color_bundle, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(embedder.embed(crops), [[0.6, 0.8, 0]], atol=1e-6)


def test_rejects_unavailable_provider(mean_color_bundle: Path):
    with pytest.raises(FamiliarError, match=r"no NoProvider here; it has .*CPUExecutionProvider"):
        Embedder(mean_color_bundle, providers=["CPUExecutionProvider", "NoProvider"])


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_rejects_failing_provider_without_output(
    mean_color_bundle: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    """By itself, ONNX Runtime prints a warning and falls back to the CPU."""
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["NoProvider"])
    refused, fallen_back = "cannot open it with NoProvider;", "has NoProvider, but it did not start"
    with pytest.raises(FamiliarError, match=f"{refused}|{fallen_back}"):
        Embedder(mean_color_bundle, providers=["NoProvider"])
    if tuple(map(int, ort.__version__.split(".")[:2])) >= (1, 23):  # older ones print that they fall back
        assert capfd.readouterr() == ("", "")


def test_rejects_provider_that_does_not_start(mean_color_bundle: Path, monkeypatch: pytest.MonkeyPatch):
    """A build with CUDA always lists it as available, and falls back to the CPU if there is no GPU."""
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["NoProvider", "CPUExecutionProvider"])
    started = ort.InferenceSession

    def without(*arguments: Any, providers: Sequence[str], **options: Any) -> ort.InferenceSession:
        return started(*arguments, providers=[name for name in providers if name != "NoProvider"], **options)

    monkeypatch.setattr(ort, "InferenceSession", without)
    with pytest.raises(FamiliarError, match="has NoProvider, but it did not start"):
        Embedder(mean_color_bundle, providers=["NoProvider", "CPUExecutionProvider"])


def test_custom_network_replaces_bundle_network(mean_color_bundle: Path):
    def least_color(crops_u8: np.ndarray) -> np.ndarray:
        return np.eye(3, dtype=np.float32)[crops_u8.mean(axis=(1, 2)).argmin(axis=1)]

    embedder = Embedder(mean_color_bundle, network=least_color)
    assert embedder.embed([Crop(color(9, 5, 2), "a"), Crop(color(0, 4, 4), "b")]).tolist() == [
        [0, 0, 1],
        [1, 0, 0],
    ]
    assert embedder.metadata.space_id == "mean-color"
    long = Embedder(mean_color_bundle, network=lambda crops_u8: 2 * least_color(crops_u8))
    with pytest.raises(BadBundle, match="does not return unit vectors"):
        long.embed([Crop(color(9, 5, 2), "a")])
    with pytest.raises(ValueError, match="ONNX Runtime's"):
        Embedder(mean_color_bundle, providers=["CPUExecutionProvider"], network=least_color)


def test_skips_unreadable_photos(embedder: Embedder, tmp_path: Path):
    paths = [tmp_path / f"{name}.png" for name in ("red", "broken", "green", "empty", "blue")]
    for path, rgb in zip(paths[::2], [(9, 0, 0), (0, 9, 0), (0, 0, 9)], strict=True):
        save_photo(Photo(color(*rgb, size=50), "drawn", (50, 50)), path)
    paths[1].write_bytes(paths[0].read_bytes()[:40])
    paths[3].write_bytes(b"")
    done: list[int] = []
    for batch_size in (1, 2, 32):
        embedded = embed_photos(embedder, paths, batch_size=batch_size, on_photo=done.append)
        np.testing.assert_allclose(embedded.embeddings, np.eye(3), atol=1e-6)
        assert embedded.rows.tolist() == [0, 2, 4]
        assert [type(error) for error in embedded.skipped] == [UnreadablePhoto, UnreadablePhoto]
        assert ["broken" in str(embedded.skipped[0]), "empty" in str(embedded.skipped[1])] == [True, True]
        assert embedded.skipped[0].__traceback__ is None  # its frames have the photo's bytes
    assert done == 3 * [1, 2, 3, 4, 5]


def test_skips_photo_without_face_by_name(embedder: Embedder, tmp_path: Path):
    path = save_photo(Photo(color(9, 9, 9, size=80), "drawn", (80, 80)), tmp_path / "wall.png")
    embedded = embed_photos(embedder, [path], HeadDetector())
    assert len(embedded.rows) == 0
    assert "wall.png" in str(embedded.skipped[0])


def test_embeds_custom_photo_sources(embedder: Embedder):
    def open_number(source: int, /, *, min_side_px: int | None = None) -> Photo:
        assert min_side_px == 32
        if source == 1:
            raise FamiliarError("one is missing")
        return Photo(color(0, source, 0), str(source), (32, 32))

    embedded = embed_photos(embedder, [1, 2, 3], open_photo=open_number)
    assert embedded.rows.tolist() == [1, 2]


def test_reads_reduced_photo_only_without_detector(embedder: Embedder, tmp_path: Path):
    path = tmp_path / "large.jpg"
    gradient = cv2.resize(np.arange(256, dtype=np.uint8).reshape(1, 256), (640, 480))
    cv2.imwrite(str(path), gradient)
    seen: list[int | None] = []

    def spy(source: Path, /, *, min_side_px: int | None = None) -> Photo:
        seen.append(min_side_px)
        return load_photo(source, min_side_px=min_side_px)

    preprocessing = embedder.metadata.preprocessing
    small = crop_photo(path, preprocessing, open_photo=spy)
    whole = crop_photo(path, preprocessing, CenterSquare(), open_photo=spy)
    assert seen == [32, None]
    assert small.size_px == whole.size_px == 32
