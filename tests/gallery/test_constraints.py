"""Must-link and cannot-link constraints built from a gallery's photos and corrections."""

from collections.abc import Sequence

import numpy as np
import pytest

from familiar.gallery.same.assignments import UNASSIGNED, load_assignments
from familiar.gallery.same.constraints import build_constraints
from familiar.gallery.store.store import Store
from familiar.neighbors.constraints import Constraints
from support.small_gallery import draw_individuals, enroll_vectors

FACES = 8


@pytest.fixture
def gallery(gallery: Store) -> Store:
    """Faces 1 to 8 of one photo each, in no identity; identities 1 to 3 exist."""
    enroll_vectors(gallery, draw_individuals([FACES]))
    with gallery.write() as repository:
        repository.connection.executemany("INSERT INTO identities (id) VALUES (?)", [(1,), (2,), (3,)])
    return gallery


def link(gallery: Store, pairs: Sequence[tuple[int, int]], *, same: bool = True) -> None:
    with gallery.write() as repository:
        repository.connection.executemany(
            "INSERT INTO constraints VALUES (?, ?, ?)", ((min(pair), max(pair), same) for pair in pairs)
        )


def build(gallery: Store, fixed: dict[int, int] | None = None) -> tuple[Constraints, list[int]]:
    """Build the constraints on all faces; `fixed` gives the fixed identities by face id."""
    assignments = load_assignments(gallery)
    fixed_identity = np.full(len(assignments.identity), UNASSIGNED)
    for face, identity in (fixed or {}).items():
        fixed_identity[face - 1] = identity
    constraints, identities = build_constraints(
        gallery, assignments, fixed_identity, np.arange(len(assignments.identity))
    )
    return constraints, identities.tolist()


def cannot_link(constraints: Constraints) -> set[tuple[int, int]]:
    """The cannot-link pairs as ids of faces."""
    return {(min(pair) + 1, max(pair) + 1) for pair in constraints.cannot_link.tolist()}


@pytest.mark.parametrize("seed", range(20))
def test_seeds_match_repeated_relabeling(gallery: Store, seed: int):
    rng = np.random.default_rng(seed)
    pairs = sorted({tuple(sorted(rng.choice(FACES, 2, replace=False).tolist())) for _ in range(6)})
    fixed = {face: int(identity) for face in range(1, FACES + 1) if (identity := rng.integers(0, 6)) in (1, 2, 3)}
    link(gallery, [(first + 1, second + 1) for first, second in pairs])
    label = [fixed.get(face, -face) for face in range(1, FACES + 1)]  # one negative label per free face
    for first, second in pairs:
        low, high = sorted((label[first], label[second]))
        if low < 0:
            label = [high if each == low else each for each in label]
    seeds = build(gallery, fixed)[0].seeds
    for first in range(FACES):
        for second in range(first):
            assert (label[first] == label[second]) == (seeds[first] == seeds[second] != -1)


def test_must_link_wins_over_cannot_link(gallery: Store):
    link(gallery, [(1, 2), (2, 3)])
    link(gallery, [(1, 3), (4, 1)], same=False)
    assert cannot_link(build(gallery)[0]) == {(1, 4)}


def test_rejected_face_cannot_link_with_the_faces_of_the_identity(gallery: Store):
    with gallery.write() as repository:
        repository.connection.execute("INSERT INTO rejections VALUES (1, 2)")
        repository.connection.executemany("INSERT INTO assignments VALUES (?, 2, 0)", [(3,), (4,)])
    assert cannot_link(build(gallery)[0]) == {(1, 3), (1, 4)}
    assert cannot_link(build(gallery, {3: 2, 4: 2})[0]) == {(1, 3)}, "one face represents those that stay together"
