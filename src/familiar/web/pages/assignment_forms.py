"""Fields of forms and addresses about individuals and faces, and individuals by their names."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import Form, Query
from pydantic import AfterValidator, Field

from familiar.core.errors import Contradiction, NotInGallery
from familiar.core.names import unify_spelling
from familiar.gallery import Gallery

Number = Annotated[int, Field(ge=1, lt=2**63)]  # of a face, a photo or an individual; SQLite's range
Numbers = Annotated[list[Number], AfterValidator(lambda numbers: list(dict.fromkeys(numbers)))]  # each once
Name = Annotated[str, Field(max_length=200)]
NameField = Annotated[Name, Form()]
NumberField = Annotated[Number, Form()]
FacesField = Annotated[Numbers, Form(max_length=300)]
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


def require_name(name: str) -> None:
    """Check a name. Contradiction if the gallery would not accept it."""
    if not unify_spelling(name):
        raise Contradiction("enter a name first")
    Gallery.check_name(name)
