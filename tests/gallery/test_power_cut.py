"""After a power cut a gallery opens, is intact, and contains all that was acknowledged."""

from pathlib import Path

import pytest

from support.storage_faults.cuts import assert_survives_cuts, unprotected_promises
from support.storage_faults.disk import Disk
from support.storage_faults.gallery_operations import GALLERY_TASKS, OTHER_OPERATIONS, CreateGallery, GalleryTask
from support.storage_faults.recording import Operation, name, record
from support.tiers import all_exhaustive_but

pytestmark = pytest.mark.slow

TASKS = [GalleryTask(name) for name in GALLERY_TASKS]
OPERATIONS: list[Operation] = [*TASKS, *OTHER_OPERATIONS]
QUICK = [GalleryTask("import"), CreateGallery()]


@pytest.mark.parametrize("operation", all_exhaustive_but(QUICK, OPERATIONS), ids=name)
def test_power_cut_loses_nothing_acknowledged(operation: Operation, preload: Path, work: Path):
    assert_survives_cuts(preload, work, operation, worst=8, drawn=6, seed=0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("operation", OPERATIONS, ids=name)
def test_any_power_cut_loses_nothing_acknowledged(operation: Operation, preload: Path, work: Path):
    assert_survives_cuts(preload, work, operation, worst=100, drawn=30, seed=1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("operation", OPERATIONS[:-2], ids=name)  # repair and restore sync the folder twice
def test_a_missing_sync_before_a_promise_is_noticed(operation: Operation, preload: Path, work: Path):
    recording = record(preload, work, operation)
    assert unprotected_promises(recording, work, operation, Disk.from_recording(recording)) == []
