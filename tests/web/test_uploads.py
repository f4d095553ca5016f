"""Uploads: validation by content, printable names, and deletion unless stored."""

import asyncio
import hashlib
import io
import re
import sys
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.datastructures import UploadFile
from starlette.testclient import TestClient

from familiar.core.errors import CannotWrite, NoFaceFound, UnreadablePhoto
from familiar.core.file_names import name_before_upload
from familiar.core.gallery_types import SkippedPhoto
from familiar.core.types import Face, Photo
from familiar.embedding.embedder import Embedder
from familiar.web.errors import HttpProblem
from familiar.web.inference import Inference
from familiar.web.settings import Limits
from familiar.web.uploads import (
    MAX_NAME_CHARACTERS,
    BadUpload,
    Upload,
    printable_name,
    store,
    to_uploads,
)

HEIC_PHOTO = Path(__file__).parents[1] / "photos" / "data" / "rgb.heic"
MEMORY_BYTES = 1024 * 1024  # beyond which the form parser writes a temporary file


class NoFaces:
    """A detector that finds no face."""

    def detect(self, photo: Photo) -> list[Face]:  # noqa: ARG002
        return []


def encoded(kind: str = "PNG", size_px: tuple[int, int] = (8, 6), shade: int = 90) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", size_px, (shade, 20, 20)).save(content, kind)
    return content.getvalue()


def sent(content: bytes, name: str | None = "mia.png") -> UploadFile:
    """Make an uploaded file as the form parser does."""
    file: Any = SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115 - the application closes it
    file.write(content)
    file.seek(0)
    return UploadFile(file, size=len(content), filename=name)


async def close(files: Sequence[UploadFile]) -> None:
    for file in files:
        await file.close()


def receiving(
    files: Sequence[UploadFile],
    work: Callable[[list[Upload]], Any],
    limits: Limits | None = None,
    skipped: list[SkippedPhoto] | None = None,
) -> Any:
    async def run() -> Any:
        try:
            done = work(to_uploads(files, limits or Limits(), skipped=skipped))
            return await done if asyncio.iscoroutine(done) else done
        finally:
            await close(files)

    return asyncio.run(run())


def refusal(*files: UploadFile, **limits: int) -> HttpProblem:
    allowed = Limits(**limits)
    with pytest.raises(HttpProblem) as error:
        receiving(files, lambda uploads: [each.validate(each.read(), allowed) for each in uploads], allowed)
    return error.value


def contents(uploads: list[Upload]) -> list[bytes]:
    return [upload.read() for upload in uploads]


@pytest.mark.parametrize("size_px", [(8, 6), (1000, 700)])
def test_upload_is_readable_several_times(size_px: tuple[int, int]):
    noise = np.random.default_rng(0).integers(0, 256, (size_px[1], size_px[0], 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "BMP")
    content = file.getvalue()
    assert (len(content) > MEMORY_BYTES) == (size_px == (1000, 700))  # of both kinds
    files = [sent(content, "a.bmp"), sent(encoded(), "b.png")]
    (first, again, second), names = receiving(
        files, lambda uploads: (contents([uploads[0], *uploads]), [each.name for each in uploads])
    )
    assert first == again == content
    assert second == encoded()
    assert names == ["a.bmp", "b.png"]


def test_files_of_a_request_are_closed_after_it(client: TestClient, monkeypatch: pytest.MonkeyPatch):
    parsed: list[UploadFile] = []
    init = UploadFile.__init__

    def noted(self: UploadFile, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        parsed.append(self)

    monkeypatch.setattr(UploadFile, "__init__", noted)
    for content, status in ((encoded(), 200), (b"no photo", 415)):
        assert client.post("/search", files={"photo": ("a.png", content)}).status_code == status
        assert parsed
        assert all(file.file.closed for file in parsed)


SUFFIXES = {"JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp", "BMP": ".bmp", "TIFF": ".tif", "GIF": ".gif",
            "PPM": ".ppm", "HEIC": ".heic", "AVIF": ".avif"}  # fmt: skip


@pytest.mark.parametrize("kind", SUFFIXES)
def test_file_suffix_follows_content(kind: str, tmp_path: Path):
    content = HEIC_PHOTO.read_bytes() if kind == "HEIC" else encoded(kind)
    (stored,) = receiving([sent(content, "report.txt")], lambda uploads: store(uploads, tmp_path, Limits()))
    assert stored.suffix == SUFFIXES[kind]
    assert stored.read_bytes() == content


def test_mpo_is_stored_as_jpeg(tmp_path: Path):
    content = io.BytesIO()
    image = Image.new("RGB", (8, 6))
    image.save(content, "MPO", save_all=True, append_images=[image])
    (stored,) = receiving([sent(content.getvalue())], lambda uploads: store(uploads, tmp_path, Limits()))
    assert stored.suffix == ".jpg"


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", "the file is empty"),
        (b"P", "not a photo"),
        (b"<svg onload=alert(1)>", "not a photo"),
        (b"\x7fELF" + bytes(60), "not a photo"),
        (b"PK\x03\x04" + bytes(60), "not a photo"),
        (b"\0\0\0\x44ftypheic" + bytes(60), "the HEIC file is broken"),
        (encoded()[:20], "mia.jpg"),  # broken in its header
        (b"\xff\xd8\xff" + bytes(60), "mia.jpg"),
    ],
)
def test_rejects_unsupported_or_broken_file(content: bytes, cause: str):
    error = refusal(sent(encoded()), sent(content, "mia.jpg"))
    assert (error.status, error.kind) == (HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "not-a-photo")
    assert str(error).startswith("mia.jpg: ")
    assert cause in str(error)


@pytest.mark.parametrize(
    ("files", "limits", "kind", "says"),
    [
        (3, {"photos_per_request": 2}, "too-many", "3 photos in one request are more than 2"),
        (1, {"photo_bytes": 50}, "too-large", "mia.png: "),
        (1, {"photo_pixels": 47}, "too-large", "mia.png: 8 x 6 px is more than 47 pixels"),
    ],
)
def test_rejects_uploads_above_limits(files: int, limits: dict[str, int], kind: str, says: str):
    error = refusal(*(sent(encoded()) for _ in range(files)), **limits)
    assert (error.status, error.kind) == (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, kind)
    assert says in str(error)


def test_accepts_uploads_at_limits(tmp_path: Path):
    limits = Limits(photos_per_request=2, photo_bytes=len(encoded()), photo_pixels=48)
    stored = receiving([sent(encoded())] * 2, lambda uploads: store(uploads, tmp_path, limits), limits)
    assert [path.read_bytes() for path in stored] == [encoded()] * 2


def test_pixel_limit_is_checked_before_decoding(monkeypatch: pytest.MonkeyPatch):
    def decode(*_: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", decode)
    monkeypatch.setattr("simplejpeg.decode_jpeg", decode)
    for kind in ("PNG", "JPEG"):
        error = refusal(sent(encoded(kind, (200, 100))), photo_pixels=19_999)
        assert error.kind == "too-large"


def test_keep_skips_bad_files_with_reasons(tmp_path: Path):
    skipped: list[SkippedPhoto] = []
    limits = Limits(photo_pixels=100, photo_bytes=10_000)
    files = [
        sent(encoded(), "a"),
        sent(b"no", "b"),
        sent(encoded(size_px=(90, 90)), "c"),
        sent(encoded("BMP", (90, 90)), "d"),
        sent(encoded(shade=91), "e"),
    ]
    stored = receiving(files, lambda uploads: store(uploads, tmp_path, limits, skipped=skipped), limits, skipped)
    assert [path.read_bytes() for path in stored] == [encoded(), encoded(shade=91)]
    reasons = {image.name: image.reason for image in skipped}
    assert list(reasons) == ["d", "b", "c"]  # by size before any is read
    assert reasons["b"].startswith("not a photo")
    assert reasons["c"].startswith("90 x 90 px is more than")
    assert reasons["d"].startswith("0 MB is more than")


def test_keep_creates_no_folder_when_all_are_skipped(tmp_path: Path):
    left_out: list[SkippedPhoto] = []
    work = lambda uploads: store(uploads, tmp_path / "photos", Limits(), skipped=left_out)  # noqa: E731
    assert receiving([sent(b"no", "a")], work, skipped=left_out) == []
    assert [image.name for image in left_out] == ["a"]
    assert not (tmp_path / "photos").exists()


def test_keep_stores_nothing_when_any_file_is_bad(tmp_path: Path):
    with pytest.raises(BadUpload):
        receiving([sent(encoded()), sent(b"no")], lambda uploads: store(uploads, tmp_path / "photos", Limits()))
    assert not (tmp_path / "photos").exists()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (None, "photo"),
        ("", "photo"),
        ("Mia \u2600.jpg", "Mia \u2600.jpg"),
        ("../../etc/passwd", "../../etc/passwd"),
        ("a\0b\r\nSet-Cookie: x\x1b[2J", r"a\x00b\r\nSet-Cookie: x\x1b[2J"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("x" * 10_000, "x" * MAX_NAME_CHARACTERS),
        ("\n" * 10_000, r"\n" * (MAX_NAME_CHARACTERS // 2)),
    ],
)
def test_file_name_is_shown_escaped_and_stored_safely(name: str | None, expected: str, tmp_path: Path):
    assert printable_name(name) == expected
    (stored,) = receiving([sent(encoded(), name)], lambda uploads: store(uploads, tmp_path / "kept", Limits()))
    sha256 = hashlib.sha256(encoded()).hexdigest()
    assert stored.parent == tmp_path / "kept" / sha256[:2]  # whatever its name
    assert re.fullmatch(sha256 + r"(-[\w -]+)?\.png", stored.name)
    assert len(stored.name.encode()) <= 64 + 1 + 100 + 4
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [stored]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Mia im Garten.JPG", "Mia im Garten.png"), ("../../قطة.png", "قطة.png"), ("C:\\a\\b.c.gif", "b_c.png")],
)
def test_photo_name_preserves_client_file_name(name: str, expected: str, tmp_path: Path):
    (stored,) = receiving([sent(encoded(), name)], lambda uploads: store(uploads, tmp_path, Limits()))
    assert name_before_upload(stored) == expected


@pytest.mark.parametrize("name", ["", "...", "/", "_.png"])
def test_photo_name_falls_back_to_stored_file_name(name: str, tmp_path: Path):
    (stored,) = receiving([sent(encoded(), name)], lambda uploads: store(uploads, tmp_path, Limits()))
    assert name_before_upload(stored) == stored.name


def test_identical_content_is_stored_once(tmp_path: Path):
    files = [sent(encoded(), "a"), sent(encoded(), "b"), sent(encoded(shade=91), "c")]
    first, second, third = receiving(files, lambda uploads: store(uploads, tmp_path, Limits()))
    assert first == second != third
    before = first.stat()
    (again,) = receiving([sent(encoded())], lambda uploads: store(uploads, tmp_path, Limits()))
    assert again == first
    assert (again.stat().st_ino, again.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_truncated_file_is_rewritten(tmp_path: Path):
    (stored,) = receiving([sent(encoded())], lambda uploads: store(uploads, tmp_path, Limits()))
    stored.write_bytes(b"")
    receiving([sent(encoded())], lambda uploads: store(uploads, tmp_path, Limits()))
    assert stored.read_bytes() == encoded()


def test_stored_file_with_damaged_content_is_rewritten(tmp_path: Path):
    (stored,) = receiving([sent(encoded())], lambda uploads: store(uploads, tmp_path, Limits()))
    stored.write_bytes(encoded()[:-20] + bytes(20))  # of the same size
    (again,) = receiving([sent(encoded())], lambda uploads: store(uploads, tmp_path, Limits()))
    assert again == stored
    assert stored.read_bytes() == encoded()


def test_sidecar_of_a_stored_photo_is_not_taken_for_it(tmp_path: Path):
    (stored,) = receiving([sent(encoded())], lambda uploads: store(uploads, tmp_path, Limits()))
    sidecar = stored.rename(stored.with_name(stored.name + ".xmp"))  # alone, so that it is found first
    sidecar.write_bytes(b"<names>")
    (again,) = receiving([sent(encoded())], lambda uploads: store(uploads, tmp_path, Limits()))
    assert again == stored
    assert stored.read_bytes() == encoded()
    assert sidecar.read_bytes() == b"<names>"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which file a number stands for")
def test_file_and_folders_are_synced_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    flushed: list[Path] = []
    monkeypatch.setattr("os.fsync", lambda file: flushed.append(Path(f"/proc/self/fd/{file}").readlink()))
    (stored,) = receiving([sent(encoded())], lambda uploads: store(uploads, tmp_path / "photos", Limits()))
    (file,) = (path for path in flushed if path.parent == stored.parent)  # under its first name
    assert stored.parent in flushed[flushed.index(file) :]  # once it has its last name
    assert {*flushed} == {file, stored.parent, tmp_path / "photos", tmp_path}
    flushed.clear()
    receiving([sent(encoded())], lambda uploads: store(uploads, tmp_path / "photos", Limits()))
    assert {*flushed} == {stored.parent, tmp_path / "photos", tmp_path}  # another request may have been killed


def test_unwritable_folder_raises_cannot_write(tmp_path: Path):
    (tmp_path / "photos").write_bytes(b"in the way")
    with pytest.raises(CannotWrite, match="photos"):
        receiving([sent(encoded())], lambda uploads: store(uploads, tmp_path / "photos", Limits()))


def seen(mean_color_bundle: Path, files: Sequence[UploadFile], ask: Callable[[Inference, list[Upload]], Any]) -> Any:
    """Run inference on uploads, in one thread."""

    async def run() -> Any:
        vision = Inference(Embedder(mean_color_bundle, threads=1), NoFaces(), Limits(photo_pixels=100))
        try:
            return await ask(vision, to_uploads(files, Limits()))
        finally:
            await close(files)
            await vision.stop()

    return asyncio.run(run())


def test_no_face_error_names_uploaded_file(mean_color_bundle: Path):
    async def ask(vision: Inference, uploads: list[Upload]) -> None:
        assert (await vision.detect(uploads[0])).size_px == (8, 6)
        await vision.best_faces(uploads[:1])

    with pytest.raises(NoFaceFound, match=r"^mia\\n\.png: no face found$"):
        seen(mean_color_bundle, [sent(encoded(), "mia\n.png")], ask)


def test_detect_all_returns_errors_without_traceback(mean_color_bundle: Path):
    torn = np.random.default_rng(0).bytes(40)
    files = [
        sent(b"no", "a"),
        sent(encoded(size_px=(90, 90)), "b"),
        sent(encoded()[:-30] + torn, "c"),
        sent(encoded()),
    ]
    no_photo, large, broken, good = seen(mean_color_bundle, files, Inference.detect_all)
    assert (no_photo.kind, large.kind) == ("not-a-photo", "too-large")
    assert type(broken) is UnreadablePhoto
    for error, name in ((no_photo, "a"), (large, "b"), (broken, "c")):
        assert str(error).startswith(f"{name}: ")
        while error is not None:
            assert error.__traceback__ is None  # which holds its bytes
            error = error.__cause__ or error.__context__
    assert good.size_px == (8, 6)


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_bad_file_error_precedes_no_face_error(mean_color_bundle: Path, names: tuple[str, str]):
    content = {"a": b"no", "b": encoded()}  # nobody is on the other
    files = [sent(content[name], name) for name in names]
    with pytest.raises(BadUpload, match=r"^a: "):
        seen(mean_color_bundle, files, Inference.best_faces)
    with pytest.raises(NoFaceFound, match=r"^b: "):
        seen(mean_color_bundle, [sent(content["b"], "b")], Inference.best_faces)
