"""Search of a gallery with an index in Milvus, which is kept equal to the database: that remains the truth."""

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from familiar.core.errors import FamiliarError, GalleryBusy, IndexUnavailable
from familiar.gallery.search.filters import NO_FILTER, Filter
from familiar.gallery.store.external_index import (
    COLLECTIONS_FILE,
    ExternalIndex,
    MilvusCollection,
    drop_unused_collections,
    forget_external_index,
    open_index,
    pack_centering,
    read_external_index,
    record_collection,
    unpack_centering,
    unused_collections,
)
from familiar.gallery.store.face_table import EmbeddingTable
from familiar.gallery.store.index_lock import index_lock
from familiar.gallery.store.store import Store
from familiar.neighbors.milvus import PREFIX, WRITTEN_ROWS, MilvusIndex, Row

log = logging.getLogger(__name__)

MAX_RANKED = 10_000  # faces that pass a filter and are compared one by one
EXTRA = 20  # candidates requested beyond k: those in the index are compared by means that may be a little older
MAX_MEANS_SHIFT = 0.05  # by which a mean may differ from that in the index before all vectors are written again


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
        address: "milvus:" and the URI of a server or the path of a file.

    Raises:
        FamiliarError: another kind of address.
        IndexUnavailable: it cannot be reached; nothing has changed.
    """
    if not address.startswith(PREFIX) or address == PREFIX:
        raise FamiliarError(f"an index is given as milvus:http://HOST:19530 or milvus:FILE.db, got {address!r}")
    uri = address.removeprefix(PREFIX)
    external = ExternalIndex(address if "://" in uri else f"{PREFIX}{Path(uri).absolute()}")
    with _open(store, external):  # refused before it is remembered
        external.save(store.folder)


def drop_external_index(store: Store) -> None:
    """Remove a gallery's collections from indexes outside its folder, and search without one from now on.

    Raises:
        IndexUnavailable: one cannot be reached.
    """
    external = read_external_index(store.folder)
    if external is not None:
        with _open(store, external) as index:
            index.drop()
        forget_external_index(store.folder)
    with index_lock(store.folder):
        drop_unused_collections(store.folder, _uid(store), store.space.embedding_dim)


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
    uid, dim = _uid(store), store.space.embedding_dim
    with index_lock(store.folder):
        try:
            drop_unused_collections(store.folder, uid, dim)
        except IndexUnavailable as error:
            log.warning("%s; what an earlier state of the gallery has there is removed later", error)
    with open_index(external.address, uid, dim) as index:
        with index_lock(store.folder):
            _check_uid(store, uid)
            record_collection(store.folder, MilvusCollection(external.address, uid))
            index.create()
        versions = index.versions()  # before the database is read: what another process adds meanwhile is not removed
        with store.read() as repository:
            species: list[str | None] = repository.faces.species()
            faces, centered = store.stored_faces(), store.faces()
        means = tuple(map(pack_centering, centered.centerings))
        index_means = external.index_means if _are_close(external.index_means, means) else means
        external = replace(external, faces_revision=None, means=means, index_means=index_means)
        current = _versions(faces, species, index_means)
        rows = np.flatnonzero([versions.get(key) != version for key, version in current.items()])
        with index_lock(store.folder):
            if _existing(store, uid, faces) == current.keys():  # else the means are of forgotten faces, too
                external.save(store.folder)
        for start in range(0, len(rows), WRITTEN_ROWS):
            part = rows[start : start + WRITTEN_ROWS]
            vectors = store.space.center(faces.unit_rows(part), [*map(unpack_centering, index_means)])
            entries = [
                Row(key, vector, current[key], species[int(row)] or "")
                for row, key, vector in zip(part.tolist(), faces.ids[part].tolist(), vectors, strict=True)
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
        if _existing(store, uid, faces) == current.keys():
            replace(external, faces_revision=faces.revision).save(store.folder)
            return SyncResult(len(current), len(rows), len(removed))
    return sync_external_index(store, on_rows)  # some faces were forgotten meanwhile


def check_external_index(store: Store) -> list[str]:
    """Compare a gallery's index outside its folder with the database, and describe what differs.

    Raises:
        BadGallery: it cannot be read which index the gallery has.
    """
    external = read_external_index(store.folder)
    unused = [
        f"{address}: still has the collection of an earlier state of this gallery; remove it with: familiar gallery "
        f"index {store.folder}; or if that Milvus is gone for good, delete {store.folder / COLLECTIONS_FILE}"
        for address, _ in unused_collections(store.folder, _uid(store))
    ]
    if external is None:
        return unused
    remedy = f"mend it with: familiar gallery index {store.folder}"
    try:
        with _open(store, external) as index:
            versions = index.versions()
    except FamiliarError as error:
        return [f"the index cannot be compared with the gallery: {error}", *unused]
    with store.read() as repository:
        current = _versions(store.stored_faces(), repository.faces.species(), external.index_means)
    counts = {
        "are missing": len(current.keys() - versions.keys()),
        "are no longer in the gallery": len(versions.keys() - current.keys()),
        "have changed": sum(versions.get(key, version) != version for key, version in current.items()),
    }
    differences = [f"{external.address}: {count} faces {what}; {remedy}" for what, count in counts.items() if count]
    return differences + unused


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
        if external.faces_revision != repository.settings.faces_revision():
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
                centered = store.space.center(query[None], [*map(unpack_centering, external.index_means)])[0]
                passing = index.search(centered, k + EXTRA, group=only.species).tolist()
            except IndexUnavailable as error:
                log.warning("%s, so every face is compared", error)
                return None
        return store.selected_faces(passing, [*map(unpack_centering, external.means)])


def _versions(faces: EmbeddingTable, species: Sequence[str | None], index_means: tuple[Any, ...]) -> dict[int, int]:
    """Return for each face a number that changes with its vector in the index or its species."""
    means = json.dumps(index_means).encode()
    common = hashlib.blake2b(means, digest_size=16).digest()

    def version(row: int) -> int:
        content = faces.embeddings[row].tobytes() + (species[row] or "").encode()
        return int.from_bytes(hashlib.blake2b(content, digest_size=8, key=common).digest()) >> 1

    return {face: version(row) for row, face in enumerate(faces.ids.tolist())}


def _are_close(older: Sequence[Any], newer: Sequence[Any]) -> bool:
    """Whether two sets of means are so similar that the index need not be written again."""
    if [each and each["species"] for each in older] != [each and each["species"] for each in newer]:
        return False
    pairs = ((np.array(old["means"]), np.array(new["means"])) for old, new in zip(older, newer, strict=True) if old)
    return all(np.linalg.norm(old - new, axis=1).max() <= MAX_MEANS_SHIFT for old, new in pairs)


def _open(store: Store, external: ExternalIndex) -> MilvusIndex:
    return open_index(external.address, _uid(store), store.space.embedding_dim)


def _uid(store: Store) -> str:
    with store.read() as repository:
        return repository.settings.uid()


def _check_uid(store: Store, uid: str) -> None:
    if _uid(store) != uid:
        raise GalleryBusy(f"{store.folder}: the gallery was repaired or restored just now; try again")


def _existing(store: Store, uid: str, faces: EmbeddingTable) -> set[int]:
    """Return which faces the gallery still has, within `index_lock`: so none of them is forgotten before it is written.

    Raises:
        GalleryBusy: the gallery was replaced by one that may have other faces of these ids.
    """
    with store.read() as repository:
        _check_uid(store, uid)
        if repository.settings.faces_revision() == faces.revision:
            return set(faces.ids.tolist())
        return set(repository.faces.ids()).intersection(faces.ids.tolist())
