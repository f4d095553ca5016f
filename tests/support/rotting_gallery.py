"""A gallery that has rows in every table, for tests of damage."""

from pathlib import Path

from collection.crash_scenarios import SCENARIOS

from familiar.gallery.clustering.assignments import load_assignments
from familiar.gallery.database.connection import GalleryDatabase
from familiar.gallery.editing.corrections import merge, reject
from familiar.gallery.editing.manual_faces import delete_face


def create_gallery_with_every_table(folder: Path) -> None:
    """Create a gallery of 24 individuals with an undo log, reports, an unfinished migration and notes of a watch."""
    SCENARIOS["merge"].prepare(folder, folder)
    with GalleryDatabase.open(folder) as gallery:
        merge(gallery, 1, [2])
        reject(gallery, [int(load_assignments(gallery).faces.ids[17])])
        delete_face(gallery, 9)
        with gallery.writing() as repository:
            connection = repository.connection
            connection.execute("INSERT INTO domains SELECT id, 1 FROM faces WHERE id % 2")
            connection.execute("INSERT INTO reports SELECT id, 'lost', 'cat', 'Elm Street', '', '', '' FROM identities")
            connection.execute("UPDATE photos SET taken_at = '2024-05-01T12:00:00', size_bytes = 9999 WHERE id % 3 = 0")
            connection.execute("UPDATE faces SET landmarks_px = randomblob(40), left_px = id / 7.0 WHERE id % 4 = 0")
            connection.execute("INSERT INTO migration VALUES (1, '{}')")
            connection.execute("INSERT INTO next_embeddings SELECT id, 'photo', embedding FROM faces WHERE id < 20")
            connection.execute("INSERT INTO missing_photos VALUES (3, '2024-05-01T12:00:00Z')")
            connection.execute("INSERT INTO deleted_boxes VALUES (3, 1, 2, 3.5, 4)")
            connection.execute("INSERT INTO skipped_files VALUES ('/photos/half.jpg', 5, 6, 7)")
            connection.execute(
                "INSERT INTO watch_events (happened_at, kind, photo_id, body, is_complete, token) "
                "VALUES ('2024-05-01T12:00:00Z', 'enrolled', 3, '{}', 1, 'abc')"
            )
            connection.execute("INSERT INTO watch_deliveries VALUES ('stdout', 0)")
            connection.execute("INSERT INTO watch VALUES (1, 24)")
