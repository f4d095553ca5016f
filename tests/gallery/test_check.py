"""Integrity checks of intact and damaged galleries."""

import numpy as np

from familiar.gallery.store.store import Store
from familiar.gallery.transfer.check import CheckResult, check
from support.small_gallery import DIM, draw_individuals, enroll_vectors


def test_intact_gallery_has_no_problems(gallery: Store):
    assert check(gallery) == CheckResult(0, 0, (), (), ())
    enroll_vectors(gallery, draw_individuals([2, 1]))
    revision = gallery.revision
    assert check(gallery) == CheckResult(photos=3, faces=3, problems=(), missing=(), changed=())
    assert gallery.revision == revision


def test_reports_invalid_embedding(gallery: Store):
    enroll_vectors(gallery, draw_individuals([2]))
    with gallery.write(faces_change=True) as repository:
        repository.connection.execute("UPDATE faces SET embedding = ? WHERE id = 2", (np.ones(DIM, "<f4").tobytes(),))
    assert len(check(gallery).problems) == 1
    with gallery.write(faces_change=True) as repository:
        repository.connection.execute("UPDATE faces SET embedding = ? WHERE id = 2", (b"short",))
    assert len(check(gallery).problems) == 1
