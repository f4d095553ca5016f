"""Batching inference: results, the composition of batches, and errors."""

import asyncio
import threading
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from familiar.core.errors import NoFaceFound, UnreadablePhoto
from familiar.core.types import Crop, Face, Photo
from familiar.detection.detectors import Detector, WholePhoto
from familiar.embedding.embedder import Embedder
from familiar.embedding.model import embed_photos
from familiar.photos.decoding import save_photo
from familiar.web.errors import HttpProblem
from familiar.web.inference import BatchingInference, PhotoResult
from familiar.web.settings import Limits
from support import color_album

SECONDS = 10  # that a test waits for what must come


class NoFaces:
    """A detector that finds no face."""

    def detect(self, photo: Photo) -> list[Face]:  # noqa: ARG002
        return []


class Network:
    """A network that returns the mean color of each crop, records the batch sizes, and can be paused."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.go, self.begun = threading.Event(), threading.Semaphore(0)
        self.go.set()
        self.fails: Callable[[np.ndarray], bool] = lambda _: False

    def __call__(self, crops_u8: np.ndarray) -> np.ndarray:
        self.batches.append(len(crops_u8))
        self.begun.release()
        assert self.go.wait(SECONDS)
        if self.fails(crops_u8):
            raise RuntimeError("out of memory")
        means = crops_u8.mean(axis=(1, 2), dtype=np.float32)
        return means / np.linalg.norm(means, axis=1, keepdims=True)

    async def has_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.acquire, timeout=SECONDS)


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def embedder(mean_color_bundle: Path, network: Network) -> Embedder:
    """An embedder with one thread."""
    return Embedder(mean_color_bundle, threads=1, network=network)


@pytest.fixture
def batches_of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("familiar.embedding.embedder.BATCH_PIXELS", 4 * 32**2)


def seeing(
    embedder: Embedder | None,
    work: Callable[[BatchingInference], Any],
    detector: Detector | None = None,
    limits: Limits | None = None,
) -> Any:
    """Return the result of `work(vision)`."""

    async def run() -> Any:
        vision = BatchingInference(embedder, detector or color_album.SquareDetector(), limits or Limits())
        await vision.start()
        try:
            return await asyncio.wait_for(work(vision), SECONDS)
        finally:
            await vision.stop()

    return asyncio.run(run())


def crop(red: int = 200) -> Crop:
    return Crop(np.full((32, 32, 3), (red, 20, 20), np.uint8), "drawn")


async def until(met: Callable[[], bool]) -> None:
    for _ in range(SECONDS * 100):
        if met():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came")


def test_detect_returns_all_faces_in_photo_pixels(tmp_path: Path, embedder: Embedder):
    path = color_album.draw_photo(tmp_path / "three.png", "red", "green", "blue")
    result: PhotoResult = seeing(embedder, lambda vision: vision.detect(path))
    assert result.size_px == (96, 32)
    assert [seen.box_xyxy_px for seen in result.faces] == [
        (0, 0, 32, 32),
        (32, 0, 64, 32),
        (64, 0, 96, 32),
    ]
    colors = [seen.embedding.argmax() for seen in result.faces if seen.embedding is not None]
    assert colors == [0, 1, 2]
    assert all(0 < seen.quality <= 1 for seen in result.faces)


def test_boxes_in_downscaled_photo_use_file_pixels(tmp_path: Path, embedder: Embedder):
    path = save_photo(Photo(np.full((512, 768, 3), 90, np.uint8), "drawn", (768, 512)), tmp_path / "large.jpg")
    result: PhotoResult = seeing(embedder, lambda vision: vision.detect(path), WholePhoto())
    assert result.size_px == (768, 512)
    assert result.faces[0].box_xyxy_px == (0, 0, 768, 512)


def test_detect_all_matches_embed_photos(tmp_path: Path, embedder: Embedder):
    paths = color_album.draw_album(tmp_path, red=5, green=4, blue=3)
    result: list[PhotoResult] = seeing(embedder, lambda vision: vision.detect_all(paths))
    rows = np.stack(
        [seen.embedding for photo_result in result for seen in photo_result.faces if seen.embedding is not None]
    )
    np.testing.assert_array_equal(rows, embed_photos(embedder, paths, color_album.SquareDetector()).embeddings)


def test_bad_photo_does_not_affect_others(tmp_path: Path, embedder: Embedder):
    good = color_album.draw_photo(tmp_path / "good.png", "red")
    (tmp_path / "bad.png").write_bytes(b"no photo")
    first, bad, other = seeing(embedder, lambda vision: vision.detect_all([good, tmp_path / "bad.png", good]))
    assert isinstance(bad, UnreadablePhoto)
    assert "bad.png: not a photo" in str(bad)
    assert len(first.faces) == len(other.faces) == 1
    with pytest.raises(UnreadablePhoto, match="not a photo"):
        seeing(embedder, lambda vision: vision.detect(tmp_path / "bad.png"))


def test_rejects_photo_above_pixel_limit(tmp_path: Path, embedder: Embedder):
    path = color_album.draw_photo(tmp_path / "one.png", "red")
    with pytest.raises(UnreadablePhoto, match="more than 1,000 pixels"):
        seeing(embedder, lambda vision: vision.detect(path), limits=Limits(photo_pixels=1_000))


def test_best_embeds_only_the_best_face(tmp_path: Path, embedder: Embedder, network: Network):
    path = color_album.draw_photo(tmp_path / "two.png", "green", "red")
    seen = seeing(embedder, lambda vision: vision.best_face(path))
    assert seen.box_xyxy_px == (0, 0, 32, 32)
    assert seen.embedding.argmax() == 1
    assert network.batches == [1]  # the other one is not embedded
    with pytest.raises(NoFaceFound, match=r"two\.png: no face found"):
        seeing(embedder, lambda vision: vision.best_face(path), NoFaces())


def test_without_model_detects_faces_but_rejects_embedding(tmp_path: Path):
    path = color_album.draw_photo(tmp_path / "two.png", "green", "red")

    async def work(vision: BatchingInference) -> PhotoResult:
        assert not vision.has_model
        for request in (vision.detect(path), vision.best_face(path), vision.embed([crop()])):
            with pytest.raises(HttpProblem, match="--model") as error:
                await request
            assert (error.value.status, error.value.kind) == (HTTPStatus.CONFLICT, "no-model")
        return await vision.detect(path, embed=False)

    with pytest.raises(HttpProblem, match="--model"):
        seeing(None, lambda vision: vision.detect(path), NoFaces())
    assert [seen.embedding for seen in seeing(None, work).faces] == [None, None]


def test_detect_without_embed_skips_network(tmp_path: Path, embedder: Embedder, network: Network):
    path = color_album.draw_photo(tmp_path / "two.png", "green", "red")
    result = seeing(embedder, lambda vision: vision.detect(path, embed=False))
    assert [seen.embedding for seen in result.faces] == [None, None]
    assert network.batches == []


@pytest.mark.usefixtures("batches_of_four")
def test_batches_combine_small_and_split_large_requests(embedder: Embedder, network: Network):
    async def work(vision: BatchingInference) -> list[np.ndarray]:
        network.go.clear()
        first = asyncio.create_task(vision.embed([crop()]))
        await network.has_begun()
        requests = [vision.embed([crop(red)] * many) for red, many in ((40, 1), (80, 2), (120, 1), (160, 9))]
        waiting = asyncio.gather(*requests)
        await asyncio.sleep(0)  # they are in the queue
        network.go.set()
        await first
        return await waiting

    rows = seeing(embedder, work)
    assert network.batches == [1, 4, 4, 4, 1]
    assert [len(each) for each in rows] == [1, 2, 1, 9]
    for red, each in zip((40, 80, 120, 160), rows, strict=True):
        expected = np.array([red, 20, 20]) / np.linalg.norm([red, 20, 20])
        np.testing.assert_allclose(each, np.tile(expected, (len(each), 1)), atol=1e-5)


@pytest.mark.usefixtures("batches_of_four")
def test_photo_with_many_faces_is_split_into_batches(tmp_path: Path, embedder: Embedder, network: Network):
    colors = ["red", "green", "blue"] * 3
    path = color_album.draw_photo(tmp_path / "nine.png", *colors)
    result = seeing(embedder, lambda vision: vision.detect(path))
    assert network.batches == [4, 4, 1]
    assert [int(seen.embedding.argmax()) for seen in result.faces] == [0, 1, 2] * 3


def test_embed_without_crops_returns_empty_array(embedder: Embedder):
    assert seeing(embedder, lambda vision: vision.embed([])).shape == (0, 3)


@pytest.mark.usefixtures("batches_of_four")
def test_network_error_fails_only_its_batch(embedder: Embedder, network: Network):
    network.fails = lambda crops_u8: len(crops_u8) == 4

    async def work(vision: BatchingInference) -> list[Any]:
        network.go.clear()
        first = asyncio.create_task(vision.embed([crop()]))
        await network.has_begun()
        requests = [vision.embed([crop()] * many) for many in (2, 2, 3)]  # the last waits for the next batch
        waiting = asyncio.gather(*requests, return_exceptions=True)
        await asyncio.sleep(0)
        network.go.set()
        return [await first, *await waiting]

    first, second, third, last = seeing(embedder, work)
    assert network.batches == [1, 4, 3]
    assert len(first) == 1
    assert [str(error) for error in (second, third)] == ["out of memory"] * 2
    assert len(last) == 3


@pytest.mark.usefixtures("batches_of_four")
def test_failed_batch_does_not_affect_other_photo(tmp_path: Path, embedder: Embedder, network: Network):
    network.fails = lambda crops_u8: len(crops_u8) == 2
    two = color_album.draw_photo(tmp_path / "two.png", "red", "green")
    four = color_album.draw_photo(tmp_path / "four.png", "red", "green", "blue", "red")

    async def work(vision: BatchingInference) -> list[Any]:
        network.go.clear()
        first = asyncio.create_task(vision.embed([crop()]))
        await network.has_begun()
        waiting = asyncio.gather(vision.detect(two), vision.detect(four), return_exceptions=True)
        await asyncio.sleep(0)
        network.go.set()
        await first
        return await waiting

    good, bad = seeing(embedder, work)
    assert network.batches == [1, 4, 2]  # both of the one and two of the other, and the rest
    assert len(good.faces) == 2
    assert str(bad) == "out of memory"


def test_canceled_request_is_not_embedded(embedder: Embedder, network: Network):
    async def work(vision: BatchingInference) -> np.ndarray:
        network.go.clear()
        first = asyncio.create_task(vision.embed([crop()]))
        await network.has_begun()
        cancelled, stays = (asyncio.create_task(vision.embed([crop()] * many)) for many in (3, 2))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        network.go.set()
        await first
        return await stays

    assert len(seeing(embedder, work)) == 2
    assert network.batches == [1, 2]


def test_rejects_requests_above_waiting_limit(embedder: Embedder, network: Network):
    async def work(vision: BatchingInference) -> None:
        network.go.clear()
        under_way = asyncio.create_task(vision.embed([crop()]))
        await network.has_begun()
        waiting = [asyncio.create_task(vision.embed([crop()])) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(HttpProblem, match="too many photos") as error:
            await vision.embed([crop()])
        assert (error.value.status, error.value.kind) == (HTTPStatus.SERVICE_UNAVAILABLE, "busy")
        waiting[0].cancel()
        await asyncio.sleep(0)
        in_its_place = asyncio.create_task(vision.embed([crop()]))
        await asyncio.sleep(0)
        network.go.set()
        assert [len(rows) for rows in await asyncio.gather(under_way, waiting[1], in_its_place)] == [1, 1, 1]

    seeing(embedder, work, limits=Limits(waiting_requests=2))


def test_idle_threads_share_queued_crops(mean_color_bundle: Path, network: Network):
    embedder = Embedder(mean_color_bundle, threads=2, network=network)

    async def work(vision: BatchingInference) -> None:
        await until(lambda: vision._idle == 2)
        network.go.clear()
        with vision._ready:  # so that the first finds all of them
            requests = asyncio.gather(*(vision.embed([crop()]) for _ in range(6)))
            await asyncio.sleep(0)
        await network.has_begun()
        await network.has_begun()
        network.go.set()
        await requests

    seeing(embedder, work)
    assert sorted(network.batches) == [3, 3]


def test_stop_completes_current_batch_and_rejects_queue(embedder: Embedder, network: Network):
    async def work(vision: BatchingInference) -> np.ndarray:
        network.go.clear()
        under_way = asyncio.create_task(vision.embed([crop()]))
        await network.has_begun()
        waits = asyncio.create_task(vision.embed([crop()]))
        await asyncio.sleep(0)
        stop = asyncio.create_task(vision.stop())
        with pytest.raises(HttpProblem, match="stopping"):
            await waits
        assert not stop.done()
        network.go.set()
        await stop
        with pytest.raises(HttpProblem, match="stopping"):
            await vision.embed([crop()])
        return await under_way

    assert len(seeing(embedder, work)) == 1
    assert network.batches == [1]
