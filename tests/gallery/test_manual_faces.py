"""Adding, moving and deleting faces by hand: embedding, assignment and undo."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from familiar.core.errors import Contradiction, NoFaceFound, NotInGallery, SpaceMismatch, UnreadablePhoto
from familiar.core.types import Face, Photo
from familiar.detection.alignment import align
from familiar.detection.faces import face_quality
from familiar.embedding.embedder import Embedder
from familiar.gallery.edits import corrections, manual_faces
from familiar.gallery.edits.manual_faces import Box, add_face, delete_face, set_face_box
from familiar.gallery.enroll.enroll import enroll
from familiar.gallery.same.decisions import decisions, undo
from familiar.gallery.store.store import Store
from familiar.gallery.transfer.check import check
from familiar.gallery.transfer.migrate import migrate
from familiar.photos.decoding import load_photo, save_photo
from familiar.photos.preprocessing import stack_crops
from support.small_gallery import (
    draw_individuals,
    enroll_vectors,
    identity_of,
    rows,
    side_by_side,
)

LEFT, RIGHT = (0.0, 0.0, 48.0, 48.0), (48.0, 0.0, 96.0, 48.0)
LANDMARKS = np.array([[60, 20], [84, 20], [72, 30], [62, 38], [82, 38]], np.float32)


class LeftHalf:
    """A detector that finds only the left face of a pair."""

    def detect(self, photo: Photo) -> list[Face]:
        return [Face(LEFT, None, 0.9)] if photo.size_px == (96, 48) else []


def expected(embedder: Embedder, path: Path, detection: Face) -> tuple[np.ndarray, float]:
    """Compute the embedding and quality of a face step by step."""
    photo = load_photo(path)
    crop = align(photo, detection, embedder.metadata.preprocessing)
    (embedding,) = embedder.run(stack_crops([crop], embedder.metadata.preprocessing.size_px))
    return embedding, face_quality(detection, photo.size_px, crop.rgb_u8)


@pytest.fixture
def pairs(tmp_path: Path, pets: list[Path]) -> list[Path]:
    """Three photos of two cats each, 96 x 48 px."""
    paths: list[Path] = []
    for first, second in ((0, 3), (1, 4), (2, 5)):
        both = side_by_side(load_photo(pets[first]).rgb_u8, load_photo(pets[second]).rgb_u8)
        paths.append(save_photo(both, tmp_path / f"{first}.png"))
    return paths


@pytest.fixture
def detected(album: Store, embedder: Embedder, pairs: list[Path]) -> Store:
    """A gallery with the left face of each pair. Faces and photos are both numbered 1, 2, 3."""
    enroll(album, embedder, pairs, LeftHalf(), species="cats")
    return album


@pytest.mark.slow
def test_added_face_is_embedded_like_an_enrolled_face(detected: Store, embedder: Embedder, pairs):
    assert add_face(detected, embedder, 2, RIGHT) == 4
    embedding, quality = expected(embedder, pairs[1], Face(RIGHT, None, 1.0))
    np.testing.assert_allclose(detected.faces().embeddings[3], embedding, atol=1e-6)
    (_, _, _, face) = rows(detected, ("faces",))["faces"]
    assert face[:10] == (4, 2, *RIGHT, None, 1.0, pytest.approx(quality), "cats")
    assert 0 < quality < 1
    assert enroll(detected, embedder, pairs, LeftHalf()).known == 3
    assert check(detected).problems == ()


def test_added_face_is_aligned_by_its_landmarks(detected: Store, embedder: Embedder, pairs):
    face = add_face(detected, embedder, 1, RIGHT, LANDMARKS)
    embedding, _ = expected(embedder, pairs[0], Face(RIGHT, LANDMARKS, 1.0))
    np.testing.assert_allclose(detected.faces().embeddings[-1], embedding, atol=1e-6)
    stored = rows(detected, ("faces",))["faces"][face - 1][6]
    np.testing.assert_array_equal(np.frombuffer(stored, "<f4").reshape(5, 2), LANDMARKS)
    with pytest.raises(NoFaceFound):
        add_face(detected, embedder, 2, RIGHT, np.ones((5, 2), np.float32))


def test_moved_photo_is_read_from_the_given_path(detected: Store, embedder: Embedder, pairs):
    there = pairs[0].rename(pairs[0].with_name("moved.png"))
    with pytest.raises(UnreadablePhoto, match=r"0\.png"):
        add_face(detected, embedder, 1, RIGHT)
    assert add_face(detected, embedder, 1, RIGHT, path=there) == 4
    set_face_box(detected, embedder, 4, (50.0, 2.0, 94.0, 46.0), path=there)
    with pytest.raises(Contradiction, match="changed since it was enrolled; enroll it again"):
        add_face(detected, embedder, 2, RIGHT, path=there)
    with pytest.raises(Contradiction, match="changed since it was enrolled; enroll it again"):
        set_face_box(detected, embedder, 2, RIGHT, path=there)


@pytest.mark.slow
@pytest.mark.parametrize(
    "box",
    [
        (48.0, 0.0, 48.0, 48.0),  # no width
        (90.0, 0.0, 60.0, 48.0),  # from the right to the left
        (48.0, 0.0, 55.9, 48.0),
        (48.0, 40.1, 96.0, 90.0),  # 7.9 px of it lie on the photo
        (96.0, 0.0, 144.0, 48.0),  # next to the photo
        (-500.0, -500.0, -10.0, -10.0),
        (48.0, 0.0, float("nan"), 48.0),
        (48.0, 0.0, float("inf"), 48.0),
    ],
)
def test_rejects_box_with_under_8_px_on_the_photo(detected: Store, embedder: Embedder, box: Box):
    with pytest.raises(Contradiction, match=r"overlaps the photo, which is 96 x 48 px, by less than 8 px"):
        add_face(detected, embedder, 1, box)
    with pytest.raises(Contradiction, match="less than 8 px"):
        set_face_box(detected, embedder, 1, box)
    assert len(detected.faces().ids) == 3
    assert decisions(detected) == []


def test_accepts_8_px_box_and_box_beyond_the_photo_edge(detected: Store, embedder: Embedder):
    assert add_face(detected, embedder, 1, (88.0, 0.0, 96.0, 8.0)) == 4
    assert add_face(detected, embedder, 2, (60.0, -20.0, 140.0, 60.0)) == 5
    quality_of = {row[0]: row[8] for row in rows(detected, ("faces",))["faces"]}
    assert 0 < quality_of[4] < quality_of[1]


def test_rejects_box_that_overlaps_another_face_by_half(detected: Store, embedder: Embedder):
    for twice in (LEFT, (10.0, 10.0, 30.0, 30.0), (-20.0, -20.0, 90.0, 60.0), (24.0, 0.0, 72.0, 48.0)):
        with pytest.raises(Contradiction, match=r"0\.png: face 1 is there already"):
            add_face(detected, embedder, 1, twice)
    other = add_face(detected, embedder, 1, (24.5, 0.0, 72.5, 48.0))  # overlaps by less than half
    with pytest.raises(Contradiction, match="face 1 is there already"):
        set_face_box(detected, embedder, other, LEFT)
    set_face_box(detected, embedder, other, (25.0, 0.0, 73.0, 48.0))  # its own old box does not count
    assert len(detected.faces().ids) == 4


def test_face_without_box_does_not_block_a_new_face(detected: Store, embedder: Embedder):
    enroll_vectors(detected, draw_individuals([1]))  # no box
    with detected.write(faces_change=True) as repository:
        repository.connection.execute("UPDATE faces SET photo_id = 1 WHERE id = 4")
    assert add_face(detected, embedder, 1, RIGHT) == 5


def test_rejects_unknown_photo_and_face_numbers(detected: Store, embedder: Embedder):
    for number in (99, 2**70, -1):
        with pytest.raises(NotInGallery, match=f"no photo {number}"):
            add_face(detected, embedder, number, RIGHT)
        with pytest.raises(NotInGallery, match=f"no face {number}"):
            set_face_box(detected, embedder, number, RIGHT)
        with pytest.raises(NotInGallery, match=f"no face {number}"):
            delete_face(detected, number)


def test_rejects_other_model_before_reading_the_photo(detected: Store, other_embedder: Embedder):
    nowhere = Path("nowhere.png")
    for change in (
        lambda: add_face(detected, other_embedder, 1, RIGHT, path=nowhere),
        lambda: set_face_box(detected, other_embedder, 1, LEFT, path=nowhere),
    ):
        with pytest.raises(SpaceMismatch, match="embedded by another model"):
            change()
    assert len(detected.faces().ids) == 3


def test_rejects_changes_that_conflict_with_another_process(
    detected: Store, folder: Path, embedder: Embedder, other_embedder: Embedder, monkeypatch: pytest.MonkeyPatch
):
    embed_box = manual_faces._embed_box

    def overtake(change: Callable[[Store], object]) -> None:
        """Let another process change the gallery after the next embedding, during which no lock is held."""

        def embed_then_change(*arguments: Any) -> Any:
            face = embed_box(*arguments)
            monkeypatch.setattr(manual_faces, "_embed_box", embed_box)
            with Store.open(folder) as other:
                change(other)
            return face

        monkeypatch.setattr(manual_faces, "_embed_box", embed_then_change)

    overtake(lambda other: add_face(other, embedder, 1, RIGHT))
    with pytest.raises(Contradiction, match="face 4 is there already"):
        add_face(detected, embedder, 1, RIGHT)
    overtake(lambda other: delete_face(other, 4))
    with pytest.raises(NotInGallery, match="face 4 has just been deleted"):
        set_face_box(detected, embedder, 4, RIGHT)
    overtake(lambda other: migrate(other, other_embedder))
    with pytest.raises(SpaceMismatch, match="embedded by another model"):
        add_face(detected, embedder, 1, RIGHT)
    assert len(detected.faces().ids) == 3


def test_deleted_face_does_not_return_on_enrollment(detected: Store, embedder: Embedder, pairs):
    assert detected.faces().ids.tolist() == [1, 2, 3]  # cached from here on
    delete_face(detected, 2)
    assert detected.faces().ids.tolist() == [1, 3]
    assert enroll(detected, embedder, pairs, LeftHalf()).known == 3
    assert detected.faces().ids.tolist() == [1, 3]
    assert add_face(detected, embedder, 2, LEFT) == 4  # the number is not reused


def brighten(path: Path) -> None:
    photo = load_photo(path)
    save_photo(Photo(np.minimum(photo.rgb_u8, 252) + np.uint8(3), path, photo.size_px), path)


def test_undo_leaves_faces_of_edited_photos_unchanged(detected: Store, embedder: Embedder, pairs):
    corrections.split(detected, [1, 2], "Mia")
    set_face_box(detected, embedder, 1, (0.0, 0.0, 48.0, 47.5))  # so little that it is recognized after the edit
    delete_face(detected, 2)
    for path in pairs[:2]:
        brighten(path)
    assert enroll(detected, embedder, pairs, LeftHalf()).edited == 2
    before = rows(detected, ("faces",))
    assert [undo(detected).kind for _ in range(2)] == ["delete face", "move face"]
    assert rows(detected, ("faces",)) == before
    assert identity_of(detected, 1) == 1
    undo(detected)  # the assignment of a missing face is dropped
    assert rows(detected)["assignments"] == []
    assert check(detected).problems == ()
