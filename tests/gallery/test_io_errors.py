"""System calls that fail: a clear error, nothing lost, and the operation works when it is repeated."""

from pathlib import Path

import pytest

from support.storage_faults.failing_calls import assert_survives_failures
from support.storage_faults.gallery_operations import GALLERY_TASKS, OTHER_OPERATIONS, GalleryTask
from support.storage_faults.recording import Operation, name
from support.tiers import all_exhaustive_but

pytestmark = pytest.mark.slow

TASKS = [GalleryTask(task, by_revision=task != "forget") for task in GALLERY_TASKS]
OPERATIONS: list[Operation] = [*TASKS, *OTHER_OPERATIONS]


@pytest.mark.parametrize("operation", all_exhaustive_but([GalleryTask("import")], OPERATIONS), ids=name)
def test_failing_call_raises_a_clear_error_and_loses_nothing(operation: Operation, preload: Path, work: Path):
    assert_survives_failures(preload, work, operation, most=2)


@pytest.mark.exhaustive
@pytest.mark.parametrize("operation", OPERATIONS, ids=name)
def test_any_failing_call_raises_a_clear_error_and_loses_nothing(operation: Operation, preload: Path, work: Path):
    assert_survives_failures(preload, work, operation, most=20)
