"""Tests of galleries with photos of other individuals."""

from pathlib import Path

import large_gallery
import numpy as np
from large_gallery import SEEN, Embedded

ROWS = np.eye(4, dtype=np.float32)


def test_each_added_photo_is_an_individual_of_its_own():
    gallery = Embedded(ROWS[:3], np.array([0, 0, 1])).among(ROWS[1:])
    assert gallery.labels.tolist() == [0, 0, 1, 2, 3, 4]
    np.testing.assert_array_equal(gallery.embeddings, np.concatenate([ROWS[:3], ROWS[1:]]))


def test_a_nearer_individual_costs_recall():
    queries = Embedded(np.array([[1, 0], [0.6, 0.8]], np.float32), np.array([0, 0]))
    far = large_gallery.figures(queries.among(np.array([[-1, 0]], np.float32)))
    near = large_gallery.figures(queries.among(np.array([[0.8, 0.6]], np.float32)))
    assert [each[0].split()[0] for each in (far, near)] == ["1.000", "0.000"]


def test_faces_that_a_bundle_saw_are_left_out(tmp_path: Path):
    cats = 2 * SEEN
    for cat in range(cats):
        folder = tmp_path / large_gallery.OTHER_CATS / f"cat_{cat:04}"
        folder.mkdir(parents=True)
        (folder / "0_1.jpg").touch()
    table = large_gallery.unseen_cats(tmp_path)
    assert {photo.parent.name for photo in table.photos} == {f"cat_{cat:04}" for cat in range(1, cats, 2)}
