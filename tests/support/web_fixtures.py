"""A small gallery of red, green and blue squares, and the server for it."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.store.store import Store
from familiar.web.server import make_app
from familiar.web.service import Service
from familiar.web.settings import Settings
from support import color_album
from support.mean_color_bundle import CALIBRATED, write_mean_color_bundle
from support.shared_artifacts import made_once

COUNTS = {"red": 4, "green": 3, "blue": 2}


@pytest.fixture(scope="session")
def grouped_album(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders `photos` and `album`, their gallery. Not to be changed: each test gets copies."""

    def make(root: Path) -> None:
        bundle = write_mean_color_bundle(root / "bundle.onnx", CALIBRATED)
        photos = color_album.draw_album(root / "photos", **COUNTS)
        with color_album.create_gallery(root / "album", bundle, photos) as gallery:
            cluster(gallery)

    return made_once(tmp_path_factory, "grouped-album", make)


@pytest.fixture
def photos(tmp_path: Path, grouped_album: Path) -> list[Path]:
    """red1.png to red4.png, green1.png to green3.png, blue1.png and blue2.png."""
    names = [f"{color}{number}.png" for color, count in COUNTS.items() for number in range(1, count + 1)]
    shutil.copytree(grouped_album / "photos", tmp_path / "photos")
    return [tmp_path / "photos" / name for name in names]


@pytest.fixture
def folder(tmp_path: Path, photos: list[Path], grouped_album: Path) -> Path:
    """A clustered gallery of the photos: #1 is red, #2 green, #3 blue."""
    shutil.copytree(grouped_album / "album", tmp_path / "album")
    with Store.open(tmp_path / "album") as gallery, gallery.write() as repository:
        old, new = grouped_album / "photos", photos[0].parent
        repository.connection.execute(
            "UPDATE photos SET path = CAST(replace(CAST(path AS TEXT), ?, ?) AS BLOB)", (str(old), str(new))
        )
    return tmp_path / "album"


@pytest.fixture
def settings(folder: Path, mean_color_bundle: Path) -> Settings:
    return Settings(gallery=folder, models=(mean_color_bundle,))


@pytest.fixture
def service(settings: Settings) -> Service:
    return Service(settings)


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    """A client on this machine."""
    with TestClient(make_app(service), base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5000)) as client:
        yield client


@pytest.fixture
def serving(folder: Path, mean_color_bundle: Path) -> Iterator[Callable[..., TestClient]]:
    """Return a function that starts a server with changed settings and returns its client."""
    running: list[TestClient] = []

    def serve(**changes: object) -> TestClient:
        settings = Settings(**{"gallery": folder, "models": (mean_color_bundle,)} | changes)  # pyright: ignore[reportArgumentType]
        client = TestClient(make_app(Service(settings)), base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5000))
        running.append(client.__enter__())
        return client

    yield serve
    for client in running:
        client.__exit__(None, None, None)
