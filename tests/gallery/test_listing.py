"""Page by page through a gallery, against loops that cannot be wrong."""

import numpy as np
import pytest

from familiar.core.errors import NotInGallery
from familiar.core.vectors import normalize
from familiar.gallery.clustering.assignments import UNASSIGNED, load_assignments
from familiar.gallery.clustering.cluster import cluster
from familiar.gallery.database.connection import Gallery
from familiar.gallery.editing import corrections
from familiar.gallery.search import listing
from familiar.gallery.search.statistics import gallery_statistics
from support.small_gallery import DIM, enrolled, in_one_photo, individuals


@pytest.fixture
def crowd(gallery: Gallery) -> Gallery:
    """Sixty faces of ten photos in random identities; some are confirmed, some named, and one name has no face."""
    rng = np.random.default_rng(3)
    rows = normalize(rng.normal(size=(60, DIM)).astype(np.float32))
    for photo in range(10):
        in_one_photo(gallery, rows[6 * photo : 6 * photo + 6], f"{photo}.jpg")
    with gallery.writing() as connection:
        connection.executemany(
            "INSERT INTO identities (id, name) VALUES (?, ?)",
            [(1, None), (2, "Mizzi"), (3, "Émile"), (4, None), (5, "mikesch"), (6, None)],
        )
        for face in range(1, 61):
            if identity := int(rng.choice([0, 1, 1, 2, 2, 3, 4])):
                by_user = int(rng.random() < (0.3 if identity != 4 else 0))
                connection.execute("INSERT INTO assignments VALUES (?, ?, ?)", (face, identity, by_user))
    return gallery


def slowly_best(gallery: Gallery, identity: int) -> tuple[int, ...]:
    who = load_assignments(gallery)
    own = who.rows_of_identity(identity).tolist()
    mean = who.faces.unit_rows()[own].sum(axis=0) if own else np.zeros(DIM)
    best: list[int] = []
    for row in sorted(own, key=lambda row: (not who.by_user[row], -float(who.faces.unit_rows()[row] @ mean))):
        photos = [who.faces.photo_ids[taken] for taken in best]
        if who.faces.photo_ids[row] not in photos and len(best) < 4:
            best.append(row)
    return tuple(who.faces.ids[best].tolist())


@pytest.mark.parametrize("gallery", ["float32", "float16"], indirect=True)
def test_tiles_show_central_faces_of_different_photos(crowd: Gallery):
    who, tiles = load_assignments(crowd), listing.identity_summaries(crowd)
    assert {tile.identity for tile in tiles} == {1, 2, 3, 4, 5}, "without a name and a face nobody is shown"
    assert tiles == sorted(tiles, key=lambda tile: (-tile.faces, tile.identity))
    for tile in tiles:
        own = who.rows_of_identity(tile.identity)
        assert (tile.faces, tile.confirmed) == (len(own), who.by_user[own].sum())
        assert tile.name == who.names.get(tile.identity)
        assert tile.best == slowly_best(crowd, tile.identity)
        if tile.best:
            assert tile.best[0] == who.central_face(own)
    assert tiles[-1] == listing.IdentitySummary(5, "mikesch", 0, 0, ())
    assert max(len(tile.best) for tile in tiles) == 4
    seen = {identity.number: identity for identity in gallery_statistics(crowd).identities}
    assert [seen[tile.identity].face for tile in tiles] == [next(iter(tile.best), None) for tile in tiles]


def test_tiles_are_independent_of_block_size(crowd: Gallery, monkeypatch: pytest.MonkeyPatch):
    expected = listing.identity_summaries(crowd)
    monkeypatch.setattr("familiar.gallery.search.templates._BLOCK_ROWS", 7)
    crowd._kept.clear()
    assert listing.identity_summaries(crowd) == expected


@pytest.mark.slow
@pytest.mark.parametrize("named", [None, True, False])
@pytest.mark.parametrize("limit", [1, 2, 100])
def test_tile_pages_concatenate_to_the_full_list(crowd: Gallery, named: bool | None, limit: int):
    expected = [tile for tile in listing.identity_summaries(crowd) if named is None or (tile.name is not None) == named]
    found: list[listing.IdentitySummary] = []
    while page := listing.identity_summaries(
        crowd, named=named, after=(found[-1].faces, found[-1].identity) if found else None, limit=limit
    ):
        assert len(page) <= limit
        found += page
    assert found == expected
    assert len(found) == {None: 5, True: 3, False: 2}[named]


def test_tiles_with_equal_face_counts_sort_by_identity_number(gallery: Gallery):
    enrolled(gallery, individuals([2, 2, 2]))
    cluster(gallery)
    assert [tile.identity for tile in listing.identity_summaries(gallery)] == [1, 2, 3]
    assert [tile.identity for tile in listing.identity_summaries(gallery, after=(2, 1))] == [2, 3]


def test_tiles_and_counts_update_after_naming(crowd: Gallery):
    assert listing.identity_summaries(crowd) == listing.identity_summaries(crowd)
    before = listing.counts(crowd)
    corrections.name_identity(crowd, 1, "Tom")
    assert {tile.name for tile in listing.identity_summaries(crowd, named=True)} == {"Tom", "Mizzi", "Émile", "mikesch"}
    after = listing.counts(crowd)
    assert (after.named, after.unnamed) == (before.named + 1, before.unnamed - 1)


def test_counts_photos_faces_and_identities(crowd: Gallery):
    nobodys = int((load_assignments(crowd).identity == UNASSIGNED).sum())
    assert listing.counts(crowd) == listing.Counts(photos=10, faces=60, named=3, unnamed=2, unassigned=nobodys)


def test_empty_gallery_returns_empty_lists_and_zero_counts(gallery: Gallery):
    assert listing.identity_summaries(gallery) == listing.photos(gallery) == listing.unassigned_faces(gallery) == []
    assert listing.counts(gallery) == listing.Counts(0, 0, 0, 0, 0)
    assert listing.names(gallery, "") == []


def test_face_and_photo_report_stored_fields(crowd: Gallery):
    with crowd.writing() as connection:
        connection.execute("UPDATE photos SET taken_at = '2024-06-01T12:00:00' WHERE id = 1")
        connection.execute(
            "UPDATE faces SET left_px = 1, top_px = 2, right_px = 3, bottom_px = 4.5, score = .75, quality = .5, "
            "species = 'cats' WHERE id = 5"
        )
        connection.execute("INSERT OR REPLACE INTO assignments VALUES (5, 2, 1)")
        connection.execute("DELETE FROM assignments WHERE face_id = 6")
    known = listing.face(crowd, 5)
    assert known == listing.KnownFace(5, 1, (1.0, 2.0, 3.0, 4.5), 0.75, 0.5, "cats", 2, "Mizzi", True)
    nobodys = listing.face(crowd, 6)
    assert (nobodys.identity, nobodys.name, nobodys.by_user) == (None, None, False)
    photo = listing.photo(crowd, 1)
    assert (photo.photo, photo.path, photo.sha256) == (1, "0.jpg", b"0.jpg".hex())
    assert photo.taken_at == "2024-06-01T12:00:00"
    assert photo.faces == (*(listing.face(crowd, face) for face in range(1, 5)), known, nobodys)


@pytest.mark.parametrize("number", [-1, 0, 61, 2**63, 2**70])
def test_rejects_unknown_face_photo_and_identity_numbers(crowd: Gallery, number: int):
    for ask in (listing.face, listing.photo, listing.face_confidences):
        with pytest.raises(NotInGallery, match=str(number)):
            ask(crowd, number)
    assert listing.photos(crowd, after=max(number, 60)) == listing.unassigned_faces(crowd, after=max(number, 60)) == []


def test_photo_pages_cover_all_photos_in_both_orders(crowd: Gallery):
    with crowd.writing(faces_change=True) as connection:
        connection.execute("DELETE FROM faces WHERE photo_id = 4")
        connection.execute("DELETE FROM photos WHERE id = 7")
    found: list[listing.KnownPhoto] = []
    while page := listing.photos(crowd, after=found[-1].photo if found else 0, limit=4):
        found += page
    assert [photo.photo for photo in found] == [*range(1, 7), *range(8, 11)]
    assert [len(photo.faces) for photo in found] == [0 if photo.photo == 4 else 6 for photo in found]
    assert all(photo == listing.photo(crowd, photo.photo) for photo in found)
    back: list[listing.KnownPhoto] = []
    while page := listing.photos(crowd, before=back[-1].photo if back else 10**30, limit=4):
        back += page
    assert back == found[::-1], "newest first"
    assert listing.photos(crowd, before=-(2**70)) == []


def test_unknown_face_pages_cover_all_unknown_faces(crowd: Gallery):
    who = load_assignments(crowd)
    found: list[listing.KnownFace] = []
    while page := listing.unassigned_faces(crowd, after=found[-1].face if found else 0, limit=3):
        found += page
    assert [face.face for face in found] == who.faces.ids[who.identity == UNASSIGNED].tolist()
    assert len(found) > 3
    assert all(face == listing.face(crowd, face.face) for face in found)


def test_likely_sorts_faces_by_similarity_to_the_other_faces(gallery: Gallery):
    rows = individuals([5], noise=0.2)
    enrolled(gallery, rows)
    corrections.split(gallery, [1, 2, 3, 4, 5], "Mia")
    found = listing.face_confidences(gallery, 1)
    expected = {}
    for face in range(5):
        others = np.delete(rows, face, axis=0).mean(axis=0)
        expected[face + 1] = float(rows[face] @ others / np.linalg.norm(others))
    assert [one.face.face for one in found] == sorted(expected, key=lambda face: -expected[face])
    for one in found:
        assert one.face == listing.face(gallery, one.face.face)
        assert one.similarity == pytest.approx(expected[one.face.face], abs=1e-6)
        assert one.probability == pytest.approx(1 / (1 + np.exp(12 - 20 * one.similarity)), rel=1e-4)


def test_likely_gives_no_probability_for_a_single_face(gallery: Gallery):
    enrolled(gallery, individuals([1]))
    number = corrections.split(gallery, [1]).identity
    (alone,) = listing.face_confidences(gallery, number)
    assert (alone.similarity, alone.probability) == (1.0, None)
    corrections.name_identity(gallery, number, "Mia")
    corrections.reject(gallery, [1])
    assert listing.face_confidences(gallery, number) == []


def test_likely_compares_faces_of_a_kind_after_adaptation(gallery: Gallery):
    """Two individuals whose faces share a direction: by embedding all are alike by half and more."""
    rng = np.random.default_rng(0)
    shared = np.eye(DIM)[0] * 1.5
    centers = np.eye(DIM)[1:9].repeat(6, axis=0)
    rows = normalize((shared + centers + 0.1 * rng.normal(size=centers.shape)).astype(np.float32))
    enrolled(gallery, rows)
    enrolled(gallery, individuals([2]), "home")
    with gallery.writing() as connection:
        connection.executemany("INSERT INTO kinds VALUES (?, 1)", ((face,) for face in range(1, 49)))
        connection.execute("INSERT INTO identities (id) VALUES (1)")
        # The first six are one individual; 7 is a stranger; 49 and 50 are of no kind.
        connection.executemany("INSERT INTO assignments VALUES (?, 1, 0)", ((face,) for face in [*range(1, 8), 49, 50]))
    found = {one.face.face: one for one in listing.face_confidences(gallery, 1)}
    assert rows[6] @ rows[0] > 0.6, "who would be taken for one of them at home"
    assert found[7].probability is not None
    assert found[7].probability < 0.1 < 0.9 < min(found[face].probability or 0 for face in (*range(1, 7), 49, 50))
    for face, one in found.items():
        half = 0.25 if face < 49 else 0.6  # where faces of a kind are grouped, and where those at home are
        assert one.probability == pytest.approx(1 / (1 + np.exp(20 * (half - one.similarity))), rel=1e-4)
    assert [one.face.face for one in listing.face_confidences(gallery, 1)][-1] == 7
    home = individuals([2])
    assert found[49].similarity == pytest.approx(float(home[0] @ home[1]), abs=1e-6)


def test_names_match_prefix_ignoring_case(crowd: Gallery):
    assert listing.names(crowd, "mi") == listing.names(crowd, " MI") == ["mikesch", "Mizzi"]
    assert listing.names(crowd, "mik") == ["mikesch"]
    assert listing.names(crowd, "é") == ["Émile"]
    assert listing.names(crowd, "ia") == []
    assert listing.names(crowd, "", limit=2) == ["mikesch", "Mizzi"]
