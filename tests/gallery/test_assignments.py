"""The assignments of all faces, and how references to identities and faces are resolved."""

import os

import pytest

from familiar.core.errors import NotInGallery
from familiar.gallery.edits import corrections
from familiar.gallery.same.assignments import (
    check_faces,
    check_identities,
    resolve_identity,
)
from familiar.gallery.store.store import Store
from support.small_gallery import draw_individuals, enroll_vectors


@pytest.fixture
def gallery(gallery: Store) -> Store:
    """Mia has faces 1 and 2, the first assigned by the user; face 3 is unassigned."""
    enroll_vectors(gallery, draw_individuals([2, 1]))
    corrections.split(gallery, [1], "Mia")
    return gallery


@pytest.mark.parametrize("reference", ["Mia", "#1", " Mia ", "mia", "MIA"])
def test_resolve_identity_accepts_name_or_number(gallery: Store, reference: str):
    assert resolve_identity(gallery, reference) == 1


@pytest.mark.parametrize("reference", ["Tom", "#2", "#", "1", "", f"#{2**70}", os.fsdecode(b"\xff")])
def test_resolve_identity_rejects_unknown_names_and_numbers(gallery: Store, reference: str):
    with pytest.raises(NotInGallery, match="give a name, or a number such as #12"):
        resolve_identity(gallery, reference)


def test_similar_names_are_proposed_and_of_two_in_other_case_none_is_chosen(gallery: Store):
    with pytest.raises(NotInGallery, match=r"has no identity 'miaa' \(did you mean 'Mia'\?\)"):
        resolve_identity(gallery, "miaa")
    corrections.split(gallery, [3], "MIA")
    with pytest.raises(NotInGallery, match="did you mean 'MIA' or 'Mia'"):
        resolve_identity(gallery, "mia")
    assert resolve_identity(gallery, "MIA") != resolve_identity(gallery, "Mia") == 1


@pytest.mark.parametrize("number", [-1, 0, 4, 2**70])
def test_rejects_unknown_face_and_identity_numbers(gallery: Store, number: int):
    check_faces(gallery, [1, 2, 3])
    check_identities(gallery, [1])
    with pytest.raises(NotInGallery, match="has no face"):
        check_faces(gallery, [1, number])
    with pytest.raises(NotInGallery, match="has no identity"):
        check_identities(gallery, [1, number])
