"""Exported bundles and routers survive power cuts and failing system calls."""

from pathlib import Path

import pytest

from familiar.training.run import RunFolder
from support.storage_faults.cuts import assert_survives_cuts
from support.storage_faults.failing_calls import assert_survives_failures
from support.storage_faults.training_operations import ExportBundle, ExportRouter

pytestmark = pytest.mark.exhaustive


def test_router_survives_a_power_cut(preload: Path, work: Path):
    assert_survives_cuts(preload, work, ExportRouter(), worst=1000, drawn=50, seed=0)


def test_router_survives_a_failing_call(preload: Path, work: Path):
    assert_survives_failures(preload, work, ExportRouter(), most=1000)


def test_bundle_survives_a_power_cut(preload: Path, work: Path, shared_run: RunFolder):
    assert_survives_cuts(preload, work, ExportBundle(shared_run.path), worst=6, drawn=4, seed=0)


def test_bundle_survives_a_failing_call(preload: Path, work: Path, shared_run: RunFolder):
    assert_survives_failures(preload, work, ExportBundle(shared_run.path), most=1)
