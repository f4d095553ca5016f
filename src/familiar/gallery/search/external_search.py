"""Search of a gallery with an index outside its folder, which is made equal to the database: that remains the truth."""

import contextlib
import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np
from jaxtyping import Float32

from familiar.core.errors import FamiliarError, GalleryBusy, IndexUnavailable
from familiar.gallery.search.filters import NO_FILTER, Filter
from familiar.gallery.store.external_index import (
    FILE,
    ExternalIndex,
    IndexRow,
    VectorIndex,
    forget_external_index,
    read_external_index,
)
from familiar.gallery.store.face_table import EmbeddingTable
from familiar.gallery.store.index_lock import index_lock
from familiar.gallery.store.store import Store

log = logging.getLogger(__name__)

MAX_RANKED = 10_000  # faces that pass a filter and are compared one by one
WRITTEN_ROWS = 2_000
# Candidates requested beyond k: the index has embeddings as they are, and they are compared less their species' means.
# With 20, .998 of the ten nearest of 5,000 photos of dogs and cats are among them, with 50 .9997.
EXTRA = 50


@dataclass(frozen=True)
class SyncResult:
    """What was done to make an index equal to a gallery.

    Attributes:
        faces: of the gallery, all of which the index now has.
        written: of them that were added or changed.
        removed: that the gallery does not have.
    """

    faces: int
    written: int
    removed: int


def use_external_index(store: Store, address: str) -> None:
    """Remember the index that a gallery is searched with from now on; `sync_external_index` fills it.

    Args:
        store: the gallery.
        address: of the index, such as "milvus:faces.db".

    Raises:
        FamiliarError: another kind of address.
        IndexUnavailable: it cannot be reached, or the one before cannot; nothing has changed.
    """
    external = ExternalIndex(address)
    with contextlib.closing(_open(store, external)) as index:
        external = replace(external, address=index.address)
    before = read_external_index(store.folder)
    if before is None or before.address != external.address:
        drop_external_index(store)
        external.save(store.folder)


def drop_external_index(store: Store) -> None:
    """Remove a gallery's collection from the index outside its folder, and search without one from now on.

    Raises:
        IndexUnavailable: it cannot be reached.
    """
    external = read_external_index(store.folder)
    if external is None:
        return
    try:
        with index_lock(store.folder), contextlib.closing(_open(store, external)) as index:
            index.drop()
    except IndexUnavailable as error:
        raise IndexUnavailable(f"{error}; if it is gone for good, delete {store.folder / FILE}") from error
    forget_external_index(store.folder)


def sync_external_index(
    store: Store, on_rows: Callable[[int, int], None] = lambda _done, _all: None
) -> SyncResult | None:
    """Make a gallery's index outside its folder equal to the database, whatever it has now.

    Args:
        store: the gallery.
        on_rows: called with the numbers of vectors written and to be written.

    Returns:
        What was done; None if the gallery has no such index.

    Raises:
        IndexUnavailable: it cannot be reached. The gallery is as it was, and what was written stays.
        GalleryBusy: the gallery was repaired or restored meanwhile.
    """
    external = read_external_index(store.folder)
    if external is None:
        return None
    with store.read() as repository:
        uid = repository.settings.uid()
    with contextlib.closing(_open(store, external)) as index:
        versions = index.versions()  # before the database is read: what another process adds meanwhile is not removed
        with store.read() as repository:
            species: list[str | None] = repository.faces.species()
            faces, means = store.stored_faces(), store.faces().centerings
        current = _versions(faces, species)
        rows = np.flatnonzero([versions.get(key) != version for key, version in current.items()])
        for start in range(0, len(rows), WRITTEN_ROWS):
            part = rows[start : start + WRITTEN_ROWS]
            entries = [
                IndexRow(key, vector, current[key], species[int(row)] or "")
                for row, key, vector in zip(part.tolist(), faces.ids[part].tolist(), faces.unit_rows(part), strict=True)
            ]
            with index_lock(store.folder):
                existing = _existing(store, uid, faces)
                index.write([entry for entry in entries if entry.key in existing])
            on_rows(start + len(part), len(rows))
        removed = versions.keys() - current.keys()
        index.remove(removed)
        if len(rows) or removed:
            index.flush()
    with index_lock(store.folder):
        if _existing(store, uid, faces) == current.keys():  # else the means are those of forgotten faces, too
            replace(external, uid=uid, faces_revision=faces.revision, means=means).save(store.folder)
            return SyncResult(len(current), len(rows), len(removed))
    return sync_external_index(store, on_rows)


def check_external_index(store: Store) -> list[str]:
    """Compare a gallery's index outside its folder with the database, and describe what differs.

    Raises:
        BadGallery: it cannot be read which index the gallery has.
    """
    external = read_external_index(store.folder)
    if external is None:
        return []
    try:
        with contextlib.closing(_open(store, external)) as index:
            versions = index.versions()
    except FamiliarError as error:
        return [f"the index cannot be compared with the gallery: {error}"]
    with store.read() as repository:
        current = _versions(store.stored_faces(), repository.faces.species())
    counts = {
        "are missing": len(current.keys() - versions.keys()),
        "are no longer in the gallery": len(versions.keys() - current.keys()),
        "have changed": sum(versions.get(key, version) != version for key, version in current.items()),
    }
    remedy = f"mend it with: familiar gallery index {store.folder}"
    return [f"{external.address}: {count} faces {what}; {remedy}" for what, count in counts.items() if count]


def external_candidates(store: Store, query: Float32[np.ndarray, " d"], k: int, only: Filter) -> EmbeddingTable | None:
    """Find faces among which are the most similar ones to a query, without reading all embeddings from the database.

    Args:
        store: the gallery.
        query: unit vector of the gallery's whole length.
        k: maximum number of faces that are wanted.
        only: restricts the search.

    Returns:
        These faces. None if this has to be searched otherwise: there is no such index, it is behind the gallery or
        unreachable, or the filter leaves too many faces to name them.
    """
    external = read_external_index(store.folder)
    if external is None:
        return None
    with store.read() as repository:
        if (external.uid, external.faces_revision) != (repository.settings.uid(), repository.settings.faces_revision()):
            log.warning(
                "%s is behind the gallery, so every face is compared; run: familiar gallery index %s",
                external.address,
                store.folder,
            )
            return None
        passing = None if only.empty else repository.faces.filtered(*astuple(only))
        if passing is None or len(passing) > MAX_RANKED:  # a graph of all faces may not reach a few of them
            if replace(only, species=None) != NO_FILTER:
                return None
            try:
                index = store.cached("external index", external.address, lambda: _open(store, external))
                centered = store.space.center(query[None], external.means)[0]
                passing = index.search(centered, k + EXTRA, group=only.species).tolist()
            except IndexUnavailable as error:
                log.warning("%s, so every face is compared", error)
                return None
        return store.selected_faces(passing, external.means)


def _open(store: Store, external: ExternalIndex) -> VectorIndex:
    return external.open(store.open_index, store.space.embedding_dim)


def _versions(faces: EmbeddingTable, species: Sequence[str | None]) -> dict[int, int]:
    """Return for each face a number that changes with its embedding or its species."""

    def version(row: int) -> int:
        content = faces.embeddings[row].tobytes() + (species[row] or "").encode()
        return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest()) >> 1

    return {face: version(row) for row, face in enumerate(faces.ids.tolist())}


def _existing(store: Store, uid: str, faces: EmbeddingTable) -> set[int]:
    """Return which faces the gallery still has, within `index_lock`: so none of them is forgotten before it is written.

    Raises:
        GalleryBusy: the gallery was replaced by one that may have other faces of these ids.
    """
    with store.read() as repository:
        if repository.settings.uid() != uid:
            raise GalleryBusy(f"{store.folder}: the gallery was repaired or restored just now; try again")
        if repository.settings.faces_revision() == faces.revision:
            return set(faces.ids.tolist())
        return set(repository.faces.ids()).intersection(faces.ids.tolist())
