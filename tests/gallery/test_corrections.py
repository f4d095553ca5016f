"""Corrections of assignments by the user, and their consequences."""

from pathlib import Path

import pytest

from familiar.core.errors import Contradiction, SharedPhoto
from familiar.core.gallery_types import Question
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits import corrections
from familiar.gallery.edits.corrections import Individual
from familiar.gallery.review.questions import answer_question, propose_questions
from familiar.gallery.same.assignments import load_assignments, resolve_identity
from familiar.gallery.same.decisions import undo
from familiar.gallery.store.store import Store
from support.small_gallery import (
    DIM,
    SPACE,
    draw_individuals,
    enroll_in_one_photo,
    enroll_vectors,
    groups,
    identity_of,
    rows,
)


@pytest.fixture
def gallery(gallery: Store) -> Store:
    """#1 has faces 1 to 3, #2 has 4 and 5."""
    enroll_vectors(gallery, draw_individuals([3, 2]))
    cluster(gallery)
    return gallery


@pytest.mark.parametrize("name", ["", "  ", "#7", "two\nlines", "\udcff"])
def test_rejects_invalid_names(gallery: Store, name: str):
    with pytest.raises(Contradiction, match="is not a valid name"):
        corrections.name_identity(gallery, 1, name)
    with pytest.raises(Contradiction, match="is not a valid name"):
        corrections.split(gallery, [1], name)
    assert load_assignments(gallery).names == {}
    assert len(rows(gallery)["identities"]) == 2


def test_a_name_is_the_same_in_every_spelling(gallery: Store):
    corrections.name_identity(gallery, 1, "Jose\u0301\u00a0Ruiz\u200e")
    assert load_assignments(gallery).names == {1: "Jos\u00e9 Ruiz"}
    for typed in ("Jos\u00e9 Ruiz", "Jose\u0301  Ruiz", "\ufeffJos\u00e9\u3000Ruiz"):
        assert resolve_identity(gallery, typed) == 1
        corrections.name_identity(gallery, 1, typed)
        with pytest.raises(Contradiction, match=r"#1 has the name Jos. Ruiz already.*merge .* '#1' '#2'"):
            corrections.name_identity(gallery, 2, typed)
    assert resolve_identity(gallery, "\u200e#2") == 2


def test_merging_keeps_the_only_name(gallery: Store):
    corrections.name_identity(gallery, 2, "Mia")
    corrections.merge(gallery, 1, [2, 2, 1])
    assert load_assignments(gallery).names == {1: "Mia"}
    assert groups(gallery) == {frozenset([1, 2, 3, 4, 5])}
    cluster(gallery, rebuild=True)
    assert groups(gallery) == {frozenset([1, 2, 3, 4, 5])}  # a named identity is not rebuilt


def test_merging_transfers_rejections_to_the_merged_identity(gallery: Store):
    (outside,) = enroll_vectors(gallery, draw_individuals([0, 1], seed=5), "more")
    corrections.reject(gallery, [outside], 2)
    corrections.merge(gallery, 1, [2])
    assert rows(gallery)["rejections"] == [(outside, 1)]
    cluster(gallery)
    assert identity_of(gallery, outside) == -1


@pytest.fixture
def pair(gallery: Store) -> list[int]:
    """Two faces of one photo, the first in #1 and the second in #2."""
    pair = enroll_in_one_photo(gallery, draw_individuals([1, 1], seed=9), "both.jpg")
    cluster(gallery)
    assert [identity_of(gallery, face) for face in pair] == [1, 2]
    return pair


SAYING = {  # in these ways, a user says that both faces of a photo show one individual
    "merge": lambda gallery, _, **options: corrections.merge(gallery, 1, [2], **options),
    "move": lambda gallery, pair, **options: corrections.move(gallery, [pair[1]], 1, **options),
    "split": lambda gallery, pair, **options: corrections.split(gallery, pair, "Mia", **options),
}


@pytest.mark.parametrize("how", SAYING)
def test_one_identity_twice_in_a_photo_is_refused_unless_it_is_said(gallery: Store, pair: list[int], how: str):
    corrections.name_identity(gallery, 1, "Tom")
    before = rows(gallery)
    with pytest.raises(SharedPhoto, match=r"both\.jpg: would show (Tom|Mia) twice.* --same-photo") as refusal:
        SAYING[how](gallery, pair)
    assert refusal.value.faces == (tuple(pair),)
    assert rows(gallery) == before
    SAYING[how](gallery, pair, same_photo=True)
    assert identity_of(gallery, pair[0]) == identity_of(gallery, pair[1])
    undo(gallery)
    assert rows(gallery) == before


@pytest.mark.parametrize("how", SAYING)
def test_what_was_said_of_a_photo_stays_through_clustering_and_other_corrections(
    gallery: Store, pair: list[int], how: str
):
    SAYING[how](gallery, pair, same_photo=True)
    more = enroll_vectors(gallery, draw_individuals([2, 2], seed=4), "more")
    for rebuild in (True, False, True):
        cluster(gallery, rebuild=rebuild)
        assert any(set(pair) <= members for members in groups(gallery))
    corrections.reject(gallery, [1])
    corrections.split(gallery, [more[0]])
    cluster(gallery, rebuild=True)
    assert any(set(pair) <= members for members in groups(gallery))
    to = identity_of(gallery, pair[0])
    corrections.move(gallery, [pair[1]], to)  # nothing new is said
    with pytest.raises(Contradiction, match="both confirmed"):
        corrections.mark_different(gallery, *pair)
    corrections.move(gallery, pair, identity_of(gallery, more[1]))
    assert any({*pair, more[1]} <= members for members in groups(gallery))


def test_refusal_names_all_photos_that_identities_share(gallery: Store, pair: list[int]):
    for index in range(7):
        enroll_in_one_photo(gallery, draw_individuals([1, 1], seed=index), f"{index}.jpg")
    cluster(gallery)
    with pytest.raises(SharedPhoto, match=r"^both\.jpg, 0\.jpg, 1\.jpg, 2\.jpg, 3\.jpg and 3 more: would"):
        corrections.merge(gallery, 1, [2])
    corrections.merge(gallery, 1, [2], same_photo=True)
    assert len(groups(gallery)) == 1
    cluster(gallery, rebuild=True)
    assert all(identity_of(gallery, face) == identity_of(gallery, pair[0]) for face in range(pair[0], pair[0] + 16))


def test_list_accepts_one_identity_twice_in_a_photo_and_dissolves_what_clustering_guessed(
    gallery: Store, pair: list[int]
):
    corrections.name_identity(gallery, 1, "Tom")
    assert corrections.assign(gallery, [Individual("Tom", (pair[1],))]) == 1
    assert (identity_of(gallery, pair[0]), identity_of(gallery, pair[1])) == (-1, 1), "nobody said the first is Tom"
    corrections.assign(gallery, [Individual("Tom", (pair[0],))])
    cluster(gallery, rebuild=True)
    assert [identity_of(gallery, face) for face in pair] == [1, 1]


@pytest.mark.parametrize("before", ["in two identities", "one unassigned", "both unassigned"])
def test_answer_that_two_faces_of_one_photo_are_the_same_is_kept(gallery: Store, pair: list[int], before: str):
    leaving = {"in two identities": [], "one unassigned": pair[:1], "both unassigned": pair}[before]
    with gallery.write() as repository:
        repository.assignments.unassign(leaving)
    first, second = (None if face in leaving else identity_of(gallery, face) for face in pair)
    answer_question(gallery, Question("merge", pair[0], pair[1], first, second, 0.5, 0.5, 1.0), True)
    cluster(gallery, rebuild=True)
    assert any(set(pair) <= members for members in groups(gallery))
    for question in propose_questions(gallery, 50):
        assert {question.first_face, question.second_face} != set(pair)


def test_moving_a_face_rejects_its_previous_identity(gallery: Store):
    corrections.move(gallery, [1], 2)
    assert identity_of(gallery, 1) == 2
    assert (1, 1) in rows(gallery)["rejections"]
    cluster(gallery, rebuild=True)
    assert identity_of(gallery, 1) == 2
    corrections.move(gallery, [1], 1)  # the latest correction counts
    assert identity_of(gallery, 1) == 1
    assert rows(gallery)["rejections"] == [(1, 2)]


def test_rejecting_twice_is_refused_unless_it_is_about_another_identity(gallery: Store):
    assert corrections.reject(gallery, [4]).identity == 2
    with pytest.raises(Contradiction, match="face 4 is not assigned"):
        corrections.reject(gallery, [4])
    corrections.reject(gallery, [4], 1)
    assert rows(gallery)["rejections"] == [(4, 1), (4, 2)]
    assert rows(gallery)["constraints"] == [(4, 5, 0)]


@pytest.mark.parametrize("copies", [2, 3, 4])
def test_mark_different_separates_two_faces_that_differ_by_rounding(folder: Path, copies: int):
    """By rounding, a face may be more similar to the other, which leaves, than to itself: it stays."""
    with Store.create(folder, SPACE, embedding_dtype="float32") as gallery:
        enroll_vectors(gallery, draw_individuals([copies] * DIM, noise=1e-5))
        cluster(gallery)
        for individual in groups(gallery):
            leaving, staying = sorted(individual)[-1], min(individual)
            identity = identity_of(gallery, staying)
            corrections.mark_different(gallery, staying, leaving)
            assert identity_of(gallery, staying) == identity != identity_of(gallery, leaving)


def test_mark_different_keeps_the_assignment_of_the_confirmed_face(gallery: Store):
    with pytest.raises(Contradiction, match="face 1"):
        corrections.mark_different(gallery, 1, 1)
    corrections.confirm(gallery, [1])
    corrections.mark_different(gallery, 1, 2)
    assert identity_of(gallery, 1) == 1 != identity_of(gallery, 2)
