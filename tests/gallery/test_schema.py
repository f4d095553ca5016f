"""Tables of an older version become today's, and a row that a decision changed comes back as it was."""

import sqlite3
from pathlib import Path

import pytest

from familiar.gallery import schema, store
from familiar.gallery.store import Gallery
from small_gallery import SPACE, enrolled, individuals, rows

NEXT = schema.VERSION + 1


@pytest.fixture
def older(gallery: Gallery, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A gallery of today's version, in a familiar whose tables know a species more."""
    enrolled(gallery, individuals([2]))
    with gallery.writing() as connection:
        connection.execute("ALTER TABLE faces DROP COLUMN species")
    gallery.close()
    for module in (schema, store):
        monkeypatch.setattr(module, "VERSION", NEXT)
    return folder


def test_an_older_gallery_is_brought_up_to_date_when_opened(older: Path, monkeypatch: pytest.MonkeyPatch):
    def add_species(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE faces ADD COLUMN species TEXT")

    monkeypatch.setitem(schema._MIGRATIONS, NEXT - 1, add_species)
    with Gallery.open(older) as gallery, gallery.reading() as connection:
        assert connection.execute("SELECT id, species FROM faces").fetchall() == [(1, None), (2, None)]
        assert connection.execute("PRAGMA user_version").fetchone()[0] == NEXT
    Gallery.open(older).close()  # and once only: another column of that name would be an error


def test_an_update_that_fails_leaves_the_older_gallery(older: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM faces")
        raise RuntimeError

    monkeypatch.setitem(schema._MIGRATIONS, NEXT - 1, fail)
    with pytest.raises(RuntimeError):
        Gallery.open(older)
    connection = sqlite3.connect(older / "gallery.sqlite")
    assert connection.execute("SELECT count(*) FROM faces").fetchone()[0] == 2
    assert connection.execute("PRAGMA user_version").fetchone()[0] == NEXT - 1
    connection.close()


def test_every_change_of_a_logged_table_is_written_down_and_comes_back(folder: Path):
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
    }
    with Gallery.create(folder, SPACE) as gallery:
        enrolled(gallery, individuals([3]))
        with gallery.writing() as connection:
            connection.execute("INSERT INTO decisions VALUES (1, '', 'test')")
            connection.execute("INSERT INTO identities VALUES (1, 'Mia \"the cat\"'), (2, NULL)")
            connection.execute("INSERT INTO assignments VALUES (1, 1, 1)")
            connection.execute("INSERT INTO constraints VALUES (1, 2, 1)")
            connection.execute("INSERT INTO rejections VALUES (3, 1)")
        before = rows(gallery)
        assert set(changes) == set(before)
        for table, statements in changes.items():
            for statement in statements:
                with gallery.writing() as connection:
                    connection.execute("UPDATE gallery SET open_decision = 1")
                    connection.execute(statement)
                    connection.execute("UPDATE gallery SET open_decision = NULL")
                assert rows(gallery)[table] != before[table]
                with gallery.writing() as connection:
                    logged = connection.execute("SELECT table_name, first, second, before FROM changes")
                    for change in logged.fetchall():
                        schema.restore(connection, change)
                    connection.execute("DELETE FROM changes")
                assert rows(gallery) == before, statement
