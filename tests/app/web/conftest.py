"""A small gallery of red, green and blue squares, and the service over it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from familiar.app.web.server import make_app
from familiar.app.web.service import Service
from familiar.app.web.settings import Settings
from familiar.gallery.group import group
from support import color_album


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    """red1.png to red4.png, green1.png to green3.png, blue1.png and blue2.png."""
    return color_album.album(tmp_path / "photos", red=4, green=3, blue=2)


@pytest.fixture
def folder(tmp_path: Path, mean_colour_bundle: Path, photos: list[Path]) -> Path:
    """A gallery of them, grouped: #1 is red, #2 green, #3 blue."""
    with color_album.gallery_of(tmp_path / "album", mean_colour_bundle, photos) as gallery:
        group(gallery)
    return tmp_path / "album"


@pytest.fixture
def settings(folder: Path, mean_colour_bundle: Path) -> Settings:
    return Settings(gallery=folder, model=mean_colour_bundle)


@pytest.fixture
def service(settings: Settings) -> Service:
    return Service(settings)


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    """A program on this machine."""
    with TestClient(
        make_app(service), base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5000)
    ) as client:
        yield client


@pytest.fixture
def serving(folder: Path, mean_colour_bundle: Path) -> Iterator[Callable[..., TestClient]]:
    """Makes a client of a server with these settings."""
    running: list[TestClient] = []

    def serve(**said: object) -> TestClient:
        settings = Settings(**{"gallery": folder, "model": mean_colour_bundle} | said)  # pyright: ignore[reportArgumentType]
        client = TestClient(
            make_app(Service(settings)), base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5000)
        )
        running.append(client.__enter__())
        return client

    yield serve
    for client in running:
        client.__exit__(None, None, None)
