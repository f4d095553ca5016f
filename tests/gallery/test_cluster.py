"""Clustering of a gallery's faces by their embeddings, within the user's corrections."""

import contextlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.errors import Contradiction
from familiar.core.vectors import normalize
from familiar.gallery.cluster import cluster as cluster_module
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits import corrections
from familiar.gallery.review.questions import propose_questions
from familiar.gallery.same.assignments import load_assignments
from familiar.gallery.store.store import Store
from familiar.gallery.transfer.check import check
from familiar.neighbors.clustering import cluster as cluster_embeddings
from support.property_tests import expensive
from support.small_gallery import (
    DIM,
    SPACE,
    THRESHOLD,
    draw_individuals,
    enroll_in_one_photo,
    enroll_vectors,
    groups,
    identity_of,
    rows,
)


def scattered(count: int, seed: int = 0) -> np.ndarray:
    """Rows with some similar ones, in clusters that depend on the whole order of merging."""
    rng = np.random.default_rng(seed)
    return normalize((rng.normal(size=(count, 4)) @ rng.normal(size=(4, DIM))).astype(np.float32))


def between(first: int, second: int, share: float) -> np.ndarray:
    """A row between two axes, `share` of the way."""
    row = np.zeros((1, DIM), np.float32)
    row[0, first], row[0, second] = 1 - share, share
    return normalize(row)


def test_without_constraints_matches_neighbors_clustering(gallery: Store):
    embeddings = scattered(80)
    faces = enroll_vectors(gallery, embeddings)
    result = cluster(gallery, threshold=THRESHOLD)
    expected = cluster_embeddings(embeddings, THRESHOLD)
    sizes = np.bincount(expected)
    clusters = np.flatnonzero(sizes > 1)
    assert groups(gallery) == {frozenset(np.array(faces)[expected == number].tolist()) for number in clusters}
    assert 3 < result.identities == (sizes > 1).sum()
    assert result.unassigned == (sizes == 1).sum()
    assert result.faces == result.changed == sizes[sizes > 1].sum()
    assert result.threshold == THRESHOLD


def test_empty_gallery_and_single_face_have_no_clusters(gallery: Store):
    assert cluster(gallery).identities == 0
    enroll_vectors(gallery, draw_individuals([1]))
    assert (cluster(gallery).identities, cluster(gallery).unassigned) == (0, 1)


def test_new_faces_join_without_changing_existing_assignments(gallery: Store):
    enroll_vectors(gallery, draw_individuals([3, 2]))
    cluster(gallery)
    before = rows(gallery)["assignments"]
    more = enroll_vectors(gallery, np.concatenate([draw_individuals([1, 1, 2], seed=7), between(0, 1, 0.5)]), "more")
    result = cluster(gallery)
    assert rows(gallery)["assignments"][:5] == before
    assert identity_of(gallery, more[0]) == identity_of(gallery, 1)
    assert identity_of(gallery, more[1]) == identity_of(gallery, 4)
    assert frozenset(more[2:4]) in groups(gallery)
    assert result.changed == 5  # all new faces, including the one in between, without joining two clusters
    assert cluster(gallery).changed == 0


def test_existing_identities_are_not_joined_by_default(gallery: Store):
    first = enroll_vectors(gallery, draw_individuals([2], seed=1))
    cluster(gallery)
    second = enroll_vectors(gallery, draw_individuals([2], seed=2), "more")
    corrections.split(gallery, second)
    cluster(gallery)
    assert groups(gallery) == {frozenset(first), frozenset(second)}  # though all four are similar
    cluster(gallery, rebuild=True)
    assert groups(gallery) == {frozenset(first + second)}


def test_threshold_argument_controls_cluster_count(gallery: Store):
    enroll_vectors(gallery, draw_individuals([2, 2]))
    assert cluster(gallery, threshold=0.999).identities == 0
    assert cluster(gallery, threshold=-0.5).identities == 1
    with pytest.raises(ValueError, match="threshold"):
        cluster(gallery, threshold=1.5)


def test_regrouping_keeps_names_corrections_and_numbers(gallery: Store):
    enroll_vectors(gallery, draw_individuals([4, 3, 2]))
    cluster(gallery, threshold=-1.0)  # all in one identity
    first_identity = identity_of(gallery, 1)
    corrections.split(gallery, [8], "Mia")
    assert groups(gallery) == {frozenset([1, 2, 3, 4, 5, 6, 7]), frozenset([8, 9])}
    corrections.confirm(gallery, [7])
    mia = identity_of(gallery, 8)
    corrections.split(gallery, [1])
    cluster(gallery, rebuild=True)
    assert groups(gallery) == {frozenset([1, 2, 3, 4]), frozenset([5, 6, 7]), frozenset([8, 9])}
    assert identity_of(gallery, 7) == first_identity  # confirmed by the user
    assert identity_of(gallery, 9) == mia
    before = rows(gallery, ("identities", "assignments"))
    cluster(gallery, rebuild=True)
    assert rows(gallery, ("identities", "assignments")) == before


def test_split_also_moves_similar_unconfirmed_faces(gallery: Store):
    enroll_vectors(gallery, draw_individuals([4, 4]))
    cluster(gallery, threshold=-1.0)
    before = identity_of(gallery, 1)
    corrected = corrections.split(gallery, [5, 6], "Tom")
    assert groups(gallery) == {frozenset([1, 2, 3, 4]), frozenset([5, 6, 7, 8])}
    assert identity_of(gallery, 1) == before
    assert identity_of(gallery, 8) == corrected.identity
    assert corrected.propagated_faces == 2
    assert [row[2] for row in rows(gallery)["assignments"]] == [0, 0, 0, 0, 1, 1, 0, 0]


def test_rejecting_one_of_two_faces_separates_them_permanently(gallery: Store):
    enroll_vectors(gallery, draw_individuals([2]))
    cluster(gallery)
    corrections.reject(gallery, [1])
    for rebuild in (False, True, True):
        cluster(gallery, rebuild=rebuild)
        assert groups(gallery) <= {frozenset([2])}
    assert propose_questions(gallery) == []


def always_overtaken(gallery: Store, monkeypatch: pytest.MonkeyPatch, changes: list[Callable[[Store], object]]) -> None:
    """Let another connection make one of the changes while each plan is computed."""
    compute_plan, remaining = cluster_module._plan, iter(changes)

    def plan_then_change(*arguments):
        plan = compute_plan(*arguments)
        with Store.open(gallery.folder) as writer:
            next(remaining)(writer)
        return plan

    monkeypatch.setattr(cluster_module, "_plan", plan_then_change)


def name_face(face: int) -> Callable[[Store], object]:
    """Change something about a face."""
    return lambda writer: corrections.split(writer, [face], f"name {face}")


def test_an_identity_that_was_named_meanwhile_keeps_its_faces(gallery: Store, monkeypatch: pytest.MonkeyPatch):
    enroll_vectors(gallery, draw_individuals([3, 3, 1, 1]))
    cluster(gallery, threshold=-1.0)
    (everything,) = groups(gallery)
    number = identity_of(gallery, 1)
    changes = [name_face(8), lambda writer: corrections.name_identity(writer, number, "Mia")]
    always_overtaken(gallery, monkeypatch, changes)
    cluster(gallery, rebuild=True)
    assert groups(gallery) == {everything - {8}, frozenset([8])}


@pytest.mark.slow
@expensive()
@given(st.data())
def test_overtaken_plans_respect_the_corrections_made_meanwhile(tmp_path_factory, data: st.DataObject):
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=5))
    count = sum(sizes)
    folder = tmp_path_factory.mktemp("overtaken") / "gallery"
    faces = st.integers(1, count)
    with Store.create(folder, SPACE) as gallery, pytest.MonkeyPatch.context() as monkeypatch:
        enroll_vectors(gallery, np.concatenate([draw_individuals(sizes), between(0, 1, 0.5), between(0, 1, 0.4)]))
        if data.draw(st.booleans()):
            cluster(gallery, threshold=data.draw(st.sampled_from([-1.0, 0.3, 0.9])))
        pair = data.draw(st.lists(faces, min_size=2, max_size=2, unique=True))
        moved = data.draw(st.lists(faces, min_size=1, max_size=3, unique=True))

        def last(writer: Store) -> None:
            corrections.split(writer, moved, "Mia")
            with contextlib.suppress(Contradiction):
                corrections.mark_different(writer, *pair)
            late.extend(enroll_vectors(writer, draw_individuals([2]), "late"))

        late: list[int] = []
        always_overtaken(gallery, monkeypatch, [name_face(count + 1), last])
        result = cluster(gallery, rebuild=data.draw(st.booleans()))
        assert result.unassigned == sum(identity_of(gallery, face) == -1 for face in gallery.faces().ids.tolist())
        assert [identity_of(gallery, face) for face in late] == [-1, -1], "enrolled since: for the next clustering"
        (mia,) = (number for number, name in load_assignments(gallery).names.items() if name == "Mia")
        assert {identity_of(gallery, face) for face in moved} == {mia}
        different = [{first, second} for first, second, same in rows(gallery)["constraints"] if not same]
        assert not any(pair <= members for members in groups(gallery) for pair in different)
        assert check(gallery).problems == ()


@pytest.mark.slow
@expensive()
@given(st.integers(0, 10**6))
def test_faces_of_one_photo_share_an_identity_only_by_the_users_word(tmp_path_factory, seed: int):
    rng = np.random.default_rng(seed)
    with Store.create(tmp_path_factory.mktemp("twice") / "gallery", SPACE) as gallery:
        for index in range(6):
            shown = rng.integers(0, 3, rng.integers(1, 4))  # often one individual twice
            embeddings = normalize((np.eye(DIM)[shown] + rng.normal(size=(len(shown), DIM)) * 0.08).astype(np.float32))
            enroll_in_one_photo(gallery, embeddings, f"{index}.jpg")
        faces, photos = gallery.faces().ids, gallery.faces().photo_ids
        together: list[set[int]] = []  # by the user's word
        for number in range(4):
            cluster(gallery, threshold=float(rng.choice([-1.0, 0.3, 0.9])), rebuild=bool(rng.integers(2)))
            by_user = load_assignments(gallery).by_user
            photo_of = {
                face: (photo, by_user[row]) for row, (face, photo) in enumerate(zip(faces, photos, strict=True))
            }
            for members in groups(gallery):
                shared = [photo_of[face] for face in members]
                assert all(decided or [photo for photo, _ in shared].count(photo) == 1 for photo, decided in shared)
            assert all(any(named <= members for members in groups(gallery)) for named in together)
            named = set(rng.choice(faces, rng.integers(1, 4), replace=False).tolist())
            corrections.split(gallery, sorted(named), f"Mia {number}", same_photo=True)
            together = [rest for others in together if (rest := others - named)] + [named]


def test_rejection_in_one_individual_moves_no_other_face(gallery: Store):
    """Half of the others are more similar to any given face than to the rest, but show the same individual."""
    enroll_vectors(gallery, draw_individuals([12], noise=0.1))
    cluster(gallery, threshold=-1.0)
    assert corrections.reject(gallery, [3]).propagated_faces == 0
    assert groups(gallery) == {frozenset({1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12})}


def test_constraints_hold_in_an_identity_with_two_species(gallery: Store):
    """Mia has faces of two species; each attracts one of two faces of one photo."""
    enroll_vectors(gallery, draw_individuals([2, 2]))
    corrections.split(gallery, [1, 3], "Mia")
    with gallery.write() as repository:
        repository.connection.execute("DELETE FROM assignments WHERE by_user = 0")
        repository.connection.execute("UPDATE faces SET species = 'person'")
        repository.connection.execute("UPDATE faces SET species = 'cat' WHERE id = 3")
    cat, person = enroll_in_one_photo(gallery, draw_individuals([1, 1], seed=3)[::-1], "both.jpg")
    with gallery.write() as repository:
        repository.connection.execute("UPDATE faces SET species = 'person' WHERE id = ?", (person,))
        repository.connection.execute("UPDATE faces SET species = 'cat' WHERE id = ?", (cat,))
    cluster(gallery)
    assert [identity_of(gallery, face) for face in (cat, person)].count(1) == 1
    again = enroll_in_one_photo(gallery, draw_individuals([1], seed=4), "another.jpg")
    corrections.reject(gallery, again, 1)
    cluster(gallery)
    assert identity_of(gallery, again[0]) != 1
