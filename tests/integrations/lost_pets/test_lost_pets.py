"""The register of lost and found pets: reports, decisions, undo, merging, forgetting."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from familiar.core.errors import Contradiction, NoFaceFound, NotInGallery, SharedPhoto
from familiar.gallery import Gallery
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits import corrections
from familiar.gallery.edits.forget import forget_identity, forget_photos
from familiar.gallery.same.decisions import decisions, undo
from familiar.gallery.store.store import Store
from familiar.gallery.transfer.check import check
from familiar.integrations.lost_pets.register import (
    add_photos,
    dismiss,
    edit_pet,
    enter_pet,
    reconsider,
    reunite,
    set_reports,
)
from familiar.integrations.lost_pets.reports import (
    MAX_CHARACTERS,
    Report,
    find_pet,
    has_reports,
    list_pets,
    read_status,
)
from support.pet_register import add_pet
from support.small_gallery import draw_individuals, enroll_in_one_photo, enroll_vectors, identity_of, rows

TABLES = ("identities", "assignments", "constraints", "rejections")
ELM = Report("lost", "cat", "Elm Street", "2026-05-01", "555-0101", "red collar")
HARBOR = Report("found", "", "Harbor", "2026-05-20", "finder@example.org", "limps")


def photos_of(gallery: Store, faces: Sequence[int]) -> list[int]:
    with gallery.read() as repository:
        return [repository.faces.row(face).photo for face in faces]


@pytest.fixture
def pair(gallery: Store) -> tuple[int, int]:
    """A lost pet and a found one, which are the same individual."""
    return add_pet(gallery, 0, 3, "Luna", ELM), add_pet(gallery, 0, 2, "Gray", HARBOR)


# --- Reports ----------------------------------------------------------------------------------------------------------


def test_named_identity_without_a_report_is_lost(gallery: Store):
    identity = add_pet(gallery, 0, 2, "Luna")
    enroll_vectors(gallery, draw_individuals([0, 3]), prefix="other")
    cluster(gallery)  # the other individual has no name
    (pet,) = list_pets(Gallery(gallery), "lost")
    assert (pet.identity, pet.name, pet.report, pet.faces) == (identity, "Luna", Report(), 2)
    assert list_pets(Gallery(gallery), "found") == []
    assert not has_reports(Gallery(gallery))


def test_report_is_stored_and_edited(gallery: Store):
    identity = add_pet(gallery, 0, 2, "Luna", ELM)
    assert has_reports(Gallery(gallery))
    assert find_pet(Gallery(gallery), identity).report == ELM
    edit_pet(Gallery(gallery), identity, "Luna 2", HARBOR)
    assert (find_pet(Gallery(gallery), identity).name, find_pet(Gallery(gallery), identity).report) == (
        "Luna 2",
        HARBOR,
    )


def test_same_report_again_is_no_decision(gallery: Store):
    identity = add_pet(gallery, 0, 2, "Luna", ELM)
    before = decisions(gallery)
    set_reports(Gallery(gallery), {identity: ELM})
    assert decisions(gallery) == before


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"reported_on": "01.05.2026"}, "written as 2026-05-31"),
        ({"reported_on": "2026-02-30"}, "written as 2026-05-31"),
        ({"note": "x" * (MAX_CHARACTERS + 1)}, "2,000 characters"),
    ],
)
def test_report_rejects_invalid_fields(fields: dict[str, str], message: str):
    with pytest.raises(Contradiction, match=message):
        replace(ELM, **fields)


def test_rejects_unknown_status():
    with pytest.raises(Contradiction, match="must be lost, found or home, got 'gone'"):
        read_status("gone")


def test_report_texts_are_one_printable_line():
    report = Report(species=" Cat ", note="two\nlines\x1b[2J")
    assert (report.species, report.note) == ("cat", "two lines\\x1b[2J")


def test_unknown_identity_is_refused(gallery: Store):
    known = add_pet(gallery, 0, 2, "Luna")
    with pytest.raises(NotInGallery):
        set_reports(Gallery(gallery), {known: ELM, 99: ELM})
    assert not has_reports(Gallery(gallery))
    with pytest.raises(NotInGallery):
        find_pet(Gallery(gallery), 99)


# --- Entering ---------------------------------------------------------------------------------------------------------


def test_entering_a_pet_takes_the_best_animal_of_each_photo(gallery: Store):
    vectors = draw_individuals([3, 3, 3])
    photos: list[int] = []
    for index in range(2):
        faces = enroll_in_one_photo(gallery, vectors[index::3], f"photo {index}")
        with gallery.write(faces_change=True) as repository:
            for face, species, quality in zip(faces, ("person", "cat", "cat"), (0.9, 0.4, 0.7), strict=True):
                repository.connection.execute(
                    "UPDATE faces SET species = ?, quality = ? WHERE id = ?", (species, quality, face)
                )
        photos += photos_of(gallery, faces[:1])
    identity = enter_pet(Gallery(gallery), photos, " Gray ", HARBOR)
    pet = find_pet(Gallery(gallery), identity)
    assert (pet.name, pet.faces, pet.species, pet.report) == ("Gray", 2, "cat", HARBOR)
    assert [identity_of(gallery, face) == identity for face in range(1, 7)] == [False, False, True] * 2
    undo(gallery)
    assert list_pets(Gallery(gallery)) == []


def test_entering_refuses_photos_of_another_pet_and_without_a_face(gallery: Store):
    identity = add_pet(gallery, 0, 2, "Luna")
    with pytest.raises(Contradiction, match="shows Luna already"):
        enter_pet(Gallery(gallery), [1], "Gray", HARBOR)
    with pytest.raises(NoFaceFound):
        enter_pet(Gallery(gallery), [99], "Gray", HARBOR)
    more = enroll_vectors(gallery, draw_individuals([1]), prefix="more")
    assert add_photos(Gallery(gallery), identity, [1, *photos_of(gallery, more)]) == 2
    assert find_pet(Gallery(gallery), identity).faces == 3


def test_clustering_keeps_a_found_pet_apart_from_the_lost_one(gallery: Store, pair: tuple[int, int]):
    cluster(gallery, rebuild=True)
    assert [find_pet(Gallery(gallery), identity).faces for identity in pair] == [3, 2]


# --- Not this one -----------------------------------------------------------------------------------------------------


def test_dismissal_is_remembered_in_both_directions_until_it_is_taken_back(gallery: Store, pair: tuple[int, int]):
    lost, other = pair
    third = add_pet(gallery, 1, 2, "Tom")
    dismiss(Gallery(gallery), other, lost)
    dismiss(Gallery(gallery), other, third)
    assert Gallery(gallery).different_identities(other) == {lost, third}
    assert Gallery(gallery).different_identities(lost) == {other}
    reconsider(Gallery(gallery), other, lost)
    assert Gallery(gallery).different_identities(other) == {third}


def test_dismissal_survives_a_move_of_faces_and_new_photos(gallery: Store, pair: tuple[int, int]):
    lost, other = pair
    dismiss(Gallery(gallery), other, lost)
    faces = enroll_vectors(gallery, draw_individuals([2], seed=5), prefix="more")
    corrections.move(gallery, faces, other)
    with gallery.read() as repository:
        earlier = [row.face for row in repository.faces.rows_of_identity(other) if row.face not in faces]
    corrections.split(gallery, earlier)
    assert lost in Gallery(gallery).different_identities(other)


def test_only_two_pets_with_photos_can_be_dismissed(gallery: Store, pair: tuple[int, int]):
    with pytest.raises(Contradiction):
        dismiss(Gallery(gallery), pair[0], pair[0])
    with pytest.raises(NotInGallery):
        dismiss(Gallery(gallery), pair[0], 99)


# --- This is the one --------------------------------------------------------------------------------------------------


def test_reunion_merges_both_and_is_undone_as_a_whole(gallery: Store, pair: tuple[int, int]):
    lost, other = pair
    before = rows(gallery, TABLES)
    reunite(Gallery(gallery), lost, other)
    (pet,) = list_pets(Gallery(gallery))
    assert (pet.identity, pet.name, pet.faces, pet.report.status) == (lost, "Luna", 5, "home")
    assert (pet.report.location, pet.report.reported_on) == ("Elm Street", "2026-05-01")
    assert pet.report.note == "red collar Found on 2026-05-20, Harbor. limps"
    assert pet.report.contact == "555-0101; finder@example.org"
    assert undo(gallery).kind == "reunite"
    assert rows(gallery, TABLES) == before


def test_reunion_of_two_pets_of_one_photo_must_be_meant(gallery: Store, pair: tuple[int, int]):
    lost, other = pair
    with gallery.write(faces_change=True) as repository:
        repository.connection.execute(
            "UPDATE faces SET photo_id = 1 WHERE id = (SELECT face_id FROM assignments WHERE identity_id = ?)", (other,)
        )
    with pytest.raises(SharedPhoto):
        reunite(Gallery(gallery), lost, other)
    reunite(Gallery(gallery), lost, other, same_photo=True)
    assert find_pet(Gallery(gallery), lost).faces == 5


def test_adding_a_photo_of_a_pet_again_adds_no_other_face_of_it(gallery: Store):
    identity = add_pet(gallery, 0, 2, "Luna")
    enroll_in_one_photo(gallery, draw_individuals([1]), "other.jpg")
    with gallery.write(faces_change=True) as repository:
        repository.connection.execute("UPDATE faces SET photo_id = 1 WHERE id = (SELECT max(id) FROM faces)")
    add_photos(Gallery(gallery), identity, [1])
    assert find_pet(Gallery(gallery), identity).faces == 2


def test_reunion_needs_a_lost_and_a_found_pet(gallery: Store, pair: tuple[int, int]):
    lost, other = pair
    with pytest.raises(Contradiction, match="not a lost and a found pet"):
        reunite(Gallery(gallery), other, lost)
    reunite(Gallery(gallery), lost, other)
    with pytest.raises(NotInGallery):
        reunite(Gallery(gallery), lost, other)


@pytest.mark.parametrize(
    ("into", "other", "status"),
    [
        (ELM, HARBOR, "home"),
        (HARBOR, None, "home"),  # a name alone is lost
        (ELM, None, "lost"),
        (None, None, "lost"),
        (None, ELM, "lost"),
        (replace(ELM, status="home"), ELM, "lost"),  # an open case stays open
        (ELM, replace(HARBOR, status="home"), "lost"),
        (replace(ELM, status="home"), HARBOR, "found"),
    ],
)
def test_merging_identities_merges_their_reports(
    gallery: Store, into: Report | None, other: Report | None, status: str
):
    first, second = add_pet(gallery, 0, 2, "Luna", into), add_pet(gallery, 0, 2, "Gray", other)
    corrections.merge(gallery, first, [second])
    report = find_pet(Gallery(gallery), first).report
    assert report.status == status
    with gallery.read() as repository:
        assert [*repository.identities.all_attributes()] == ([] if into is other is None else [first])
    if into == ELM and other is None:
        assert report == ELM


# --- Forgetting --------------------------------------------------------------------------------------------


def on_disk(folder: Path, text: str) -> bool:
    return any(text.encode() in file.read_bytes() for file in folder.iterdir() if file.is_file())


def test_forgotten_pet_leaves_nothing_of_its_report_on_disk(folder: Path, gallery: Store, pair: tuple[int, int]):
    lost, other = pair
    edit_pet(Gallery(gallery), lost, "", replace(ELM, contact="555-0999"))
    reunite(Gallery(gallery), lost, other)
    assert all(on_disk(folder, text) for text in ("555-0101", "555-0999", "finder@example.org"))
    forget_identity(gallery, lost)
    gallery.close()
    for text in ("555-0101", "555-0999", "finder@example.org", "Elm Street", "Harbor"):
        assert not on_disk(folder, text), text
    with Store.open(folder) as opened:
        while decisions(opened):
            undo(opened)
        assert not has_reports(Gallery(opened))
        assert check(opened).problems == ()


def test_undo_after_forgetting_restores_the_other_reports(gallery: Store, pair: tuple[int, int]):
    lost, other = pair
    set_reports(Gallery(gallery), {lost: replace(ELM, note="a"), other: replace(HARBOR, note="b")})
    forget_identity(gallery, lost)
    assert [pet.identity for pet in list_pets(Gallery(gallery))] == [other]
    undo(gallery)
    assert find_pet(Gallery(gallery), other).report == HARBOR
    assert check(gallery).problems == ()


def test_report_outlives_the_photos_of_its_pet(gallery: Store):
    faces = enroll_vectors(gallery, draw_individuals([1]), prefix="only")
    identity = enter_pet(Gallery(gallery), photos_of(gallery, faces), "", HARBOR)
    with gallery.write() as repository:
        repository.connection.execute("UPDATE photos SET path = CAST('/only 0.jpg' AS BLOB)")
    forget_photos(gallery, [Path("/only 0.jpg")])
    pet = find_pet(Gallery(gallery), identity)
    assert (pet.label, pet.faces, pet.report) == (f"#{identity}", 0, HARBOR)
