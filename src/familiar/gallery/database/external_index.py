"""Which index outside the gallery's folder a gallery is searched with, and erasing forgotten faces from it."""

import contextlib
import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from familiar.core.errors import BadGallery
from familiar.core.files import write_atomically
from familiar.core.json_text import parse_json
from familiar.neighbors.centering import Centering
from familiar.neighbors.milvus import MilvusIndex

FILE = "external_index.json"


@dataclass(frozen=True)
class ExternalIndex:
    """The content of `FILE`.

    Attributes:
        address: of the index, such as "milvus:http://host:19530".
        faces_revision: of the gallery's faces that it has; None: it has to be compared with the gallery first.
        means: what is subtracted from embeddings to compare them, for each part of the space, as `pack_centering`
            returns it; None: nothing.
        index_means: what was subtracted from those in the index, which is close to `means`: the means of a gallery
            change a little with each photo, but not all vectors are written again.
    """

    address: str
    faces_revision: int | None = None
    means: tuple[Any, ...] = ()
    index_means: tuple[Any, ...] = ()

    def save(self, folder: Path) -> None:
        """Store it with the gallery.

        Raises:
            CannotWrite: the system refuses.
        """
        write_atomically(folder / FILE, json.dumps(asdict(self)).encode())


def read_external_index(folder: Path) -> ExternalIndex | None:
    """Read which index a gallery has outside its folder; None: none.

    Raises:
        BadGallery: the file is damaged.
    """
    path = folder / FILE
    try:
        stored = parse_json(path.read_text())
        return ExternalIndex(
            stored["address"], stored["faces_revision"], tuple(stored["means"]), tuple(stored["index_means"])
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadGallery(
            f"{path}: damaged ({error}); name the index again with: familiar gallery index {folder} --index milvus:URI"
        ) from error


def forget_external_index(folder: Path) -> None:
    """Search the gallery without an index outside its folder."""
    with contextlib.suppress(FileNotFoundError):
        (folder / FILE).unlink()


def open_index(external: ExternalIndex, uid: str, dim: int) -> MilvusIndex:
    """Connect to the index of a gallery.

    Args:
        external: its address.
        uid: of the gallery, after which the collection is named.
        dim: of the gallery's embeddings.

    Raises:
        IndexUnavailable: it cannot be reached.
    """
    return MilvusIndex(external.address, f"familiar_{uid.replace('-', '_')}", dim)


def erase_forgotten(folder: Path, uid: str, dim: int, faces: Collection[int]) -> None:
    """Remove the faces from the index outside the folder, if there is one, that the gallery no longer has.

    A file of Milvus Lite keeps the bytes of what is deleted, so its whole collection is removed, to be built again.

    Args:
        folder: of the gallery.
        uid: of the gallery.
        dim: of its embeddings.
        faces: that it still has.

    Raises:
        IndexUnavailable: the index cannot be reached.
    """
    external = read_external_index(folder)
    if external is None:
        return
    # The mean of few faces is largely theirs; and all vectors in the index were centered with it.
    replace(external, faces_revision=None, means=(), index_means=()).save(folder)
    with open_index(external, uid, dim) as index:
        if index.is_file:
            index.drop()
        elif forgotten := index.versions().keys() - set(faces):
            index.remove(forgotten)
            index.flush()


def pack_centering(centering: Centering | None) -> dict[str, list[list[float]]] | None:
    """Return what `json.dumps` takes."""
    return None if centering is None else {"species": centering.species.tolist(), "means": centering.means.tolist()}


def unpack_centering(packed: dict[str, list[list[float]]] | None) -> Centering | None:
    """Restore the result of `pack_centering`."""
    return None if packed is None else Centering(np.array(packed["species"]), np.array(packed["means"]))
