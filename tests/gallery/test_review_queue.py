"""Review questions: their order, the effect of answers, and that none is proposed twice."""

import numpy as np
import pytest

from familiar.core.calibration import Calibration
from familiar.core.gallery_types import Question
from familiar.core.vectors import normalize
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits import corrections
from familiar.gallery.review import candidates
from familiar.gallery.review.batches import propose_batches
from familiar.gallery.review.candidates import SAME_BY_MERGE
from familiar.gallery.review.questions import (
    Remaining,
    answer_question,
    count_remaining,
    doubtful_identities,
    propose_questions,
)
from familiar.gallery.same.decisions import undo
from familiar.gallery.search.statistics import gallery_statistics
from familiar.gallery.store.store import Store
from familiar.neighbors.comparison import Comparison
from familiar.neighbors.rounds import size_penalized_cosine
from support.small_gallery import (
    DIM,
    THRESHOLD,
    draw_individuals,
    enroll_in_one_photo,
    enroll_vectors,
    groups,
    identity_of,
    rows,
)


def row_at(similarity: float, axis: int, towards: int) -> np.ndarray:
    """A row of that similarity to one axis, in the plane of two."""
    row = np.zeros((1, DIM), np.float32)
    row[0, axis], row[0, towards] = similarity, (1 - similarity**2) ** 0.5
    return normalize(row)


def face_pair(question: Question) -> tuple[int, int]:
    low, high = sorted((question.first_face, question.second_face))
    return low, high


def proposed_pairs(gallery: Store) -> set[tuple[int, int]]:
    return {face_pair(question) for question in propose_questions(gallery, 1000)}


def test_an_identity_whose_faces_cancel_is_asked_about_by_one_of_them(gallery: Store):
    row = draw_individuals([1])
    faces = enroll_vectors(gallery, np.concatenate([row, -row, draw_individuals([1, 1], seed=1)[1:]]))
    corrections.split(gallery, faces[:2])
    assert {question.kind for question in propose_questions(gallery)} == {"merge"}


def test_first_question_has_the_highest_expected_gain(gallery: Store):
    enroll_vectors(
        gallery, np.concatenate([np.repeat(row_at(1, 0, 1), 4, axis=0), np.repeat(row_at(0.5, 0, 1), 3, axis=0)])
    )
    enroll_vectors(gallery, np.concatenate([row_at(1, 5, 6), row_at(0.5, 5, 6)]), "lone")
    cluster(gallery)
    large, small = propose_questions(gallery)
    assert (large.kind, large.first, large.second) == ("merge", 1, 2)
    assert large.similarity == pytest.approx(0.5, abs=1e-6)
    (penalized,) = size_penalized_cosine(np.array([0.5]), np.array([3]))
    intercept, slope, _ = SAME_BY_MERGE
    uncertainty = Comparison(Calibration.fixed(THRESHOLD), 5).uncertainty
    probability = 1 / (1 + np.exp(-intercept - slope * (penalized - THRESHOLD) / uncertainty))
    assert large.probability == pytest.approx(probability, rel=1e-4)
    assert large.expected_gain == pytest.approx(12**0.5 * probability, rel=1e-4)
    assert ({small.first_face, small.second_face}, small.first, small.second) == ({8, 9}, None, None)
    assert propose_questions(gallery, 1) == [large]
    assert propose_questions(gallery, 0) == []


def test_proposes_a_face_dissimilar_to_its_identity(gallery: Store):
    enroll_vectors(gallery, np.concatenate([draw_individuals([4]), row_at(0.4, 0, 1)]))
    cluster(gallery, threshold=0.3)
    (question,) = propose_questions(gallery)
    assert (question.kind, question.first_face, question.first, question.second) == ("outlier", 5, 1, 1)
    assert question.probability < 0.4
    answer_question(gallery, question, same=True)
    assert (5, 1, 1) in rows(gallery)["assignments"]
    assert not [question for question in propose_questions(gallery) if question.first_face == 5]
    undo(gallery)
    answer_question(gallery, question, same=False)
    assert (5, 1) in rows(gallery)["rejections"]
    assert identity_of(gallery, 5) == -1
    assert 5 not in {face for pair in proposed_pairs(gallery) for face in pair}


def two_in_one(gallery: Store, sizes: tuple[int, int] = (5, 4)) -> tuple[set[int], set[int]]:
    """Enroll two individuals that are clustered as one identity; return the faces of each."""
    faces = enroll_vectors(gallery, draw_individuals(list(sizes), noise=0.05))
    cluster(gallery, threshold=-0.1)
    assert groups(gallery) == {frozenset(faces)}
    return set(faces[: sizes[0]]), set(faces[sizes[0] :])


def test_identity_that_looks_like_two_is_asked_about_first(gallery: Store):
    first, second = two_in_one(gallery)
    question = propose_questions(gallery)[0]
    assert (question.kind, question.first, question.second) == ("split", 1, 1)
    assert len({question.first_face, question.second_face} & first) == 1
    assert len({question.first_face, question.second_face} & second) == 1
    assert question.probability < 0.01
    assert question.expected_gain == pytest.approx(20**0.5, rel=0.01)
    before = rows(gallery)["assignments"]
    answer_question(gallery, question, same=False)
    assert groups(gallery) == {frozenset(first), frozenset(second)}, "no takes the whole part out"
    assert not [question for question in propose_questions(gallery) if question.kind == "split"]
    undo(gallery)
    assert rows(gallery)["assignments"] == before


def test_identity_that_looks_like_two_is_doubtful_until_both_parts_are_confirmed(gallery: Store):
    assert doubtful_identities(gallery) == frozenset()
    first, second = two_in_one(gallery)
    enroll_vectors(gallery, draw_individuals([0, 0, 5]), "one")
    cluster(gallery)
    number = identity_of(gallery, min(first))
    assert doubtful_identities(gallery) == {number}
    assert [each.number for each in gallery_statistics(gallery).identities if each.doubtful] == [number]
    corrections.confirm(gallery, [min(first), min(second)])
    assert doubtful_identities(gallery) == frozenset()


def test_confirmed_faces_stay_when_a_part_leaves(gallery: Store):
    first, second = two_in_one(gallery)
    confirmed = min(second)
    corrections.confirm(gallery, [confirmed])
    corrections.mark_different(gallery, min(first), confirmed)
    assert identity_of(gallery, confirmed) == 1
    assert identity_of(gallery, min(first)) != 1


def test_yes_confirms_both_parts_which_are_not_asked_about_again(gallery: Store):
    two_in_one(gallery)
    question = propose_questions(gallery)[0]
    answer_question(gallery, question, same=True)
    assert {(question.first_face, 1, 1), (question.second_face, 1, 1)} <= set(rows(gallery)["assignments"])
    assert not [question for question in propose_questions(gallery) if question.kind == "split"]


def test_remaining_counts_questions_groups_and_faces(gallery: Store):
    assert count_remaining(gallery) == Remaining(0, 0, 0, 0)
    enroll_vectors(gallery, np.repeat(row_at(1, 0, 1), 4, axis=0))
    (similar, _) = enroll_vectors(gallery, np.concatenate([row_at(0.5, 0, 1), row_at(1, 9, 10)]), "one")
    cluster(gallery)
    assert [similar] == [face for batch in propose_batches(gallery) for face in batch.candidates]
    assert count_remaining(gallery) == Remaining(questions=1, unnamed=1, unassigned=2, covered=1)
    corrections.name_identity(gallery, 1, "Mia", confirm=True)
    remaining = count_remaining(gallery)
    assert (remaining.unnamed, remaining.unassigned) == (0, 2), "both faces are in no group, whatever is asked"
    corrections.move(gallery, [similar], 1)
    assert count_remaining(gallery) == Remaining(questions=0, unnamed=0, unassigned=1, covered=0)


def test_faces_of_questions_that_follow_a_batch_are_counted(gallery: Store):
    enroll_vectors(gallery, np.repeat(row_at(1, 0, 1), 150, axis=0))
    enroll_vectors(gallery, row_at(0.475, 0, 1), "one")  # too improbable to be shown with the group
    cluster(gallery)
    (batch,) = propose_batches(gallery)
    assert batch.candidates == ()
    (merge,) = [each for each in candidates.load_candidates(gallery) if each.kind == "merge"]
    assert merge.gain >= candidates.MIN_GAIN
    assert count_remaining(gallery) == Remaining(questions=1, unnamed=1, unassigned=1, covered=1)


def test_identities_of_two_species_are_not_asked_about_though_one_has_a_face_of_the_other(gallery: Store):
    enroll_vectors(
        gallery, np.concatenate([np.repeat(row_at(1, 0, 1), 4, axis=0), np.repeat(row_at(0.5, 0, 1), 3, axis=0)])
    )
    cluster(gallery)
    assert any(each.kind == "merge" for each in propose_questions(gallery))
    with gallery.write(faces_change=True) as repository:
        repository.connection.run("UPDATE faces SET species = iif(id < 4, 'cat', 'dog')")
    assert not any(each.kind == "merge" for each in propose_questions(gallery))


def test_two_named_and_confirmed_identities_are_not_asked_about(gallery: Store):
    rows_of_both = [np.repeat(row_at(1, 0, 1), 4, axis=0), np.repeat(row_at(0.5, 0, 1), 3, axis=0)]
    enroll_vectors(gallery, np.concatenate(rows_of_both))
    cluster(gallery)
    corrections.name_identity(gallery, 1, "Mia", confirm=True)
    corrections.name_identity(gallery, 2, "Tom")
    assert [(each.kind, each.first, each.second) for each in propose_questions(gallery)] == [("merge", 1, 2)]
    corrections.confirm(gallery, [5])
    assert not [each for each in propose_questions(gallery) if each.kind == "merge"]


@pytest.mark.parametrize(("sizes", "kind"), [((2, 2), "merge"), ((1, 2), "move"), ((2, 1), "move"), ((1, 1), "split")])
def test_answer_same_joins_the_two_clusters(gallery: Store, sizes: tuple[int, int], kind: str):
    from familiar.gallery.same.decisions import decisions

    rows_of_both = [np.repeat(row_at(1, 0, 1), sizes[0], axis=0), np.repeat(row_at(0.5, 0, 1), sizes[1], axis=0)]
    faces = enroll_vectors(gallery, np.concatenate(rows_of_both))
    cluster(gallery)
    (question,) = propose_questions(gallery)
    answer_question(gallery, question, same=True)
    assert decisions(gallery)[0].kind == kind
    assert groups(gallery) == {frozenset(faces)}
    assert not [question for question in propose_questions(gallery) if question.kind == "merge"]


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("rebuild", [False, True])
def test_answered_pairs_are_never_proposed_again(gallery: Store, rebuild: bool):
    rng = np.random.default_rng(3)
    enroll_vectors(gallery, normalize((rng.normal(size=(30, 3)) @ rng.normal(size=(3, DIM))).astype(np.float32)))
    cluster(gallery)
    answered: set[tuple[int, int]] = set()
    for _ in range(12):
        questions = propose_questions(gallery, 3)
        if not questions:
            break
        for question in questions[:1]:
            answer_question(gallery, question, same=False)
            answered.add(face_pair(question))
        cluster(gallery, rebuild=rebuild)
        assert not answered & proposed_pairs(gallery)
        assert not any(set(pair) <= members for pair in answered for members in groups(gallery))
    assert len(answered) >= 5


def test_each_cluster_appears_once_per_list(gallery: Store):
    enroll_vectors(gallery, normalize(np.random.default_rng(0).normal(size=(40, DIM)).astype(np.float32)))
    cluster(gallery)
    questions = propose_questions(gallery, 100)
    clusters = [
        identity_of(gallery, face) if identity_of(gallery, face) != -1 else -1 - face
        for question in questions
        for face in {question.first_face, question.second_face}
    ]
    assert len(questions) > 5
    assert len(set(clusters)) == len(clusters)
    gains = [question.expected_gain for question in questions]
    assert gains == sorted(gains, reverse=True)
    assert propose_questions(gallery, 3) == questions[:3]


def test_concurrent_enrollment_does_not_break_proposals(gallery: Store, folder, monkeypatch: pytest.MonkeyPatch):
    enroll_vectors(gallery, draw_individuals([1, 1, 1]))
    cannot_link_keys = candidates._cannot_link_keys

    def enroll_then_read(*arguments):
        with Store.open(folder) as writer:
            enroll_in_one_photo(writer, draw_individuals([2]), "twins")
        return cannot_link_keys(*arguments)

    monkeypatch.setattr(candidates, "_cannot_link_keys", enroll_then_read)
    assert len(propose_questions(gallery)) == 1
