"""Small data sets in the published formats on a local server, to test the libraries' download and checks."""

import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from PIL import Image
from sklearn.datasets import _lfw
from sklearn.datasets._base import RemoteFileMetadata
from torchvision.datasets import MNIST

from familiar.datasets.synthetic import SyntheticPhoto
from support.idx_files import write_mnist

PEOPLE = {"Ann_Lee": 3, "Bob": 2, "Cy": 1}
PAIRS = "1\nAnn_Lee\t1\t3\nAnn_Lee\t2\tBob\t1\n"


@dataclass(frozen=True)
class Mirror:
    """A local server of `folder` at `url`; `requested_paths` collects the paths of requests."""

    folder: Path
    url: str
    requested_paths: list[str]


@contextmanager
def serve_folder(folder: Path) -> Iterator[Mirror]:
    requested_paths: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            requested_paths.append(self.path)
            super().do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Mirror(folder, f"http://127.0.0.1:{server.server_port}/", requested_paths)
        finally:
            server.shutdown()
            thread.join()


def serve_mnist(mirror: Mirror, patch: pytest.MonkeyPatch) -> None:
    """Serve the four files, and make torchvision fetch them here."""
    write_mnist(mirror.folder, {"train": 40, "t10k": 20})
    files = [mirror.folder / name for name, _ in MNIST.resources]
    patch.setattr(MNIST, "mirrors", [mirror.url])
    patch.setattr(MNIST, "resources", [(file.name, hashlib.md5(file.read_bytes()).hexdigest()) for file in files])


def serve_lfw(mirror: Mirror, patch: pytest.MonkeyPatch, *, without: str = "") -> None:
    """Serve an archive of photos of `PEOPLE`, without one of them, and make scikit-learn fetch it here."""
    with tarfile.open(mirror.folder / "lfw-funneled.tgz", "w:gz") as archive:
        for identity, (name, photos) in enumerate(PEOPLE.items()):
            for photo in range(1, photos + 1):
                if (file := f"{name}_{photo:04d}.jpg") == without:
                    continue
                content = io.BytesIO()
                drawn = SyntheticPhoto("cats", identity, photo, size_px=250).draw()
                Image.fromarray(drawn.rgb_u8).save(content, "JPEG")
                member = tarfile.TarInfo(f"lfw_funneled/{name}/{file}")
                member.size = len(content.getvalue())
                archive.addfile(member, io.BytesIO(content.getvalue()))
    for target in _lfw.TARGETS:
        (mirror.folder / target.filename).write_text(PAIRS)

    redirect_lfw(mirror, patch)


def redirect_lfw(mirror: Mirror, patch: pytest.MonkeyPatch, url: str = "") -> None:
    """Replace scikit-learn's URLs and checksums of LFW's files by those of the mirror."""

    def redirect(remote: RemoteFileMetadata) -> RemoteFileMetadata:
        sha256 = hashlib.sha256((mirror.folder / remote.filename).read_bytes()).hexdigest()
        return RemoteFileMetadata(remote.filename, (url or mirror.url) + remote.filename, sha256)

    patch.setattr(_lfw, "FUNNELED_ARCHIVE", redirect(_lfw.FUNNELED_ARCHIVE))
    patch.setattr(_lfw, "TARGETS", tuple(map(redirect, _lfw.TARGETS)))
