"""What a gallery learns from confirmed faces: from which, when, and that undoing takes it back."""

from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits  # pyright: ignore[reportMissingTypeStubs]

from familiar.core.calibration import Calibration
from familiar.core.vectors import normalize
from familiar.gallery.edits import corrections
from familiar.gallery.edits.forget import forget_identity
from familiar.gallery.same import learning
from familiar.gallery.same.album import load_album, species_clusterings
from familiar.gallery.same.assignments import load_assignments
from familiar.gallery.same.decisions import decisions, undo
from familiar.gallery.same.learning import learned_rows
from familiar.gallery.store.store import Store
from familiar.gallery.transfer.repair import repair
from familiar.neighbors.comparison import Comparison
from familiar.neighbors.within_identity import Gain, cross_validate
from support.small_gallery import DIM, enroll_vectors

EACH = 6
INDIVIDUALS = 24


@pytest.fixture
def lit(gallery: Store) -> Store:
    """Twenty-four individuals of six faces each, which differ most in three directions: the light."""
    rng = np.random.default_rng(3)
    centers = normalize(rng.normal(size=(INDIVIDUALS, DIM)).astype(np.float32))
    faces = np.repeat(centers, EACH, axis=0) + 0.1 * rng.normal(size=(INDIVIDUALS * EACH, DIM))
    faces[:, :3] += 0.45 * rng.normal(size=(len(faces), 3))
    enroll_vectors(gallery, normalize(faces.astype(np.float32)))
    return gallery


def faces_of(individual: int) -> list[int]:
    return [individual * EACH + 1 + index for index in range(EACH)]


def confirm(gallery: Store, individuals: range) -> None:
    for individual in individuals:
        corrections.split(gallery, faces_of(individual))


def learned_faces(gallery: Store) -> list[int]:
    return load_assignments(gallery).faces.ids[learned_rows(gallery)].tolist()


def mean_similarity_within(gallery: Store, individuals: range) -> float:
    compared = load_album(gallery).rows.reshape(INDIVIDUALS, EACH, DIM)[individuals]
    return float(np.einsum("ied,ifd->ief", compared, compared)[:, ~np.eye(EACH, dtype=bool)].mean())


def test_learns_from_five_individuals_and_compares_the_others_better(lit: Store):
    confirm(lit, range(4))
    before = mean_similarity_within(lit, range(12, 24))
    assert learned_faces(lit) == []
    assert species_clusterings(lit)[0].learned_gain is None
    confirm(lit, range(4, 5))
    assert learned_faces(lit) == [face for individual in range(5) for face in faces_of(individual)]
    (main,) = species_clusterings(lit)
    assert main.learned_individuals == 5
    assert main.learned_gain is not None
    assert main.learned_gain > 0.03
    assert mean_similarity_within(lit, range(12, 24)) > before + 0.03


def test_undoing_later_corrections_restores_what_was_learned_then(lit: Store):
    confirm(lit, range(5))
    at_five, rows_then = learned_faces(lit), load_album(lit).rows.copy()
    confirm(lit, range(5, 10))
    assert len(learned_faces(lit)) == 10 * EACH
    for _ in range(5):
        undo(lit)
    assert learned_faces(lit) == at_five
    np.testing.assert_array_equal(load_album(lit).rows, rows_then)


def test_learns_again_only_from_twice_as_many(lit: Store):
    confirm(lit, range(5))
    learned, compared = learned_faces(lit), load_album(lit)
    confirm(lit, range(5, 9))
    assert learned_faces(lit) == learned
    assert load_album(lit) is compared, "what does not change is not measured again"
    confirm(lit, range(9, 10))
    assert species_clusterings(lit)[0].learned_individuals == 10


def test_faces_that_are_moved_teach_with_their_new_individual(lit: Store):
    confirm(lit, range(6))
    before = load_album(lit)
    corrections.reject(lit, [faces_of(0)[0]])
    assert faces_of(0)[0] not in learned_faces(lit)
    assert load_album(lit) is not before
    assert species_clusterings(lit)[0].learned_individuals == 5


def test_forgotten_individuals_teach_nothing(lit: Store):
    confirm(lit, range(5))
    assignments = load_assignments(lit)
    forget_identity(lit, int(assignments.identity[assignments.faces.rows_of(np.array(faces_of(0)[:1]))][0]))
    with lit.read() as repository:
        assert repository.learned_faces.all() == learned_faces(lit)
    assert len(learned_faces(lit)) == 4 * EACH
    assert species_clusterings(lit)[0].learned_gain is None, "four individuals are too few"


def test_at_most_so_many_faces_teach_of_as_many_individuals_as_possible(lit: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(learning, "MAX_FACES", 25)
    monkeypatch.setattr(learning, "_FACES_IN_TURN", 5)
    confirm(lit, range(5))
    identities = load_assignments(lit).identity[learned_rows(lit)]
    assert np.unique(identities, return_counts=True)[1].tolist() == [5] * 5


def test_learning_does_not_count_as_a_change_of_the_decision(lit: Store):
    confirm(lit, range(6))
    assert {entry.changes for entry in decisions(lit)} == {decisions(lit)[-1].changes}


def test_individuals_of_one_confirmed_face_do_not_count(lit: Store):
    for individual in range(8):
        corrections.split(lit, faces_of(individual)[:1])
    assert learned_faces(lit) == []


def test_nothing_learned_is_used_without_a_gain(gallery: Store):
    centers = normalize(np.random.default_rng(1).normal(size=(INDIVIDUALS, DIM)).astype(np.float32))
    noise = 0.1 * np.random.default_rng(2).normal(size=(INDIVIDUALS * EACH, DIM))
    enroll_vectors(gallery, normalize((np.repeat(centers, EACH, axis=0) + noise).astype(np.float32)))
    before = load_album(gallery).rows.copy()
    confirm(gallery, range(8))
    assert len(learned_faces(gallery)) == 5 * EACH
    assert species_clusterings(gallery)[0].learned_individuals == 0
    np.testing.assert_array_equal(load_album(gallery).rows, before)


def test_repaired_gallery_has_learned_what_it_had(lit: Store):
    confirm(lit, range(5))
    lit.close()
    repair(lit.folder)
    with Store.open(lit.folder) as repaired:
        assert len(learned_faces(repaired)) == 5 * EACH
        confirm(repaired, range(5, 10))
        assert len(learned_faces(repaired)) == 10 * EACH


def test_learns_with_matrix_products_in_one_thread(lit: Store, monkeypatch: pytest.MonkeyPatch):
    threads: list[int] = []

    def count(*arguments: Any) -> Gain:
        threads.extend(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")
        return cross_validate(*arguments)

    monkeypatch.setattr(learning, "cross_validate", count)
    confirm(lit, range(12))
    with threadpool_limits(2, "blas"):
        load_album(lit)
    assert set(threads) == {1}


def test_answers_do_not_measure_the_whole_album_again(lit: Store, monkeypatch: pytest.MonkeyPatch):
    calls: list[int] = []

    measure = Comparison.measure

    def count(embeddings: np.ndarray, calibration: Calibration) -> Comparison:
        calls.append(len(embeddings))
        return measure(embeddings, calibration)

    monkeypatch.setattr(Comparison, "measure", count)
    confirm(lit, range(12))
    assert species_clusterings(lit)[0].learned_individuals >= 5
    assert calls == [len(load_assignments(lit).identity)], "once, though it has learned twice"
