"""An index outside the gallery's folder: what it can do, which one a gallery is searched with, and erasing from it.

The folder remembers its address and the name of the gallery's collection there, which stays when the gallery is
repaired or restored: what differs then is written with the next synchronization.
"""

import contextlib
import json
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Float32, Int64

from familiar.core.errors import BadGallery, IndexUnavailable
from familiar.core.files import write_atomically
from familiar.core.json_codec import DOCUMENTS
from familiar.core.json_text import parse_json
from familiar.neighbors.centering import Centering

FILE = "external_index.json"


class IndexRow(NamedTuple):
    """A vector of an index.

    Attributes:
        key: not negative.
        vector: of unit length.
        version: changes whenever the vector or the group does.
        group: text by which a search can be restricted.
    """

    key: int
    vector: Float32[np.ndarray, " d"]
    version: int
    group: str


@runtime_checkable
class VectorIndex(Protocol):
    """A collection of unit vectors by key, a copy of vectors that are stored elsewhere.

    Every method raises IndexUnavailable if it cannot be reached.

    Attributes:
        address: opens it again from any folder.
    """

    address: str

    def versions(self) -> dict[int, int]:
        """List the version of every vector by key."""
        ...

    def write(self, rows: Sequence[IndexRow]) -> None:
        """Add vectors, or replace those of the same keys.

        Args:
            rows: to write.
        """
        ...

    def remove(self, keys: Collection[int]) -> None:
        """Remove vectors, which can no longer be found then.

        Args:
            keys: of these vectors.
        """
        ...

    def erase_all_but(self, keys: Collection[int]) -> None:
        """Remove vectors for good.

        Args:
            keys: of the vectors that stay, unless only removing all of them erases the bytes of the others.
        """
        ...

    def flush(self) -> None:
        """Write everything to the storage, and index it."""
        ...

    def search(
        self, query: Float32[np.ndarray, " d"], k: int, *, group: str | None = None
    ) -> Int64[np.ndarray, " hits"]:
        """Find about the k vectors with the greatest product with a query, greatest first.

        Args:
            query: unit vector.
            k: at least 1.
            group: only vectors of this group; None: all.

        Returns:
            Their keys.
        """
        ...

    def drop(self) -> None:
        """Remove the collection with all its data, if there is one."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


OpenIndex: TypeAlias = Callable[[str, str, int], VectorIndex]
"""Opens an index, given its address, the name of the collection, and the dimension of its vectors.

It raises FamiliarError if the address is of another kind or a package is missing, and IndexUnavailable."""


@dataclass(frozen=True)
class ExternalIndex:
    """The content of `FILE`.

    Attributes:
        address: of the index, such as "milvus:http://host:19530".
        collection: its name, of letters, digits and underscores.
        uid: of the gallery whose faces it has; "": it has to be compared with the gallery first.
        faces_revision: of these faces.
        means: what is subtracted from embeddings to compare them, for each part of the space.
    """

    address: str
    collection: str = field(default_factory=lambda: f"familiar_{uuid.uuid4().hex}")
    uid: str = ""
    faces_revision: int = 0
    means: tuple[Centering | None, ...] = ()

    def save(self, folder: Path) -> None:
        """Store it with the gallery.

        Raises:
            CannotWrite: the system refuses.
        """
        write_atomically(folder / FILE, json.dumps(DOCUMENTS.to_json(self)).encode())

    def open(self, open_index: OpenIndex | None, dim: int) -> VectorIndex:
        """Connect to the index.

        Args:
            open_index: opens it; None: the program that opened the gallery has nothing that does.
            dim: of the gallery's embeddings.

        Raises:
            IndexUnavailable: it cannot be reached.
            FamiliarError: its package is not installed.
        """
        if open_index is None:
            raise IndexUnavailable(
                f"{self.address}: open the gallery with what opens its index: Gallery.open(FOLDER, open_index=...)"
            )
        return open_index(self.address, self.collection, dim)


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


def erase_forgotten(folder: Path, open_index: OpenIndex | None, dim: int, faces: Collection[int]) -> None:
    """Remove the faces from the index outside the folder, if there is one, that the gallery no longer has.

    To be called within `index_lock`.

    Args:
        folder: of the gallery.
        open_index: as for `ExternalIndex.open`.
        dim: of its embeddings.
        faces: that it still has.

    Raises:
        BadGallery: it cannot be read which index the gallery has.
        IndexUnavailable: the index cannot be reached.
        FamiliarError: its package is not installed.
    """
    external = read_external_index(folder)
    if external is not None:
        replace(external, uid="", means=()).save(folder)  # the mean of few faces is largely theirs
        with contextlib.closing(external.open(open_index, dim)) as index:
            index.erase_all_but(faces)
