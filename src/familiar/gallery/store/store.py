"""A gallery's database: open it, read one state of it, write in transactions, and cache what is computed from it.

Any number of processes read while one writes. A commit has reached the disk when it is acknowledged.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Generator, Hashable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

import apsw
import numpy as np
from jaxtyping import Float32

from familiar.core.errors import BadGallery, CannotWrite, FamiliarError, GalleryBusy, SpaceMismatch
from familiar.core.files import FileLock, fsync_directory, make_folder
from familiar.core.gallery_types import StoredType
from familiar.core.vectors import prefix
from familiar.gallery.store import automatic_copies
from familiar.gallery.store.connection import (
    BUSY_SECONDS,
    DATABASE,
    LOG,
    Connection,
    configure,
    connect,
    copy_to_new_file,
    damaged,
    find_damage,
    require_database,
    translate_errors,
)
from familiar.gallery.store.external_index import OpenIndex, erase_forgotten
from familiar.gallery.store.face_table import EmbeddingTable, load_face_table
from familiar.gallery.store.index_lock import index_lock
from familiar.gallery.store.model_reference import NO_REFERENCE, ModelReference
from familiar.gallery.store.recovery import LOCK_FILE
from familiar.gallery.store.repository import Repository
from familiar.gallery.store.schema import check_format, create_tables
from familiar.gallery.store.space import Space
from familiar.gallery.store.stored_embeddings import COMPONENT_BYTES, STORED_TYPES, decode, encode
from familiar.neighbors.centering import Centering
from familiar.neighbors.hnsw import erase

UPLOADED_PHOTOS = "photos"  # the folder of uploaded photos, each named by its content
_FACE_VALUES = ("faces", "centered faces", "measured album", "album", "pairs in one photo")
"""Cached values that no decision changes, unless it changes what they are cached for."""

T = TypeVar("T")


class Store:
    """The open database of a gallery, for one thread at a time. Opening is cheap. Use it in a `with`, or `close` it.

    Make one with `Store.create` or `Store.open`, and another for another thread with `new_connection`. The functions of
    this package take a store as their first argument.

    Attributes:
        folder: the gallery's folder.
        read_only: whether the folder cannot be written to. Then what is there can be read, and nothing changes.
        open_index: opens an index outside the folder; None: nothing does.
    """

    def __init__(self, folder: Path, open_index: OpenIndex | None = None) -> None:
        """Connect to the gallery of a folder, as `open` does."""
        require_database(folder)
        self.folder = folder
        self.open_index = open_index
        self.read_only = not (os.access(folder, os.W_OK) and os.access(folder / DATABASE, os.W_OK))
        with contextlib.ExitStack() as opened:
            if not self.read_only:
                opened.callback(_shared_lock(folder).close)
            with translate_errors(folder):
                self._connection = self._connect(opened)
            self._opened = opened.pop_all()
        self._repository = Repository(self._connection)
        self._cache: dict[str, tuple[Hashable, Any]] = {}  # of each key: a version, and the value at it
        self._writing = self._faces_change = False
        self._write_lock = threading.RLock()  # shared with `new_connection`
        self._checked_copies_on: date | None = None
        self.is_open = True

    def _connect(self, opened: contextlib.ExitStack) -> Connection:
        if self.read_only and (self.folder / LOG).exists() and (self.folder / LOG).stat().st_size:
            raise BadGallery(
                f"{self.folder}: has changes in {LOG} that are not in {DATABASE} yet, and the folder cannot be written "
                "to; copy the folder to where it can, and open it there once"
            )
        connection = connect(self.folder / DATABASE, read_only=self.read_only)
        opened.callback(connection.close)
        check_format(connection, self.folder)
        if not self.read_only:
            configure(connection, self.folder)
        try:
            settings = Repository(connection).settings
            settings.space()
            self._uid = settings.uid()
        except (TypeError, ValueError, KeyError) as error:
            raise damaged(self.folder, "the row that says which model it belongs to") from error
        return connection

    @staticmethod
    def create(
        folder: Path, space: Space, *, embedding_dtype: StoredType = "float16", reference: ModelReference = NO_REFERENCE
    ) -> "Store":
        """Create and open an empty gallery.

        Args:
            folder: created if missing.
            space: of the embeddings.
            embedding_dtype: how embeddings are stored.
            reference: where the model is, and which detector finds the faces.

        Raises:
            BadGallery: the folder contains a gallery.
            CannotWrite: the folder cannot be created or written to.
            ValueError: another `embedding_dtype`.
        """
        if embedding_dtype not in STORED_TYPES:
            raise ValueError(f"embedding_dtype must be one of {', '.join(STORED_TYPES)}, got {embedding_dtype!r}")
        path = folder / DATABASE
        if path.exists():
            raise BadGallery(f"{folder}: contains a gallery already; open it, or name another folder")
        if (folder / LOG).exists():  # SQLite would take it for the log of the new database
            raise BadGallery(
                f"{folder}: contains {LOG}, the log of a gallery that is not there; put {DATABASE} back, or move "
                "the log away"
            )
        make_folder(folder)
        # Written under a temporary name, so that a killed process leaves no half gallery.
        unfinished = folder / f".{DATABASE}.{os.getpid()}"
        try:
            unfinished.unlink(missing_ok=True)
            with (
                translate_errors(folder),
                contextlib.closing(connect(unfinished, create=True)) as connection,
                connection,
            ):
                create_tables(connection)
                Repository(connection).settings.create(space, embedding_dtype, reference)
            publish(unfinished, path)
        except FileExistsError as error:
            raise BadGallery(f"{folder}: another process has just created a gallery there; open it") from error
        except OSError as error:
            raise CannotWrite(f"{folder}: no gallery can be created there ({error.strerror or error})") from error
        finally:
            unfinished.unlink(missing_ok=True)
        return Store.open(folder)

    @staticmethod
    def open(folder: Path, open_index: OpenIndex | None = None) -> "Store":
        """Open the gallery of a folder, and finish any erasure that `forget` could not complete.

        Args:
            folder: the gallery's folder.
            open_index: opens an index outside the folder, if the gallery has one.

        Raises:
            BadGallery: no gallery there, another program's database, or one of a development version.
            CorruptGallery: the file is damaged.
        """
        store = Store(folder, open_index)
        try:
            store.purge_deleted()
        except BaseException:
            store.close()
            raise
        return store

    def new_connection(self) -> "Store":
        """Open a second connection for use in another thread. Shares the in-memory cache and the write lock."""
        second = Store(self.folder, self.open_index)
        second._cache, second._write_lock = self._cache, self._write_lock
        return second

    def close(self) -> None:
        """Close the connection."""
        self._opened.close()
        self.is_open = False

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def read(self) -> Generator[Repository, None, None]:
        """Read one state, unaffected by concurrent writes. Within `write`, see that write's changes so far."""
        with translate_errors(self.folder):
            if self._connection.in_transaction:
                yield self._repository
                return
            self._connection.run("BEGIN")
            try:
                self._uid = self._repository.settings.uid()
                yield self._repository
            finally:
                if self._connection.in_transaction:
                    self._connection.run("ROLLBACK")

    @contextlib.contextmanager
    def write(self, *, faces_change: bool = False) -> Generator[Repository, None, None]:
        """Run one transaction: on the disk as a whole at the end, or undone as a whole after an error or a crash.

        No other process writes between what is read in it and what is written. A `write` within another one is part
        of it; an error undoes the inner one, and the outer one if it does not catch the error. Not for what takes
        long, since other writers wait, and not around `purge_deleted`.

        Args:
            faces_change: whether faces are added or deleted, or their embeddings change.

        Raises:
            GalleryBusy: another connection or process has been writing for ten seconds; or the gallery was restored
                from a backup since it was last read, so what was read may not be true any more.
            CannotWrite: the gallery cannot be written to, or the disk is full.
        """
        if self.read_only:
            raise CannotWrite(f"{self.folder}: cannot be written to; nothing was changed")
        with translate_errors(self.folder), self._write_turn():
            if self._writing:
                self._faces_change |= faces_change
                with self._savepoint():
                    yield self._repository
                return
            self._copy_once_a_day()
            self._connection.run("BEGIN IMMEDIATE")
            try:
                self._require_not_restored()
                self._writing, self._faces_change = True, faces_change
                changes = self._connection.total_changes()
                yield self._repository
                if self._connection.total_changes() != changes:
                    self._repository.settings.count_revision(faces_change=self._faces_change)
                self._connection.run("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite ends it by itself if the disk is full
                    self._connection.run("ROLLBACK")
                raise
            finally:
                self._writing = self._faces_change = False

    def _copy_once_a_day(self) -> None:
        if self._checked_copies_on != (today := date.today()):
            self._checked_copies_on = today
            if not automatic_copies.has_copy_of_today(self.folder):
                self.make_automatic_copy()

    def make_automatic_copy(self, reason: str = "") -> Path | None:
        """Copy the database into `backups/`, if the gallery has automatic copies and a photo.

        Args:
            reason: a word for the copy's name, if it is not that of the day.

        Returns:
            The copy, if one was made.
        """
        with self._write_turn():
            retention = self._repository.settings.retention()
            return automatic_copies.copy(self._connection, self.folder, retention, reason)

    @contextlib.contextmanager
    def _savepoint(self) -> Generator[None, None, None]:
        """Undo what is written within, and nothing before it, if there is an error."""
        self._connection.run("SAVEPOINT inner")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:
                self._connection.run("ROLLBACK TO inner")
            raise
        finally:
            if self._connection.in_transaction:
                self._connection.run("RELEASE inner")

    def _require_not_restored(self) -> None:
        uid, self._uid = self._uid, self._repository.settings.uid()
        if uid != self._uid:
            raise GalleryBusy(
                f"{self.folder}: the gallery was restored from a backup just now. Nothing was changed; try again"
            )

    @contextlib.contextmanager
    def _write_turn(self) -> Generator[None, None, None]:
        """Wait until no other connection of this process writes. GalleryBusy after ten seconds."""
        if not self._write_lock.acquire(timeout=BUSY_SECONDS):
            raise GalleryBusy(f"{self.folder}: another change is being written; try again when it is done")
        try:
            yield
        finally:
            self._write_lock.release()

    @property
    def space(self) -> Space:
        """The space of the stored embeddings."""
        with self.read() as repository:
            return repository.settings.space()

    @property
    def model_reference(self) -> ModelReference:
        """Where the model is, and which detector finds the faces."""
        with self.read() as repository:
            return repository.settings.model_reference()

    @property
    def revision(self) -> int:
        """Revision counter, incremented by every committed write of any process."""
        with self.read() as repository:
            return repository.settings.revision()

    @property
    def embedding_dtype(self) -> StoredType:
        """How embeddings are stored."""
        with self.read() as repository:
            return repository.settings.embedding_format()[1]

    def check_space(
        self, space_id: str, embedding_dim: int, prefixes: Collection[int] = (), *, to_compare: bool = False
    ) -> None:
        """Check that embeddings of a model can be stored here: as they are, or truncated to the stored length.

        Args:
            space_id: of the model.
            embedding_dim: of the model.
            prefixes: lengths to which the model's embeddings may be truncated.
            to_compare: they are compared with the stored ones, over what both have in common, so they may be shorter.

        Raises:
            SpaceMismatch: they cannot.
        """
        space = self.space
        lengths = (space.prefixes if to_compare else ()) + (space.embedding_dim,)
        if space_id != space.space_id or not (embedding_dim in lengths or space.embedding_dim in prefixes):
            raise SpaceMismatch(
                f"{self.folder}: its faces were embedded by another model; use the one that the gallery was made with, "
                f"or embed them again with this one: familiar gallery migrate {self.folder} --model MODEL"
            )

    def truncate(self, embeddings: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n k"]:
        """Truncate unit rows that are longer than the stored embeddings to their length; shorter ones stay as they are.

        Args:
            embeddings: by a model that `check_space` accepts.
        """
        length = self.space.embedding_dim
        return prefix(embeddings, length) if embeddings.shape[1] > length else embeddings

    def faces(self) -> EmbeddingTable:
        """Return all faces as they are compared, cached until a face is added, deleted or changed.

        If the model has species means, those of the gallery's faces are subtracted from the embeddings.
        """
        with self.read():
            faces = self.stored_faces()
            return self.cached("centered faces", faces.revision, faces.centered)

    def faces_at(self, length: int) -> EmbeddingTable:
        """Return all faces as they are compared with embeddings of this length; cached as by `faces`.

        Args:
            length: the stored length, or one of the model's shorter prefixes.

        Raises:
            ValueError: it is neither.
        """
        with self.read():
            space = self.space
            if length == space.embedding_dim:
                return self.faces()
            if length not in space.lengths:
                lengths = " or ".join(map(str, space.lengths))
                raise ValueError(f"{self.folder}: needs embeddings of {lengths} dimensions, got {length}")
            stored = self.stored_faces()
            return self.cached(f"faces at {length}", stored.revision, lambda: stored.truncated(length))

    def stored_faces(self) -> EmbeddingTable:
        """Return all faces with their embeddings as the model computed them, cached as by `faces`."""
        with self.read() as repository:
            return self.cached("faces", repository.settings.faces_revision(), self._load_faces)

    def selected_faces(self, faces: Collection[int], centerings: Sequence[Centering | None]) -> EmbeddingTable:
        """Return some faces as they are compared, without reading the others.

        Args:
            faces: their numbers.
            centerings: of each part, what is subtracted from their embeddings.
        """
        with self.read():
            rows = self._load_faces(faces)
        return replace(rows, embeddings=rows.unit_rows()).centered_by(centerings)

    def _load_faces(self, only: Collection[int] | None = None) -> EmbeddingTable:
        """Read the faces of these numbers (None: all) with their embeddings as the model computed them."""
        space, stored_type, revision = self._repository.settings.embedding_format()
        return load_face_table(self._connection, stored_type, space, revision, self.folder, only)

    def cached(self, key: str, revision: Hashable, factory: Callable[[], T]) -> T:
        """Return the value cached under `key` for `revision`, computing it with `factory` if missing.

        One value is cached per key, and None never. Within a transaction that changes what the value is computed from,
        it is computed every time.
        """
        if self._writing and (key not in _FACE_VALUES or self._faces_change):
            return factory()
        version = (self._uid, revision)
        cached_version, value = self._cache.get(key, (None, None))
        if cached_version != version or value is None:
            value = factory()
            self._cache[key] = (version, value)
        return value

    def encode_embeddings(self, embeddings: Float32[np.ndarray, "n d"]) -> list[bytes]:
        """Encode unit rows as the database stores them.

        Raises:
            ValueError: a row is not of unit length.
        """
        return encode(embeddings, self.embedding_dtype)

    def decode_embeddings(self, rows: Sequence[bytes]) -> Float32[np.ndarray, "n d"]:
        """Decode embeddings of the database, each as it is stored, to unit rows.

        Raises:
            ValueError: they have other lengths, or one is not of unit length.
        """
        stored_type = self.embedding_dtype
        length = len(rows[0]) // COMPONENT_BYTES[stored_type] if rows else self.space.embedding_dim
        return decode(b"".join(rows), stored_type, length).astype(np.float32)

    def copy_to(self, path: Path) -> None:
        """Copy the database as it is now into a new file, while others may go on writing."""
        with translate_errors(self.folder):
            copy_to_new_file(self._connection, path)

    def damage(self) -> list[str]:
        """Read every page, and describe each damage and each reference to a missing row."""
        with self.read():
            return find_damage(self._connection)

    def purge_deleted(self) -> bool:
        """Erase forgotten content from the search indexes, the automatic copies, unused pages and the log, if due.

        Returns:
            False if it is due and impossible now: another process has the gallery open or is writing to its index, the
            disk is full, or an index outside the folder cannot be reached. The next `Store.open` tries again.
        """
        if self.read_only:
            return False
        try:
            with translate_errors(self.folder):
                while forgotten := self._repository.erasure.forgotten():
                    with index_lock(self.folder):
                        erase(self.folder)  # the index, which contains every embedding
                        automatic_copies.forget(self.folder, forgotten)
                        self._compact()
                        if not self._erase_from_external_index():
                            return False
                    with self.write() as repository:
                        repository.erasure.finish(forgotten)  # if others have forgotten more: once again
        except (GalleryBusy, CannotWrite):
            return False
        return True

    def _erase_from_external_index(self) -> bool:
        """Remove forgotten faces from the index outside the folder, if there is one; return whether they are gone."""
        self._cache.pop("external index", None)  # a file may be open only once
        try:
            erase_forgotten(self.folder, self.open_index, self.space.embedding_dim, self._repository.faces.ids())
        except FamiliarError:  # also if its address cannot be read, or a package is missing: `check` says which
            return False
        return True

    def _compact(self) -> None:
        """Write the file anew without its unused pages. GalleryBusy if another process is reading from the log."""
        self._connection.set("temp_store", "MEMORY")  # no copy in a temporary file
        self._connection.run("VACUUM")
        try:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError as error:
            raise GalleryBusy(f"{self.folder}: another process has the gallery open") from error


def _shared_lock(folder: Path) -> FileLock:
    """Keep others from replacing the database's file. GalleryBusy if one is doing so."""
    lock = FileLock(folder / LOCK_FILE)
    if lock.acquire(shared=True, wait_seconds=BUSY_SECONDS):
        return lock
    lock.close()
    raise GalleryBusy(f"{folder}: the gallery's file is being replaced; try again when that is done")


def publish(finished: Path, path: Path) -> None:
    """Give a finished file its name, unless there is one of that name: FileExistsError."""
    try:
        os.link(finished, path)  # unlike a rename, this never replaces what another process has put there
        finished.unlink()
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        path.open("xb").close()
        finished.replace(path)
    fsync_directory(path.parent)
