"""Benchmarks are run by hand, so a rename in the package would go unnoticed without this."""

from importlib import import_module
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MODULES = sorted(".".join(path.relative_to(BENCHMARKS).with_suffix("").parts) for path in BENCHMARKS.rglob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_every_benchmark_module_can_be_imported(name: str):
    assert import_module(name.removesuffix(".__init__")).__doc__ or name.endswith("__init__")
