"""Fixtures of all tests. Real photos lie outside the repository; tests that need them skip where they are missing."""

import gc
import os
import shutil
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import jaxtyping
import pytest

from support.mean_color_bundle import CALIBRATED, UNCALIBRATED, write_mean_color_bundle

if TYPE_CHECKING:  # the plain environment has none
    from playwright.sync_api import Browser

pytest_plugins = [
    "support.doctest_photos",
    "support.shared_artifacts",
]
if find_spec("hypothesis"):  # the plain environment has none
    from support import property_tests  # noqa: F401 - registers the profiles

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SHARED_DATA = Path(os.environ.get("FAMILIAR_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for doctests in the package only: searching the tests for them takes seconds."""
    collectors = yield
    return [each for each in collectors if type(each).__name__ != "DoctestModule"]


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen: set[str] = set()
    for item in items:
        if "one_case" in item.keywords and "exhaustive" not in item.keywords:
            name = item.nodeid.partition("[")[0]
            if name in seen:
                item.add_marker(pytest.mark.exhaustive)
            seen.add(name)
    # Long files first, or one process works on the last of them while the others have nothing left.
    long_files = {item.path for item in items if "exhaustive" in item.keywords}
    items.sort(key=lambda item: item.path not in long_files)
    if SHARED_DATA.is_dir():
        return
    skip = pytest.mark.skip(reason=f"real photos are not at {SHARED_DATA} (set FAMILIAR_SHARED_DATA)")
    for item in items:
        if "shared_data" in item.keywords:
            item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What collection makes stays until the end: the garbage collector need not look at it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)  # what tests make is looked at less often, too
        gc.enable()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # or nanobind reports what is never freed


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

    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is here (Debian: apt-get install chromium)")
    expect.set_options(timeout=60_000)  # machines may be busy; what comes at once is not waited for
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable)
        yield started
        started.close()


@pytest.fixture
def unchecked_signatures() -> Iterator[None]:
    """Turn off jaxtyping, as in use: in tests it refuses a wrong type or shape before a function's own check does."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def without_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """`evaluate` draws no page: its charts take longer than what it measures."""
    monkeypatch.setattr("familiar.evaluation.run_evaluation.write_report", lambda *_: None)


@pytest.fixture
def mean_color_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibrated bundle that embeds a crop as the unit vector of its mean color."""
    return write_mean_color_bundle(tmp_path_factory.mktemp("bundle") / "mean color.onnx", CALIBRATED)


@pytest.fixture
def uncalibrated_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same network without a calibration."""
    return write_mean_color_bundle(tmp_path_factory.mktemp("bundle") / "uncalibrated.onnx", UNCALIBRATED)
