"""Damaged galleries are rejected, `check` reports what is wrong, and `repair` recovers the rest."""

import contextlib
import os
import random
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from collection.crash_scenarios import (
    FACES,
    INDIVIDUALS,
    SCENARIOS,
    WIDTH,
    Contents,
    contents,
    draw_individuals,
    embedder,
)

from familiar.core.errors import BadGallery, CannotWrite, CorruptGallery, FamiliarError
from familiar.gallery.clustering.assignments import load_assignments
from familiar.gallery.clustering.cluster import cluster
from familiar.gallery.database.connection import DATABASE, GalleryDatabase, Space
from familiar.gallery.database.sqlite_file import ACKNOWLEDGED_FILE, connect
from familiar.gallery.database.switch import LOCK_FILE
from familiar.gallery.editing.corrections import merge, reject
from familiar.gallery.editing.manual_faces import delete_face
from familiar.gallery.editing.undo_log import decision
from familiar.gallery.enrollment.enroll import enroll_embeddings
from familiar.gallery.integrity.check import check
from familiar.gallery.integrity.repair import repair
from familiar.gallery.search.search import search_identities, search_photos
from support.tiers import small_and_exhaustive

PAGE = 4096
INDEX_LEAF = 0x0A  # first byte of an index page; tables WITHOUT ROWID have these, too
FACES = INDIVIDUALS * FACES
SPACE = Space.from_metadata(embedder().metadata)
SAVED = ("photos", "faces", "identities", "assignments", "domains", "constraints", "rejections", "reports")


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A gallery with rows in every table, all of them in its one file."""
    folder = tmp_path_factory.mktemp("whole") / "gallery"
    SCENARIOS["merge"].prepare(folder, folder)
    with GalleryDatabase.open(folder) as gallery:
        merge(gallery, 1, [2])
        reject(gallery, [int(load_assignments(gallery).faces.ids[17])])
        with gallery.writing() as repository:
            repository.connection.execute("INSERT INTO domains SELECT id, 1 FROM faces WHERE id % 2")
            repository.connection.execute("INSERT INTO reports SELECT id, 'lost', '', '', '', '', '' FROM identities")
    assert sorted(file.name for file in folder.iterdir()) == sorted([LOCK_FILE, ACKNOWLEDGED_FILE, DATABASE])
    return folder


@pytest.fixture(scope="module")
def original(intact: Path) -> Contents:
    with GalleryDatabase.open(intact) as gallery:
        original = contents(gallery)
    assert all(original[table] for table in SAVED)
    return original


def write_damaged(intact: Path, to: Path, content: bytes) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(intact, to)
    (to / DATABASE).write_bytes(content)
    return to


def use_gallery(folder: Path) -> tuple[str, ...]:
    """Check a gallery, then search and cluster it; return the problems that `check` reports."""
    with GalleryDatabase.open(folder) as gallery:
        problems = check(gallery).problems
        query = draw_individuals()[0, 0]
        search_photos(gallery, query, 3)
        search_identities(gallery, query, 3)
        cluster(gallery, rebuild=True)
    return problems


def error_message(call: Callable[[], object]) -> str:
    """Return the message of a FamiliarError that a call raises, or ""; any other error fails the test."""
    try:
        call()
    except FamiliarError as error:
        return str(error)
    return ""


def lost_rows(before: Contents, folder: Path) -> dict[str, set[tuple[object, ...]]]:
    """Return the rows missing from a repaired gallery, and check that it has no problems."""
    with GalleryDatabase.open(folder) as gallery:
        assert check(gallery).problems == ()
        after = contents(gallery)
    return {table: set(before[table]) - set(after[table]) for table in SAVED}


@pytest.mark.slow
def test_repair_of_an_intact_gallery_loses_nothing(intact: Path, original: Contents, tmp_path: Path):
    folder = write_damaged(intact, tmp_path / "gallery", (intact / DATABASE).read_bytes())
    before = (folder / DATABASE).read_bytes()
    done = repair(folder)
    assert not any(lost_rows(original, folder).values())
    assert done.saved == {table: len(rows) for table, rows in original.items() if rows}
    assert done.mended == done.lost == ()
    assert (done.kept_in / DATABASE).read_bytes() == before
    assert sorted(file.name for file in folder.iterdir()) == [done.kept_in.name, LOCK_FILE, DATABASE, "index.lock"]
    assert repair(folder).kept_in != done.kept_in
    assert use_gallery(folder) == ()


@pytest.mark.exhaustive
def test_repair_loses_only_rows_on_the_damaged_page(intact: Path, original: Contents, tmp_path: Path):
    content, rng = (intact / DATABASE).read_bytes(), random.Random(0)
    pages_with_losses: dict[str, int] = dict.fromkeys(SAVED, 0)  # pages per table
    for page in range(len(content) // PAGE):
        page_bytes = content[page * PAGE : (page + 1) * PAGE]
        bad = content[: page * PAGE] + rng.randbytes(PAGE) + content[(page + 1) * PAGE :]
        folder = write_damaged(intact, tmp_path / "gallery", bad)
        with pytest.raises(CorruptGallery, match="repair"):
            GalleryDatabase.open(folder)
        has_gallery_row = b"space_id" in page_bytes and b"CREATE" not in page_bytes
        if has_gallery_row:
            with pytest.raises(BadGallery, match="--model"):
                repair(folder)
            assert (folder / DATABASE).read_bytes() == bad
        done = repair(folder, SPACE if has_gallery_row else None)
        assert (done.kept_in / DATABASE).read_bytes() == bad
        lost = lost_rows(original, folder)
        # Only rows on that page are lost.
        assert all(row[-1] in page_bytes for row in lost["faces"])
        assert all(row[1] in page_bytes for row in lost["photos"])
        assert all(str(row[1]).encode() in page_bytes for row in lost["identities"])
        lost_faces = {row[0] for row in lost["faces"]}
        for table in SAVED:
            rest = {row for row in lost[table] if row[0] not in lost_faces}
            pages_with_losses[table] += (
                bool(rest) if table in ("assignments", "domains", "constraints", "rejections") else 0
            )
        if lost["photos"]:
            with GalleryDatabase.open(folder) as gallery:
                paths = [row[2] for row in contents(gallery)["photos"]]
            assert paths.count("(lost)") == len(lost["photos"])
            assert not lost["faces"]
            assert not lost["assignments"]
    # Only the table's own page; constraints and rejections are also lost with the pages of the table definitions.
    assert pages_with_losses["assignments"] == pages_with_losses["domains"] == 1
    assert max(pages_with_losses["constraints"], pages_with_losses["rejections"]) <= 7


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "flips"), small_and_exhaustive((0, 6), (None, 30)))  # None: unseeded
def test_flipped_byte_costs_at_most_one_page_of_faces(
    intact: Path, original: Contents, tmp_path: Path, seed: int | None, flips: int
):
    content, rng = (intact / DATABASE).read_bytes(), random.Random(seed)
    offsets = [rng.randrange(len(content)) for _ in range(flips)] + rng.sample(range(100), flips // 3)
    for offset in offsets:
        bad = bytearray(content)
        bad[offset] ^= 1 << rng.randrange(8)
        folder = write_damaged(intact, tmp_path / "gallery", bytes(bad))
        context = f"byte {offset} is now {bad[offset]}"
        message = error_message(lambda folder=folder: use_gallery(folder))
        assert not message or str(folder) in message, context
        if message := error_message(lambda folder=folder: repair(folder)):
            assert "model" in message or "newer" in message, context
        else:
            assert len(lost_rows(original, folder)["faces"]) <= PAGE / (2 * WIDTH), context


@pytest.mark.parametrize(("seed", "cuts"), small_and_exhaustive((0, 3), (None, 10)))
def test_repair_of_a_truncated_file_keeps_faces_before_the_cut(
    intact: Path, original: Contents, tmp_path: Path, seed: int | None, cuts: int
):
    content, rng = (intact / DATABASE).read_bytes(), random.Random(seed)
    for length in [0, 1, 15, 16, 71, 72, 100, PAGE, *(rng.randrange(len(content)) for _ in range(cuts))]:
        folder = write_damaged(intact, tmp_path / "gallery", content[:length])
        with pytest.raises((CorruptGallery, BadGallery)):
            GalleryDatabase.open(folder)
        repair(folder, SPACE)
        lost = lost_rows(original, folder)
        assert all(row[-1] not in content[: length // PAGE * PAGE] for row in lost["faces"]), length


def test_file_without_its_last_page_keeps_user_constraints(intact: Path, original: Contents, tmp_path: Path):
    folder = write_damaged(intact, tmp_path / "gallery", (intact / DATABASE).read_bytes()[:-PAGE])
    repair(folder)
    lost = lost_rows(original, folder)
    assert lost["constraints"] == lost["rejections"] == set()


@pytest.mark.exhaustive
def test_damaged_rejections_page_keeps_rows_on_other_pages(intact: Path, tmp_path: Path):
    start = write_damaged(intact, tmp_path / "start", (intact / DATABASE).read_bytes())
    with GalleryDatabase.open(start) as gallery:
        with gallery.writing() as repository:
            repository.connection.execute(
                "INSERT OR IGNORE INTO rejections SELECT faces.id, identities.id FROM faces, identities"
            )
            repository.connection.execute("DROP INDEX rejections_by_identity")  # since its pages have the same type
        before = contents(gallery)
    content = (start / DATABASE).read_bytes()
    losses: list[int] = []  # rows lost per damaged page
    for page in range(1, len(content) // PAGE):
        if content[page * PAGE] == INDEX_LEAF:
            bad = content[: page * PAGE] + bytes(PAGE) + content[(page + 1) * PAGE :]
            folder = write_damaged(start, tmp_path / "gallery", bad)
            repair(folder)
            losses.append(len(lost_rows(before, folder)["rejections"]))
    assert sum(lost > 0 for lost in losses) > 2
    assert max(losses) < len(before["rejections"]) / 2


def test_repair_keeps_faces_when_table_schema_is_garbled(intact: Path, original: Contents, tmp_path: Path):
    content = (intact / DATABASE).read_bytes()
    folder = write_damaged(
        intact, tmp_path / "gallery", content.replace(b"CREATE TABLE photos", b"CREATE TABL\xcf photos")
    )
    # SQLite quotes the garbled definition in its message, which is then not valid text.
    with pytest.raises(CorruptGallery, match="garbled"):
        GalleryDatabase.open(folder)
    repair(folder)
    assert lost_rows(original, folder)["faces"] == set()


def test_repair_tells_faces_from_their_previous_versions_in_the_undo_log(intact: Path, tmp_path: Path):
    start = write_damaged(intact, tmp_path / "start", (intact / DATABASE).read_bytes())
    with GalleryDatabase.open(start) as gallery:
        with decision(gallery, "move face", faces_change=True) as repository:
            repository.connection.execute("UPDATE faces SET left_px = 3")
        delete_face(gallery, 1)
        before = contents(gallery)
    assert len(before["previous_faces"]) == FACES + 1
    content = (start / DATABASE).read_bytes().replace(b"CREATE TABLE photos", b"CREATE TABL\xcf photos")
    folder = write_damaged(start, tmp_path / "gallery", content)  # so that rows can only be recognized page by page
    repair(folder)
    with GalleryDatabase.open(folder) as gallery:
        after = contents(gallery)
    for table in ("photos", "faces", "identities", "assignments", "domains", "changes", "previous_faces"):
        assert set(after[table]) == set(before[table]), table


def test_repair_restores_a_missing_gallery_row_for_float32(tmp_path: Path):
    folder = tmp_path / "gallery"
    with GalleryDatabase.create(folder, SPACE, embedding_dtype="float32") as gallery:
        enroll_embeddings(gallery, draw_individuals()[0], list("abcde"), "old")
        before = contents(gallery)
    with contextlib.closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        connection.execute("DELETE FROM gallery")
    connection.close()
    with pytest.raises(CorruptGallery, match="which model"):
        GalleryDatabase.open(folder)
    repair(folder, SPACE)
    with GalleryDatabase.open(folder) as gallery:
        assert gallery.embedding_dtype == "<f4"
        assert contents(gallery)["faces"] == before["faces"]


# --- foreign files --------------------------------------------------------------------------------------------


def create_foreign_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE faces (id INTEGER PRIMARY KEY, label TEXT)")
    connection.execute("INSERT INTO faces VALUES (1, 'Mia')")
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (create_foreign_database, "not a familiar gallery"),
        (lambda path: path.write_bytes(b""), "not start like an SQLite database"),
        (lambda path: path.write_text("Dear diary,\n" * 1000), "not start like an SQLite database"),
        (lambda path: path.write_bytes(b"SQLite format 3\0" * 1000), "not a familiar gallery"),
        (Path.mkdir, "cannot be read"),
        (lambda _: None, "no gallery"),
    ],
    ids=["foreign database", "empty", "text", "forged header", "folder", "missing"],
)
def test_rejects_foreign_files_without_changing_them(tmp_path: Path, make: Callable[[Path], None], message: str):
    path = tmp_path / DATABASE
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises((BadGallery, CorruptGallery), match=message):
        GalleryDatabase.open(tmp_path)
    with pytest.raises(BadGallery):
        repair(tmp_path)
    assert (path.read_bytes() if path.is_file() else None) == before
    assert {file.name for file in tmp_path.iterdir()} - {LOCK_FILE} == ({DATABASE} if path.exists() else set())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to read-only folders")
def test_writing_and_repair_reject_a_read_only_folder(intact: Path, tmp_path: Path):
    folder = write_damaged(intact, tmp_path / "gallery", (intact / DATABASE).read_bytes())
    folder.chmod(0o555)
    try:
        with pytest.raises(CannotWrite), GalleryDatabase.open(folder) as gallery, gallery.writing():
            pass
        with pytest.raises(CannotWrite):
            repair(folder)
    finally:
        folder.chmod(0o755)


# --- integrity checks ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DELETE FROM photos WHERE id = 5", "faces, row 5: refers to a missing row of photos"),
        (
            "DELETE FROM identities WHERE id = 5",
            "(assignments|reports), row .*: refers to a missing row of identities",
        ),
        ("UPDATE faces SET embedding = zeroblob(32) WHERE id = 5", "embeddings are damaged .1 of 120 rows"),
        ("UPDATE faces SET embedding = x'00' WHERE id = 5", "embeddings are damaged"),
        ("UPDATE gallery SET own_calibration = '{'", "stored calibration is damaged"),
    ],
)
def test_check_reports_the_problem_and_repair_fixes_it(
    intact: Path, original: Contents, tmp_path: Path, statement: str, message: str
):
    folder = write_damaged(intact, tmp_path / "gallery", (intact / DATABASE).read_bytes())
    connection = connect(folder / DATABASE, 1)
    connection.execute(statement)
    connection.close()
    with GalleryDatabase.open(folder) as gallery:
        problems = check(gallery).problems
    assert len(problems) >= 1
    assert all(re.search(message, problem) for problem in problems)
    repair(folder)
    lost = lost_rows(original, folder)
    assert {row[0] for row in lost["faces"]} <= {5}
    assert {row[0] for row in lost["assignments"]} <= {5}
    assert use_gallery(folder) == ()


def test_check_lists_missing_and_changed_photos(intact: Path, tmp_path: Path):
    folder = write_damaged(intact, tmp_path / "gallery", (intact / DATABASE).read_bytes())
    with GalleryDatabase.open(folder) as gallery, gallery.writing() as repository:
        there = tmp_path / "there.jpg"
        there.write_bytes(b"12345")
        repository.connection.execute("UPDATE photos SET path = ?, size_bytes = 5 WHERE id = 1", (str(there),))
        repository.connection.execute("UPDATE photos SET path = ?, size_bytes = 6 WHERE id = 2", (str(there),))
        repository.connection.execute("UPDATE photos SET path = ?, size_bytes = 5 WHERE id = 3", (f"{there}.gone",))
    with GalleryDatabase.open(folder) as gallery:
        result = check(gallery)
    assert (result.photos, result.faces, result.problems) == (FACES, FACES, ())
    assert (result.missing, result.changed) == ((f"{there}.gone",), (str(there),))
