"""Migration of older schema versions, and restoring rows from the log of changes."""

import sqlite3
from pathlib import Path

import pytest

from familiar.gallery.database import schema, sqlite_file
from familiar.gallery.database.connection import GalleryDatabase
from support.small_gallery import DECISION_TABLES, SPACE, draw_individuals, enroll_vectors, rows

NEXT = schema.VERSION + 1


@pytest.fixture
def older(gallery: GalleryDatabase, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A gallery of the current version, opened by a newer program whose `photos` table has one more column."""
    enroll_vectors(gallery, draw_individuals([2]))
    gallery.close()
    for module in (schema, sqlite_file):
        monkeypatch.setattr(module, "VERSION", NEXT)
    return folder


def test_opening_an_older_gallery_updates_its_schema(older: Path, monkeypatch: pytest.MonkeyPatch):
    def add_column(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE photos ADD COLUMN place TEXT")

    monkeypatch.setitem(schema._MIGRATIONS, NEXT - 1, add_column)
    with GalleryDatabase.open(older) as gallery, gallery.reading() as repository:
        assert repository.connection.execute("SELECT id, place FROM photos").fetchall() == [(1, None), (2, None)]
        assert repository.connection.execute("PRAGMA user_version").fetchone()[0] == NEXT
    GalleryDatabase.open(older).close()  # not again: adding the column twice would fail


def test_failed_update_leaves_the_gallery_unchanged(older: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM faces")
        raise RuntimeError

    monkeypatch.setitem(schema._MIGRATIONS, NEXT - 1, fail)
    with pytest.raises(RuntimeError):
        GalleryDatabase.open(older)
    connection = sqlite3.connect(older / "gallery.sqlite")
    assert connection.execute("SELECT count(*) FROM faces").fetchone()[0] == 2
    assert connection.execute("PRAGMA user_version").fetchone()[0] == NEXT - 1
    connection.close()


def test_every_logged_change_can_be_restored(folder: Path):
    changes = {
        "identities": (
            "INSERT INTO identities (id, name) VALUES (9, 'Lia')",
            "UPDATE identities SET name = NULL WHERE id = 1",
            "DELETE FROM identities WHERE id = 2",
        ),
        "assignments": (
            "INSERT INTO assignments VALUES (3, 1, 0)",
            "UPDATE assignments SET identity_id = 2, by_user = 0 WHERE face_id = 1",
            "DELETE FROM assignments WHERE face_id = 1",
        ),
        "constraints": (
            "INSERT INTO constraints VALUES (1, 3, 0)",
            "UPDATE constraints SET same = 0",
            "DELETE FROM constraints",
        ),
        "rejections": (
            "INSERT INTO rejections VALUES (2, 1)",
            "DELETE FROM rejections",
        ),
        "domains": (
            "INSERT INTO domains VALUES (2, 7)",
            "UPDATE domains SET domain = 6",
            "DELETE FROM domains",
        ),
        "faces": (
            "INSERT INTO faces SELECT 4, photo_id, 1, 2, 3, 4, NULL, 1, 1, NULL, embedding FROM faces WHERE id = 3",
            "UPDATE faces SET left_px = left_px / 3, landmarks_px = NULL, species = NULL WHERE id = 1",
            "UPDATE faces SET score = 0, quality = 0, embedding = zeroblob(64) WHERE id = 1",
            "DELETE FROM faces WHERE id = 1",  # to which all other rows refer
        ),
    }
    with GalleryDatabase.create(folder, SPACE) as gallery:
        enroll_vectors(gallery, draw_individuals([3]))
        with gallery.writing() as repository:
            repository.connection.execute("INSERT INTO decisions VALUES (1, '', 'test')")
            repository.connection.execute("INSERT INTO identities VALUES (1, 'Mia \"the cat\"'), (2, NULL)")
            repository.connection.execute("INSERT INTO assignments VALUES (1, 1, 1)")
            repository.connection.execute("INSERT INTO constraints VALUES (1, 2, 1)")
            repository.connection.execute("INSERT INTO rejections VALUES (3, 1)")
            repository.connection.execute("INSERT INTO domains VALUES (1, 5)")
            repository.connection.execute(
                "UPDATE faces SET left_px = ?, landmarks_px = ?, score = ?, species = 'cats' WHERE id = 1",
                (0.1 + 0.2, bytes(range(40)), 1 / 3),  # not exactly representable in short decimal form
            )
        before = rows(gallery, (*DECISION_TABLES, "domains", "faces"))
        assert set(changes) == set(before)
        for table, statements in changes.items():
            for statement in statements:
                with gallery.writing() as repository:
                    repository.connection.execute("UPDATE gallery SET open_decision = 1")
                    repository.connection.execute(statement)
                    repository.connection.execute("UPDATE gallery SET open_decision = NULL")
                assert rows(gallery, (table,))[table] != before[table]
                with gallery.writing() as repository:
                    repository.connection.execute("PRAGMA defer_foreign_keys = ON")
                    logged = repository.connection.execute(
                        "SELECT id, table_name, first_key, second_key, previous FROM changes ORDER BY id DESC"
                    )
                    for change in logged.fetchall():
                        schema.restore_change(repository.connection, change)
                    repository.connection.execute("DELETE FROM changes")
                assert rows(gallery, before) == before, statement
                assert rows(gallery, ("previous_faces",)) == {"previous_faces": []}
