"""Which identity a face gets that is added or moved by hand, and undoing it."""

import numpy as np

from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits import corrections
from familiar.gallery.edits.manual_faces import add_face, delete_face, set_face_box
from familiar.gallery.same.assignments import UNASSIGNED
from familiar.gallery.store.store import Store
from support.small_gallery import (
    draw_individuals,
    embedder_returning,
    enroll_vectors,
    identity_of,
    rows,
)

LEFT, RIGHT = (0.0, 0.0, 48.0, 48.0), (48.0, 0.0, 96.0, 48.0)


def individual_embedding(axis: int, seed: int = 9) -> np.ndarray:
    """Return one more embedding of an individual of `individuals`, shape (1, 16)."""
    return draw_individuals([int(index == axis) for index in range(axis + 1)], seed)


FREE = (1000.0, 0.0, 1050.0, 50.0)


def test_added_face_joins_the_similar_identity(gallery: Store):
    enroll_vectors(gallery, draw_individuals([3, 3]))
    cluster(gallery)
    with embedder_returning(individual_embedding(1)[0]) as embedder:
        face = add_face(gallery, embedder, 1, FREE)
    assert identity_of(gallery, face) == identity_of(gallery, 4)
    with embedder_returning(individual_embedding(1, 8)[0]) as embedder:  # an identity occurs once per photo
        other = add_face(gallery, embedder, 1, (2000.0, 0.0, 2050.0, 50.0))
    assert identity_of(gallery, other) == UNASSIGNED
    before = rows(gallery)
    assert cluster(gallery).changed == 0
    assert rows(gallery) == before


def test_moved_unconfirmed_face_is_assigned_again(gallery: Store):
    enroll_vectors(gallery, draw_individuals([3, 3]))
    cluster(gallery)
    mia, tom = identity_of(gallery, 1), identity_of(gallery, 4)
    for box, looks_like, expected in ((FREE, 1, tom), (LEFT, 5, UNASSIGNED), (RIGHT, 0, mia)):
        with embedder_returning(individual_embedding(looks_like)[0]) as embedder:
            set_face_box(gallery, embedder, 1, box)
        assert identity_of(gallery, 1) == expected
        assert rows(gallery, ("faces",))["faces"][0][:6] == (1, 1, *box)
    np.testing.assert_array_equal(gallery.faces().embeddings[0], individual_embedding(0)[0])
    assert gallery.faces().ids.tolist() == [1, 2, 3, 4, 5, 6]


def test_moved_confirmed_face_keeps_its_identity(gallery: Store):
    enroll_vectors(gallery, draw_individuals([3, 3]))
    cluster(gallery)
    mia = identity_of(gallery, 1)
    corrections.confirm(gallery, [1])
    corrections.mark_different(gallery, 1, 4)
    before = rows(gallery)
    with embedder_returning(individual_embedding(1)[0]) as embedder:
        set_face_box(gallery, embedder, 1, FREE)
    assert identity_of(gallery, 1) == mia
    assert rows(gallery) == before


def test_named_identity_keeps_its_only_face_when_moved(gallery: Store):
    enroll_vectors(gallery, draw_individuals([2]))
    cluster(gallery)
    corrections.name_identity(gallery, 1, "Mia")
    delete_face(gallery, 2)
    with embedder_returning(individual_embedding(5)[0]) as embedder:
        set_face_box(gallery, embedder, 1, FREE)
    assert identity_of(gallery, 1) == 1


def test_only_named_identities_survive_losing_their_last_face(gallery: Store):
    enroll_vectors(gallery, draw_individuals([1, 1]))
    corrections.split(gallery, [1], "Mia")
    corrections.split(gallery, [2])
    delete_face(gallery, 1)
    delete_face(gallery, 2)
    assert rows(gallery)["identities"] == [(1, "Mia", "[]")]
