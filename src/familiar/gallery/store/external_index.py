"""Which index outside the gallery's folder a gallery is searched with, and erasing forgotten faces from it.

A gallery has one collection in Milvus, named after its uid. A repair or a restore gives the gallery another uid, and
the user may choose another address; so the folder has a list of all collections that were created for its gallery.
`forget` and the next synchronization remove those that are no longer used, and nothing counts as erased before that.
"""

import contextlib
import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from familiar.core.errors import BadGallery
from familiar.core.files import write_atomically
from familiar.core.json_codec import DOCUMENTS
from familiar.core.json_text import parse_json
from familiar.neighbors.centering import Centering
from familiar.neighbors.milvus import MilvusIndex

FILE = "external_index.json"
COLLECTIONS_FILE = "external_collections.json"


class MilvusCollection(NamedTuple):
    """A collection that was created for a gallery in this folder.

    Attributes:
        address: of the index, such as "milvus:http://host:19530".
        uid: of the gallery then, after which the collection is named.
    """

    address: str
    uid: str


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
        write_atomically(folder / FILE, json.dumps(DOCUMENTS.to_json(self)).encode())


def read_external_index(folder: Path) -> ExternalIndex | None:
    """Read which index a gallery has outside its folder; None: none.

    Raises:
        BadGallery: the file is damaged.
    """
    path = folder / FILE
    try:
        return DOCUMENTS.from_json(ExternalIndex, parse_json(path.read_text()), "the index")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadGallery(
            f"{path}: damaged ({error}); name the index again with: familiar gallery index {folder} --index milvus:URI"
        ) from error


def forget_external_index(folder: Path) -> None:
    """Search the gallery without an index outside its folder."""
    with contextlib.suppress(FileNotFoundError):
        (folder / FILE).unlink()


def open_index(address: str, uid: str, dim: int) -> MilvusIndex:
    """Connect to the index of a gallery.

    Args:
        address: of the index.
        uid: of the gallery, after which the collection is named.
        dim: of the gallery's embeddings.

    Raises:
        IndexUnavailable: it cannot be reached.
    """
    return MilvusIndex(address, f"familiar_{uid.replace('-', '_')}", dim)


def erase_forgotten(folder: Path, uid: str, dim: int, faces: Collection[int]) -> None:
    """Remove the faces from the index outside the folder, if there is one, that the gallery no longer has.

    A file of Milvus Lite keeps the bytes of what is deleted, so its whole collection is removed, to be built again; and
    so are collections that the gallery no longer uses. To be called within `index_lock`.

    Args:
        folder: of the gallery.
        uid: of the gallery.
        dim: of its embeddings.
        faces: that it still has.

    Raises:
        BadGallery: it cannot be read which index the gallery has.
        IndexUnavailable: an index cannot be reached.
        FamiliarError: pymilvus is not installed.
    """
    external = read_external_index(folder)
    if external is not None:
        # The mean of few faces is largely theirs; and all vectors in the index were centered with it.
        replace(external, faces_revision=None, means=(), index_means=()).save(folder)
        with open_index(external.address, uid, dim) as index:
            if index.is_file:
                index.drop()
            elif forgotten := index.versions().keys() - set(faces):
                index.remove(forgotten)
                index.flush()
    drop_unused_collections(folder, uid, dim)


def unused_collections(folder: Path, uid: str) -> list[MilvusCollection]:
    """List the collections that were created for the gallery of a folder and that it no longer uses.

    Raises:
        BadGallery: a file is damaged.
    """
    external = read_external_index(folder)
    current = None if external is None else MilvusCollection(external.address, uid)
    return [collection for collection in _read_collections(folder) if collection != current]


def drop_unused_collections(folder: Path, uid: str, dim: int) -> None:
    """Remove the collections that the gallery no longer uses. To be called within `index_lock`.

    Args:
        folder: of the gallery.
        uid: of the gallery.
        dim: of its embeddings.

    Raises:
        BadGallery, IndexUnavailable, FamiliarError: as `erase_forgotten`.
    """
    for collection in unused_collections(folder, uid):
        with open_index(*collection, dim) as index:
            index.drop()
        _save_collections(folder, [each for each in _read_collections(folder) if each != collection])


def record_collection(folder: Path, collection: MilvusCollection) -> None:
    """Add a collection to the list before it is created. To be called within `index_lock`.

    Raises:
        BadGallery: the list is damaged.
        CannotWrite: the system refuses.
    """
    collections = _read_collections(folder)
    if collection not in collections:
        _save_collections(folder, [*collections, collection])


def _read_collections(folder: Path) -> list[MilvusCollection]:
    path = folder / COLLECTIONS_FILE
    try:
        return [MilvusCollection(str(address), str(uid)) for address, uid in parse_json(path.read_text())]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        raise BadGallery(
            f"{path}: damaged ({error}); remove the collections familiar_* of earlier states of this gallery from "
            "Milvus, then delete this file"
        ) from error


def _save_collections(folder: Path, collections: list[MilvusCollection]) -> None:
    write_atomically(folder / COLLECTIONS_FILE, json.dumps(collections).encode())


def pack_centering(centering: Centering | None) -> dict[str, list[list[float]]] | None:
    """Return what `json.dumps` takes."""
    return None if centering is None else {"species": centering.species.tolist(), "means": centering.means.tolist()}


def unpack_centering(packed: dict[str, list[list[float]]] | None) -> Centering | None:
    """Restore the result of `pack_centering`."""
    return None if packed is None else Centering(np.array(packed["species"]), np.array(packed["means"]))
