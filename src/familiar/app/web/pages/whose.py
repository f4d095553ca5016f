"""Faces to whom a user says they show: by a name that may be known, or be new."""

from typing import Annotated

from pydantic import Field

from familiar.gallery import corrections
from familiar.gallery.browse import KnownFace
from familiar.gallery.corrections import Corrected
from familiar.gallery.store import Gallery
from familiar.gallery.who import who_is_who

Number = Annotated[int, Field(ge=1, lt=2**63)]  # of a face, a photo or an individual, as SQLite counts
Name = Annotated[str, Field(max_length=200)]


def bearer(gallery: Gallery, called: str) -> int | None:
    """The individual of that name."""
    names = who_is_who(gallery).names
    return next((number for number, name in names.items() if name == called.strip()), None)


def name(gallery: Gallery, identity: int, called: str) -> int | None:
    """Calls an individual so. Where another has that name, nothing is changed, and the other is returned."""
    other = bearer(gallery, called)
    if other is not None and other != identity:
        return other
    corrections.name(gallery, identity, called)
    return None


def put(gallery: Gallery, faces: list[int], called: str) -> Corrected:
    """These faces show whoever is called so, or somebody new of that name; without a name, somebody of their own."""
    to = bearer(gallery, called)
    if to is not None:
        return corrections.move(gallery, faces, to)
    return corrections.split(gallery, faces, called if called.strip() else None)


def say_whose(gallery: Gallery, face: KnownFace, called: str) -> Corrected:
    """As `put`, but a new name said of a face in a group that has none is the group's name."""
    if face.identity is not None and face.name is None and bearer(gallery, called) is None:
        return corrections.name(gallery, face.identity, called)
    return put(gallery, [face.face], called)
