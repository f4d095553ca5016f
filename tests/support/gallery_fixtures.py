"""An empty gallery, and a small network to enroll drawn photos with."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from collection.crash_scenarios import draw_photos

from familiar.embedding.embedder import Embedder
from familiar.gallery.store import connection, recovery, store
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.photos.preprocessing import Preprocessing
from support.random_bundle import random_bundle
from support.small_gallery import SPACE, draw_pets

CROPS = Preprocessing(size_px=24, resize_px=24, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up early on a locked gallery. Request it before a gallery is opened."""
    for module in (connection, recovery, store):
        monkeypatch.setattr(module, "BUSY_SECONDS", 0.2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "gallery"


@pytest.fixture(params=["float32"])
def gallery(folder: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty gallery of 16 dimensions, float32 unless a test parametrizes it."""
    with Store.create(folder, SPACE, embedding_dtype=request.param) as gallery:
        gallery._connection.execute("PRAGMA synchronous = OFF")  # tests need not wait for the disk
        yield gallery


@pytest.fixture(scope="session")
def pets(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Eight drawn cats, three photos each. Tests must not change them."""
    return draw_pets(tmp_path_factory.mktemp("pets"), 8, 3)


@pytest.fixture(scope="session")
def embedder(tmp_path_factory: pytest.TempPathFactory, pets: list[Path]) -> Embedder:
    """A network with random weights, centered on the pets."""
    return Embedder(random_bundle(tmp_path_factory.mktemp("model") / "model.onnx", pets, CROPS), threads=2)


@pytest.fixture(scope="session")
def other_embedder(tmp_path_factory: pytest.TempPathFactory, pets: list[Path]) -> Embedder:
    """A network with other weights and another space."""
    path = tmp_path_factory.mktemp("model") / "other.onnx"
    return Embedder(random_bundle(path, pets, CROPS, seed=1, space_id="other"), threads=2)


@pytest.fixture
def album(folder: Path, embedder: Embedder) -> Iterator[Store]:
    """An empty gallery in the space of `embedder`."""
    with Store.create(folder, Space.from_metadata(embedder.metadata), embedding_dtype="float32") as gallery:
        gallery._connection.execute("PRAGMA synchronous = OFF")
        yield gallery


@pytest.fixture(scope="session")
def drawings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The photos of the scenarios in which processes are killed or disks are full. Tests must not change them."""
    draw_photos(folder := tmp_path_factory.mktemp("drawn") / "photos")
    return folder
