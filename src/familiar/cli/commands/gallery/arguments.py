"""What the commands of a gallery are given, and what they make of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from familiar.cli.options import FILE

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.embedding.embedder import Embedder
    from familiar.gallery.database.connection import Gallery

folder_argument = click.argument("folder", metavar="GALLERY", type=FILE)
who_argument = click.argument("who", metavar="WHO")
faces_argument = click.argument("faces", nargs=-1, required=True, metavar="FACES...")
bundle_option = click.option(
    "--model",
    "-m",
    required=True,
    type=FILE,
    help="A bundle (.onnx), the folder of a run, or the name of a shipped bundle (familiar models --shipped).",
)


def open_embedder(model: Path) -> "Embedder":
    """SpaceMismatch for a router."""
    from familiar.core.errors import SpaceMismatch
    from familiar.embedding.embedder import Embedder
    from familiar.embedding.species.router_file import SUFFIX

    if model.suffix == SUFFIX:
        raise SpaceMismatch(
            f"{model}: is a router, whose bundles' embeddings do not compare, and a gallery holds those of one; "
            "give one bundle, and make a gallery for each species"
        )
    return Embedder(model)


def find_faces(gallery: "Gallery", said: Sequence[str]) -> list[int]:
    from familiar.gallery.clustering.assignments import resolve_face

    return list(dict.fromkeys(resolve_face(gallery, one) for one in said))


def called(number: int | None, name: str | None) -> str:
    """Whom a line is about.

    >>> called(3, "Tom"), called(4, None), called(None, None)
    ('Tom (#3)', '#4', 'nobody')
    """
    if number is None:
        return "nobody"
    return f"#{number}" if name is None else f"{name} (#{number})"


def called_in(gallery: "Gallery", number: int | None) -> str:
    from familiar.gallery.clustering.assignments import load_assignments

    return called(number, None if number is None else load_assignments(gallery).names.get(number))


def counted(count: int, what: str) -> str:
    """
    >>> counted(1, "face"), counted(2000, "identity")
    ('1 face', '2,000 identities')
    """
    several = what.removesuffix("y") + "ies" if what.endswith("y") else what + "s"
    return f"{count:,} {what if count == 1 else several}"
