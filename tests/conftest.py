"""Fixtures of every room. Real photos lie outside the repository; tests that need them say so and skip."""

import os
from pathlib import Path

import pytest

SHARED_DATA = Path(os.environ.get("FAMILIAR_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if SHARED_DATA.is_dir():
        return
    skip = pytest.mark.skip(reason=f"real photos are not at {SHARED_DATA} (set FAMILIAR_SHARED_DATA)")
    for item in items:
        if "shared_data" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real photos; for tests marked `shared_data`."""
    return SHARED_DATA
