"""From which similarity on the faces of a gallery are clustered, by species."""

import numpy as np

from familiar.core.vectors import normalize
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits import corrections
from familiar.gallery.same.album import load_album, species_clusterings
from familiar.gallery.same.decisions import undo
from familiar.gallery.search.listing import face_confidences
from familiar.gallery.search.statistics import gallery_statistics
from familiar.gallery.store.store import Store
from support.small_gallery import DIM, draw_individuals, enroll_in_one_photo, enroll_vectors, groups

EACH = 6


def set_species(gallery: Store, faces: list[int], species: str) -> None:
    with gallery.write(faces_change=True) as repository:
        repository.connection.executemany(
            "UPDATE faces SET species = ? WHERE id = ?", [(species, face) for face in faces]
        )


def sharing_much(sizes: list[int], seed: int = 0) -> np.ndarray:
    """Individuals that share two thirds of their embeddings, so that any two are similar by .5 or more."""
    rows = draw_individuals(sizes, seed)
    rows[:, DIM - 1] += 1.3
    return normalize(rows)


def test_threshold_is_estimated_once_there_are_enough_individuals(gallery: Store):
    rows = sharing_much([EACH] * 8)
    enroll_vectors(gallery, rows[: 3 * EACH])
    assert [each.uncertainty for each in species_clusterings(gallery)] == [None]
    assert load_album(gallery).comparisons[0].estimate is None
    np.testing.assert_array_equal(load_album(gallery).rows, gallery.faces().unit_rows())
    enroll_vectors(gallery, rows[3 * EACH :], "more")
    (estimated,) = species_clusterings(gallery)
    assert estimated.uncertainty is not None
    assert estimated.faces == len(rows)
    assert gallery_statistics(gallery).thresholds == (estimated,)
    assert cluster(gallery).threshold == estimated.threshold
    assert groups(gallery) == {frozenset(range(1 + EACH * each, 1 + EACH * (each + 1))) for each in range(8)}


def test_species_are_never_compared(gallery: Store):
    """Each cat is as similar to a dog as to itself."""
    rows = draw_individuals([EACH] * 8)
    cats, dogs = enroll_vectors(gallery, rows), enroll_vectors(gallery, rows, "dog")
    set_species(gallery, cats, "cat")
    set_species(gallery, dogs, "dog")
    cat, dog = species_clusterings(gallery)
    assert (cat.species, cat.faces, dog.species, dog.faces) == ("cat", len(cats), "dog", len(dogs))
    assert cat.uncertainty == dog.uncertainty is not None
    cluster(gallery)
    assert len(groups(gallery)) == 16
    assert not any(set(cats) & members and set(dogs) & members for members in groups(gallery))


def test_face_without_species_is_compared_with_those_that_it_is_similar_to(gallery: Store):
    """So that albums that are older than species keep growing."""
    rows = draw_individuals([EACH] * 10)
    faces = enroll_vectors(gallery, rows)
    set_species(gallery, faces[1 : 5 * EACH], "cat")
    set_species(gallery, faces[5 * EACH :], "dog")
    assert load_album(gallery).species[0] == load_album(gallery).species[1]
    cluster(gallery)
    assert any({faces[0], faces[1]} <= members for members in groups(gallery))


def test_faces_of_one_photo_that_the_user_called_the_same_are_no_strangers(gallery: Store):
    rows = draw_individuals([EACH] * 8)
    enroll_vectors(gallery, rows)
    twins = enroll_in_one_photo(gallery, np.stack([rows[0], rows[1], rows[EACH]]), "three.jpg")
    load_album(gallery)
    corrections.split(gallery, twins[:2], same_photo=True)
    (threshold,) = species_clusterings(gallery)
    assert (threshold.same_photo_pairs, threshold.same_photo_matches) == (2, 0)
    undo(gallery)
    (threshold,) = species_clusterings(gallery)
    assert (threshold.same_photo_pairs, threshold.same_photo_matches) == (3, 1)


def test_photos_taken_within_seconds_tell_how_many_pairs_of_one_individual_reach_the_threshold(gallery: Store):
    enroll_vectors(gallery, draw_individuals([6, 6, 6, 6]))
    enroll_in_one_photo(gallery, draw_individuals([1, 1], seed=5), "both")
    seconds_of_photo = {1: 0, 2: 9, 3: 20, 7: 25, 25: 27}  # photo 7 shows the second individual, photo 25 two
    with gallery.write(faces_change=True) as repository:
        for photo, seconds in seconds_of_photo.items():
            taken_at = f"2024-05-01T10:00:{seconds:02}"
            repository.connection.execute("UPDATE photos SET taken_at = ? WHERE id = ?", (taken_at, photo))
    (threshold,) = species_clusterings(gallery)
    assert (threshold.burst_pairs, threshold.burst_matches) == (2, 1)


def test_faces_of_an_identity_are_ordered_as_they_are_clustered(gallery: Store):
    """What all faces share makes an intruder as similar as the others; less that, it fits least."""
    faces = enroll_vectors(gallery, sharing_much([EACH] * 8))
    corrections.split(gallery, faces[: EACH + 1], "Mia")
    assert face_confidences(gallery, 1)[-1].face.face == faces[EACH]


def take_at(gallery: Store, seconds_of_photo: dict[int, int]) -> None:
    with gallery.write(faces_change=True) as repository:
        for photo, seconds in seconds_of_photo.items():
            taken_at = f"2024-05-01T10:{seconds // 60:02}:{seconds % 60:02}"
            repository.connection.execute("UPDATE photos SET taken_at = ? WHERE id = ?", (taken_at, photo))


def profiles(axis: int, faces: int) -> np.ndarray:
    """An individual from the side: a little below the threshold of .6 to itself from the front."""
    rows = np.zeros((faces, DIM))
    rows[:, axis], rows[:, DIM - 1] = 0.58, 0.81
    return normalize(rows.astype(np.float32))


def test_photos_of_a_burst_are_of_one_individual(gallery: Store):
    enroll_vectors(gallery, np.concatenate([draw_individuals([3], noise=0.01), profiles(0, 1)]))
    take_at(gallery, {1: 0, 2: 100, 3: 200, 4: 209})
    cluster(gallery)
    assert groups(gallery) == {frozenset({1, 2, 3, 4})}


def test_a_burst_of_two_individuals_or_with_a_longer_break_links_nothing(gallery: Store):
    enroll_vectors(gallery, np.concatenate([draw_individuals([3, 3], noise=0.01), profiles(0, 1)]))
    take_at(gallery, {1: 0, 2: 100, 3: 200, 4: 205, 5: 300, 6: 400, 7: 211 + 60})
    cluster(gallery)
    assert groups(gallery) == {frozenset({1, 2, 3}), frozenset({4, 5, 6})}


def test_what_the_user_said_is_stronger_than_a_burst(gallery: Store):
    enroll_vectors(gallery, np.concatenate([draw_individuals([3], noise=0.01), profiles(0, 2)]))
    take_at(gallery, {1: 0, 2: 100, 3: 200, 4: 209, 5: 215})
    corrections.mark_different(gallery, 3, 5)
    cluster(gallery)
    assert not any({3, 5} <= members for members in groups(gallery))
    assert frozenset({1, 2, 3}) in groups(gallery), "a face that must not be with another is linked by no burst"
