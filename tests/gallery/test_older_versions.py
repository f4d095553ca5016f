"""Galleries that older versions made: their rows, their undo log, and repairing damaged ones.

`data/versionN.sqlite` was written by the program of that schema version: twelve faces of three individuals, corrected
by hand, and an unfinished migration. `data/versionN.json` contains the commands of its decisions, and the rows before
the first decision and after each one, under today's names.
"""

import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from familiar.gallery.clustering.cluster import cluster
from familiar.gallery.database import salvage
from familiar.gallery.database.connection import DATABASE, GalleryDatabase
from familiar.gallery.database.schema import VERSION
from familiar.gallery.editing.manual_faces import delete_face
from familiar.gallery.editing.undo_log import decisions, undo
from familiar.gallery.integrity.check import check
from familiar.gallery.integrity.repair import repair
from support.small_gallery import groups, rows

DATA = Path(__file__).parent / "data"
PAGE_BYTES = 2048
Rows = dict[str, list[Any]]


@pytest.fixture(params=[1, 2, 3, 4])
def version(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture
def older(folder: Path, version: int) -> Path:
    """A folder with a copy of the gallery of an older version."""
    folder.mkdir()
    shutil.copyfile(DATA / f"version{version}.sqlite", folder / DATABASE)
    return folder


def recorded(version: int) -> tuple[list[str], list[Rows]]:
    """Return the commands of a gallery's decisions, and its rows before the first and after each."""
    record = json.loads((DATA / f"version{version}.json").read_text())
    return record["decisions"], record["states"]


def current_rows(gallery: GalleryDatabase, tables: list[str]) -> Rows:
    """Return all rows of some tables as JSON has them: lists, and bytes in hex."""
    return {
        table: [[value.hex() if isinstance(value, bytes) else value for value in row] for row in table_rows]
        for table, table_rows in rows(gallery, tables).items()
    }


def schema_sql(folder: Path) -> dict[str, str]:
    """Return the SQL of each table, index and trigger, without comments, quotes and layout, which differ by history."""
    connection = sqlite3.connect(folder / DATABASE)
    statements = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    connection.close()
    return {name: " ".join(re.sub(r'--.*|"', "", sql).split()) for name, sql in statements}


def test_opening_migrates_the_schema_to_that_of_a_new_gallery(older: Path, tmp_path: Path):
    with GalleryDatabase.open(older) as gallery, gallery.reading() as repository:
        assert repository.connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
        space = gallery.space
    GalleryDatabase.create(tmp_path / "new", space).close()
    assert schema_sql(older) == schema_sql(tmp_path / "new")


def test_migrated_gallery_has_its_rows_and_passes_the_check(older: Path, version: int):
    commands, states = recorded(version)
    with GalleryDatabase.open(older) as gallery:
        assert current_rows(gallery, [*states[-1]]) == states[-1]
        assert [entry.kind for entry in reversed(decisions(gallery))] == commands
        assert gallery.embedding_dtype.name == "float32"
        assert (gallery.space.space_id, gallery.space.embedding_dim) == ("drawn", 3)
        migration = rows(gallery, ("migration", "next_embeddings"))
        assert [json.loads(space)["space_id"] for _, space in migration["migration"]] == ["next"]
        assert [(face, origin) for face, origin, _ in migration["next_embeddings"]][-1] == (2, "photo")
        result = check(gallery)
        assert (result.photos, result.faces, result.problems, result.missing) == (12, 12, (), ())


def test_undo_takes_back_every_decision_of_an_older_version(older: Path, version: int):
    commands, states = recorded(version)
    with GalleryDatabase.open(older) as gallery:
        for command, state in zip(reversed(commands), reversed(states[:-1]), strict=True):
            assert undo(gallery).kind == command
            assert current_rows(gallery, [*state]) == state, command
        assert decisions(gallery) == []
        assert check(gallery).problems == ()


def test_undoing_a_clustering_of_an_older_version_clusters_all_faces_again(older: Path, version: int):
    commands, _ = recorded(version)
    with GalleryDatabase.open(older) as gallery:
        for _ in commands:
            undo(gallery)
        with gallery.reading() as repository:
            assert repository.connection.execute("SELECT last_clustered_face_id FROM gallery").fetchone() == (0,)
        cluster(gallery)
        assert groups(gallery) == {frozenset(range(start, start + 4)) for start in (1, 5, 9)}


def test_clustering_a_migrated_gallery_keeps_the_corrections(older: Path):
    with GalleryDatabase.open(older) as gallery:
        cluster(gallery, rebuild=True)
        result = groups(gallery)
        assert any({1, 2, 4} <= faces for faces in result), "the user confirmed and merged these"
        assert not any({5, 6} <= faces for faces in result), "the user marked these as different"


def test_faces_changed_after_the_migration_are_logged(older: Path):
    with GalleryDatabase.open(older) as gallery:
        tables = ["identities", "assignments", "domains", "constraints", "rejections", "faces", "changes"]
        before = current_rows(gallery, tables)
        delete_face(gallery, 10)
        assert [row[0] for row in rows(gallery, ("previous_faces",))["previous_faces"]][-1] > len(before["changes"])
        undo(gallery)
        assert current_rows(gallery, tables) == before


@pytest.mark.parametrize("damage", ["undo log", "definitions"])
def test_repair_saves_the_rows_of_an_older_version(
    older: Path, version: int, damage: str, monkeypatch: pytest.MonkeyPatch
):
    _, states = recorded(version)
    path = older / DATABASE
    content = bytearray(path.read_bytes())
    if damage == "definitions":  # no table can be read through SQLite: pages are read on their own
        content[100:PAGE_BYTES] = bytes(PAGE_BYTES - 100)
    else:
        monkeypatch.setattr(salvage._Recovery, "_copy_pages", lambda *_: None)
        connection = sqlite3.connect(path)
        (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'changes'").fetchone()
        connection.close()
        content[(root - 1) * PAGE_BYTES : root * PAGE_BYTES] = b"\xff" * PAGE_BYTES
    path.write_bytes(content)
    saved = repair(older).saved
    tables = ["identities", "assignments", "domains", "faces", "constraints", "rejections"]
    if damage == "definitions":
        tables = tables[:4]  # constraints and rejections cannot be recognized by their columns
    with GalleryDatabase.open(older) as gallery:
        rescued = current_rows(gallery, tables)
        assert {table: rescued[table] for table in tables if table in states[-1]} == {
            table: states[-1][table] for table in tables if table in states[-1]
        }
        assert (saved["faces"], saved["domains"]) == (12, len(states[-1]["domains"]))
        assert check(gallery).problems == ()
