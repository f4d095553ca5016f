"""Small sets of the published formats, served on this machine, so that the libraries' own fetching and checks run."""

import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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


class Mirror:
    """`folder` is what is served at `url`, and `asked` the paths asked for."""

    def __init__(self, folder: Path, url: str, asked: list[str]) -> None:
        self.folder = folder
        self.url = url
        self.requested_paths = asked


@contextmanager
def serve_folder(folder: Path) -> Iterator[Mirror]:
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            super().do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Mirror(folder, f"http://127.0.0.1:{server.server_port}/", asked)
        finally:
            server.shutdown()
            thread.join()


def serve_mnist(mirror: Mirror, patch: pytest.MonkeyPatch) -> None:
    """The four files; torchvision looks for them here."""
    write_mnist(mirror.folder, {"train": 40, "t10k": 20})
    files = [mirror.folder / name for name, _ in MNIST.resources]
    patch.setattr(MNIST, "mirrors", [mirror.url])
    patch.setattr(MNIST, "resources", [(file.name, hashlib.md5(file.read_bytes()).hexdigest()) for file in files])


def serve_lfw(mirror: Mirror, patch: pytest.MonkeyPatch, *, without: str = "") -> None:
    """Photos of `PEOPLE` but for one, as the archive holds them; scikit-learn looks for them here."""
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
    """scikit-learn's places and sums of LFW's files are those of the mirror."""

    def here(remote: RemoteFileMetadata) -> RemoteFileMetadata:
        sha256 = hashlib.sha256((mirror.folder / remote.filename).read_bytes()).hexdigest()
        return RemoteFileMetadata(remote.filename, (url or mirror.url) + remote.filename, sha256)

    patch.setattr(_lfw, "FUNNELED_ARCHIVE", here(_lfw.FUNNELED_ARCHIVE))
    patch.setattr(_lfw, "TARGETS", tuple(map(here, _lfw.TARGETS)))
