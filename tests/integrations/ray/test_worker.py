"""What a worker writes: all faces of its photos, or the reason why there are none."""

import pickle
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from familiar.core.errors import FamiliarError
from familiar.core.types import Face, Photo
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from familiar.integrations.ray import worker as worker_module
from familiar.integrations.ray.parts import PhotoFile, part_path
from familiar.integrations.ray.worker import EmbeddingSettings, Journal, Worker
from familiar.photos.decoding import save_photo
from support.color_album import SquareDetector, draw_album, draw_photo


class BlindDetector:
    """Finds no face."""

    def detect(self, photo: Photo) -> list[Face]:
        assert photo.size_px
        return []


@pytest.fixture
def worker(mean_color_bundle: Path, tmp_path: Path) -> Worker:
    return Worker(EmbeddingSettings((str(mean_color_bundle),), "none"), tmp_path / "out")


def counts(photos: int, faces: int, without_embedding: int) -> dict[str, int]:
    return {"photos": photos, "faces": faces, "without_embedding": without_embedding}


@pytest.fixture
def photos(tmp_path: Path) -> list[PhotoFile]:
    (tmp_path / "out").mkdir()
    broken = tmp_path / "broken.jpg"
    broken.write_text("no photo")
    paths = [*draw_album(tmp_path / "album", red=2, blue=1), broken, tmp_path / "missing.png"]
    return [PhotoFile(str(path), path, (1, 2)) for path in paths]


def test_rows_are_those_of_embed_photos(worker: Worker, photos: list[PhotoFile], mean_color_bundle: Path):
    assert worker.embed_part(photos) == counts(5, 3, 2)
    rows = pq.read_table(part_path(worker.folder, photos)).to_pylist()
    assert [row["photo"] for row in rows] == [photo.name for photo in photos]
    expected = embed_photos(Embedder(mean_color_bundle), [photo.photo for photo in photos], "none")
    np.testing.assert_array_equal([row["embedding"] for row in rows[:3]], expected.embeddings)
    assert [row["error"] for row in rows[3:]] == [str(error) for error in expected.skipped]
    assert {row["file_id"] for row in rows[:3]} == {Embedder(mean_color_bundle).bundle.file_id}
    assert rows[0]["box_xyxy_px"] == [0, 0, 32, 32]
    assert [path.suffix for path in worker.folder.iterdir()] == [".parquet"]


def test_large_crops_are_embedded_as_by_embed_photos(worker: Worker, tmp_path: Path):
    worker.folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (75, 75, 3), np.uint8).repeat(16, 0).repeat(16, 1)
    path = save_photo(Photo(pixels, "drawn", (1200, 1200)), tmp_path / "large.jpg")  # decoded at a reduced size
    worker.embed_part([PhotoFile(str(path), path)])
    (row,) = pq.read_table(part_path(worker.folder, [PhotoFile(str(path), path)])).to_pylist()
    np.testing.assert_array_equal([row["embedding"]], embed_photos(worker.model, [path], "none").embeddings)


def test_all_faces_of_a_photo_have_a_row(worker: Worker, tmp_path: Path):
    worker.folder.mkdir()
    worker.detector = SquareDetector()
    path = draw_photo(tmp_path / "three.png", "red", "green", "blue")
    assert worker.embed_part([PhotoFile(str(path), path)]) == counts(1, 3, 0)
    rows = pq.read_table(part_path(worker.folder, [PhotoFile(str(path), path)])).to_pylist()
    assert [row["face"] for row in rows] == [1, 2, 3]
    assert sorted(row["box_xyxy_px"][0] for row in rows) == [0, 32, 64]
    for row in rows:
        assert np.argmax(row["embedding"]) == row["box_xyxy_px"][0] / 32


def test_a_photo_without_a_face_is_a_row_with_the_reason(worker: Worker, photos: list[PhotoFile]):
    worker.detector = BlindDetector()
    assert worker.embed_part(photos[:1]) == counts(1, 0, 1)
    (row,) = pq.read_table(part_path(worker.folder, photos[:1])).to_pylist()
    assert row["error"] == f"{photos[0].name}: no face found"


def test_a_written_part_is_not_embedded_again(worker: Worker, photos: list[PhotoFile], monkeypatch):
    worker.embed_part(photos)
    monkeypatch.setattr(worker_module, "write_part", pytest.fail)
    assert worker.embed_part(photos) == counts(5, 3, 2)


def test_a_photo_that_ends_its_process_again_and_again_gets_a_reason(worker: Worker, photos: list[PhotoFile]):
    journal = part_path(worker.folder, photos).with_suffix(".attempts")
    for _ in range(worker_module.MAX_DEATHS):
        attempt = Journal(journal)
        attempt.note("0")
        attempt.note("1")  # the process ends here
    assert Journal(journal).deaths_at(1) == worker_module.MAX_DEATHS
    assert worker.embed_part(photos) == counts(5, 2, 3)
    rows = pq.read_table(part_path(worker.folder, photos)).to_pylist()
    assert rows[1]["error"] == f"{photos[1].name}: ended the process that read it 3 times"
    assert rows[0]["error"] is None


def test_a_part_that_ends_every_process_is_named(worker: Worker, photos: list[PhotoFile]):
    journal = part_path(worker.folder, photos).with_suffix(".attempts")
    for _ in range(worker_module.MAX_ATTEMPTS):
        Journal(journal).note("read")
    rows = {"photo": [pickle.dumps(photo) for photo in photos]}
    (error,) = worker(rows)["result"]
    with pytest.raises(FamiliarError, match=rf"{photos[0].name} to {photos[-1].name} were killed 20 times"):
        raise pickle.loads(error)
    (result,) = worker(rows)["result"]  # when the command is repeated
    assert pickle.loads(result) == counts(5, 3, 2)
