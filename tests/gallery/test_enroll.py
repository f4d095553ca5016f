"""Enrolling photos: new, known, moved, copied, edited and unreadable ones."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

from familiar.core.errors import SpaceMismatch, UnreadablePhoto
from familiar.core.types import Face, Photo
from familiar.embedding.embedder import Embedder
from familiar.gallery.edits import corrections
from familiar.gallery.enroll.enroll import EnrollResult, enroll, enroll_embeddings
from familiar.gallery.same.assignments import load_assignments
from familiar.gallery.store.store import Store
from familiar.gallery.transfer.migrate import migrate
from familiar.photos.decoding import load_photo, save_photo
from support.small_gallery import DIM, draw_individuals, draw_pets, enroll_vectors, rows, side_by_side

NOTHING = EnrollResult(photos=0, faces=0, without_face=0, known=0, moved=0, copies=0, edited=0, skipped=())


@dataclass(frozen=True)
class SquareDetector:
    """A detector that returns each square of the photo's height, from the left; none if the photo is narrower."""

    def detect(self, photo: Photo) -> list[Face]:
        width, height = photo.size_px
        landmarks = np.array([[12, 20], [36, 20], [24, 30], [14, 38], [34, 38]], np.float32)
        return [
            Face((left_px, 0.0, left_px + height, height), landmarks + np.float32([left_px, 0]), 0.9 - left_px / 1e4)
            for left_px in range(0, width - height + 1, height)
        ]


def counts(result: EnrollResult) -> dict[str, int]:
    """Return the counts that are not zero."""
    return {name: count for name, count in vars(result).items() if name != "skipped" and count}


def paths(gallery: Store) -> dict[str, int]:
    """Return the number of each photo by file name."""
    with gallery.read() as repository:
        photos = repository.connection.rows("SELECT id, path FROM photos")
    return {Path(os.fsdecode(path)).name: number for number, path in photos}


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    """Four drawn cats, a photo each."""
    return draw_pets(tmp_path / "photos", 4, 1)


def test_enrolled_embeddings_match_the_embedder(album: Store, embedder: Embedder, pets: list[Path]):
    from familiar.embedding.photos import embed_photos

    assert counts(enroll(album, embedder, pets)) == {"photos": 24, "faces": 24}
    expected = embed_photos(embedder, pets).embeddings
    np.testing.assert_allclose(album.faces().embeddings, expected, atol=1e-5)
    with album.read() as repository:
        row = repository.connection.row("SELECT path, size_bytes, modified_ns, taken_at FROM photos")
        box = repository.connection.row("SELECT left_px, top_px, right_px, bottom_px, score FROM faces")
    facts = pets[0].stat()
    assert row == (bytes(pets[0]), facts.st_size, facts.st_mtime_ns, None)
    assert box == (0, 0, 48, 48, 1)


def test_enrolling_again_keeps_all_faces_unchanged(album: Store, embedder: Embedder, photos: list[Path]):
    enroll(album, embedder, photos)
    before, revision = rows(album, ("photos", "faces")), album.revision
    assert counts(enroll(album, embedder, photos)) == {"known": 4}
    assert album.revision == revision
    for photo in photos:
        os.utime(photo, ns=(1, 1))  # a new time, the same content
    assert counts(enroll(album, embedder, photos)) == {"known": 4}
    assert rows(album, ("faces",))["faces"] == before["faces"]
    assert {row[4] for row in rows(album, ("photos",))["photos"]} == {1}
    assert enroll(album, embedder, []) == NOTHING


def test_resumes_after_an_interruption(album: Store, embedder: Embedder, pets: list[Path]):
    calls: list[int] = []

    def stop(done: int, so_far: EnrollResult) -> None:
        calls.append(done)
        assert counts(so_far) == {"photos": done, "faces": done}
        if done == 8:
            raise KeyboardInterrupt

    fours = Embedder(embedder.bundle, threads=6)  # 24 photos in batches of four
    with pytest.raises(KeyboardInterrupt):
        enroll(album, fours, pets, on_batch=stop)
    assert len(paths(album)) == len(album.faces().ids) == 8  # every reported photo is committed
    resumed = enroll(album, fours, pets, on_batch=lambda done, _: calls.append(done))
    assert counts(resumed) == {"photos": 16, "faces": 16, "known": 8}
    assert calls == [4, 8, 4, 8, 12, 16, 20, 24]


def test_moved_renamed_and_swapped_photos_keep_their_faces(album: Store, embedder: Embedder, photos: list[Path]):
    enroll(album, embedder, photos)
    before = rows(album, ("faces",))
    renamed = photos[0].rename(photos[0].with_name("renamed.png"))
    (photos[0].parent / "below").mkdir()
    moved = photos[1].rename(photos[0].parent / "below" / photos[1].name)
    aside = photos[2].rename(photos[2].with_name("aside"))
    photos[3].rename(photos[2])
    aside.rename(photos[3])
    assert counts(enroll(album, embedder, [renamed, moved, *photos[2:]])) == {"known": 4, "moved": 4}
    assert rows(album, ("faces",)) == before
    assert paths(album) == {"renamed.png": 1, moved.name: 2, photos[3].name: 3, photos[2].name: 4}
    assert rows(album, ("photos",))["photos"][1][2] == bytes(moved)


def test_a_copy_is_not_enrolled_twice(album: Store, embedder: Embedder, photos: list[Path]):
    copy = Path(shutil.copy2(photos[0], photos[0].with_name("copy.png")))
    result = enroll(album, embedder, [*photos, copy, photos[1]])
    assert counts(result) == {"photos": 4, "faces": 4, "known": 2, "copies": 1}
    photos[0].unlink()  # now the copy is the only file
    assert counts(enroll(album, embedder, [copy])) == {"known": 1, "moved": 1}
    assert paths(album)["copy.png"] == 1


def brighten(path: Path, by: int) -> None:
    pixels = load_photo(path).rgb_u8
    save_photo(Photo(np.clip(pixels.astype(int) + by, 0, 255).astype(np.uint8), path, pixels.shape[1::-1]), path)


def test_edited_photo_keeps_faces_and_assignments(album: Store, embedder: Embedder, photos: list[Path]):
    enroll(album, embedder, photos)
    corrections.split(album, [2], "Mia")
    corrections.mark_different(album, 2, 3)
    before = album.faces()
    brighten(photos[1], 3)
    assert counts(enroll(album, embedder, photos)) == {"known": 3, "edited": 1}
    after = album.faces()
    assert after.ids.tolist() == [1, 2, 3, 4]
    assert 0.9 < float(before.embeddings[1] @ after.embeddings[1]) < 1
    assert len(paths(album)) == 4
    assert load_assignments(album).identity[1] == 1
    assert (2, 3, 0) in rows(album)["constraints"]


def test_edited_collage_keeps_its_equal_faces(album: Store, embedder: Embedder, tmp_path: Path):
    (photo,) = draw_pets(tmp_path / "drawn", 1, 1)
    pixels = load_photo(photo).rgb_u8
    collage = save_photo(side_by_side(pixels, pixels), tmp_path / "collage.png")
    enroll(album, embedder, [collage], SquareDetector())
    corrections.split(album, [1, 2], "Mia", same_photo=True)
    save_photo(side_by_side(pixels, pixels, 255 - pixels), collage)
    assert counts(enroll(album, embedder, [collage], SquareDetector())) == {"edited": 1, "faces": 1}
    assert load_assignments(album).identity.tolist() == [1, 1, -1]


def test_different_photo_at_the_same_path_is_a_new_photo(album: Store, embedder: Embedder, photos: list[Path]):
    enroll(album, embedder, photos[:2])
    corrections.split(album, [1], "Mia")
    renamed = photos[0].rename(photos[0].with_name("renamed.png"))
    shutil.copy(photos[2], photos[0])
    assert counts(enroll(album, embedder, [photos[0]])) == {"photos": 1, "faces": 1}
    assert album.faces().ids.tolist() == [1, 2, 3]
    assert load_assignments(album).identity[2] != 1
    assert counts(enroll(album, embedder, [renamed])) == {"known": 1, "moved": 1}  # found at its new path
    assert {"renamed.png": 1, photos[0].name: 3}.items() <= paths(album).items()


def test_deleted_photos_keep_their_faces(album: Store, embedder: Embedder, photos: list[Path]):
    enroll(album, embedder, photos)
    photos[3].unlink()
    assert counts(enroll(album, embedder, photos[:3])) == {"known": 3}
    assert len(album.faces().ids) == 4
    assert "No such file" in str(enroll(album, embedder, photos).skipped[0])


def test_enrolls_every_face_of_a_photo(album: Store, embedder: Embedder, photos: list[Path], tmp_path: Path):
    pixels = [load_photo(photo).rgb_u8 for photo in photos]
    together = save_photo(side_by_side(*pixels[:3]), tmp_path / "together.png")
    Image.new("RGB", (20, 48)).save(tmp_path / "no face.png")
    result = enroll(album, embedder, [together, tmp_path / "no face.png"], SquareDetector(), species="cats")
    assert counts(result) == {"photos": 2, "faces": 3, "without_face": 1}
    with album.read() as repository:
        stored = repository.connection.rows(
            "SELECT photo_id, left_px, right_px, round(score, 4), species, landmarks_px FROM faces"
        )
    assert [face[:5] for face in stored] == [
        (1, 0, 48, 0.9, "cats"),
        (1, 48, 96, 0.8952, "cats"),
        (1, 96, 144, 0.8904, "cats"),
    ]
    assert np.frombuffer(stored[1][5], "<f4").reshape(5, 2)[0].tolist() == [60, 20]
    # With one face more, the photo was edited. With one face fewer, another photo has taken its name.
    corrections.split(album, [2], "Mia")
    save_photo(side_by_side(*pixels[:4]), together)
    assert counts(enroll(album, embedder, [together], SquareDetector())) == {"edited": 1, "faces": 1}
    assert load_assignments(album).identity.tolist() == [-1, 1, -1, -1]
    save_photo(side_by_side(*pixels[:2]), together)
    again = enroll(album, embedder, [together], SquareDetector(), min_score=0.895)
    assert counts(again) == {"photos": 1, "faces": 2}
    best = enroll(album, embedder, photos[:1], SquareDetector(), min_score=0.95)
    assert counts(best) == {"photos": 1, "without_face": 1}


def test_unreadable_photos_are_skipped_and_reported(album: Store, embedder: Embedder, photos: list[Path]):
    names = ("broken.jpg", "empty.png", "pipe.jpg", "folder.jpg", "missing.jpg", "zero\0byte.jpg")
    broken, empty, pipe, folder, *bad = (photos[0].with_name(name) for name in names)
    broken.write_bytes(b"\xff\xd8\xff no photo")
    empty.write_bytes(b"")
    os.mkfifo(pipe)
    folder.mkdir()
    bad = [broken, empty, pipe, folder, *bad]
    result = enroll(album, embedder, [photos[0], *bad[:3], photos[1], *bad[3:], photos[2]])
    assert counts(result) == {"photos": 3, "faces": 3}
    assert all(isinstance(error, UnreadablePhoto) for error in result.skipped)
    assert [str(error).split(": ")[0] for error in result.skipped] == [str(path) for path in bad]


def test_capture_time_comes_from_exif(album: Store, embedder: Embedder, photos: list[Path], tmp_path: Path):
    exif = Image.Exif()
    exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.DateTimeOriginal] = "2024:06:01 12:30:05"
    with Image.open(photos[0]) as image:
        image.save(tmp_path / "timed.jpg", exif=exif)
    enroll(album, embedder, [tmp_path / "timed.jpg", photos[0]])
    assert [row[5] for row in rows(album, ("photos",))["photos"]] == ["2024-06-01T12:30:05", None]


def test_accepts_paths_with_invalid_utf8(album: Store, embedder: Embedder, photos: list[Path]):
    odd = photos[0].rename(photos[0].with_name(os.fsdecode(b"M\xfcsli.png")))
    assert counts(enroll(album, embedder, [odd])) == {"photos": 1, "faces": 1}
    assert counts(enroll(album, embedder, [odd])) == {"known": 1}
    brighten(odd, 3)
    assert counts(enroll(album, embedder, [odd])) == {"edited": 1}
    assert list(paths(album)) == [odd.name]


def test_rejects_old_model_after_concurrent_migration(
    album: Store, embedder: Embedder, other_embedder: Embedder, pets: list[Path]
):
    single_photos = Embedder(embedder.bundle, threads=24)  # batches of one
    with (
        Store.open(album.folder) as other,
        pytest.raises(SpaceMismatch, match="embedded by another model"),
    ):
        enroll(album, single_photos, pets, on_batch=lambda *_: migrate(other, other_embedder))
    assert len(album.faces().ids) == 1


# Embeddings


def test_embeddings_are_identified_by_name_and_content(gallery: Store):
    embeddings = draw_individuals([2, 1])
    assert enroll_vectors(gallery, embeddings) == [1, 2, 3]
    assert enroll_vectors(gallery, embeddings) == []
    assert enroll_embeddings(gallery, embeddings[:1], ["another name"], "drawn") == [4]
    assert enroll_embeddings(gallery, embeddings[1:2], ["photo 0.jpg"], "drawn") == [5]
    assert enroll_embeddings(gallery, embeddings[[0, 0]], ["twice", "twice"], "drawn") == [6]
    assert enroll_embeddings(gallery, np.empty((0, DIM), np.float32), [], "drawn") == []
    with pytest.raises(ValueError, match="not unit vectors"):
        enroll_vectors(gallery, embeddings * 2)
    for wrong, space in ((embeddings[:, :8], "drawn"), (embeddings, "other")):
        with pytest.raises(SpaceMismatch):
            enroll_embeddings(gallery, wrong, ["a", "b", "c"], space)


@pytest.mark.parametrize(("species", "expected"), [(None, ["cat", None]), ("tiger", ["tiger", "tiger"])])
def test_species_is_the_detectors_unless_it_is_given(
    album: Store, embedder: Embedder, photos: list[Path], species: str | None, expected: list[str | None]
):
    class OneLabeled:
        def detect(self, photo: Photo) -> list[Face]:
            return [Face((0.0, 0.0, *photo.size_px), None, 0.9, label="cat" if photo.source == photos[0] else None)]

    enroll(album, embedder, photos[:2], OneLabeled(), species=species)
    with album.read() as repository:
        assert [row[0] for row in repository.connection.rows("SELECT species FROM faces ORDER BY id")] == expected
