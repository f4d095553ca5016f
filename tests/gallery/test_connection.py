"""Creating, opening and rejecting gallery files; concurrent reads and writes."""

import contextlib
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import pytest

from familiar.core.errors import BadGallery, CorruptGallery, GalleryBusy, SpaceMismatch
from familiar.gallery.clustering.assignments import load_assignments
from familiar.gallery.database import connection as connection_module
from familiar.gallery.database import schema
from familiar.gallery.database.connection import DATABASE, GalleryDatabase, Space
from familiar.gallery.database.sqlite_file import acknowledged_writes
from familiar.gallery.enrollment.enroll import enroll_embeddings
from familiar.gallery.integrity.repair import repair
from support.small_gallery import DIM, SPACE, draw_individuals, enroll_vectors, rows


def test_reopening_restores_space_faces_and_revision(gallery: GalleryDatabase, folder: Path):
    embeddings = draw_individuals([2, 1])
    faces = enroll_vectors(gallery, embeddings)
    gallery.close()
    with GalleryDatabase.open(folder) as reopened:
        assert reopened.space == SPACE
        assert reopened.embedding_dtype == np.dtype("<f4")
        assert reopened.faces().ids.tolist() == faces
        np.testing.assert_array_equal(reopened.faces().embeddings, embeddings)
        assert reopened.revision == acknowledged_writes(folder) == 1


def test_space_survives_json_round_trip():
    assert Space.from_json(SPACE.to_json()) == SPACE


@pytest.mark.parametrize("gallery", ["float16"], indirect=True)
def test_float16_uses_half_the_bytes_and_rounds_once(gallery: GalleryDatabase):
    embeddings = draw_individuals([3])
    enroll_vectors(gallery, embeddings)
    assert gallery.faces().embeddings.dtype == np.float16
    np.testing.assert_array_equal(gallery.faces().embeddings, embeddings.astype(np.float16))
    assert gallery.faces().unit_rows().dtype == np.float32
    with gallery.reading() as repository:
        assert repository.connection.execute("SELECT length(embedding) FROM faces").fetchone()[0] == 2 * DIM


def test_rejects_embedding_dtypes_except_float16_and_float32(folder: Path):
    with pytest.raises(ValueError, match="'float64'"):
        GalleryDatabase.create(folder, SPACE, embedding_dtype="float64")


def test_rejects_a_second_gallery_in_a_folder(gallery: GalleryDatabase, folder: Path):
    with pytest.raises(BadGallery, match="contains a gallery already"):
        GalleryDatabase.create(folder, SPACE)
    assert gallery.revision == 0
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_missing_gallery_error_names_the_enroll_command(tmp_path: Path):
    with pytest.raises(BadGallery, match=r"no gallery here; create one with: familiar gallery enroll"):
        GalleryDatabase.open(tmp_path)


def test_rejects_a_foreign_database_without_changing_it(tmp_path: Path):
    path = tmp_path / DATABASE
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE foreign_table (id)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(BadGallery, match="not a familiar gallery"):
        GalleryDatabase.open(tmp_path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [DATABASE]


@pytest.mark.parametrize("content", [b"", b"no database at all" * 99])
def test_rejects_non_sqlite_file_as_corrupt(tmp_path: Path, content: bytes):
    (tmp_path / DATABASE).write_bytes(content)
    with pytest.raises(CorruptGallery, match="does not start like an SQLite database"):
        GalleryDatabase.open(tmp_path)


def test_rejects_newer_schema_version(gallery: GalleryDatabase, folder: Path):
    with gallery.writing() as repository:
        repository.connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    gallery.close()
    with pytest.raises(BadGallery, match="newer version of familiar"):
        GalleryDatabase.open(folder)


def test_sets_safe_sqlite_pragmas(gallery: GalleryDatabase, folder: Path):
    gallery.close()
    gallery = GalleryDatabase.open(folder)

    def pragma(name: str) -> object:
        with gallery.reading() as repository:
            return repository.connection.execute(f"PRAGMA {name}").fetchone()[0]

    assert pragma("journal_mode") == "wal"
    assert pragma("synchronous") == 2  # FULL
    assert pragma("foreign_keys") == 1
    assert pragma("secure_delete") == 1
    gallery.close()


def test_check_space_rejects_other_space_or_dimension(gallery: GalleryDatabase):
    gallery.check_space("drawn", DIM)
    for space_id, dim in (("another", DIM), ("drawn", 8)):
        with pytest.raises(SpaceMismatch, match="familiar gallery migrate"):
            gallery.check_space(space_id, dim)


def test_rejects_non_unit_embeddings(gallery: GalleryDatabase):
    with pytest.raises(ValueError, match="not unit vectors"):
        gallery.encode_embeddings(np.ones((1, DIM), np.float32))


def test_error_during_a_write_rolls_it_back(gallery: GalleryDatabase, folder: Path):
    enroll_vectors(gallery, draw_individuals([1]))
    tables = ("photos", "faces", "identities")
    before = rows(gallery, tables)

    def write_half() -> None:
        with gallery.writing(faces_change=True) as repository:
            repository.connection.execute("DELETE FROM faces")
            repository.connection.execute("INSERT INTO identities (name) VALUES ('Mia')")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert rows(gallery, tables) == before
    assert gallery.revision == acknowledged_writes(folder) == 1
    enroll_vectors(gallery, draw_individuals([1, 1]), "later")  # the gallery can be written to again
    assert len(gallery.faces().ids) == 3


def test_faces_are_reloaded_only_after_changes(gallery: GalleryDatabase):
    enroll_vectors(gallery, draw_individuals([2]))
    faces = gallery.faces()
    assert gallery.faces() is faces
    with gallery.writing() as repository:
        repository.connection.execute("INSERT INTO identities (name) VALUES ('Mia')")
        assert gallery.faces() is faces
    assert gallery.faces() is faces
    with gallery.writing(faces_change=True) as repository:
        repository.connection.execute("DELETE FROM faces WHERE id = 1")
        assert gallery.faces().ids.tolist() == [2]  # sees the uncommitted change
    assert gallery.faces().ids.tolist() == [2]


def test_cached_value_is_computed_once_per_revision(gallery: GalleryDatabase):
    calls: list[int] = []

    def factory() -> int | None:
        calls.append(1)
        return len(calls) if len(calls) > 1 else None

    assert gallery.cached("key", 5, factory) is None
    assert [gallery.cached("key", 5, factory) for _ in range(2)] == [2, 2]  # None is never cached
    assert gallery.cached("key", 6, factory) == 3
    with gallery.writing():
        assert [gallery.cached("key", 6, factory) for _ in range(2)] == [4, 5]
    assert gallery.cached("key", 6, factory) == 3


def test_rows_of_returns_rows_by_face_number(gallery: GalleryDatabase):
    enroll_vectors(gallery, draw_individuals([3]))
    faces = gallery.faces()
    assert faces.rows_of(np.array([3, 1])).tolist() == [2, 0]
    assert faces.rows_of(np.empty(0, np.int64)).tolist() == []
    for missing in (0, 4):
        with pytest.raises(KeyError):
            faces.rows_of(np.array([1, missing]))


def test_accepts_paths_with_invalid_utf8(folder: Path):
    folder = folder / os.fsdecode(b"caf\xe9")
    name = os.fsdecode(b"M\xfcsli.jpg")
    with GalleryDatabase.create(folder, SPACE) as gallery:
        enroll_embeddings(gallery, draw_individuals([1]), [name], "drawn")
        with gallery.reading() as repository:
            assert repository.connection.execute("SELECT path FROM photos").fetchone()[0] == name
            stored = repository.connection.execute("SELECT CAST(path AS BLOB) FROM photos").fetchone()[0]
        assert stored == b"M\xfcsli.jpg"
        assert enroll_embeddings(gallery, draw_individuals([1]), [name], "drawn") == []


# Other processes


def _hold_write(folder: Path, began: Event, end: Event) -> None:
    with GalleryDatabase.open(folder) as gallery, gallery.writing(faces_change=True) as repository:
        repository.connection.execute("DELETE FROM faces WHERE id = 1")
        began.set()
        assert end.wait(30)


@pytest.fixture
def other_process(gallery: GalleryDatabase, folder: Path):
    """Start a process that holds a write open; the event ends it."""
    enroll_vectors(gallery, draw_individuals([2]))
    context = multiprocessing.get_context("spawn")
    began, end = context.Event(), context.Event()
    process = context.Process(target=_hold_write, args=(folder, began, end))
    process.start()
    assert began.wait(30)
    yield end
    end.set()
    process.join(30)
    assert process.exitcode == 0


@pytest.mark.slow
def test_readers_are_not_blocked_and_see_no_partial_write(gallery: GalleryDatabase, other_process: Event):
    assert gallery.faces().ids.tolist() == [1, 2]
    with gallery.reading() as repository:
        assert repository.connection.execute("SELECT count(*) FROM faces").fetchone()[0] == 2
        other_process.set()
        time.sleep(0.5)
        assert (
            repository.connection.execute("SELECT count(*) FROM faces").fetchone()[0] == 2
        )  # as it was when the read began
    _wait_until(lambda: gallery.faces().ids.tolist() == [2])


@pytest.mark.slow
@pytest.mark.usefixtures("other_process")
def test_second_writer_raises_gallery_busy_after_timeout(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection_module, "BUSY_SECONDS", 0.3)
    with GalleryDatabase.open(folder) as gallery:
        start = time.monotonic()
        with pytest.raises(GalleryBusy, match="another process is writing"):
            enroll_vectors(gallery, draw_individuals([1]), "more")
        assert 0.2 <= time.monotonic() - start < 5
        assert gallery.faces().ids.tolist() == [1, 2]


@pytest.mark.slow
def test_a_second_writer_waits_for_the_first(folder: Path, other_process: Event):
    with GalleryDatabase.open(folder) as gallery:
        threading.Timer(0.3, other_process.set).start()
        assert enroll_vectors(gallery, draw_individuals([1]), "more") == [3]
        assert gallery.faces().ids.tolist() == [2, 3]


def _wait_until(condition: Callable[[], bool]) -> None:
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < 30
        time.sleep(0.02)


@pytest.mark.slow
def test_connections_in_one_process_write_in_turns(gallery: GalleryDatabase, monkeypatch: pytest.MonkeyPatch):
    order: list[str] = []

    def write(connection: GalleryDatabase, label: str) -> None:
        with connection.writing():
            order.append(label)

    with gallery.new_connection() as other:
        waiting = threading.Thread(target=write, args=(other, "afterwards"))
        with gallery.exclusive():
            waiting.start()
            waiting.join(0.3)
            write(gallery, "first")
            write(gallery, "second")
        waiting.join(10)
        assert order == ["first", "second", "afterwards"]
        assert gallery.revision == 3
        monkeypatch.setattr(connection_module, "BUSY_SECONDS", 0.2)
        messages: list[str] = []

        def write_without_waiting() -> None:
            with pytest.raises(GalleryBusy, match="another change is being written") as error:
                write(other, "never")
            messages.append(str(error.value))

        with gallery.exclusive():
            waiting = threading.Thread(target=write_without_waiting)
            waiting.start()
            waiting.join(10)
        assert len(messages) == 1
        write(other, "again")
        assert "never" not in order


def test_second_connection_shares_cache_and_sees_writes(tmp_path: Path):
    with GalleryDatabase.create(tmp_path / "album", SPACE) as gallery, gallery.new_connection() as other:
        enroll_vectors(gallery, draw_individuals([2]))
        assert other.faces() is gallery.faces()
        with gallery.writing() as repository:
            repository.connection.execute("INSERT INTO identities (name) VALUES ('Tom')")
        assert load_assignments(other).names == {1: "Tom"}
        revision = other.revision
        with other.writing() as repository:
            repository.connection.execute("DELETE FROM identities")
        assert gallery.revision == revision + 1
        assert load_assignments(gallery).names == {}


def test_open_connections_go_on_with_the_repaired_gallery(gallery: GalleryDatabase, folder: Path):
    enroll_vectors(gallery, draw_individuals([2]))
    with gallery.new_connection() as other:
        assert enroll_vectors(other, draw_individuals([1]), "before the repair") == [3]
        repair(folder)
        assert enroll_vectors(gallery, draw_individuals([1]), "after it") == [4]
        assert other.faces().ids.tolist() == [1, 2, 3, 4]
        assert enroll_vectors(other, draw_individuals([1]), "after it, too") == [5]
        with gallery.new_connection() as third:
            assert third.faces().ids.tolist() == [1, 2, 3, 4, 5]
    with GalleryDatabase.open(folder) as reopened:
        assert reopened.faces().ids.tolist() == [1, 2, 3, 4, 5]


def test_cache_of_the_replaced_file_is_not_used_for_the_new_one(gallery: GalleryDatabase, folder: Path):
    enroll_vectors(gallery, draw_individuals([2]))
    assert gallery.cached("key", 1, lambda: "old") == "old"
    repair(folder)
    with gallery.reading():
        assert gallery.cached("key", 1, lambda: "new") == "new"


def test_opening_a_gallery_twice_keeps_the_log_from_other_processes(gallery: GalleryDatabase, folder: Path):
    """Closing any descriptor of a file releases the locks of SQLite in this process."""
    enroll_vectors(gallery, draw_individuals([2]))
    with GalleryDatabase.open(folder):
        pass
    close = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT count(*) FROM faces'); c.close()"
    subprocess.run([sys.executable, "-c", close, folder / DATABASE], check=True)
    assert (folder / f"{DATABASE}-wal").exists(), "the other process has deleted the log that this one writes to"
    enroll_vectors(gallery, draw_individuals([1]), "later")
    count = (
        "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM faces').fetchone()[0])"
    )
    result = subprocess.run([sys.executable, "-c", count, folder / DATABASE], check=True, capture_output=True)
    assert result.stdout.strip() == b"3"


def test_rejects_use_after_the_file_was_moved(gallery: GalleryDatabase, folder: Path):
    (folder / DATABASE).rename(folder / "elsewhere")
    with pytest.raises(BadGallery, match="moved away since it was opened"):
        enroll_vectors(gallery, draw_individuals([1]))
    with pytest.raises(BadGallery, match="no gallery here"):
        gallery.new_connection()
    assert not (folder / DATABASE).exists()
