"""Who is who, and how identities and faces are found by what a user types."""

import os

import pytest

from familiar.core.errors import NotInGallery
from familiar.gallery.clustering.assignments import (
    UNASSIGNED,
    check_faces,
    check_identities,
    load_assignments,
    resolve_identity,
)
from familiar.gallery.database.connection import Gallery
from familiar.gallery.editing import corrections
from support.small_gallery import enrolled, individuals


@pytest.fixture
def gallery(gallery: Gallery) -> Gallery:
    """Mia has faces 1 and 2, the first by the user's word; face 3 is nobody's."""
    enrolled(gallery, individuals([2, 1]))
    corrections.split(gallery, [1], "Mia")
    return gallery


def test_who_is_who_reports_assignments_and_names(gallery: Gallery):
    who = load_assignments(gallery)
    assert who.identity.tolist() == [1, 1, UNASSIGNED]
    assert who.by_user.tolist() == [True, False, False]
    assert who.names == {1: "Mia"}
    assert who.rows_of_identity(1).tolist() == [0, 1]
    assert load_assignments(gallery) is who
    corrections.confirm(gallery, [2])
    assert load_assignments(gallery).by_user.tolist() == [True, True, False]


@pytest.mark.parametrize("said", ["Mia", "#1", " Mia "])
def test_find_identity_accepts_name_or_number(gallery: Gallery, said: str):
    assert resolve_identity(gallery, said) == 1


@pytest.mark.parametrize("said", ["Tom", "mia", "#2", "#", "1", "", f"#{2**70}", os.fsdecode(b"\xff")])
def test_find_identity_rejects_unknown_names_and_numbers(gallery: Gallery, said: str):
    with pytest.raises(NotInGallery, match="give a name, or a number such as #12"):
        resolve_identity(gallery, said)


@pytest.mark.parametrize("number", [-1, 0, 4, 2**70])
def test_rejects_unknown_face_and_identity_numbers(gallery: Gallery, number: int):
    check_faces(gallery, [1, 2, 3])
    check_identities(gallery, [1])
    with pytest.raises(NotInGallery, match="has no face"):
        check_faces(gallery, [1, number])
    with pytest.raises(NotInGallery, match="knows no"):
        check_identities(gallery, [1, number])
