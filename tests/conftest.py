"""Fixtures of every room. Real photos lie outside the repository; tests that need them say so and skip."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from familiar.core.calibration import Calibration, Threshold
from familiar.faces.bundle import BundleMetadata, seal
from familiar.faces.tensor import Preprocessing

if TYPE_CHECKING:  # the plain environment has none
    from playwright.sync_api import Browser

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SHARED_DATA = Path(os.environ.get("FAMILIAR_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if SHARED_DATA.is_dir():
        return
    skip = pytest.mark.skip(reason=f"real photos are not at {SHARED_DATA} (set FAMILIAR_SHARED_DATA)")
    for item in items:
        if "shared_data" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session", autouse=True)
def _cache_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test writes into the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAMILIAR_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real photos; for tests marked `shared_data`."""
    return SHARED_DATA


@pytest.fixture(scope="module")  # meanwhile no other event loop can run in this thread
def browser() -> "Iterator[Browser]":
    """Chromium; for tests marked `browser`."""
    from playwright.sync_api import expect, sync_playwright

    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is here (Debian: apt-get install chromium)")
    expect.set_options(timeout=60_000)  # machines may be busy; what comes at once is not waited for
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found)
        yield started
        started.close()


@pytest.fixture
def mean_colour_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that embeds a crop of 32 px as the unit vector of its mean colour.

    Its ONNX is encoded by hand, since the plain environment has no `onnx` to make one with.
    """
    threshold = Threshold(similarity=0.9, far=0.0, tar=1.0)
    calibration = Calibration(threshold, threshold, threshold, 20.0, -18.0, 0.0, 1, 1)
    return _mean_colour(tmp_path_factory.mktemp("bundle") / "mean colour.onnx", calibration)


@pytest.fixture
def uncalibrated_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, of whose similarities nothing is known."""
    threshold = Threshold(similarity=0.55, far=None, tar=None)
    calibration = Calibration(threshold, threshold, threshold, None, None, None, 0, 0)
    return _mean_colour(tmp_path_factory.mktemp("bundle") / "uncalibrated.onnx", calibration)


def _mean_colour(path: Path, calibration: Calibration) -> Path:
    metadata = BundleMetadata(
        space_id="mean-colour",
        embedding_dim=3,
        preprocessing=Preprocessing(size_px=32, resize_px=32, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)),
        calibration=calibration,
        prefixes=(3,),
        recipe="none",
        network="mean colour",
        precision="float32",
        trained_on={},
        results={},
        parity={},
        licence="Apache-2.0",
    )
    path.write_bytes(seal(mean_colour_onnx(), metadata))
    return path


def mean_colour_onnx() -> bytes:
    """GlobalAveragePool, Flatten, LpNormalization: onnx.proto's field numbers, encoded by hand."""

    def field(number: int, body: bytes | int) -> bytes:
        if isinstance(body, int):
            return bytes([number << 3, body])
        assert len(body) < 128
        return bytes([number << 3 | 2, len(body)]) + body

    def long_field(number: int, body: bytes) -> bytes:
        return bytes([number << 3 | 2, len(body) & 0x7F | 0x80, len(body) >> 7]) + body

    def node(operator: str, before: str, after: str) -> bytes:
        return field(1, before.encode()) + field(2, after.encode()) + field(4, operator.encode())

    def value(name: str, *dimensions: str | int) -> bytes:
        shape = b"".join(
            field(1, field(1, size) if isinstance(size, int) else field(2, size.encode()))
            for size in dimensions
        )
        return field(1, name.encode()) + field(2, field(1, field(1, 1) + field(2, shape)))

    graph = (
        field(1, node("GlobalAveragePool", "images", "pooled"))
        + field(1, node("Flatten", "pooled", "flat"))
        + field(1, node("LpNormalization", "flat", "embeddings"))
        + field(2, b"g")
        + field(11, value("images", "n", 3, 32, 32))
        + field(12, value("embeddings", "n", 3))
    )
    return field(1, 8) + long_field(7, graph) + field(8, field(2, 18))
