"""Batching inference: results, the composition of batches, and errors."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from familiar.core.errors import NoFaceFound, UnreadablePhoto
from familiar.core.recognition_types import DetectedPhoto
from familiar.core.types import Face, Photo
from familiar.detection.detectors import Detector, WholePhoto
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from familiar.photos.decoding import save_photo
from familiar.web.errors import HttpProblem
from familiar.web.inference import THREADS_PER_RUN, Inference
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
    work: Callable[[Inference], Any],
    detector: Detector | None = None,
    limits: Limits | None = None,
) -> Any:
    """Return the result of `work(vision)`."""

    async def run() -> Any:
        vision = Inference(embedder, detector or color_album.SquareDetector(), limits or Limits())
        try:
            return await asyncio.wait_for(work(vision), SECONDS)
        finally:
            await vision.stop()

    return asyncio.run(run())


async def best_face(vision: Inference, path: Path) -> Face:
    return (await vision.best_faces([path]))[0]


async def until(met: Callable[[], bool]) -> None:
    for _ in range(SECONDS * 100):
        if met():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came")


def test_detect_returns_all_faces_in_photo_pixels(tmp_path: Path, embedder: Embedder):
    path = color_album.draw_photo(tmp_path / "three.png", "red", "green", "blue")
    result: DetectedPhoto = seeing(embedder, lambda vision: vision.detect(path))
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
    result: DetectedPhoto = seeing(embedder, lambda vision: vision.detect(path), WholePhoto())
    assert result.size_px == (768, 512)
    assert result.faces[0].box_xyxy_px == (0, 0, 768, 512)


def test_detect_all_matches_embed_photos(tmp_path: Path, embedder: Embedder):
    paths = color_album.draw_album(tmp_path, red=5, green=4, blue=3)
    result: list[DetectedPhoto] = seeing(embedder, lambda vision: vision.detect_all(paths))
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
    seen = seeing(embedder, lambda vision: best_face(vision, path))
    assert seen.box_xyxy_px == (0, 0, 32, 32)
    assert seen.embedding.argmax() == 1
    assert network.batches == [1]  # the other one is not embedded
    with pytest.raises(NoFaceFound, match=r"two\.png: no face found"):
        seeing(embedder, lambda vision: best_face(vision, path), NoFaces())


def test_without_model_detects_faces_but_rejects_embedding(tmp_path: Path):
    path = color_album.draw_photo(tmp_path / "two.png", "green", "red")

    async def work(vision: Inference) -> DetectedPhoto:
        assert not vision.has_model
        for request in (vision.detect(path), best_face(vision, path)):
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
def test_photo_with_many_faces_is_split_into_batches(tmp_path: Path, embedder: Embedder, network: Network):
    colors = ["red", "green", "blue"] * 3
    path = color_album.draw_photo(tmp_path / "nine.png", *colors)
    result = seeing(embedder, lambda vision: vision.detect(path))
    assert network.batches == [4, 4, 1]
    assert [int(seen.embedding.argmax()) for seen in result.faces] == [0, 1, 2] * 3


def test_photos_of_several_requests_are_embedded_together(tmp_path: Path, embedder: Embedder, network: Network):
    first, second, third = (color_album.draw_photo(tmp_path / f"{name}.png", name) for name in ("red", "green", "blue"))

    async def work(vision: Inference) -> list[Face]:
        network.go.clear()
        under_way = asyncio.create_task(best_face(vision, first))
        await network.has_begun()
        waiting = asyncio.gather(best_face(vision, second), best_face(vision, third))
        shared = embedder.networks[None][1]
        await until(lambda: len(shared._waiting) == min(2, THREADS_PER_RUN - 1))
        network.go.set()
        return [await under_way, *await waiting]

    faces = seeing(embedder, work)
    assert [int(face.embedding.argmax()) for face in faces] == [0, 1, 2]
    assert sum(network.batches) == 3


def test_network_error_fails_only_its_request(tmp_path: Path, embedder: Embedder, network: Network):
    network.fails = lambda crops_u8: len(crops_u8) == 2
    single, pair = (color_album.draw_photo(tmp_path / f"{count}.png", *["red"] * count) for count in (1, 2))

    async def work(vision: Inference) -> list[Any]:
        return await asyncio.gather(vision.detect(single), vision.detect(pair), return_exceptions=True)

    good, bad = seeing(embedder, work)
    assert len(good.faces) == 1
    assert str(bad) == "out of memory"


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    return color_album.draw_album(tmp_path / "pictures", red=THREADS_PER_RUN + 3)


async def fill(vision: Inference, network: Network, pictures: Iterator[Path]) -> list[asyncio.Task[Face]]:
    """Occupy all threads of an embedder of one thread, and return what they are doing."""
    network.go.clear()
    tasks = [asyncio.create_task(best_face(vision, next(pictures))) for _ in range(THREADS_PER_RUN)]
    await network.has_begun()
    await until(lambda: vision._pool._work_queue.empty())
    return tasks


def test_canceled_request_is_not_embedded(embedder: Embedder, network: Network, pictures: list[Path]):
    async def work(vision: Inference) -> None:
        paths = iter(pictures)
        busy = await fill(vision, network, paths)
        cancelled, stays = (asyncio.create_task(best_face(vision, next(paths))) for _ in range(2))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        network.go.set()
        await asyncio.gather(*busy, stays)

    seeing(embedder, work)
    assert sum(network.batches) == THREADS_PER_RUN + 1


def test_rejects_requests_above_waiting_limit(embedder: Embedder, network: Network, pictures: list[Path]):
    async def work(vision: Inference) -> None:
        paths = iter(pictures)
        busy = await fill(vision, network, paths)
        waiting = asyncio.create_task(best_face(vision, next(paths)))
        await asyncio.sleep(0)
        with pytest.raises(HttpProblem, match="too many photos") as error:
            await best_face(vision, next(paths))
        assert (error.value.status, error.value.kind) == (HTTPStatus.SERVICE_UNAVAILABLE, "busy")
        waiting.cancel()
        await asyncio.sleep(0)
        in_its_place = asyncio.create_task(best_face(vision, next(paths)))
        await asyncio.sleep(0)
        network.go.set()
        assert all(face.embedding is not None for face in await asyncio.gather(*busy, in_its_place))

    seeing(embedder, work, limits=Limits(waiting_requests=THREADS_PER_RUN + 1))


def test_stop_completes_current_photos_and_rejects_queue(embedder: Embedder, network: Network, pictures: list[Path]):
    async def work(vision: Inference) -> None:
        paths = iter(pictures)
        busy = await fill(vision, network, paths)
        waits = asyncio.create_task(best_face(vision, next(paths)))
        await asyncio.sleep(0)
        stop = asyncio.create_task(vision.stop())
        with pytest.raises(HttpProblem, match="stopping"):
            await waits
        assert not stop.done()
        network.go.set()
        await stop
        with pytest.raises(HttpProblem, match="stopping"):
            await best_face(vision, next(paths))
        assert all(face.embedding is not None for face in await asyncio.gather(*busy))

    seeing(embedder, work)
