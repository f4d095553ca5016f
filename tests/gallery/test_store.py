"""Creating, opening and refusing galleries; transactions, several connections and processes; what undo restores."""

import contextlib
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

import apsw
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from familiar.core.errors import BadGallery, CannotWrite, CorruptGallery, GalleryBusy, SpaceMismatch
from familiar.core.gallery_types import StoredType
from familiar.core.vectors import normalize
from familiar.gallery.enroll.enroll import enroll_embeddings
from familiar.gallery.same.assignments import load_assignments
from familiar.gallery.same.decisions import decision, undo
from familiar.gallery.store import schema
from familiar.gallery.store.automatic_copies import copies, require_intact
from familiar.gallery.store.connection import DATABASE, LOG, Connection, connect
from familiar.gallery.store.recovery import recover
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.gallery.store.stored_embeddings import COMPONENT_BYTES, STORED_TYPES, decode, encode, stored_type_of
from familiar.gallery.transfer.check import check
from familiar.gallery.transfer.repair import repair
from support.damaged_gallery import create_gallery_with_every_table
from support.small_gallery import DIM, SPACE, draw_individuals, enroll_vectors, rows


def test_reopening_restores_space_faces_and_revision(gallery: Store, folder: Path):
    embeddings = draw_individuals([2, 1])
    faces = enroll_vectors(gallery, embeddings)
    gallery.close()
    with Store.open(folder) as reopened:
        assert reopened.space == SPACE == Space.from_json(SPACE.to_json())
        assert reopened.embedding_dtype == "float32"
        assert reopened.faces().ids.tolist() == faces
        np.testing.assert_array_equal(reopened.faces().embeddings, embeddings)
        assert reopened.revision == 1


@pytest.mark.parametrize("gallery", ["float16"], indirect=True)
def test_float16_uses_half_the_bytes_and_rounds_once(gallery: Store):
    embeddings = draw_individuals([3])
    enroll_vectors(gallery, embeddings)
    np.testing.assert_array_equal(gallery.faces().embeddings, embeddings.astype(np.float16))
    assert gallery.faces().unit_rows().dtype == np.float32
    with gallery.read() as repository:
        assert repository.connection.value("SELECT length(embedding) FROM faces") == 2 * DIM


@pytest.mark.parametrize("gallery", ["int8"], indirect=True)
def test_int8_uses_a_byte_per_component_and_rounds_to_127_steps(gallery: Store):
    embeddings = draw_individuals([3])
    enroll_vectors(gallery, embeddings)
    stored = gallery.faces().unit_rows()
    np.testing.assert_allclose(np.linalg.norm(stored, axis=1), 1, atol=1e-3)
    assert 0 < np.abs(stored - embeddings).max() <= 0.51 * np.abs(embeddings).max() / 127 + 1e-3
    with gallery.read() as repository:
        assert repository.connection.value("SELECT length(embedding) FROM faces") == DIM


@given(
    arrays(np.float32, st.tuples(st.integers(0, 4), st.just(5)), elements=st.floats(-1, 1, width=32)).filter(
        lambda rows: bool((np.abs(rows).max(axis=1, initial=0) > 1e-3).all())
    ),
    st.sampled_from(STORED_TYPES),
)
def test_embeddings_are_decoded_within_the_rounding_of_their_type(rows: np.ndarray, stored_type: StoredType):
    rows = normalize(rows)
    encoded = encode(rows, stored_type)
    decoded = decode(b"".join(encoded), stored_type, 5)
    tolerance = {"float32": 0, "float16": 2**-11, "int8": 0.02}[stored_type]
    np.testing.assert_allclose(decoded.astype(np.float32), rows, atol=tolerance)
    assert {stored_type_of(len(each), 5) for each in encoded} <= {stored_type}
    again = decode(b"".join(encode(decoded.astype(np.float32), stored_type)), stored_type, 5)
    np.testing.assert_array_equal(again, decoded)


@pytest.mark.parametrize("stored_type", STORED_TYPES)
def test_damaged_embeddings_are_noticed(stored_type: StoredType):
    size = COMPONENT_BYTES[stored_type] * 5
    for damaged in (bytes(size), bytes(size + COMPONENT_BYTES[stored_type])):
        with pytest.raises(ValueError, match=r"reshape|unit vectors|no direction"):
            decode(damaged, stored_type, 5)
    with pytest.raises(ValueError, match="no embedding of 5 components"):
        stored_type_of(11, 5)


def test_refuses_what_cannot_be_stored(gallery: Store, tmp_path: Path):
    with pytest.raises(ValueError, match="'float64'"):
        Store.create(tmp_path / "other", SPACE, embedding_dtype="float64")
    with pytest.raises(ValueError, match="not unit vectors"):
        gallery.encode_embeddings(np.ones((1, DIM), np.float32))
    gallery.check_space("drawn", DIM)
    for space_id, dim in (("another", DIM), ("drawn", 8)):
        with pytest.raises(SpaceMismatch, match="familiar gallery migrate"):
            gallery.check_space(space_id, dim)


def test_rejects_a_second_gallery_in_a_folder(gallery: Store, folder: Path):
    with pytest.raises(BadGallery, match="contains a gallery already"):
        Store.create(folder, SPACE)
    gallery.close()
    (folder / DATABASE).unlink()
    (folder / LOG).write_bytes(b"of the gallery that was there")
    with pytest.raises(BadGallery, match="the log of a gallery that is not there"):
        Store.create(folder, SPACE)


def make_foreign_database(path: Path) -> None:
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.execute("CREATE TABLE faces (id INTEGER PRIMARY KEY, label TEXT)")


def make_gallery(path: Path, application_id: int, version: int) -> None:
    Store.create(path.parent, SPACE).close()
    (path.parent / "gallery.lock").unlink()
    with contextlib.closing(connect(path)) as connection:
        connection.set("application_id", application_id)
        connection.set("user_version", version)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (make_foreign_database, "not a familiar gallery"),
        (lambda path: make_gallery(path, 0x66616D69, 5), "made by a development version of familiar; create it again"),
        (lambda path: make_gallery(path, schema.APPLICATION_ID, 2), "newer version of familiar"),
        (lambda path: path.write_bytes(b""), "not a familiar gallery"),
        (lambda path: path.write_text("Dear diary,\n" * 1000), "not a database"),
        (lambda path: path.write_bytes(b"SQLite format 3\0" * 1000), "not a database"),
        (Path.mkdir, "is a folder"),
        (lambda _: None, "no gallery here; create one with: familiar gallery enroll"),
    ],
    ids=["foreign", "development version", "newer", "empty", "text", "forged header", "folder", "missing"],
)
def test_rejects_what_is_no_gallery_without_changing_it(tmp_path: Path, make: Callable[[Path], None], message: str):
    path = tmp_path / DATABASE
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises((BadGallery, CorruptGallery), match=message):
        Store.open(tmp_path)
    with pytest.raises(BadGallery):
        repair(tmp_path)
    assert (path.read_bytes() if path.is_file() else None) == before
    assert {file.name for file in tmp_path.iterdir()} <= {DATABASE, "gallery.lock", "index.lock"}


def test_refuses_a_file_system_without_locks(folder: Path, monkeypatch: pytest.MonkeyPatch):
    Store.create(folder, SPACE).close()
    monkeypatch.setattr(Connection, "set", lambda *_: "delete")  # SQLite has no log there, which processes share
    with pytest.raises(CannotWrite, match="this file system cannot hold a gallery; move it"):
        Store.open(folder)


@pytest.mark.parametrize("has_log", [False, True])
def test_gallery_on_read_only_media_is_read_unless_it_has_a_log(
    gallery: Store, folder: Path, tmp_path: Path, has_log: bool, monkeypatch: pytest.MonkeyPatch
):
    enroll_vectors(gallery, draw_individuals([2]))
    if not has_log:
        gallery.close()
    disc = Path(shutil.copytree(folder, tmp_path / "disc"))
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.R_OK and access(path, mode))  # whoever runs this
    if has_log:
        with pytest.raises(BadGallery, match="copy the folder to where it can"):
            Store.open(disc)
        return
    before = sorted(disc.iterdir())
    with Store.open(disc) as opened:
        assert opened.read_only
        assert opened.faces().ids.tolist() == [1, 2]
        assert check(opened).problems == ()
        with pytest.raises(CannotWrite, match="cannot be written to; nothing was changed"), opened.write():
            pass
    assert sorted(disc.iterdir()) == before


def test_accepts_paths_with_invalid_utf8(folder: Path):
    folder = folder / os.fsdecode(b"caf\xe9")
    name = os.fsdecode(b"M\xfcsli.jpg")
    with Store.create(folder, SPACE) as gallery:
        enroll_embeddings(gallery, draw_individuals([1]), [name], "drawn")
        assert rows(gallery, ("photos",))["photos"][0][2] == b"M\xfcsli.jpg"
        assert enroll_embeddings(gallery, draw_individuals([1]), [name], "drawn") == []
    with Store.open(folder) as gallery:
        enroll_vectors(gallery, draw_individuals([1], seed=1))  # the first write with a photo makes a copy
        assert len(copies(folder)) == 1
        gallery.copy_to(folder / "copy.sqlite")
        assert (folder / "copy.sqlite").is_file()


def test_every_page_of_new_files_larger_than_the_cache_has_a_checksum(gallery: Store, tmp_path: Path):
    """SQLite writes pages before the first one if they do not fit into its cache (2 MB of a new connection)."""
    enroll_vectors(gallery, draw_individuals([12_000]))
    with gallery.read() as repository:
        repository.connection.set("cache_size", 10)  # pages
    gallery.copy_to(tmp_path / "copy.sqlite")
    made = gallery.make_automatic_copy()
    assert made is not None
    recover(gallery.folder / DATABASE, tmp_path / "recovered.sqlite", SPACE)
    for path in (tmp_path / "copy.sqlite", made, tmp_path / "recovered.sqlite"):
        assert path.stat().st_size > 2_500_000
        require_intact(path)
        assert not list(path.parent.glob(f"{path.name}-*"))


# Transactions


def test_commits_reach_the_disk_and_deleted_bytes_are_zeroed(folder: Path):
    Store.create(folder, SPACE).close()
    with Store.open(folder) as gallery, gallery.read() as repository:
        pragmas = ("journal_mode", "synchronous", "foreign_keys", "secure_delete", "checksum_verification")
        assert [repository.connection.get(name) for name in pragmas] == ["wal", 2, 1, 1, "1"]


def test_error_during_a_write_rolls_it_back(gallery: Store):
    enroll_vectors(gallery, draw_individuals([1]))
    tables = ("photos", "faces", "identities")
    before = rows(gallery, tables)

    def write_half(*, catch_inner: bool) -> None:
        with gallery.write(faces_change=True) as repository:
            repository.connection.run("DELETE FROM faces")
            with contextlib.suppress(LookupError) if catch_inner else contextlib.nullcontext(), gallery.write() as same:
                same.connection.run("INSERT INTO identities (name) VALUES ('Mia')")
                raise LookupError

    with pytest.raises(LookupError):
        write_half(catch_inner=False)
    assert rows(gallery, tables) == before
    assert gallery.revision == 1
    write_half(catch_inner=True)
    assert rows(gallery, tables) == {**before, "faces": []}
    assert gallery.revision == 2, "one for the outermost write"
    enroll_vectors(gallery, draw_individuals([1, 1]), "later")  # the gallery can be written to again
    assert len(gallery.faces().ids) == 2


# Several connections and processes


def test_second_connection_shares_cache_and_sees_writes(folder: Path):
    with Store.create(folder, SPACE) as gallery, gallery.new_connection() as other:
        enroll_vectors(gallery, draw_individuals([2]))
        assert other.faces() is gallery.faces()
        with gallery.write() as repository:
            repository.connection.run("INSERT INTO identities (name) VALUES ('Tom')")
        assert load_assignments(other).names == {1: "Tom"}
        with other.write() as repository:
            repository.connection.run("DELETE FROM identities")
        assert gallery.revision == 3
        assert load_assignments(gallery).names == {}


@pytest.mark.usefixtures("short_waits")
def test_connections_in_one_process_write_in_turns(gallery: Store):
    order: list[str] = []

    def write(connection: Store, label: str) -> None:
        with connection.write():
            order.append(label)

    with gallery.new_connection() as other:
        waiting = threading.Thread(target=write, args=(other, "afterwards"))
        with gallery.write():
            waiting.start()
            waiting.join(0.05)
            write(gallery, "first")
            write(gallery, "second")
        waiting.join(10)
        assert order == ["first", "second", "afterwards"]
        refused: list[str] = []

        def write_in_vain() -> None:
            with pytest.raises(GalleryBusy, match="another change is being written") as error:
                write(other, "never")
            refused.append(str(error.value))

        with gallery.write():
            waiting = threading.Thread(target=write_in_vain)
            waiting.start()
            waiting.join(10)
        assert refused
        write(other, "again")
        assert order[3:] == ["again"]


def hold_write(folder: Path, began: Event, end: Event) -> None:
    with Store.open(folder) as gallery, gallery.write(faces_change=True) as repository:
        repository.connection.run("DELETE FROM faces WHERE id = 1")
        began.set()
        assert end.wait(30)


@pytest.fixture
def other_process(gallery: Store, folder: Path):
    """Start a process that holds a write open; the event ends it."""
    enroll_vectors(gallery, draw_individuals([2]))
    context = multiprocessing.get_context("forkserver")
    began, end = context.Event(), context.Event()
    process = context.Process(target=hold_write, args=(folder, began, end))
    process.start()
    assert began.wait(30)
    yield end
    end.set()
    process.join(30)
    assert process.exitcode == 0


@pytest.mark.slow
def test_readers_are_not_blocked_and_see_no_partial_write(gallery: Store, other_process: Event):
    with gallery.read() as repository:
        assert repository.connection.value("SELECT count(*) FROM faces") == 2
        other_process.set()
        with Store.open(gallery.folder) as third:
            while third.faces().ids.tolist() != [2]:
                time.sleep(0.02)
        assert repository.connection.value("SELECT count(*) FROM faces") == 2  # as it was when the read began
    assert gallery.faces().ids.tolist() == [2]


@pytest.mark.slow
@pytest.mark.usefixtures("short_waits")
def test_second_writer_waits_or_gives_up(folder: Path, other_process: Event):
    with Store.open(folder) as gallery:
        with pytest.raises(GalleryBusy, match="another process is writing"):
            enroll_vectors(gallery, draw_individuals([1]), "more")
        assert gallery.faces().ids.tolist() == [1, 2]
        threading.Timer(0.05, other_process.set).start()
        assert enroll_vectors(gallery, draw_individuals([1]), "more") == [3]
        assert gallery.faces().ids.tolist() == [2, 3]


@pytest.mark.slow
def test_opening_a_gallery_twice_keeps_the_log_from_other_processes(gallery: Store, folder: Path):
    """Closing any descriptor of a file releases the locks of SQLite in this process."""
    enroll_vectors(gallery, draw_individuals([2]))
    Store.open(folder).close()
    read = "import apsw, sys; print(*apsw.Connection(sys.argv[1]).execute('SELECT count(*) FROM faces'))"

    def faces_elsewhere() -> bytes:
        return subprocess.run([sys.executable, "-c", read, folder / DATABASE], check=True, capture_output=True).stdout

    assert faces_elsewhere() == b"(2,)\n"
    assert (folder / LOG).exists(), "the other process has deleted the log that this one writes to"
    enroll_vectors(gallery, draw_individuals([1]), "later")
    assert faces_elsewhere() == b"(3,)\n"


# Undo


def test_undo_restores_every_column_of_every_recorded_table(tmp_path: Path):
    create_gallery_with_every_table(tmp_path / "gallery")
    updates = [
        'UPDATE identities SET name = NULL, attributes = \'[{"born": "2020"}]\'',
        'UPDATE photos SET attributes = \'{"place": "garden"}\'',
        "UPDATE assignments SET identity_id = 1, by_user = 1 - by_user",
        "UPDATE constraints SET same = 1 - same",
        "UPDATE faces SET left_px = left_px / 3, landmarks_px = NULL, species = NULL, score = 0, quality = 0",
        "UPDATE faces SET embedding = zeroblob(length(embedding))",
    ]
    with Store.open(tmp_path / "gallery") as gallery:
        before = rows(gallery, (*schema._RECORDED, "photos"))
        assert all(before.values()), "each has rows to lose"
        for statement in [*updates, *(f"DELETE FROM assignments; DELETE FROM {table}" for table in schema._RECORDED)]:
            with decision(gallery, "test") as repository:
                repository.connection.run(statement)
            assert rows(gallery, before) != before, statement
            undo(gallery)
            assert rows(gallery, before) == before, statement
