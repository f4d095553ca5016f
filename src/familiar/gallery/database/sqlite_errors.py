"""Translation of SQLite's errors into the package's own."""

import contextlib
import sqlite3
from collections.abc import Generator
from pathlib import Path

from familiar.core.errors import CannotWrite, CorruptGallery, GalleryBusy
from familiar.core.terminal_text import one_line


@contextlib.contextmanager
def translate_sqlite_errors(folder: Path) -> Generator[None, None, None]:
    """Translate sqlite3 errors into `FamiliarError` subclasses that name the gallery's folder.

    Raises:
        GalleryBusy: another process holds the write lock.
        CannotWrite: the disk is full or failing, or the file cannot be opened for writing.
        CorruptGallery: the file is damaged.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise _translated(error, folder) from error
    except UnicodeDecodeError as error:  # only SQLite's messages are decoded strictly
        raise _translated(sqlite3.DatabaseError("its tables are garbled"), folder) from error


def _translated(error: sqlite3.Error, folder: Path) -> Exception:
    if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):  # a bug in this program
        return error
    message = one_line(str(error))
    # The lowest byte is the primary error code. An error that we raise ourselves, after a failed check, has none.
    match getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return GalleryBusy(f"{folder}: another process is writing to the gallery; try again when it is done")
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
            return CannotWrite(
                f"{folder}: the disk is full or failing ({message}); nothing was changed, nothing is lost"
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return CannotWrite(f"{folder}: the gallery cannot be opened for writing ({message})")
        # SQLITE_ERROR: our statements are valid, so a table is missing or differs from how it was created.
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_ERROR:
            return CorruptGallery(
                f"{folder}: the gallery's file is damaged ({message}); recover what can be read with: "
                f"familiar gallery repair {folder}"
            )
        case _:
            return error
