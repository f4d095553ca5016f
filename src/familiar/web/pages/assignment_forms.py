"""Faces to whom a user says they show: by a name that may be known, or be new."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from familiar.core.errors import Contradiction, NotInGallery
from familiar.core.terminal_text import printable
from familiar.gallery.clustering.assignments import check_faces, check_identities, load_assignments
from familiar.gallery.database.connection import Gallery
from familiar.gallery.editing import corrections
from familiar.gallery.editing.corrections import CorrectionResult
from familiar.gallery.search.listing import KnownFace

Number = Annotated[int, Field(ge=1, lt=2**63)]  # of a face, a photo or an individual, as SQLite counts
Name = Annotated[str, Field(max_length=200)]


def find_by_name(gallery: Gallery, name: str) -> int | None:
    """The individual of that name; where nobody has just that, one whose name differs in upper and lower case alone."""
    wanted, names = name.strip(), load_assignments(gallery).names
    alike = [number for number, name in names.items() if name.casefold() == wanted.casefold()]
    return next((number for number in alike if names[number] == wanted), alike[0] if alike else None)


def require_existing(gallery: Gallery, *, faces: Sequence[int] = (), identities: Sequence[int] = ()) -> None:
    """NotInGallery, in words for who looks at a page, where one of them has gone since it was shown."""
    try:
        check_faces(gallery, faces)
    except NotInGallery:
        which = "this face" if len(faces) == 1 else "one of these faces"
        raise NotInGallery(f"{which} was deleted meanwhile; load the page anew") from None
    for number in identities:
        try:
            check_identities(gallery, [number])
        except NotInGallery:
            raise NotInGallery(f"#{number} is not there any more; load the page anew") from None


def set_name(gallery: Gallery, identity: int, name: str) -> int | None:
    """Calls an individual so. Where another has that name, nothing is changed, and the other is returned."""
    require_existing(gallery, identities=[identity])
    other = find_by_name(gallery, name)
    if other is not None and other != identity:
        return other
    require_name(name)
    corrections.name_identity(gallery, identity, name)
    return None


def assign_faces(gallery: Gallery, faces: list[int], name: str) -> CorrectionResult:
    """These faces show whoever is called so, or somebody new of that name; without a name, somebody of their own."""
    require_existing(gallery, faces=faces)
    to = find_by_name(gallery, name)
    if to is not None:
        return corrections.move(gallery, faces, to)
    if not name.strip():
        return corrections.split(gallery, faces)
    require_name(name)
    return corrections.split(gallery, faces, name)


def names_unnamed_group(gallery: Gallery, face: KnownFace, name: str) -> bool:
    """Whether a name said of this face is its group's: the group has none, and nobody else is called so."""
    return face.identity is not None and face.name is None and find_by_name(gallery, name) is None


def require_name(name: str) -> None:
    """Contradiction where the gallery would not take it."""
    name = name.strip()
    if not name:
        raise Contradiction("write a name first")
    if name.startswith("#"):
        raise Contradiction("a name does not begin with #, as numbers do; write another")
    if printable(name) != name:
        raise Contradiction("a name stands on one line; write it again without what cannot be shown")
