"""Cached crops and training runs survive power cuts and failing system calls."""

from pathlib import Path

import pytest

from support.storage_faults.cuts import assert_survives_cuts
from support.storage_faults.failing_calls import assert_survives_failures, check_failures
from support.storage_faults.training_operations import CacheCrops, Train

pytestmark = pytest.mark.exhaustive


def test_power_cut_leaves_no_wrong_crops(preload: Path, work: Path):
    assert_survives_cuts(preload, work, CacheCrops(), worst=1000, drawn=200, seed=0)


def test_failing_call_leaves_no_wrong_crops(preload: Path, work: Path):
    runs, errors, problems = check_failures(preload, work, CacheCrops(), most=1000)
    assert runs
    assert not errors, "photos are read without a cache"
    assert not problems, "\n".join(problems[:20])


def test_training_resumes_after_a_power_cut(preload: Path, work: Path):
    assert_survives_cuts(preload, work, Train(), worst=15, drawn=10, seed=0)


def test_training_resumes_after_a_failing_call(preload: Path, work: Path):
    assert_survives_failures(preload, work, Train(), most=2)
