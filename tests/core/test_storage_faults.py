"""Files and downloads survive power cuts and failing system calls."""

from pathlib import Path

import pytest

from support.storage_faults.cuts import assert_survives_cuts, unneeded_syncs
from support.storage_faults.disk import Disk
from support.storage_faults.failing_calls import assert_survives_failures
from support.storage_faults.file_operations import Download, WriteFiles
from support.storage_faults.recording import Operation, name, record
from support.tiers import all_exhaustive_but

pytestmark = pytest.mark.slow

OPERATIONS = [WriteFiles(), Download()]


@pytest.mark.parametrize("operation", OPERATIONS, ids=name)
def test_power_cut_loses_nothing_acknowledged(operation: Operation, preload: Path, work: Path):
    assert_survives_cuts(preload, work, operation, worst=1000, drawn=100, seed=0)


@pytest.mark.parametrize("operation", all_exhaustive_but([WriteFiles()], OPERATIONS), ids=name)
def test_each_sync_is_needed(operation: Operation, preload: Path, work: Path):
    recording = record(preload, work, operation)
    assert unneeded_syncs(recording, work, operation, Disk.from_recording(recording)) == []


@pytest.mark.parametrize("operation", all_exhaustive_but([WriteFiles()], OPERATIONS), ids=name)
def test_failing_call_raises_a_clear_error_and_loses_nothing(operation: Operation, preload: Path, work: Path):
    assert_survives_failures(preload, work, operation, most=1000)
