"""Forgetting erases names and paths from the events that a watch has not delivered yet."""

import json
from collections.abc import Sequence
from pathlib import Path

from familiar.gallery import Gallery
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits import corrections
from familiar.gallery.edits.forget import forget_identity, forget_photos
from familiar.gallery.edits.manual_faces import delete_face
from familiar.gallery.store.store import Store
from familiar.integrations.watch.outbox import EVENTS, add_event, complete_events
from support.small_gallery import draw_individuals, enroll_vectors

NAME = "Schnurrhilde"


def enroll_with_events(gallery: Store) -> None:
    """Enroll two faces of #1, named NAME, and two of #2; each photo has an event that says who is in it."""
    enroll_vectors(gallery, draw_individuals([2, 2]))
    cluster(gallery)
    corrections.name_identity(gallery, 1, NAME)
    corrections.name_identity(gallery, 2, "Mia")
    for photo in range(1, 5):
        add_event(Gallery(gallery), "enrolled", photo, path=f"photo {photo - 1}.jpg", taken_at=None)
    complete_events(Gallery(gallery))


def bodies(gallery: Store) -> list[str]:
    return [json.dumps([note.body, note.faces]) for note in Gallery(gallery).notes(EVENTS)]


def names(gallery: Store) -> Sequence[list[str | None]]:
    return [[face["name"] for face in note.faces or ()] for note in Gallery(gallery).notes(EVENTS)]


def test_name_of_a_face_that_was_deleted_by_hand_is_erased(gallery: Store):
    enroll_with_events(gallery)
    assert names(gallery) == [[NAME], [NAME], ["Mia"], ["Mia"]]
    delete_face(gallery, 1)
    forget_identity(gallery, 1)
    assert not any(NAME in body for body in bodies(gallery))


def test_name_of_a_face_that_was_moved_away_is_erased(gallery: Store):
    enroll_with_events(gallery)
    before = bodies(gallery)
    corrections.move(gallery, [1], 2)
    forget_identity(gallery, 1)
    assert names(gallery) == [[], [], ["Mia"], ["Mia"]]
    complete_events(Gallery(gallery))
    assert names(gallery) == [["Mia"], [], ["Mia"], ["Mia"]]
    assert bodies(gallery)[2:] == before[2:], "those of others stay as they were"


def test_name_that_another_identity_had_before_is_erased(gallery: Store):
    enroll_with_events(gallery)
    corrections.name_identity(gallery, 1, "Tom")
    corrections.name_identity(gallery, 2, NAME)
    forget_identity(gallery, 2)
    assert not any(NAME in body for body in bodies(gallery))


def test_event_of_the_time_when_a_photo_was_unreadable_is_erased(gallery: Store):
    path = b"/album/Schnurrhilde \xff.jpg".decode(errors="surrogateescape")
    for skipped in (path, "/album/other.jpg"):
        add_event(Gallery(gallery), "skipped", path=skipped, reason="is cut short")
    enroll_vectors(gallery, draw_individuals([1]))
    with gallery.write() as repository:
        repository.photos.update_file(1, Path(path), 5, 5)
    forget_photos(gallery, [Path(path)])
    assert [note.body["path"] for note in Gallery(gallery).notes(EVENTS)] == ["/album/other.jpg"]
