"""Batches of faces: which are proposed, and that one answer names, adds, removes, and is never asked for again."""

import numpy as np
import pytest

from familiar.core.errors import Contradiction, SharedPhoto
from familiar.core.vectors import normalize
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits import corrections
from familiar.gallery.gallery import Gallery
from familiar.gallery.review import batches
from familiar.gallery.review.batches import Batch, answer_batch, propose_batches
from familiar.gallery.same.assignments import load_assignments
from familiar.gallery.same.decisions import decisions, undo
from familiar.gallery.store.store import Store
from support.small_gallery import DIM, enroll_in_one_photo, enroll_vectors, groups, identity_of, rows

GROUP = [1, 2, 3, 4, 5]  # the last of them fits least
SECOND = [6, 7]  # a group like the first
SINGLE = 8  # a face like the first group


def towards(similarity: float, axis: int) -> np.ndarray:
    """A row of that similarity to the first axis, in the plane with another."""
    row = np.zeros(DIM, np.float32)
    row[0], row[axis] = similarity, (1 - similarity**2) ** 0.5
    return row


@pytest.fixture
def album(gallery: Store) -> Store:
    vectors = [towards(1, 1)] * 4 + [towards(0.7, 2)] + [towards(0.58, 3)] * 2 + [towards(0.58, 4)]
    assert enroll_vectors(gallery, normalize(np.stack(vectors))) == [*GROUP, *SECOND, SINGLE]
    cluster(gallery)
    assert groups(gallery) == {frozenset(GROUP), frozenset(SECOND)}
    return gallery


def test_batch_of_the_largest_group_shows_what_may_belong_to_it_and_what_may_not(album: Store):
    first, second = propose_batches(album)
    assert first.identity == identity_of(album, 1)
    assert first.members[0] == 5, "the least fitting first"
    assert set(first.members) == set(GROUP)
    assert len(first.candidates) == 2
    assert len(set(first.candidates) & set(SECOND)) == 1, "one face stands for its group"
    assert SINGLE in first.candidates
    assert first.expected_gain > second.expected_gain >= len(SECOND)
    assert (second.identity, second.candidates) == (identity_of(album, SECOND[0]), ())
    assert propose_batches(album, 1) == [first]


def test_one_answer_names_adds_and_removes_and_is_one_change(album: Store):
    before = rows(album)
    batch = propose_batches(album)[0]
    answer_batch(album, batch, {*GROUP[:4], *batch.candidates}, "Mia")
    number = batch.identity
    assert groups(album) == {frozenset([*GROUP[:4], *SECOND, SINGLE])}
    assert load_assignments(album).names == {number: "Mia"}
    assert identity_of(album, 5) == -1
    assert (5, number) in rows(album)["rejections"]
    assert {(face, number, 1) for face in GROUP[:4]} <= set(rows(album)["assignments"]), "they are confirmed"
    assert propose_batches(album) == []
    assert [each.kind for each in decisions(album, 2)] == ["batch", "cluster"]
    undo(album)
    assert rows(album) == before


def test_what_was_not_ticked_is_not_asked_about_again(album: Store):
    batch = propose_batches(album)[0]
    answer_batch(album, batch, GROUP, "Mia")
    assert groups(album) == {frozenset(GROUP), frozenset(SECOND)}
    assert [(each.identity, each.candidates) for each in propose_batches(album)] == [
        (identity_of(album, SECOND[0]), ())
    ], "only the other group still has no name"
    cluster(album, rebuild=True)
    assert groups(album) == {frozenset(GROUP), frozenset(SECOND)}


def test_answer_without_a_name_names_nothing(album: Store):
    batch = propose_batches(album)[0]
    answer_batch(album, batch, [*batch.members, *batch.candidates])
    assert load_assignments(album).names == {}
    assert groups(album) == {frozenset([*GROUP, *SECOND, SINGLE])}


def test_similar_faces_belong_to_the_batch_of_the_named_identity(album: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batches, "MIN_GAIN", 0.0)
    corrections.name_identity(album, identity_of(album, SECOND[0]), "Mia")
    named_batch = next(each for each in propose_batches(album) if each.identity == identity_of(album, SECOND[0]))
    assert len(set(named_batch.candidates) & set(GROUP)) == 1, "though the other group is larger"


def test_two_named_identities_are_no_batch(album: Store):
    corrections.name_identity(album, identity_of(album, 1), "Mia", confirm=True)
    corrections.name_identity(album, identity_of(album, SECOND[0]), "Bo", confirm=True)
    assert not [face for each in propose_batches(album) for face in each.candidates if face != SINGLE]


def test_answer_to_changed_faces_is_refused(album: Store):
    batch = propose_batches(album)[0]
    corrections.move(album, [1], identity_of(album, SECOND[0]))
    before = rows(album)
    with pytest.raises(Contradiction, match="have changed since"):
        answer_batch(album, batch, batch.members, "Mia")
    assert rows(album) == before


def test_taken_name_changes_nothing(album: Store):
    corrections.name_identity(album, identity_of(album, SECOND[0]), "Mia")
    before = rows(album)
    batch = Batch(identity_of(album, 1), tuple(GROUP), (SINGLE,), 1.0)
    with pytest.raises(Contradiction, match="has the name"):
        answer_batch(album, batch, [*GROUP, SINGLE], "Mia")
    assert rows(album) == before


def test_individual_twice_in_a_photo_is_refused_unless_it_is_meant(gallery: Store):
    vectors = normalize(np.stack([towards(1, 1)] * 3))
    enroll_vectors(gallery, vectors)
    pair = enroll_in_one_photo(gallery, normalize(np.stack([towards(0.58, 2), towards(0.58, 3)])), "both")
    cluster(gallery)
    batch = propose_batches(gallery)[0]
    assert set(batch.candidates) == set(pair)
    with pytest.raises(SharedPhoto):
        answer_batch(gallery, batch, [*batch.members, *pair], "Mia")
    answer_batch(gallery, batch, [*batch.members, *pair], "Mia", same_photo=True)
    assert len(groups(gallery)) == 1


def test_at_most_so_many_faces_are_shown(album: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batches, "MAX_MEMBERS", 2)
    monkeypatch.setattr(batches, "MAX_CANDIDATES", 1)
    batch = propose_batches(album)[0]
    assert (len(batch.members), len(batch.candidates)) == (2, 1)


def test_species_restricts_batches_questions_and_lists(album: Store):
    with album.write() as repository:
        repository.connection.execute("UPDATE faces SET species = iif(id IN (6, 7), 'dog', 'cat')")
    named = Gallery(album)
    assert named.species() == ["cat", "dog"]
    assert {each.identity for each in named.batches(species="dog")} == {identity_of(album, 6)}
    assert [each.identity for each in named.identities(species="cat")] == [identity_of(album, 1)]
    assert [face.face for face in named.unassigned_faces(species="cat")] == [SINGLE]
    assert named.unassigned_faces(species="dog") == []
    assert {photo.faces[0].face for photo in named.photos(species="dog")} == {6, 7}
    assert (named.counts(species="dog").photos, named.counts(species="cat").faces) == (2, 6)
    assert (named.counts(species="dog").unnamed, named.counts(species="cat").unassigned) == (1, 1)
    assert named.remaining(species="dog").questions == 1
    assert all(question.first_face not in SECOND for question in named.questions(species="cat"))
