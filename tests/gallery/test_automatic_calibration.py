"""Galleries of an uncalibrated model calibrate themselves on confirmed faces, and undo takes that back."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from familiar.core.errors import Contradiction, CorruptGallery, NothingToMeasure
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits import corrections
from familiar.gallery.review.questions import answer_question, propose_questions
from familiar.gallery.same import automatic_calibration, decisions
from familiar.gallery.same.calibration import (
    GalleryFit,
    calibrate,
    calibration,
    clustering_calibration,
    own_calibration,
    reset_calibration,
)
from familiar.gallery.same.decisions import undo
from familiar.gallery.search.search import search_faces, search_identities, verify
from familiar.gallery.search.statistics import gallery_statistics
from familiar.gallery.store.store import Store
from familiar.gallery.transfer import migrate
from familiar.gallery.transfer.repair import repair
from support.property_tests import expensive
from support.small_gallery import (
    SPACE,
    UNCALIBRATED_SPACE,
    close_together,
    draw_individuals,
    enroll_vectors,
    groups,
    identity_of,
)

GUESS = 0.65
EACH = 8  # faces of each individual


@pytest.fixture
def uncalibrated(folder: Path) -> Iterator[Store]:
    """Three individuals of eight faces each, which the guessed threshold joins; none is confirmed."""
    with Store.create(folder, UNCALIBRATED_SPACE, embedding_dtype="float32") as gallery:
        gallery._connection.execute("PRAGMA synchronous = OFF")
        enroll_vectors(gallery, close_together([EACH] * 3))
        yield gallery


@pytest.fixture
def calibrated(uncalibrated: Store) -> Store:
    """The same gallery, which has calibrated itself on four confirmed faces of each of two individuals."""
    confirm_individual(uncalibrated, 0, 4)
    confirm_individual(uncalibrated, 1, 4)
    return uncalibrated


def faces_of(individual: int, count: int) -> list[int]:
    """Return the first faces of an individual, counted from 0."""
    return [individual * EACH + 1 + index for index in range(count)]


def confirm_individual(gallery: Store, individual: int, count: int) -> None:
    corrections.split(gallery, faces_of(individual, count), f"name {individual}")


def fitted_faces(gallery: Store) -> int | None:
    fitted = own_calibration(gallery)
    return None if fitted is None else fitted.clustering.faces


# --- calibrating --------------------------------------------------------------------------------------------------


def test_calibrates_itself_and_then_separates_individuals(uncalibrated: Store):
    assert cluster(uncalibrated).threshold == GUESS
    assert len(groups(uncalibrated)) == 1, "the guess joins three individuals"
    assert clustering_calibration(uncalibrated).is_guess
    undo(uncalibrated)
    labels = [corrections.Individual(f"name {each}", tuple(faces_of(each, 4))) for each in range(2)]
    corrections.assign(uncalibrated, labels[:1])
    assert clustering_calibration(uncalibrated).is_guess, "six pairs of one individual are too few"
    corrections.assign(uncalibrated, labels[1:])
    clustering = clustering_calibration(uncalibrated)
    assert (clustering.from_gallery, clustering.is_automatic, clustering.is_guess) == (True, True, False)
    assert (clustering.faces, clustering.f) == (8, pytest.approx(1.0))
    assert 0.85 < clustering.threshold < 1.0
    cluster(uncalibrated)
    assert groups(uncalibrated) == {frozenset(faces_of(individual, EACH)) for individual in range(3)}
    queries = close_together([1, 1], seed=5)
    same, different = (verify(uncalibrated, vector, identity_of(uncalibrated, 1)) for vector in queries)
    assert (same.same, different.same) == (True, False)
    assert same.threshold == different.threshold == calibration(uncalibrated).balanced.similarity
    assert (different.probability or 0) < 0.5 < (same.probability or 0)


def test_calibrates_itself_and_then_joins_faces_of_one_individual(folder: Path):
    """The individuals' own faces are less similar than the guess, as with many networks for people."""
    with Store.create(folder, UNCALIBRATED_SPACE) as gallery:
        enroll_vectors(gallery, draw_individuals([EACH] * 6, noise=0.26))
        before = cluster(gallery).identities
        undo(gallery)
        for individual in range(3):
            confirm_individual(gallery, individual, 5)
        assert clustering_calibration(gallery).threshold < 0.3
        cluster(gallery)
        assert len(groups(gallery)) <= 7 < before
        assert all(len({(face - 1) // EACH for face in members}) == 1 for members in groups(gallery))


@given(st.lists(st.integers(0, 5), min_size=3, max_size=3))
@settings(expensive())
def test_calibrates_itself_exactly_when_the_command_could(
    tmp_path_factory: pytest.TempPathFactory, confirmed: list[int]
):
    folder = tmp_path_factory.mktemp("album")
    with Store.create(folder, UNCALIBRATED_SPACE) as gallery:
        enroll_vectors(gallery, close_together([EACH] * 3))
        for individual, count in enumerate(confirmed):
            if count:
                confirm_individual(gallery, individual, count)
        automatic = own_calibration(gallery)
        try:
            by_user = calibrate(gallery)[0]
        except NothingToMeasure:
            assert automatic is None
        else:
            assert automatic is not None
            assert automatic.clustering.faces != sum(confirmed) or automatic.calibration == by_user.calibration


def test_answers_and_names_count(uncalibrated: Store):
    cluster(uncalibrated, threshold=0.95)
    corrections.name_identity(uncalibrated, identity_of(uncalibrated, 1), "Mia", confirm=True)
    assert fitted_faces(uncalibrated) is None
    while fitted_faces(uncalibrated) is None:
        question = next(each for each in propose_questions(uncalibrated) if each.kind == "outlier")
        answer_question(uncalibrated, question, same=True)
    assert calibration(uncalibrated).pairs_different >= 10


def test_fits_again_when_confirmed_faces_have_doubled(calibrated: Store):
    first = own_calibration(calibrated)
    confirm_individual(calibrated, 2, 7)
    assert own_calibration(calibrated) == first, "15 are not twice 8"
    corrections.move(calibrated, [faces_of(0, 5)[-1]], 1)
    assert fitted_faces(calibrated) == 16
    assert calibration(calibrated).pairs_same == 10 + 6 + 21


def test_gallery_of_a_calibrated_model_keeps_the_model_calibration(gallery: Store):
    enroll_vectors(gallery, close_together([EACH] * 3))
    for individual in range(3):
        confirm_individual(gallery, individual, EACH)
    assert own_calibration(gallery) is None
    assert calibration(gallery) == SPACE.calibration
    assert not clustering_calibration(gallery).is_guess


def test_out_of_domain_faces_do_not_count(uncalibrated: Store):
    with uncalibrated.write() as repository:
        repository.domains.set((face, 1) for face in faces_of(0, EACH))
    confirm_individual(uncalibrated, 0, EACH)
    confirm_individual(uncalibrated, 1, 5)
    assert own_calibration(uncalibrated) is None
    confirm_individual(uncalibrated, 2, 2)
    first = own_calibration(uncalibrated)
    assert fitted_faces(uncalibrated) == 7
    corrections.confirm(uncalibrated, faces_of(0, 1))
    assert own_calibration(uncalibrated) == first, "all 15 confirmed faces are more than twice 7"


def test_reading_writes_nothing(uncalibrated: Store):
    confirm_individual(uncalibrated, 0, 5)
    confirm_individual(uncalibrated, 1, 5)
    reset_calibration(uncalibrated)
    revision, query = uncalibrated.revision, close_together([1])[0]
    search_faces(uncalibrated, query)
    search_identities(uncalibrated, query)
    assert verify(uncalibrated, query, 1).same is None
    propose_questions(uncalibrated)
    assert gallery_statistics(uncalibrated).clustering.is_guess
    assert uncalibrated.revision == revision
    assert own_calibration(uncalibrated) is None


# --- the user's own calibration -----------------------------------------------------------------------------------


def test_calibration_by_the_user_is_never_replaced(calibrated: Store):
    assert calibrate(calibrated)[0].clustering.is_automatic is False
    by_user = own_calibration(calibrated)
    confirm_individual(calibrated, 2, EACH)
    corrections.move(calibrated, faces_of(0, EACH)[4:], 1)
    assert own_calibration(calibrated) == by_user
    for _ in range(4):
        undo(calibrated)
    assert own_calibration(calibrated) == by_user


def test_reset_deletes_it_until_the_next_decision(calibrated: Store):
    reset_calibration(calibrated)
    assert calibration(calibrated) == UNCALIBRATED_SPACE.calibration
    assert clustering_calibration(calibrated).threshold == GUESS
    corrections.confirm(calibrated, faces_of(0, 1))
    assert fitted_faces(calibrated) == 8


# --- undo ---------------------------------------------------------------------------------------------------------

DECISIONS = {
    "split": lambda gallery, individual, count: corrections.split(gallery, faces_of(individual, count)),
    "confirm": lambda gallery, individual, count: corrections.confirm(gallery, faces_of(individual, count)),
    "mark different": lambda gallery, individual, count: corrections.mark_different(gallery, count, 20 + individual),
    "cluster": lambda gallery, _, __: cluster(gallery),
}
DECISION = st.tuples(st.sampled_from(list(DECISIONS)), st.integers(0, 2), st.integers(1, EACH))


@given(st.lists(DECISION, min_size=2, max_size=10))
@example([("split", 0, 4), ("split", 1, 4), ("split", 2, EACH)])  # which fits again, on twice as many faces
@settings(expensive())
def test_undo_restores_the_previous_calibration(
    tmp_path_factory: pytest.TempPathFactory, decisions: list[tuple[str, int, int]]
):
    with Store.create(tmp_path_factory.mktemp("album"), UNCALIBRATED_SPACE) as gallery:
        gallery._connection.execute("PRAGMA synchronous = OFF")
        enroll_vectors(gallery, close_together([EACH] * 3))
        corrections.split(gallery, faces_of(0, 1))  # so that each of the following changes at least one row
        before: list[GalleryFit | None] = []
        for kind, individual, count in decisions:
            last, stored = last_decision(gallery), own_calibration(gallery)
            with contextlib.suppress(Contradiction):
                DECISIONS[kind](gallery, individual, count)
            if last_decision(gallery) != last:
                before.append(stored)
            else:
                assert own_calibration(gallery) == stored
        for stored in reversed(before):
            undo(gallery)
            assert own_calibration(gallery) == stored


def last_decision(gallery: Store) -> int:
    return decisions.decisions(gallery, 1)[0].number


def test_undo_after_a_repair_keeps_the_calibration(calibrated: Store, folder: Path):
    calibrated.close()
    repair(folder)
    with Store.open(folder) as repaired:
        for _ in range(2):
            corrections.split(repaired, faces_of(2, 1))
        assert last_decision(repaired) == 4
        undo(repaired)
        assert fitted_faces(repaired) == 8


# --- damaged calibrations, other models, and large galleries ---------------------------------------------------------


def test_confirmed_faces_without_calibration_are_calibrated_by_the_next_decision(calibrated: Store):
    store(calibrated, None)
    cluster(calibrated)
    assert fitted_faces(calibrated) == 8


@pytest.mark.parametrize("stored", ["{", "[]", '{"0": {}}', '{"0": {"calibration": 3}}', "7"])
def test_damaged_calibration_is_reported(uncalibrated: Store, stored: str):
    store(uncalibrated, stored)
    with pytest.raises(CorruptGallery, match="familiar gallery repair"):
        clustering_calibration(uncalibrated)


def test_migration_to_a_calibrated_model_uses_the_models_unless_the_user_calibrated(calibrated: Store):
    migrate._truncate(calibrated, UNCALIBRATED_SPACE, SPACE, ())
    assert own_calibration(calibrated) is None
    assert calibration(calibrated) == SPACE.calibration
    migrate._truncate(calibrated, SPACE, UNCALIBRATED_SPACE, ())
    fitted = own_calibration(calibrated)
    assert fitted is not None
    assert (fitted.clustering.faces, fitted.clustering.is_automatic, fitted.decision) == (8, True, None)
    calibrate(calibrated)
    migrate._truncate(calibrated, UNCALIBRATED_SPACE, SPACE, ())
    clustering = clustering_calibration(calibrated)
    assert (clustering.from_gallery, clustering.is_automatic) == (True, False), "that of the user is kept"


def test_fits_on_a_limited_number_of_faces(uncalibrated: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(automatic_calibration, "MAX_FACES", 11)
    confirm_individual(uncalibrated, 0, EACH)
    confirm_individual(uncalibrated, 1, EACH)
    assert fitted_faces(uncalibrated) == 11
    assert calibration(uncalibrated).pairs_same == 15 + 10, "5 + 1 of one, and 5 of the other"
    first = own_calibration(uncalibrated)
    confirm_individual(uncalibrated, 2, EACH)
    assert own_calibration(uncalibrated) == first, "never again on twice as many"


def store(gallery: Store, content: str | None) -> None:
    with gallery.write() as repository:
        repository.settings.set_own_calibration(content)
