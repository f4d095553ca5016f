"""Enrolling thousands of corrupt photos: each is enrolled or skipped."""

import io
import os
import random
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from familiar.core.errors import FamiliarError
from familiar.datasets.synthetic import SyntheticPhoto
from familiar.embedding.embedder import Embedder
from familiar.gallery.enroll.enroll import enroll
from familiar.gallery.store.store import Store
from fuzzing.mutators import bytes_mutator

MUTANTS = 2000


def mutants(seed: int, count: int) -> Iterator[bytes]:
    """Draw cats in three formats, with pieces that are changed, cut, repeated or moved."""
    rng, intact = random.Random(seed), []
    for identity, format_name in enumerate(("JPEG", "PNG", "WEBP")):
        buffer = io.BytesIO()
        Image.fromarray(SyntheticPhoto("cats", identity, 0, size_px=32).draw().rgb_u8).save(buffer, format_name)
        intact.append(buffer.getvalue())
    for index in range(count):
        yield bytes_mutator(intact[index % 3], rng)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_enrolls_or_skips_2000_corrupt_photos(album: Store, embedder: Embedder, tmp_path: Path):
    files = []
    for index, data in enumerate(mutants(0, MUTANTS)):
        files.append(tmp_path / f"{index:04}.jpg")
        files[-1].write_bytes(data)
    watchdog = threading.Timer(300, os._exit, (3,))  # a hang fails
    watchdog.start()
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    try:
        result = enroll(album, embedder, files)
    finally:
        watchdog.cancel()
    assert time.monotonic() - start < 200
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB
    assert result.photos + result.known + len(result.skipped) == MUTANTS
    assert result.photos > 100
    assert len(result.skipped) > 100
    assert all(isinstance(error, FamiliarError) for error in result.skipped)
    assert len(album.faces().ids) == result.faces == result.photos
    assert enroll(album, embedder, files).photos == 0
