"""SQLite storage of a gallery: open, verify, read and write. Contains no knowledge of images or of identities.

One SQLite database in WAL mode: any number of processes read while one writes. Each commit has reached the disk when
it is acknowledged (`synchronous = FULL`), and deleted content is overwritten with zeros (`secure_delete`).
"""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Generator, Hashable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float32

from familiar.core.errors import BadGallery, CannotWrite, GalleryBusy, IndexUnavailable, SpaceMismatch
from familiar.core.files import erase_file
from familiar.core.vectors import check_unit_rows, prefix
from familiar.gallery.database.external_index import erase_forgotten
from familiar.gallery.database.face_table import FaceTable, load_face_table
from familiar.gallery.database.repository import Repository
from familiar.gallery.database.schema import create_tables
from familiar.gallery.database.space import Space
from familiar.gallery.database.sqlite_errors import translate_sqlite_errors
from familiar.gallery.database.sqlite_file import (
    DATABASE,
    check_header,
    configure,
    connect,
    file_id,
    prepare,
    record_committed_revision,
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

KEPT_BY_REPAIR = "damaged-*"  # folders with the damaged files of a gallery that was repaired
UPLOADED_PHOTOS = "photos"  # the folder of uploaded photos, each named by its content
BUSY_SECONDS = 10.0  # how long a writer waits for another

T = TypeVar("T")


def kept_copies(folder: Path) -> list[Path]:
    """List the folders in which repairs have kept damaged files of a gallery, with copies of what was in it then."""
    return sorted(path for path in folder.glob(KEPT_BY_REPAIR) if (path / DATABASE).exists())


def _erase_copies(folder: Path) -> None:
    """Erase the copies that repairs made of a gallery: of a repair that was killed, and damaged files."""
    for path in (*folder.glob(f".{DATABASE}.damaged*"), *folder.glob(f".{DATABASE}.repaired*")):
        erase_file(path)
    for copies in kept_copies(folder):
        # The database last: by it the folder is recognized, if this is interrupted.
        for path in sorted(copies.glob("gallery.*"), key=lambda path: path.name == DATABASE):
            erase_file(path)
        with contextlib.suppress(OSError):  # something of the user's is in it, too
            copies.rmdir()


class GalleryDatabase:
    """An open gallery, for one thread at a time. Opening is cheap. Use it in a `with`, or `close` it.

    Create one with `GalleryDatabase.create` or `GalleryDatabase.open`, and another connection for another thread with
    `new_connection`. The functions of this package take a gallery as their first argument.
    """

    def __init__(self, folder: Path, connection: sqlite3.Connection, file: tuple[int, int] | None) -> None:
        """Wrap an open connection.

        Args:
            folder: the gallery's folder.
            connection: to its database, configured.
            file: (st_dev, st_ino) of the database when `connection` was opened; see `file_id`.
        """
        self.folder = folder
        self._connection, self._file = connection, file
        self._repository = Repository(connection)
        self._cache: dict[str, tuple[Hashable, Any]] = {}  # of each key: a revision, and the value at it
        self._writing = self._faces_change = False
        self._write_lock = threading.RLock()  # shared with `new_connection`
        self.is_open = True

    @staticmethod
    def create(folder: Path, space: Space, *, embedding_dtype: str = "float16") -> "GalleryDatabase":
        """Create and open an empty gallery.

        Args:
            folder: created if missing.
            space: of the embeddings.
            embedding_dtype: how embeddings are stored, "float16" or "float32".

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
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotWrite(f"{folder}: cannot be created ({error.strerror})") from error
        # Written under a temporary name, so that a killed process leaves no half gallery.
        unfinished = folder / f".{DATABASE}.{os.getpid()}"
        unfinished.unlink(missing_ok=True)
        with translate_sqlite_errors(folder):
            connection = connect(unfinished, BUSY_SECONDS)
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("BEGIN IMMEDIATE")
            create_tables(connection)
            Repository(connection).settings.create(space, embedding_dtype)
            connection.execute("COMMIT")
            connection.close()
        try:
            # Unlike a rename, this never replaces what another process created in the meantime.
            os.link(unfinished, path)
        except FileExistsError as error:
            raise BadGallery(f"{folder}: another process has just created a gallery there; open it") from error
        except OSError:  # a file system without hard links
            unfinished.rename(path)
        finally:
            unfinished.unlink(missing_ok=True)
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
        path = folder / DATABASE
        check_header(path)
        file = file_id(folder)  # first: if the file is replaced while we connect to it, no write will succeed
        with translate_sqlite_errors(folder):
            connection = connect(path, BUSY_SECONDS)
            try:
                prepare(connection, folder, check=check)
            except BaseException:
                connection.close()
                raise
        gallery = GalleryDatabase(folder, connection, file)
        gallery.purge_deleted()
        return gallery

    def new_connection(self) -> "GalleryDatabase":
        """Open a second connection for use in another thread. Shares the in-memory cache and the write lock.

        Raises:
            BadGallery: the file has been replaced since it was opened.
        """
        self._check_not_replaced()
        with translate_sqlite_errors(self.folder):
            connection = connect(self.folder / DATABASE, BUSY_SECONDS)
            configure(connection)
        second = GalleryDatabase(self.folder, connection, self._file)
        second._cache, second._write_lock = self._cache, self._write_lock
        return second

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
        self.is_open = False

    def __enter__(self) -> "GalleryDatabase":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def reading(self) -> Generator[Repository, None, None]:
        """Read one snapshot, unaffected by concurrent writes. Within `writing`, see that write's changes so far."""
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

        Args:
            faces_change: whether faces are added or deleted, or their embeddings change.
            new_revision: whether caches of other connections become invalid; False if only `watch_events` and the
                tables beside it change, of which nothing is cached.

        Raises:
            GalleryBusy: another connection or process has been writing for ten seconds.
            BadGallery: the file has been replaced since it was opened.
        """
        with translate_sqlite_errors(self.folder), self.write_lock():
            self._connection.execute("BEGIN IMMEDIATE")
            self._writing, self._faces_change = True, faces_change
            try:
                self._check_not_replaced()  # not earlier: BEGIN may have waited for seconds
                yield self._repository
                revision = None
                if new_revision:
                    revision = self._repository.settings.increment_revision(faces_change=faces_change)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite ends it by itself if the disk is full
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._writing = self._faces_change = False
            if revision is not None:
                record_committed_revision(self.folder, revision)

    @contextlib.contextmanager
    def write_lock(self) -> Generator[None, None, None]:
        """Hold the in-process write lock across a read-then-write. Does not exclude other processes.

        Raises:
            GalleryBusy: another connection of this process has had the lock for ten seconds.
        """
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
        if self._writing and (key not in ("faces", "centered faces", "album") or self._faces_change):
            return factory()
        cached_revision, value = self._cache.get(key, (None, None))
        if cached_revision != revision or value is None:
            value = factory()
            self._cache[key] = (revision, value)
        return value

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
            False if it is due and impossible now: another process has the gallery open, the disk is full, or an index
            outside the folder cannot be reached. The next `GalleryDatabase.open` tries again.
        """
        try:
            with translate_sqlite_errors(self.folder):
                if not self._repository.settings.is_erasure_due():
                    return True
                erase(self.folder)  # the index, which contains every embedding
                uid, dim, faces = (
                    self._repository.settings.uid(),
                    self.space.embedding_dim,
                    self._repository.faces.ids(),
                )
                self._cache.pop("external index", None)  # a file of Milvus Lite is open only once
                erase_forgotten(self.folder, uid, dim, faces)
                _erase_copies(self.folder)
                self._connection.execute("PRAGMA temp_store = MEMORY")  # no copy in a temporary file
                self._connection.execute("VACUUM")
                self._truncate_log()
                with self.writing() as repository:
                    repository.settings.set_erasure_due(False)
                self._truncate_log()
        except (GalleryBusy, CannotWrite, IndexUnavailable):
            return False
        return True

    def _check_not_replaced(self) -> None:
        """Raise BadGallery if the file was moved away, as by `repair` or a restored backup: a write would be lost."""
        if file_id(self.folder) != self._file:
            raise BadGallery(
                f"{self.folder}: {DATABASE} has been replaced since it was opened; open it again (or restart the "
                "server). Nothing was changed"
            )

    def _truncate_log(self) -> None:
        """Write the write-ahead log back and empty it. GalleryBusy if another process is reading from it."""
        busy, _, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise GalleryBusy(f"{self.folder}: another process has the gallery open")
