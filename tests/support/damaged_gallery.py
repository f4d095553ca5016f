"""Galleries to damage: one with rows in every table, and ways to damage the file of one that is closed."""

import contextlib
import random
import subprocess
import sys
from pathlib import Path

from collection.crash_scenarios import SCENARIOS

from familiar.gallery.edits.corrections import merge, reject
from familiar.gallery.edits.manual_faces import delete_face
from familiar.gallery.same.assignments import load_assignments
from familiar.gallery.store.connection import DATABASE, connect
from familiar.gallery.store.store import Store

_MORE_ROWS = """
UPDATE identities SET attributes = '[{"status": "lost", "species": "cat", "location": "Elm Street"}]';
INSERT OR IGNORE INTO learned_faces SELECT id FROM faces WHERE id % 3 = 0;
UPDATE photos SET taken_at = '2024-05-01T12:00:00', size_bytes = 9999, attributes = '{"place": "Elm Street"}'
WHERE id % 3 = 0;
UPDATE faces SET landmarks_px = randomblob(40), left_px = id / 7.0 WHERE id % 4 = 0;
INSERT INTO events (happened_at, kind, identity_id, body) VALUES ('2024-05-01T12:00:00Z', 'name', 3, '{}');
UPDATE gallery SET next_space = '{}';
INSERT INTO next_embeddings SELECT id, 'photo', embedding FROM faces WHERE id < 20;
INSERT INTO notes (topic, photo_id, body, faces) VALUES ('program', 3, '{"a": 1}', '[]');
"""


def create_gallery_with_every_table(folder: Path) -> None:
    """Create a gallery of 24 individuals with an undo log, reports, an unfinished migration and notes of a program."""
    SCENARIOS["merge"].prepare(folder, folder)
    with Store.open(folder) as gallery:
        merge(gallery, 1, [2])
        reject(gallery, [int(load_assignments(gallery).faces.ids[17])])
        delete_face(gallery, 9)
        with gallery.write() as repository:
            repository.connection.run(_MORE_ROWS)


def damage_table(folder: Path, table: str) -> None:
    """Overwrite the first page of a table or an index with random bytes, while nobody has the gallery open."""
    with contextlib.closing(connect(folder / DATABASE)) as connection:
        page = connection.value("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,))
        size = connection.get("page_size")
    content = bytearray((folder / DATABASE).read_bytes())
    content[(page - 1) * size : page * size] = random.Random(0).randbytes(size)
    (folder / DATABASE).write_bytes(content)


def flip(path: Path, bit: int) -> None:
    """Flip one bit of a file."""
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def write_as_foreign_program(folder: Path, statement: str) -> None:
    """Write with SQLite alone, as another program does: without checksums, and without checking references.

    In a process of its own, since SQLite's locks do not hold between two copies of SQLite in one process.
    """
    script = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.executescript(sys.argv[2]); c.close()"
    subprocess.run([sys.executable, "-I", "-S", "-c", script, folder / DATABASE, statement], check=True)
