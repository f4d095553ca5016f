"""The file that a gallery is: opened, checked, read and written. Knows nothing of photos or of who is who.

One SQLite database in WAL mode: any number of processes read while one writes. Each commit has reached the disk when
it is acknowledged (`synchronous = FULL`), and what is deleted is overwritten with zeros.
"""

import contextlib
import dataclasses
import json
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Float32, Int64

from familiar.core.calibration import Calibration
from familiar.core.errors import BadGallery, CannotWrite, CorruptGallery, GalleryBusy, SpaceMismatch
from familiar.core.vectors import check_unit_rows
from familiar.embedding.bundle import BundleMetadata
from familiar.gallery.database.schema import APPLICATION_ID, VERSION, create_tables, update_tables
from familiar.neighbors.hnsw import erase

DATABASE = "gallery.sqlite"
HIGH_WATER = "gallery.revision"
UPLOADED_PHOTOS = "photos"  # a folder of those that were uploaded, each named by its content
BUSY_SECONDS = 10.0  # a writer waits so long for another
_ROWS_AT_ONCE = 20_000
_CACHE_KB = 64 * 1024  # the index by content is met at random: of a million photos it is as large
_LOG_PAGES = 4_000  # 16 MB of write-ahead log, after which it is written back
_MAGIC = b"SQLite format 3\0"


T = TypeVar("T")


@dataclass(frozen=True)
class Space:
    """Which space a gallery's embeddings lie in, and what their similarities mean there."""

    space_id: str
    embedding_dim: int
    prefixes: tuple[int, ...]
    calibration: Calibration

    @staticmethod
    def from_metadata(metadata: BundleMetadata) -> "Space":
        """That of a bundle."""
        return Space(metadata.space_id, metadata.embedding_dim, metadata.prefixes, metadata.calibration)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @staticmethod
    @lru_cache(maxsize=16)  # of every query: it is read each time, and hardly ever another one
    def from_json(text: str) -> "Space":
        stored = json.loads(text)
        return Space(
            stored["space_id"],
            stored["embedding_dim"],
            tuple(stored["prefixes"]),
            Calibration.from_dict(stored["calibration"]),
        )


@dataclass(frozen=True, eq=False)
class FaceTable:
    """Every face of a gallery, by rising number, as they were at one `revision` of the gallery's faces."""

    ids: Int64[np.ndarray, " n"]
    photo_ids: Int64[np.ndarray, " n"]
    quality: Float32[np.ndarray, " n"]  # in [0, 1]
    embeddings: Float[np.ndarray, "n d"]  # float16 or float32, unit rows
    revision: int

    def rows_of(self, ids: Int64[np.ndarray, " k"]) -> Int64[np.ndarray, " k"]:
        """Where faces stand. KeyError for one that is not there."""
        rows = np.searchsorted(self.ids, ids)
        if len(ids) and (rows.max() == len(self.ids) or (self.ids[rows] != ids).any()):
            raise KeyError("a face that is not in the gallery")
        return rows.astype(np.int64)

    def unit_rows(self, rows: Int64[np.ndarray, " k"] | None = None) -> Float32[np.ndarray, "k d"]:
        """Embeddings in float32."""
        return (self.embeddings if rows is None else self.embeddings[rows]).astype(np.float32, copy=False)


class Gallery:
    """An open gallery, for one thread at a time; opening is cheap. Use it in a `with`, or `close` it.

    `create` and `open` make it, and `beside` one more for another thread. Functions of this package take it as their
    first argument.
    """

    def __init__(self, folder: Path, connection: sqlite3.Connection, file: tuple[int, int] | None) -> None:
        """`file` is the one that `connection` was opened of, as `_file_of` tells it."""
        self.folder = folder
        self._connection, self._file = connection, file
        self._kept: dict[str, tuple[int, Any]] = {}
        self._writing = self._faces_change = False
        self._turn = threading.RLock()  # of whoever writes here or beside it

    @staticmethod
    def create(folder: Path, space: Space, *, embedding_dtype: str = "float16") -> "Gallery":
        """A new, empty gallery for embeddings of `space`, kept as `element` ("float16" or "float32").

        BadGallery where there is one already.
        """
        if embedding_dtype not in ("float16", "float32"):
            raise ValueError(f"embeddings are kept as 'float16' or 'float32', not {embedding_dtype!r}")
        path = folder / DATABASE
        if path.exists():
            raise BadGallery(f"{folder}: holds a gallery already; open it, or name another folder")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotWrite(f"{folder}: cannot be made ({error.strerror})") from error
        # Made under another name, so that a process killed meanwhile leaves no half gallery.
        unfinished = folder / f".{DATABASE}.{os.getpid()}"
        unfinished.unlink(missing_ok=True)
        with translate_sqlite_errors(folder):
            connection = _connect(unfinished)
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("BEGIN IMMEDIATE")
            create_tables(connection)
            connection.execute(
                "INSERT INTO gallery (id, uid, space, element) VALUES (1, ?, ?, ?)",
                (secrets.token_hex(16), space.to_json(), embedding_dtype),
            )
            connection.execute("COMMIT")
            connection.close()
        try:
            # Unlike a rename this never replaces what another process made meanwhile.
            os.link(unfinished, path)
        except FileExistsError as error:
            raise BadGallery(f"{folder}: another process has just made a gallery there; open it") from error
        except OSError:  # a file system without hard links
            unfinished.rename(path)
        finally:
            unfinished.unlink(missing_ok=True)
        return Gallery.open(folder)

    @staticmethod
    def open(folder: Path, *, check: bool = True) -> "Gallery":
        """The gallery of a folder, every page of its file looked at unless `check` is False.

        BadGallery where there is none, or one of another program or a newer familiar; CorruptGallery where its file is
        damaged, cut short, or older than what was once written to it. Finishes what `forget` could not erase.
        """
        path = folder / DATABASE
        _check_header(path)
        file = _file_of(folder)  # first: where it is replaced meanwhile, nothing is written
        with translate_sqlite_errors(folder):
            connection = _connect(path)
            try:
                _prepare(connection, folder, check=check)
            except BaseException:
                connection.close()
                raise
        gallery = Gallery(folder, connection, file)
        gallery.purge_deleted()
        return gallery

    def new_connection(self) -> "Gallery":
        """Another connection to the same gallery, for another thread; both share what they hold in memory, and write
        in turns.

        BadGallery where its file has been replaced since it was opened.
        """
        self._check_in_place()
        with translate_sqlite_errors(self.folder):
            connection = _connect(self.folder / DATABASE)
            _configure(connection)
        other = Gallery(self.folder, connection, self._file)
        other._kept, other._turn = self._kept, self._turn
        return other

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> "Gallery":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def reading(self) -> Generator[sqlite3.Connection, None, None]:
        """The gallery as it is now, whatever others write meanwhile. Within `writing`, as that has left it so far."""
        with translate_sqlite_errors(self.folder):
            if self._connection.in_transaction:
                yield self._connection
                return
            self._connection.execute("BEGIN")
            try:
                yield self._connection
            finally:
                self._connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def writing(self, *, faces_change: bool = False) -> Generator[sqlite3.Connection, None, None]:
        """One transaction: all of it is on the disk at the end, or, after an error or a crash, none of it.

        GalleryBusy where another connection beside this one, or another process, writes for longer than ten seconds,
        BadGallery where the file has been replaced since it was opened. `faces_change`: faces come or go, or their
        embeddings change.
        """
        with translate_sqlite_errors(self.folder), self.write_lock():
            self._connection.execute("BEGIN IMMEDIATE")
            self._writing, self._faces_change = True, faces_change
            try:
                self._check_in_place()  # only now: it may have waited for seconds
                yield self._connection
                self._connection.execute("UPDATE gallery SET revision = revision + 1")
                if faces_change:
                    self._connection.execute("UPDATE gallery SET faces_revision = revision")
                (revision,) = self._connection.execute("SELECT revision FROM gallery").fetchone()
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite ends it by itself where the disk is full
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._writing = self._faces_change = False
            _note_high_water(self.folder, revision)

    @contextlib.contextmanager
    def write_lock(self) -> Generator[None, None, None]:
        """For a change that looks before it writes: no connection `beside` this one writes meanwhile. Other processes
        may. GalleryBusy after ten seconds."""
        if not self._turn.acquire(timeout=BUSY_SECONDS):
            raise GalleryBusy(f"{self.folder}: something else is being written; try again when it is done")
        try:
            yield
        finally:
            self._turn.release()

    @property
    def space(self) -> Space:
        with self.reading() as connection:
            return Space.from_json(connection.execute("SELECT space FROM gallery").fetchone()[0])

    @property
    def revision(self) -> int:
        """One more with every write, by whichever process."""
        with self.reading() as connection:
            return int(connection.execute("SELECT revision FROM gallery").fetchone()[0])

    @property
    def embedding_dtype(self) -> np.dtype[Any]:
        """How embeddings are kept: little-endian float16 or float32."""
        with self.reading() as connection:
            return np.dtype(connection.execute("SELECT element FROM gallery").fetchone()[0]).newbyteorder("<")

    def check_space(self, space_id: str, embedding_dim: int) -> None:
        """SpaceMismatch unless embeddings of that space and width compare with those in here."""
        own = self.space
        if (space_id, embedding_dim) != (own.space_id, own.embedding_dim):
            raise SpaceMismatch(
                f"{self.folder}: holds embeddings of the space {own.space_id} ({own.embedding_dim} numbers), not of "
                f"{space_id} ({embedding_dim}); use the model it was made with, or take it over to the new one with: "
                f"familiar gallery migrate"
            )

    def faces(self) -> FaceTable:
        """All faces, kept in memory until one comes, goes or changes."""
        with self.reading() as connection:
            space, element, revision = connection.execute(
                "SELECT space, element, faces_revision FROM gallery"
            ).fetchone()
            dim = Space.from_json(space).embedding_dim
            kept_as = np.dtype(element).newbyteorder("<")
            return self.cached("faces", revision, lambda: _load_faces(connection, kept_as, dim, revision, self.folder))

    def cached(self, key: str, revision: int, factory: Callable[[], T]) -> T:
        """What is made of the gallery at a revision, held in memory until it is asked for at another.

        Within a transaction that changes what it is made of it is made each time; None is never held.
        """
        if self._writing and (key != "faces" or self._faces_change):
            return factory()
        at, made = self._kept.get(key, (None, None))
        if at != revision or made is None:
            made = factory()
            self._kept[key] = (revision, made)
        return made

    def encode_embeddings(self, embeddings: Float32[np.ndarray, "n d"]) -> list[bytes]:
        """Unit rows as the file keeps them. ValueError where they are none."""
        check_unit_rows(embeddings)
        return [row.tobytes() for row in embeddings.astype(self.embedding_dtype)]

    def purge_deleted(self) -> bool:
        """What was forgotten leaves the index, the file's unused pages and its write-ahead log too, where that is due.

        False where it cannot now, since another process has the gallery open, or the disk is full; whoever opens the
        gallery next tries again.
        """
        try:
            with translate_sqlite_errors(self.folder):
                if not self._connection.execute("SELECT erasure_due FROM gallery").fetchone()[0]:
                    return True
                erase(self.folder)  # the index, which holds every vector
                for copy in (
                    *self.folder.glob(f".{DATABASE}.damaged*"),
                    *self.folder.glob(f".{DATABASE}.repaired*"),
                ):
                    copy.unlink()  # of a repair that was killed
                self._connection.execute("PRAGMA temp_store = MEMORY")  # no copy in a temporary file
                self._connection.execute("VACUUM")
                self._empty_log()
                with self.writing() as connection:
                    connection.execute("UPDATE gallery SET erasure_due = 0")
                self._empty_log()
        except (GalleryBusy, CannotWrite):
            return False
        return True

    def _check_in_place(self) -> None:
        """What is written into a file that was moved away is lost: `repair` does so, and whoever puts back a backup."""
        if _file_of(self.folder) != self._file:
            raise BadGallery(
                f"{self.folder}: {DATABASE} has been replaced since it was opened; open it again (a server: start it "
                "anew). Nothing was changed"
            )

    def _empty_log(self) -> None:
        busy, _, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise GalleryBusy(f"{self.folder}: another process has the gallery open")


def _file_of(folder: Path) -> tuple[int, int] | None:
    """Which file a folder's gallery is; None where there is none."""
    try:
        facts = (folder / DATABASE).stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.text_factory = os.fsdecode  # a path may hold bytes that are no UTF-8
    return connection


def _configure(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")


def _prepare(connection: sqlite3.Connection, folder: Path, *, check: bool) -> None:
    _configure(connection)
    if check:
        (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if said != "ok":
            raise sqlite3.DatabaseError(said)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise BadGallery(
            f"{folder}: was made by a newer version of familiar (tables {version}; this one knows {VERSION}): "
            "update familiar (pip install --upgrade familiar-faces)"
        )
    if version < 1:
        raise sqlite3.DatabaseError("its version is lost")
    if version < VERSION:
        connection.execute("BEGIN IMMEDIATE")
        update_tables(connection, connection.execute("PRAGMA user_version").fetchone()[0])
        connection.execute("COMMIT")
    once = high_water(folder)  # first: others may write meanwhile
    revision = _revision(connection, folder)
    if revision < once:
        raise CorruptGallery(
            f"{folder}: holds {revision} of the {once} writes it once acknowledged: {DATABASE}-wal was deleted, or an "
            f"older {DATABASE} was put in its place. Put back the missing file; to go on with what is here: "
            f"familiar gallery repair {folder}"
        )


def _revision(connection: sqlite3.Connection, folder: Path) -> int:
    """CorruptGallery where the row that says so is lost, or tells of no space."""
    try:
        space, revision = connection.execute("SELECT space, revision FROM gallery").fetchone()
        Space.from_json(space)
    except (TypeError, ValueError, KeyError) as error:
        raise CorruptGallery(
            f"{folder}: the row that says which model it belongs to is damaged; save the others with: "
            f"familiar gallery repair {folder}"
        ) from error
    return int(revision)


def _check_header(path: Path) -> None:
    """Whose file it is, before SQLite touches it."""
    try:
        with path.open("rb") as file:
            head = file.read(72)
    except FileNotFoundError as error:
        raise BadGallery(
            f"{path.parent}: no gallery; make one with: familiar gallery enroll {path.parent} PHOTOS --model MODEL"
        ) from error
    except OSError as error:
        raise BadGallery(f"{path}: cannot be read ({error.strerror})") from error
    if not head.startswith(_MAGIC):
        raise CorruptGallery(
            f"{path}: its first bytes are no SQLite database's: it is damaged, or is no gallery. "
            f"Save what can be saved with: familiar gallery repair {path.parent}"
        )
    if int.from_bytes(head[68:72], "big") != APPLICATION_ID:
        raise BadGallery(f"{path}: is a database, but no gallery of familiar; move it away, or name another folder")


def high_water(folder: Path) -> int:
    """The revision that the gallery has reached at least; 0 where that was never noted."""
    try:
        return int((folder / HIGH_WATER).read_text())
    except (OSError, ValueError):
        return 0


def _note_high_water(folder: Path, revision: int) -> None:
    # Twenty digits in place: never longer, never half there. Written after the commit, so it never promises too much.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder / HIGH_WATER, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(descriptor, f"{revision:020}\n".encode(), 0)
        finally:
            os.close(descriptor)


def _load_faces(
    connection: sqlite3.Connection, element: np.dtype[Any], dim: int, revision: int, folder: Path
) -> FaceTable:
    rows = connection.execute("SELECT id, photo_id, quality, embedding FROM faces ORDER BY id")
    ids, photo_ids, quality = ([np.empty(0, kind)] for kind in (np.int64, np.int64, np.float32))
    embeddings = [np.empty((0, dim), element)]
    while some := rows.fetchmany(_ROWS_AT_ONCE):
        for parts, values in zip((ids, photo_ids, quality), zip(*some, strict=True), strict=False):
            parts.append(np.array(values, parts[0].dtype))
        packed = b"".join(row[3] for row in some)
        try:
            embeddings.append(np.frombuffer(packed, element).reshape(len(some), dim))
            check_unit_rows(embeddings[-1].astype(np.float32))
        except ValueError as error:
            raise CorruptGallery(
                f"{folder}: embeddings are damaged ({error}); save the others with: familiar gallery repair {folder}"
            ) from error
    return FaceTable(
        np.concatenate(ids),
        np.concatenate(photo_ids),
        np.concatenate(quality),
        np.concatenate(embeddings),
        revision,
    )


@contextlib.contextmanager
def translate_sqlite_errors(folder: Path) -> Generator[None, None, None]:
    """SQLite's errors as ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise _as_ours(error, folder) from error
    except UnicodeDecodeError as error:  # text is never decoded strictly but in SQLite's messages
        raise _as_ours(sqlite3.DatabaseError("its tables are garbled"), folder) from error


def _as_ours(error: sqlite3.Error, folder: Path) -> Exception:
    if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):  # a mistake of the program
        return error
    # The lowest byte is the kind; an error that we raise ourselves, of a failed check, has none.
    match getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return GalleryBusy(f"{folder}: another process is writing to the gallery; try again when it is done")
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
            return CannotWrite(f"{folder}: no room, or the disk fails ({error}); nothing was changed, nothing is lost")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return CannotWrite(f"{folder}: the gallery cannot be opened for writing ({error})")
        # SQLITE_ERROR: our statements are sound, so it is a table that is not there, or not as it was made.
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_ERROR:
            return CorruptGallery(
                f"{folder}: the gallery's file is damaged ({error}); save what can be saved with: "
                f"familiar gallery repair {folder}"
            )
        case _:
            return error
