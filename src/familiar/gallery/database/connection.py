"""SQLite storage of a gallery: open, verify, read and write. Contains no knowledge of images or of identities.

One SQLite database in WAL mode: any number of processes read while one writes. Each commit has reached the disk when
it is acknowledged (`synchronous = FULL`), and deleted content is overwritten with zeros (`secure_delete`).
"""

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Generator, Hashable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float32

from familiar.core.errors import BadGallery, CannotWrite, FamiliarError, GalleryBusy, SpaceMismatch
from familiar.core.files import FileLock, fsync_directory, make_folder
from familiar.core.vectors import check_unit_rows, prefix
from familiar.gallery.database.checksums import sequence_checksum
from familiar.gallery.database.copies import erase_kept, erase_unfinished
from familiar.gallery.database.external_index import erase_forgotten
from familiar.gallery.database.face_table import FaceTable, load_face_table
from familiar.gallery.database.index_lock import index_lock
from familiar.gallery.database.integrity import database_problems
from familiar.gallery.database.model_reference import NO_REFERENCE, ModelReference
from familiar.gallery.database.repository import Repository
from familiar.gallery.database.schema import create_tables, store_checksums
from familiar.gallery.database.space import Space
from familiar.gallery.database.sqlite_errors import translate_sqlite_errors
from familiar.gallery.database.sqlite_file import (
    DATABASE,
    check_log,
    close_descriptor,
    connect,
    file_id,
    open_descriptor,
    prepare,
    read_open_file,
    record_acknowledged_writes,
)
from familiar.gallery.database.switch import (
    LOCK_FILE,
    MAX_WAIT_SECONDS,
    exclusive,
    finish_switch,
    is_unfinished,
    wait_for,
)
from familiar.neighbors.hnsw import erase

__all__ = [
    "BUSY_SECONDS",
    "DATABASE",
    "UPLOADED_PHOTOS",
    "FaceTable",
    "GalleryDatabase",
    "Space",
    "translate_sqlite_errors",
]

UPLOADED_PHOTOS = "photos"  # the folder of uploaded photos, each named by its content
BUSY_SECONDS = 10.0  # how long a writer waits for another

_BUSY_RETRY_SECONDS = 0.02
_FACE_VALUES = ("faces", "centered faces", "album", "pairs in one photo")  # cached values that no decision changes

T = TypeVar("T")


@contextlib.contextmanager
def _translate_os_errors(folder: Path) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        raise CannotWrite(f"{folder}: no gallery can be created there ({error.strerror or error})") from error


class GalleryDatabase:
    """An open gallery, for one thread at a time. Opening is cheap. Use it in a `with`, or `close` it.

    Create one with `GalleryDatabase.create` or `GalleryDatabase.open`, and another connection for another thread with
    `new_connection`. The functions of this package take a gallery as their first argument.
    """

    def __init__(self, folder: Path, *, check: bool = True) -> None:
        """Connect to the gallery of a folder, as `open` does."""
        self.folder = folder
        self._lock: FileLock | None = None  # shared with other writers; not in a folder that is read-only
        try:
            self._connect(check=check)
        except BaseException:
            self._close_lock()
            raise
        self._cache: dict[str, tuple[Hashable, Any]] = {}  # of each key: a file and revision, and the value at them
        self._writing = self._faces_change = False
        self._writes: int | None = None  # their number after the last one of the open transaction
        self._write_lock = threading.RLock()  # shared with `new_connection`
        self.is_open = True

    @staticmethod
    def create(
        folder: Path, space: Space, *, embedding_dtype: str = "float16", reference: ModelReference = NO_REFERENCE
    ) -> "GalleryDatabase":
        """Create and open an empty gallery.

        Args:
            folder: created if missing.
            space: of the embeddings.
            embedding_dtype: how embeddings are stored, "float16" or "float32".
            reference: where the model is, and which detector finds the faces.

        Raises:
            BadGallery: the folder contains a gallery.
            CannotWrite: the folder cannot be created or written to.
            ValueError: another `embedding_dtype`.
        """
        if embedding_dtype not in ("float16", "float32"):
            raise ValueError(f"embedding_dtype must be 'float16' or 'float32', got {embedding_dtype!r}")
        path = folder / DATABASE
        if path.exists():
            raise BadGallery(f"{folder}: contains a gallery already; open it, or name another folder")
        if (folder / f"{DATABASE}-wal").exists():  # SQLite would take it for the log of the new database
            raise BadGallery(
                f"{folder}: contains {DATABASE}-wal, the log of a gallery that is not there; put {DATABASE} back, or "
                "move the log away"
            )
        make_folder(folder)
        just_created = BadGallery(f"{folder}: another process has just created a gallery there; open it")
        # Written under a temporary name, so that a killed process leaves no half gallery.
        unfinished = folder / f".{DATABASE}.{os.getpid()}"
        with translate_sqlite_errors(folder), _translate_os_errors(folder):
            unfinished.unlink(missing_ok=True)
            connection = connect(unfinished, BUSY_SECONDS)
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("BEGIN IMMEDIATE")
            create_tables(connection)
            Repository(connection).settings.create(space, embedding_dtype, reference)
            store_checksums(connection)
            connection.execute("COMMIT")
            connection.execute("PRAGMA journal_mode = WAL")  # here, as it cannot wait for others that open the file
            connection.close()
            try:
                # Unlike a rename, this never replaces what another process created in the meantime.
                os.link(unfinished, path)
            except FileExistsError as error:
                raise just_created from error
            except OSError as error:  # a file system without hard links
                with exclusive(folder):
                    if path.exists():
                        raise just_created from error
                    unfinished.rename(path)
            finally:
                with contextlib.suppress(OSError):
                    unfinished.unlink()
            fsync_directory(folder)
        return GalleryDatabase.open(folder)

    @staticmethod
    def open(folder: Path, *, check: bool = True) -> "GalleryDatabase":
        """Open the gallery of a folder, and finish any erasure that `forget` could not complete.

        Args:
            folder: the gallery's folder.
            check: whether to read every page of the file.

        Raises:
            BadGallery: no gallery there, another program's database, or one of a newer version.
            CorruptGallery: the file is damaged, cut short, or older than the last acknowledged write.
        """
        gallery = GalleryDatabase(folder, check=check)
        try:
            gallery.purge_deleted()
        except BaseException:
            gallery.close()
            raise
        return gallery

    def new_connection(self) -> "GalleryDatabase":
        """Open a second connection for use in another thread. Shares the in-memory cache and the write lock."""
        second = GalleryDatabase(self.folder, check=False)
        second._cache, second._write_lock = self._cache, self._write_lock
        return second

    def close(self) -> None:
        """Close the connection."""
        if self.is_open:
            # The last connection deletes the log by its name. While another process puts a new database in place, that
            # may be the name of the new log.
            if self._lock is not None:
                wait_for(self._lock, shared=True, seconds=MAX_WAIT_SECONDS)
            self._connection.close()
            close_descriptor(self._file)
            self._close_lock()
        self.is_open = False

    def _close_lock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _connect(self, *, check: bool) -> None:
        """Connect to the file that is the gallery's now, while no other process replaces it."""
        if not is_unfinished(self.folder):
            close_descriptor(open_descriptor(self.folder))  # before a lock file is written where there is no gallery
        if self._lock is None:
            with contextlib.suppress(CannotWrite):
                self._lock = FileLock(self.folder / LOCK_FILE)
        if self._lock is None:
            self._connect_locked(check=check)
            return
        while True:
            finish_switch(self.folder)
            if not wait_for(self._lock, shared=True, seconds=BUSY_SECONDS):
                raise GalleryBusy(
                    f"{self.folder}: the gallery is being repaired or restored; try again when that is done"
                )
            try:
                if not is_unfinished(self.folder):
                    self._connect_locked(check=check)
                    return
            finally:
                self._lock.release()

    def _connect_locked(self, *, check: bool) -> None:
        path, connection = self.folder / DATABASE, None
        file = open_descriptor(self.folder)
        try:
            with translate_sqlite_errors(self.folder):
                check_log(path, self.folder)
                connection = connect(path, BUSY_SECONDS)
                prepare(connection, self.folder, check=check)
                (uid,) = connection.execute("SELECT uid FROM gallery").fetchone()
        except BaseException:
            if connection is not None:
                connection.close()
            close_descriptor(file)
            raise
        self._connection, self._file, self._uid = connection, file, uid
        self._repository = Repository(connection)

    def __enter__(self) -> "GalleryDatabase":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def reading(self) -> Generator[Repository, None, None]:
        """Read one snapshot, unaffected by concurrent writes. Within `writing`, see that write's changes so far.

        If the gallery was repaired or restored meanwhile, what is read is the new one.
        """
        if not self._connection.in_transaction and self._is_replaced():
            self._reconnect()
        with self._reading_file() as repository:
            yield repository

    @contextlib.contextmanager
    def _reading_file(self) -> Generator[Repository, None, None]:
        """Read one snapshot of the file that is open."""
        with translate_sqlite_errors(self.folder):
            if self._connection.in_transaction:
                yield self._repository
                return
            self._connection.execute("BEGIN")
            try:
                yield self._repository
            finally:
                self._connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def writing(self, *, faces_change: bool = False, new_revision: bool = True) -> Generator[Repository, None, None]:
        """Run one transaction: on the disk as a whole at the end, or undone as a whole after an error or a crash.

        If the gallery was repaired meanwhile, what is written to is the new file.

        Args:
            faces_change: whether faces are added or deleted, or their embeddings change.
            new_revision: whether caches of other connections become invalid; False if only `watch_events` and the
                tables beside it change, of which nothing is cached.

        Raises:
            GalleryBusy: another connection or process has been writing for ten seconds; or the gallery was restored
                from a backup since it was last read, so what was read may not be true any more.
            BadGallery: the file was moved away since it was opened.
        """
        with self.exclusive():
            self._faces_change |= faces_change
            self._connection.execute("SAVEPOINT writing")  # so that an error undoes this write and nothing before it
            try:
                yield self._repository
                self._writes = self._repository.settings.count_write(
                    new_revision=new_revision,
                    faces_change=faces_change,
                    sequence_checksum=sequence_checksum(self._connection),
                )
            except BaseException:
                if self._connection.in_transaction:  # SQLite ends it by itself if the disk is full
                    self._connection.execute("ROLLBACK TO writing")
                raise
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("RELEASE writing")

    @contextlib.contextmanager
    def exclusive(self) -> Generator[None, None, None]:
        """Run reads, and the writes that depend on them, as one transaction: no other process writes in between.

        Each `writing` within it counts as a write of its own, and all of them reach the disk together, or none. Not
        for what takes long, since other writers wait, and not around `purge_deleted`.

        Raises:
            GalleryBusy, BadGallery: as `writing`.
        """
        with translate_sqlite_errors(self.folder), self._write_turn():
            if self._writing:
                yield
                return
            try:
                self._begin_write()
                self._writing, self._faces_change, self._writes = True, False, None
                yield
                self._connection.execute("COMMIT")
                if self._writes is not None:
                    record_acknowledged_writes(self.folder, self._writes)  # with the lock: it belongs to this file
            except BaseException:
                if self._connection.in_transaction:  # SQLite ends it by itself if the disk is full
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._writing, self._faces_change, self._writes = False, False, None
                if self._lock is not None:
                    self._lock.release()

    def _begin_write(self) -> None:
        """Begin a transaction on the gallery's file, and keep other processes from replacing it until it ends."""
        if self._lock is None:
            self._lock = FileLock(self.folder / LOCK_FILE)  # raises CannotWrite in a read-only folder
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            if self._is_replaced():
                uid = self._uid
                self._reconnect()
                with self._reading_file() as repository:
                    if uid not in repository.settings.repaired_from():
                        raise GalleryBusy(
                            f"{self.folder}: the gallery was restored from a backup just now. Nothing was changed; "
                            "try again"
                        )
            self._connection.execute("BEGIN IMMEDIATE")
            # In this order, the lock is held only while this connection writes, not while it waits for another.
            is_locked = self._lock.acquire(shared=True)
            if is_locked and not is_unfinished(self.folder) and not self._is_replaced():
                return
            self._connection.execute("ROLLBACK")
            self._lock.release()
            if is_locked:
                finish_switch(self.folder)
            elif time.monotonic() > deadline:
                raise GalleryBusy(f"{self.folder}: the gallery is being repaired or restored; try again later")
            else:
                time.sleep(_BUSY_RETRY_SECONDS)

    def _is_replaced(self) -> bool:
        """Whether a repair or a restore has replaced the file."""
        return file_id(self.folder) != self._file

    def _reconnect(self) -> None:
        """Connect to the file that has replaced the one that was open.

        Raises:
            BadGallery: the file was moved away, or the new one is no gallery.
            CorruptGallery: the new one is damaged.
        """
        if file_id(self.folder) is None and not is_unfinished(self.folder):
            raise BadGallery(
                f"{self.folder}: {DATABASE} was moved away since it was opened; put it back, or restore a backup. "
                "Nothing was changed"
            )
        old_connection, old_file = self._connection, self._file
        self._connect(check=False)
        old_connection.close()
        close_descriptor(old_file)

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
        with self.reading() as repository:
            return repository.settings.space()

    @property
    def model_reference(self) -> ModelReference:
        """Where the model is, and which detector finds the faces."""
        with self.reading() as repository:
            return repository.settings.model_reference()

    @property
    def revision(self) -> int:
        """Revision counter, incremented by every committed write of any process."""
        with self.reading() as repository:
            return repository.settings.revision()

    @property
    def embedding_dtype(self) -> np.dtype[Any]:
        """The stored type of embeddings: little-endian float16 or float32."""
        with self.reading() as repository:
            return np.dtype(repository.settings.embedding_dtype()).newbyteorder("<")

    def check_space(self, space_id: str, embedding_dim: int, prefixes: Collection[int] = ()) -> None:
        """Check that embeddings of a model can be stored here: as they are, or truncated to the stored length.

        Args:
            space_id: of the model.
            embedding_dim: of the model.
            prefixes: lengths to which the model's embeddings may be truncated.

        Raises:
            SpaceMismatch: they cannot.
        """
        space = self.space
        if space_id != space.space_id or space.embedding_dim not in (embedding_dim, *prefixes):
            raise SpaceMismatch(
                f"{self.folder}: its embeddings are in the space {space.space_id} ({space.embedding_dim} dimensions), "
                f"not in {space_id} ({embedding_dim}); use the model that the gallery was made with, or re-embed it "
                "with the new one: familiar gallery migrate"
            )

    def check_comparable(self, space_id: str, embedding_dim: int, prefixes: Collection[int] = ()) -> None:
        """Check that embeddings of a model can be compared with the stored ones, over what both have in common.

        Args:
            space_id: of the model.
            embedding_dim: of the model.
            prefixes: lengths to which the model's embeddings may be truncated.

        Raises:
            SpaceMismatch: they cannot.
        """
        is_shorter = space_id == self.space.space_id and embedding_dim in self.space.prefixes
        if not is_shorter:
            self.check_space(space_id, embedding_dim, prefixes)

    def truncate(self, embeddings: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n k"]:
        """Truncate unit rows that are longer than the stored embeddings to their length; shorter ones stay as they are.

        Args:
            embeddings: by a model that `check_comparable` accepts.
        """
        length = self.space.embedding_dim
        return prefix(embeddings, length) if embeddings.shape[1] > length else embeddings

    def truncate_query(self, query: Float32[np.ndarray, " d"]) -> Float32[np.ndarray, " k"]:
        """Truncate one embedding, as `truncate`."""
        return self.truncate(query[None])[0]

    def faces(self) -> FaceTable:
        """Return all faces as they are compared, cached until a face is added, deleted or changed.

        If the model has species means, those of the gallery's faces are subtracted from the embeddings.
        """
        with self.reading():
            faces = self.stored_faces()
            return self.cached("centered faces", faces.revision, faces.centered)

    def faces_at(self, length: int) -> FaceTable:
        """Return all faces as they are compared with embeddings of this length; cached as by `faces`.

        Args:
            length: the stored length, or one of the model's shorter prefixes.

        Raises:
            ValueError: it is neither.
        """
        with self.reading():
            space = self.space
            if length == space.embedding_dim:
                return self.faces()
            if length not in space.lengths:
                lengths = " or ".join(map(str, space.lengths))
                raise ValueError(f"{self.folder}: needs embeddings of {lengths} dimensions, got {length}")
            stored = self.stored_faces()
            return self.cached(f"faces at {length}", stored.revision, lambda: stored.truncated(length))

    def stored_faces(self) -> FaceTable:
        """Return all faces with their embeddings as the model computed them, cached as by `faces`."""
        with self.reading() as repository:
            space, dtype_name, revision = repository.settings.embedding_format()
            dtype = np.dtype(dtype_name).newbyteorder("<")
            return self.cached(
                "faces", revision, lambda: load_face_table(self._connection, dtype, space, revision, self.folder)
            )

    def cached(self, key: str, revision: Hashable, factory: Callable[[], T]) -> T:
        """Return the value cached under `key` for `revision`, computing it with `factory` if missing.

        One value is cached per key, and None never. Within a transaction that changes what the value is computed from,
        it is computed every time.
        """
        if self._writing and (key not in _FACE_VALUES or self._faces_change):
            return factory()
        version = (self._file, revision)
        cached_version, value = self._cache.get(key, (None, None))
        if cached_version != version or value is None:
            value = factory()
            self._cache[key] = (version, value)
        return value

    def copy_to(self, path: Path) -> None:
        """Copy the database as it is now into a new file, while others may go on writing."""
        with translate_sqlite_errors(self.folder), contextlib.closing(sqlite3.connect(path)) as copy:
            with self.reading():
                self._connection.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # so that all is in this file

    def integrity_problems(self) -> list[str]:
        """Read every page of the file, and return a description of each damage and each reference to a missing row."""
        with self.reading() as repository:
            return database_problems(repository.connection, self.folder, read_open_file(self._file))

    def encode_embeddings(self, embeddings: Float32[np.ndarray, "n d"]) -> list[bytes]:
        """Encode unit rows as the database stores them.

        Raises:
            ValueError: a row is not of unit length.
        """
        check_unit_rows(embeddings)
        return [row.tobytes() for row in embeddings.astype(self.embedding_dtype)]

    def purge_deleted(self) -> bool:
        """Erase forgotten content from the search indexes, the file's unused pages and its write-ahead log, if due.

        Returns:
            False if it is due and impossible now: another process has the gallery open or is writing to its index, the
            disk is full, or an index outside the folder cannot be reached. The next `GalleryDatabase.open` tries again.
        """
        try:
            with translate_sqlite_errors(self.folder):
                while mark := self._repository.settings.erasure_due():
                    uid = self._repository.settings.uid()
                    with index_lock(self.folder):
                        with self._not_replaced():
                            erase(self.folder)  # the index, which contains every embedding
                            erase_unfinished(self.folder)
                            erase_kept(self.folder)
                            self._compact()
                        if not self._erase_from_external_index(uid):
                            return False
                    with self.writing() as repository:
                        if repository.settings.uid() != uid:
                            return False  # a repair has kept a copy meanwhile, which the next forgetting erases
                        repository.settings.clear_erasure_due(mark)  # not if others have forgotten more: once again
        except (GalleryBusy, CannotWrite):
            return False
        return True

    def _erase_from_external_index(self, uid: str) -> bool:
        """Remove forgotten faces from the index outside the folder, if there is one; return whether they are gone."""
        self._cache.pop("external index", None)  # a file of Milvus Lite is open only once
        try:
            erase_forgotten(self.folder, uid, self.space.embedding_dim, self._repository.faces.ids())
        except FamiliarError:  # also if its address cannot be read, or pymilvus is missing: `check` says which
            return False
        return True

    @contextlib.contextmanager
    def _not_replaced(self) -> Generator[None, None, None]:
        """Keep other processes from replacing the file. GalleryBusy if one is about to, or has."""
        is_locked = self._lock is not None and self._lock.acquire(shared=True)
        try:
            if not is_locked or is_unfinished(self.folder) or self._is_replaced():
                raise GalleryBusy(f"{self.folder}: the gallery is being repaired or restored")
            yield
        finally:
            if self._lock is not None:
                self._lock.release()

    def _compact(self) -> None:
        """Write the file anew without its unused pages."""
        self._connection.execute("PRAGMA temp_store = MEMORY")  # no copy in a temporary file
        self._connection.execute("VACUUM")
        self._truncate_log()

    def _truncate_log(self) -> None:
        """Write the write-ahead log back and empty it. GalleryBusy if another process is reading from it."""
        busy, _, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise GalleryBusy(f"{self.folder}: another process has the gallery open")
