"""Forms that assign faces to an individual by its name, which may be known or new."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import Form, Query
from pydantic import Field

from familiar.core.errors import Contradiction, NotInGallery
from familiar.core.gallery_types import CorrectionResult, GalleryFace
from familiar.core.names import unify_spelling
from familiar.gallery import Gallery, IdentityState

Number = Annotated[int, Field(ge=1, lt=2**63)]  # of a face, a photo or an individual; SQLite's range
Name = Annotated[str, Field(max_length=200)]
NameField = Annotated[Name, Form()]
NumberField = Annotated[Number, Form()]
FacesField = Annotated[list[Number], Form(max_length=300)]
SpeciesField = Annotated[str, Form(max_length=200)]
Position = Annotated[int, Query(ge=0, lt=2**63)]
SpeciesQuery = Annotated[str | None, Query(max_length=200)]


def find_by_name(gallery: Gallery, name: str) -> int | None:
    """Return the individual with this name; if there is none, one whose name differs only in case."""
    target, names = unify_spelling(name), gallery.names()
    matches = [number for number, known in names.items() if known.casefold() == target.casefold()]
    return next((number for number in matches if names[number] == target), matches[0] if matches else None)


def require_existing(gallery: Gallery, *, faces: Sequence[int] = (), identities: Sequence[int] = ()) -> None:
    """Check that the faces and individuals of a page still exist.

    Raises:
        NotInGallery: one was removed since the page was loaded; the message is for the user of a page.
    """
    try:
        gallery.require(faces=faces)
    except NotInGallery:
        which = "this face" if len(faces) == 1 else "one of these faces"
        raise NotInGallery(f"{which} was deleted in the meantime; reload the page") from None
    for number in identities:
        try:
            gallery.require(identities=[number])
        except NotInGallery:
            raise NotInGallery(f"#{number} does not exist any more; reload the page") from None


def set_name(gallery: Gallery, identity: int, name: str, states: Sequence[IdentityState] = ()) -> int | None:
    """Name an individual. If another one has the name, change nothing and return the other."""
    gallery.check_states(states)
    require_existing(gallery, identities=[identity])
    other = find_by_name(gallery, name)
    if other is not None and other != identity:
        return other
    require_name(name)
    gallery.name(identity, name)
    return None


def assign_faces(gallery: Gallery, faces: list[int], name: str, *, same_photo: bool) -> CorrectionResult:
    """Assign faces to the individual with this name, or to a new one; without a name, to a new unnamed one."""
    require_existing(gallery, faces=faces)
    target, new_name = find_by_name(gallery, name), unify_spelling(name)
    if new_name:
        require_name(name)
    if any(gallery.face(face).identity is not None for face in faces):
        kind = "split" if target is None else "move"
    else:
        kind = "name" if new_name else "group"
    with gallery.decision(kind):
        if target is not None:
            return gallery.move(faces, target, same_photo=same_photo)
        return gallery.split(faces, name if new_name else None, same_photo=same_photo)


def names_unnamed_group(gallery: Gallery, face: GalleryFace, name: str) -> bool:
    """Tell whether naming this face names its group: the group has no name, and no other individual has this one."""
    return face.identity is not None and face.name is None and find_by_name(gallery, name) is None


def require_name(name: str) -> None:
    """Check a name. Contradiction if the gallery would not accept it."""
    if not unify_spelling(name):
        raise Contradiction("enter a name first")
    Gallery.check_name(name)
