"""A photo may be given as a path, bytes, an open file, pixels or a loaded photo, to every function that takes one."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from familiar import Embedder, Gallery, embed_photos, load_photo, verify
from familiar.core.errors import NoFaceFound, UnreadablePhoto
from familiar.detection.heads import HeadDetector
from support.drawn_cats import draw_cats

NOT_A_PHOTO = "not a photo (supported: JPEG, HEIC, AVIF, PNG, WebP, BMP, TIFF, GIF, PPM)"


class Upload:
    """As web frameworks have it: the file of the form, and its name there."""

    filename = "mia.jpg"

    def __init__(self, content: bytes) -> None:
        self._file = io.BytesIO(content)

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)

    def seek(self, position: int) -> int:
        return self._file.seek(position)


class AsyncUpload:
    """As FastAPI and Starlette have it."""

    filename = "mia.jpg"

    def __init__(self, content: bytes) -> None:
        self.file = io.BytesIO(content)

    async def read(self, size: int = -1) -> bytes:
        return self.file.read(size)


class Pipe:
    """A stream, which can be read once."""

    def __init__(self, content: bytes) -> None:
        self._file = io.BytesIO(content)

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)


def read_to_its_end(content: bytes) -> io.BytesIO:
    file = io.BytesIO(content)
    file.read()
    return file


SOURCES: dict[str, Callable[[Path], Any]] = {
    "text": str,
    "bytes": Path.read_bytes,
    "bytearray": lambda path: bytearray(path.read_bytes()),
    "memoryview": lambda path: memoryview(path.read_bytes()),
    "file": lambda path: io.BufferedReader(io.BytesIO(path.read_bytes())),
    "file read to its end": lambda path: read_to_its_end(path.read_bytes()),
    "upload": lambda path: Upload(path.read_bytes()),
    "upload to await": lambda path: AsyncUpload(path.read_bytes()),
    "stream": lambda path: Pipe(path.read_bytes()),
    "pixels": lambda path: np.asarray(Image.open(path).convert("RGB")),
    "photo": load_photo,
}


@pytest.fixture
def cats(tmp_path: Path) -> list[Path]:
    draw_cats(tmp_path / "photos", cats=2, photos=2)
    return sorted((tmp_path / "photos").rglob("*.png"))


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_same_answers_however_a_photo_is_given(make: Callable[[Path], Any], cats: list[Path]):
    embedder = Embedder("pet-nano")
    np.testing.assert_array_equal(load_photo(make(cats[0])).rgb_u8, load_photo(cats[0]).rgb_u8)
    expected = embed_photos(embedder, cats, "none").embeddings
    np.testing.assert_array_equal(embed_photos(embedder, [make(cat) for cat in cats], "none").embeddings, expected)
    faces = list(embedder.faces([make(cats[0]), make(cats[2])], "none"))
    assert not any(isinstance(photo, Exception) for photo in faces)
    answer = verify(make(cats[0]), make(cats[2]), embedder, detector="none")
    assert answer == verify(cats[0], cats[2], embedder, detector="none")


def test_gallery_identifies_an_upload(cats: list[Path], tmp_path: Path):
    with Gallery.create(tmp_path / "album", "pet-nano") as album:
        album.enroll(cats, detector="none")
        expected = album.search(cats[0], detector="none")
        assert album.search(Upload(cats[0].read_bytes()), detector="none") == expected
        assert album.search(np.asarray(Image.open(cats[0]).convert("RGB")), detector="none") == expected
        black = io.BytesIO()
        Image.new("RGB", (300, 300)).save(black, "PNG")
        with pytest.raises(NoFaceFound, match=f"^the {len(black.getvalue())} bytes given: no head of a cat or dog"):
            album.identify(black.getvalue(), detector=HeadDetector())


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"no photo at all, but 1,234 bytes".ljust(1234), f"the 1,234 bytes given: {NOT_A_PHOTO}"),
        (b"", "the 0 bytes given: the file is empty"),
        (Upload(b"notes"), f"mia.jpg: {NOT_A_PHOTO}"),
        (AsyncUpload(b"notes"), f"mia.jpg: {NOT_A_PHOTO}"),
        (io.BytesIO(b"notes"), f"the file given: {NOT_A_PHOTO}"),
    ],
    ids=["bytes", "no bytes", "upload", "upload to await", "file without a name"],
)
def test_unreadable_photo_is_named_as_it_was_given(source: Any, message: str):
    with pytest.raises(UnreadablePhoto, match=f"^{re.escape(message)}$"):
        load_photo(source)
    (skipped,) = embed_photos(Embedder("pet-nano"), [source], "none").skipped
    assert str(skipped) == message


def test_open_file_is_named_by_its_path(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("notes")
    with (tmp_path / "notes.txt").open("rb") as file, pytest.raises(UnreadablePhoto, match=r"/notes\.txt: not a photo"):
        load_photo(file)


def test_file_larger_than_any_photo_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("familiar.photos.decoding.MAX_FILE_BYTES", 1000)
    file = io.BytesIO(bytes(5000))
    with pytest.raises(UnreadablePhoto, match="are more than a photo's"):
        load_photo(file)
    assert file.tell() == 1001


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: None, "not NoneType"),
        (lambda _: 7, "a photo is a path, bytes, a file that is open in binary mode, .* not int"),
        (lambda _: io.StringIO("text"), "the file given: is open in text mode; open it with mode 'rb'"),
        (lambda path: closed(path), "photo.txt: is closed already"),
    ],
    ids=["None", "number", "text", "closed"],
)
def test_what_is_no_photo_is_refused(make: Callable[[Path], Any], message: str, tmp_path: Path):
    (tmp_path / "photo.txt").write_text("text")
    with pytest.raises(TypeError, match=message):
        load_photo(make(tmp_path / "photo.txt"))


def test_pixels_of_another_type_are_refused():
    with pytest.raises(ValueError, match=r"the array given: expected uint8 \(h, w, 3\), got float32"):
        load_photo(np.zeros((8, 8, 3), np.float32))


def closed(path: Path) -> Any:
    with path.open("rb") as file:
        return file
