"""Flipped bits of a gallery's files: each is noticed, named by what it hits, and mended or costs only what it hits."""

import contextlib
import hashlib
import random
import re
import shutil
import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from collection.crash_scenarios import Contents, contents

from familiar.core.errors import CorruptGallery
from familiar.gallery.database.checksums import add_function, data_columns, row_checksum, tables
from familiar.gallery.database.connection import DATABASE, UPLOADED_PHOTOS, GalleryDatabase, Space
from familiar.gallery.database.integrity import database_problems
from familiar.gallery.database.row_names import row_name
from familiar.gallery.database.sqlite_file import ACKNOWLEDGED_FILE, acknowledged_writes
from familiar.gallery.integrity.check import check
from familiar.gallery.integrity.repair import repair
from support.rotting_gallery import create_gallery_with_every_table
from support.sqlite_layout import Layout, Use
from support.tiers import small_and_exhaustive

MAY_BE_HARMLESS = ("key", "number type", "order")


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("intact") / "gallery"
    create_gallery_with_every_table(folder)
    return folder


@pytest.fixture(scope="module")
def layout(intact: Path) -> Layout:
    with contextlib.closing(sqlite3.connect(intact / DATABASE)) as connection:
        roots = dict(connection.execute("SELECT rootpage, name FROM sqlite_schema WHERE rootpage > 0").fetchall())
    return Layout((intact / DATABASE).read_bytes(), roots)


def flip(content: bytes, bit: int) -> bytes:
    flipped = bytearray(content)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


def problems_in_memory(content: bytes, folder: Path) -> list[str]:
    """Return the problems of a database without writing it to the disk, or the error that opening it raises."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        try:
            add_function(connection)
            connection.deserialize(content[:18] + b"\1\1" + content[20:])  # a log cannot be in memory
            (space,) = connection.execute("SELECT space FROM gallery").fetchone()
            Space.from_json(space)
            return database_problems(connection, folder, content[:100])
        except (sqlite3.Error, UnicodeDecodeError, TypeError, ValueError, KeyError) as error:
            return [repr(error)]


def all_rows(content: bytes) -> Contents:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.text_factory = bytes
        connection.deserialize(content[:18] + b"\1\1" + content[20:])
        return {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall() for name in tables(connection)}


def naming(content: bytes, use: Use, problems: list[str]) -> str:
    """Say how precisely problems name the row that a byte belongs to."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(content[:18] + b"\1\1" + content[20:])
        columns = ", ".join(name for name, _ in data_columns(connection, use.tree))
        row = connection.execute(f"SELECT {columns} FROM {use.tree} WHERE rowid = ?", (use.row,)).fetchone()
        name = row_name(connection, use.tree, row)
    if any(problem.startswith(name) for problem in problems):
        return "row named"
    for problem in problems:
        between = re.match(rf"{use.tree}: the rows between (.+) and (.+) cannot be read", problem)
        if between:
            first, last = (int(end) if end.isdigit() else None for end in between.groups())
            assert first is None or first < use.row, f"{use}: {problem}"
            assert last is None or use.row < last, f"{use}: {problem}"
            return "row within the range named"
    return "table named" if any(use.tree in problem for problem in problems) else "not named"


def test_every_column_is_part_of_its_rows_checksum(intact: Path):
    with GalleryDatabase.open(intact) as gallery, gallery.reading() as repository:
        for table in tables(repository.connection):
            columns = [name for name, _ in data_columns(repository.connection, table)]
            rows = repository.connection.execute(
                f"SELECT {', '.join(columns)}, checksum FROM {table}"  # texts as the file system has them
            ).fetchall()
            assert rows, table
            for *values, checksum in rows:
                encoded = [
                    value.encode(errors="surrogateescape") if isinstance(value, str) else value for value in values
                ]
                assert row_checksum(table, *encoded) == checksum, table


@pytest.mark.parametrize(("seed", "flips"), small_and_exhaustive((0, 200), (None, 2_000)))
def test_every_flipped_bit_in_a_used_byte_is_noticed(
    intact: Path, layout: Layout, seed: int | None, flips: int, record_property
):
    content, rng = (intact / DATABASE).read_bytes(), random.Random(seed)
    assert problems_in_memory(content, intact) == []
    outcomes: Counter[str] = Counter()
    used = sorted(layout.uses)
    for _ in range(flips):
        byte = rng.choice(used)
        bit = 8 * byte + rng.randrange(8)
        use = layout.uses[byte]
        problems = problems_in_memory(flip(content, bit), intact)
        if not problems:
            assert use.part in MAY_BE_HARMLESS, f"bit {bit}: {use}"
            assert all_rows(flip(content, bit)) == all_rows(content), f"bit {bit}: {use}"
            outcomes[f"harmless: {use.part}"] += 1
        elif use.row is None or use.tree.startswith("sqlite_"):
            outcomes[f"{use.part} of an index, a table without row numbers, or the file"] += 1
        else:
            outcomes[naming(content, use, problems)] += 1
    record_property("outcomes", dict(outcomes))
    assert outcomes["not named"] <= 0.05 * flips, outcomes


def test_repair_takes_no_zeros_for_an_individual(intact: Path, layout: Layout, tmp_path: Path):
    """With one bit flipped, the last pointer of the first page leads to the zeros between pointers and rows."""
    content, folder = (intact / DATABASE).read_bytes(), tmp_path / "gallery"
    with GalleryDatabase.open(intact) as gallery:
        before, space = contents(gallery), gallery.space
    shutil.copytree(intact, folder)
    last = max(byte for byte, use in layout.uses.items() if (use.tree, use.part) == ("sqlite_schema", "pointers"))
    (folder / DATABASE).write_bytes(flip(content, 8 * (last - 1) + 2))
    repair(folder, space)
    with GalleryDatabase.open(folder) as gallery:
        assert contents(gallery)["identities"] == before["identities"]


@pytest.mark.parametrize(("seed", "flips"), small_and_exhaustive((0, 4), (None, 50)))
def test_repair_of_a_flipped_bit_keeps_all_rows_but_those_hit(
    intact: Path, layout: Layout, tmp_path: Path, seed: int | None, flips: int
):
    content, rng, folder = (intact / DATABASE).read_bytes(), random.Random(seed), tmp_path / "gallery"
    with GalleryDatabase.open(intact) as gallery:
        before, space = contents(gallery), gallery.space
    used, costs = sorted(layout.uses), Counter[int]()
    for _ in range(flips):
        bit = 8 * rng.choice(used) + rng.randrange(8)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(intact, folder)
        (folder / DATABASE).write_bytes(flip(content, bit))
        repair(folder, space)
        with GalleryDatabase.open(folder) as gallery:
            assert check(gallery).problems == (), bit
            after = contents(gallery)
        lost = {table: set(before[table]) - set(after[table]) for table in before if table != "gallery"}
        costs[sum(map(len, lost.values()))] += 1
        added = {table: set(after[table]) - set(before[table]) for table in before if table != "gallery"}
        assert all(len(rows) <= len(lost[table]) for table, rows in added.items()), f"bit {bit}: {added}"
    assert costs[0] >= 0.9 * flips, costs


def test_repair_says_what_it_mended_and_restores_it(intact: Path, tmp_path: Path):
    folder = tmp_path / "gallery"
    shutil.copytree(intact, folder)
    content = (folder / DATABASE).read_bytes()
    position = content.index(b"number 3")
    (folder / DATABASE).write_bytes(flip(content, 8 * position))
    with GalleryDatabase.open(folder) as gallery:
        assert any(problem.startswith("the name of individual 3: damaged (name") for problem in check(gallery).problems)
    result = repair(folder)
    assert (result.mended, result.lost) == (("the name of individual 3",), ())
    with GalleryDatabase.open(folder) as gallery, gallery.reading() as repository:
        assert repository.connection.execute("SELECT name FROM identities WHERE id = 3").fetchone() == ("number 3",)
        assert check(gallery).problems == ()


def test_flipped_bits_of_the_note_of_acknowledged_writes_do_no_harm(intact: Path, tmp_path: Path):
    folder = tmp_path / "gallery"
    shutil.copytree(intact, folder)
    note, writes = folder / ACKNOWLEDGED_FILE, acknowledged_writes(folder)
    content = note.read_bytes()
    assert writes > 5
    for bit in range(8 * (len(content) - 1)):
        note.write_bytes(flip(content, bit))
        assert acknowledged_writes(folder) in (0, writes)
    note.write_bytes(flip(content, 8 * 19))
    with GalleryDatabase.open(folder) as gallery:
        assert any(ACKNOWLEDGED_FILE in problem for problem in check(gallery).problems)
        with gallery.writing():
            pass
        assert check(gallery).problems == ()
    assert acknowledged_writes(folder) == writes + 1


def test_flipped_bit_of_the_log_is_noticed_and_costs_no_acknowledged_write(intact: Path, tmp_path: Path):
    with GalleryDatabase.open(intact) as gallery:
        for number in range(4, 9):
            with gallery.writing(new_revision=number % 2 == 0) as repository:
                repository.connection.execute("UPDATE watch_deliveries SET last_event = ?", (number,))
        shutil.copytree(intact, tmp_path / "killed")  # as a killed process leaves it
        before = contents(gallery)
    log = (tmp_path / "killed" / f"{DATABASE}-wal").read_bytes()
    folder, rng = tmp_path / "gallery", random.Random(0)
    for _ in range(6):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "killed", folder)
        (folder / f"{DATABASE}-wal").write_bytes(flip(log, rng.randrange(8 * 32, 8 * len(log))))
        main = (folder / DATABASE).read_bytes()
        with pytest.raises(CorruptGallery, match="acknowledged writes"):
            GalleryDatabase.open(folder)
        assert (folder / DATABASE).read_bytes() == main, "the rest of the log was written back"
        repair(folder)
        with GalleryDatabase.open(folder) as gallery:
            after = contents(gallery)
            assert check(gallery).problems == ()
        assert {**after, "gallery": []} == {**before, "gallery": []}


def test_flipped_bit_of_an_uploaded_photo_is_noticed(intact: Path, tmp_path: Path):
    folder = tmp_path / "gallery"
    shutil.copytree(intact, folder)
    content = b"a photo"
    sha256 = hashlib.sha256(content).hexdigest()
    path = folder / UPLOADED_PHOTOS / sha256[:2] / f"{sha256}-mia.jpg"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    path.with_name(path.name + ".xmp").write_bytes(b"a sidecar with the names in it")
    with GalleryDatabase.open(folder) as gallery:
        assert check(gallery).problems == ()
        path.write_bytes(flip(content, 9))
        (problem,) = check(gallery).problems
    assert str(path) in problem
