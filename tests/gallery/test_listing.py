"""Lists of photos, faces and identities by page, against slow reference loops."""

import numpy as np
import pytest

from familiar.core.errors import NotInGallery
from familiar.core.gallery_types import GalleryFace
from familiar.core.types import Box
from familiar.core.vectors import normalize
from familiar.gallery.edits import corrections
from familiar.gallery.same.assignments import load_assignments
from familiar.gallery.search import listing
from familiar.gallery.search.statistics import gallery_statistics
from familiar.gallery.store.store import Store
from support.small_gallery import DIM, draw_individuals, enroll_in_one_photo, enroll_vectors


@pytest.fixture
def populated(gallery: Store) -> Store:
    """Sixty faces of ten photos in random identities; some are confirmed, some named, and one name has no face."""
    rng = np.random.default_rng(3)
    rows = normalize(rng.normal(size=(60, DIM)).astype(np.float32))
    for photo in range(10):
        enroll_in_one_photo(gallery, rows[6 * photo : 6 * photo + 6], f"{photo}.jpg")
    with gallery.write() as repository:
        repository.connection.executemany(
            "INSERT INTO identities (id, name) VALUES (?, ?)",
            [(1, None), (2, "Mizzi"), (3, "Émile"), (4, None), (5, "mikesch"), (6, None)],
        )
        for face in range(1, 61):
            if identity := int(rng.choice([0, 1, 1, 2, 2, 3, 4])):
                by_user = int(rng.random() < (0.3 if identity != 4 else 0))
                repository.connection.execute("INSERT INTO assignments VALUES (?, ?, ?)", (face, identity, by_user))
    return gallery


def slow_best_faces(gallery: Store, identity: int) -> tuple[int, ...]:
    assignments = load_assignments(gallery)
    members = assignments.rows_of_identity(identity).tolist()
    mean = assignments.faces.unit_rows()[members].sum(axis=0) if members else np.zeros(DIM)
    best: list[int] = []
    for row in sorted(
        members, key=lambda row: (not assignments.by_user[row], -float(assignments.faces.unit_rows()[row] @ mean))
    ):
        photos = [assignments.faces.photo_ids[chosen] for chosen in best]
        if assignments.faces.photo_ids[row] not in photos and len(best) < 4:
            best.append(row)
    return tuple(assignments.faces.ids[best].tolist())


@pytest.mark.parametrize("gallery", ["float32", "float16", "int8"], indirect=True)
def test_identity_summaries_show_central_faces_of_different_photos(populated: Store):
    assignments, summaries = load_assignments(populated), listing.identity_summaries(populated)
    assert {summary.identity for summary in summaries} == {1, 2, 3, 4, 5}, (
        "an identity without a name and a face is not listed"
    )
    assert summaries == sorted(summaries, key=lambda summary: (-summary.faces, summary.identity))
    for summary in summaries:
        members = assignments.rows_of_identity(summary.identity)
        assert (summary.faces, summary.confirmed) == (len(members), assignments.by_user[members].sum())
        assert summary.name == assignments.names.get(summary.identity)
        assert summary.best == slow_best_faces(populated, summary.identity)
        if summary.best:
            assert summary.best[0] == assignments.central_face(members)
    assert summaries[-1] == listing.IdentitySummary(5, "mikesch", 0, 0, ())
    assert max(len(summary.best) for summary in summaries) == 4
    statistics = {identity.number: identity for identity in gallery_statistics(populated).identities}
    assert [statistics[summary.identity].face for summary in summaries] == [
        next(iter(summary.best), None) for summary in summaries
    ]


def test_face_and_photo_report_stored_fields(populated: Store):
    with populated.write() as repository:
        repository.connection.execute("UPDATE photos SET taken_at = '2024-06-01T12:00:00' WHERE id = 1")
        repository.connection.execute(
            "UPDATE faces SET left_px = 1, top_px = 2, right_px = 3, bottom_px = 4.5, score = .75, quality = .5, "
            "species = 'cats' WHERE id = 5"
        )
        repository.connection.execute("INSERT OR REPLACE INTO assignments VALUES (5, 2, 1)")
        repository.connection.execute("DELETE FROM assignments WHERE face_id = 6")
    assigned = listing.face(populated, 5)
    assert assigned == GalleryFace(
        box_xyxy_px=Box(1.0, 2.0, 3.0, 4.5),
        score=0.75,
        quality=0.5,
        species="cats",
        face=5,
        photo=1,
        identity=2,
        name="Mizzi",
        by_user=True,
        path="0.jpg",
        sha256=b"0.jpg",
        size_bytes=assigned.size_bytes,
        taken_at="2024-06-01T12:00:00",
    )
    unassigned = listing.face(populated, 6)
    assert (unassigned.identity, unassigned.name, unassigned.by_user) == (None, None, False)
    photo = listing.photo(populated, 1)
    assert (photo.photo, photo.path, photo.sha256) == (1, "0.jpg", b"0.jpg".hex())
    assert photo.taken_at == "2024-06-01T12:00:00"
    assert photo.faces == (*(listing.face(populated, face) for face in range(1, 5)), assigned, unassigned)


@pytest.mark.parametrize("number", [-1, 0, 61, 2**63, 2**70])
def test_rejects_unknown_face_photo_and_identity_numbers(populated: Store, number: int):
    for query in (listing.face, listing.photo, listing.face_confidences):
        with pytest.raises(NotInGallery, match=str(number)):
            query(populated, number)
    assert (
        listing.photos(populated, after=max(number, 60))
        == listing.unassigned_faces(populated, after=max(number, 60))
        == []
    )


def test_photo_pages_cover_all_photos_in_both_orders(populated: Store):
    with populated.write(faces_change=True) as repository:
        repository.connection.execute("DELETE FROM faces WHERE photo_id = 4")
        repository.connection.execute("DELETE FROM photos WHERE id = 7")
    listed: list[listing.GalleryPhoto] = []
    while page := listing.photos(populated, after=listed[-1].photo if listed else 0, limit=4):
        listed += page
    assert [photo.photo for photo in listed] == [*range(1, 7), *range(8, 11)]
    assert [len(photo.faces) for photo in listed] == [0 if photo.photo == 4 else 6 for photo in listed]
    assert all(photo == listing.photo(populated, photo.photo) for photo in listed)
    assert listing.photos(populated, before=10**30) == listed[::-1]
    assert listing.photos(populated, before=8, limit=3) == listed[5:2:-1]
    assert listing.photos(populated, before=-(2**70)) == []


def test_face_confidences_are_sorted_by_similarity_to_the_other_faces(gallery: Store):
    rows = draw_individuals([5], noise=0.2)
    enroll_vectors(gallery, rows)
    corrections.split(gallery, [1, 2, 3, 4, 5], "Mia")
    confidences = listing.face_confidences(gallery, 1)
    expected = {}
    for face in range(5):
        others = np.delete(rows, face, axis=0).mean(axis=0)
        expected[face + 1] = float(rows[face] @ others / np.linalg.norm(others))
    assert [confidence.face.face for confidence in confidences] == sorted(expected, key=lambda face: -expected[face])
    for confidence in confidences:
        assert confidence.face == listing.face(gallery, confidence.face.face)
        assert confidence.similarity == pytest.approx(expected[confidence.face.face], abs=1e-6)
        probability = 1 / (1 + np.exp(12 - 20 * confidence.similarity))
        assert confidence.probability == pytest.approx(probability, rel=1e-4)


def test_face_confidences_have_no_probability_for_a_single_face(gallery: Store):
    enroll_vectors(gallery, draw_individuals([1]))
    number = corrections.split(gallery, [1]).identity
    (confidence,) = listing.face_confidences(gallery, number)
    assert (confidence.similarity, confidence.probability) == (1.0, None)
    corrections.name_identity(gallery, number, "Mia")
    corrections.reject(gallery, [1])
    assert listing.face_confidences(gallery, number) == []


def test_names_match_prefix_ignoring_case(populated: Store):
    assert listing.names(populated, "mi") == listing.names(populated, " MI") == ["mikesch", "Mizzi"]
    assert listing.names(populated, "mik") == ["mikesch"]
    assert listing.names(populated, "é") == ["Émile"]
    assert listing.names(populated, "ia") == []
    assert listing.names(populated, "", limit=2) == ["mikesch", "Mizzi"]
