"""Downloads from a server of this machine: whole, resumed, broken off, and of other bytes."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from familiar.core import download as downloads
from familiar.core.download import PublishedFile, download
from familiar.core.errors import CannotDownload, CannotWrite

CONTENT = bytes(range(256)) * 40


class Mirror(ThreadingHTTPServer):
    """Serves CONTENT, as configured by its attributes."""

    content = CONTENT
    breaks_after: int | None = None
    resumes = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges: list[str | None] = []


class Handler(BaseHTTPRequestHandler):
    server: Mirror

    def do_GET(self) -> None:
        byte_range = self.headers["Range"]
        self.server.ranges.append(byte_range)
        if self.path != "/network.onnx":
            self.send_error(404)
            return
        start = int(byte_range.removeprefix("bytes=").removesuffix("-")) if byte_range and self.server.resumes else 0
        body = self.server.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.server.breaks_after is not None:
            body = body[: self.server.breaks_after]
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    with Mirror() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def published(mirror: Mirror, name: str = "network.onnx") -> PublishedFile:
    url = f"http://127.0.0.1:{mirror.server_port}/{name}"
    return PublishedFile(url, hashlib.sha256(CONTENT).hexdigest(), len(CONTENT), "MIT")


def test_file_is_downloaded_once(mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(downloads, "BLOCK_BYTES", 1000)
    seen: list[tuple[int, int]] = []
    target = tmp_path / "new" / "n.onnx"
    assert download(published(mirror), target, on_bytes=lambda done, total: seen.append((done, total)))
    assert target.read_bytes() == CONTENT
    assert seen[0] == (1000, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert not download(published(mirror), target)
    assert mirror.ranges == [None]
    assert [file.name for file in target.parent.iterdir()] == ["n.onnx"]


@pytest.mark.parametrize("resumes", [True, False])
def test_broken_download_goes_on_where_it_stopped(mirror: Mirror, tmp_path: Path, resumes: bool):
    mirror.breaks_after, mirror.resumes = 3000, resumes
    target = tmp_path / "n.onnx"
    with pytest.raises(CannotDownload, match=r"3,000 of 10,240 bytes; try again|IncompleteRead"):
        download(published(mirror), target)
    assert not target.exists()
    mirror.breaks_after = None
    assert download(published(mirror), target)
    assert target.read_bytes() == CONTENT
    assert mirror.ranges == [None, "bytes=3000-"]


def test_other_content_is_not_kept(mirror: Mirror, tmp_path: Path):
    mirror.content = CONTENT[::-1]
    with pytest.raises(CannotDownload, match=r"another content than network\.onnx as published"):
        download(published(mirror), tmp_path / "n.onnx")
    mirror.content = CONTENT + b"more"
    with pytest.raises(CannotDownload, match="another content"):
        download(published(mirror), tmp_path / "n.onnx")
    assert not list(tmp_path.iterdir())


def test_missing_file_and_missing_server_are_reported(mirror: Mirror, tmp_path: Path):
    with pytest.raises(CannotDownload, match=r"gone\.onnx: cannot be downloaded \(Not Found\)"):
        download(published(mirror, "gone.onnx"), tmp_path / "n.onnx")
    with pytest.raises(CannotDownload, match="cannot be downloaded"):
        download(published(mirror), tmp_path / "n.onnx", url="http://127.0.0.1:9/network.onnx")


def test_existing_other_file_is_not_replaced(mirror: Mirror, tmp_path: Path):
    target = tmp_path / "n.onnx"
    target.write_bytes(b"mine")
    with pytest.raises(CannotWrite, match=r"exists, but is not network\.onnx"):
        download(published(mirror), target)
    assert target.read_bytes() == b"mine"
    (tmp_path / "blocked").write_text("a file")
    with pytest.raises(CannotWrite, match="cannot be created"):
        download(published(mirror), tmp_path / "blocked" / "n.onnx")
