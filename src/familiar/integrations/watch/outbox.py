"""The events of a watch in the database: written together with what they are about, kept until delivered."""

import json
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from familiar.core.errors import FamiliarError
from familiar.core.gallery_types import GalleryFace
from familiar.gallery.enroll.enroll import EnrolledBatch
from familiar.gallery.enroll.photo_writing import WrittenPhoto
from familiar.gallery.search import listing
from familiar.gallery.store.repository import Repository
from familiar.gallery.store.store import Store
from familiar.integrations.watch.disk import FileStatus
from familiar.integrations.watch.events import Event, Sighting, parse_event

MAX_EVENTS = 100_000  # kept for a webhook that does not answer, some 50 MB
_BATCH = 20  # events between two writes: a killed watch delivers as many again at most
_MAX_ATTEMPTS = 3  # to say who is in the photos while others write


def now() -> str:
    """Return the current time as events have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def add_event(repository: Repository, kind: str, photo: int | None = None, **fields: Any) -> None:
    """Write an event, within a transaction. Those that show faces wait for `complete_events`.

    Args:
        repository: of the transaction.
        kind: of the event.
        photo: its number, if it is about a photo.
        **fields: the others of the event's class.
    """
    is_complete = kind not in ("enrolled", "edited")
    if photo is not None and kind != "skipped":
        fields = {"photo": photo} | fields
    repository.watch_events.insert(now(), kind, photo, json.dumps(fields), is_complete=is_complete)


def record_batch(repository: Repository, batch: EnrolledBatch, statuses: Mapping[str, FileStatus]) -> None:
    """Write the events of a batch of `enroll`, within its transaction.

    Args:
        repository: of the transaction.
        batch: what became of its photos.
        statuses: of the files before they were read.
    """
    for photo in batch.written:
        repository.watched_files.delete_skipped([str(photo.file.path)])
        _record_photo(repository, photo)
    for path, error in batch.skipped:
        if os.path.lexists(path):  # else it was deleted in the meantime
            record_skipped(repository, str(path), statuses[str(path)], error)


def _record_photo(repository: Repository, written: WrittenPhoto) -> None:
    if written.photo is None or written.change == "copy":
        return
    photo, path = written.photo, str(written.file.path)
    was_missing = repository.watched_files.note_returned(photo)
    match written.change:
        case "new":
            add_event(repository, "enrolled", photo, path=path, taken_at=written.file.taken_at)
        case "edited":
            for earlier in written.replaced:  # an event about it may still wait
                repository.watch_events.replace_photo(earlier, photo)
            add_event(repository, "edited", photo, path=path, taken_at=written.file.taken_at, replaces=written.replaced)
        case _ if was_missing:
            add_event(repository, "returned", photo, path=path, previous_path=written.previous_path or path)
        case "moved":
            add_event(repository, "moved", photo, path=path, previous_path=written.previous_path)
        case _:
            pass


def record_skipped(repository: Repository, path: str, status: FileStatus, error: FamiliarError | str) -> None:
    """Write the event that a file or folder cannot be read, unless it was reported as it is now."""
    if repository.watched_files.note_skipped(path, status):
        photos = repository.photos.at_path(path)  # so that the event is erased if they are forgotten
        photo = photos[-1].photo if photos else None
        reason = str(error).removeprefix(f"{path}: ")
        add_event(repository, "skipped", photo, path=path, reason=reason)


def complete_events(gallery: Store) -> None:
    """Add to the events of new and edited photos who is in them, after clustering."""
    for attempt in range(_MAX_ATTEMPTS):
        with gallery.read() as repository:
            revision, bodies = repository.settings.revision(), _complete_bodies(gallery, repository)
        if not bodies:
            return
        with gallery.write() as repository:
            if repository.settings.revision() != revision:
                if attempt < _MAX_ATTEMPTS - 1:
                    continue  # a face may have been forgotten or named
                bodies = _complete_bodies(gallery, repository)
            for event, body in bodies.items():
                repository.watch_events.complete(event, body)
            repository.watch_events.set_last_identity(repository.identities.last_number())
        return


def _complete_bodies(gallery: Store, repository: Repository) -> dict[int, str]:
    """Return the complete JSON of the events that wait for clustering, by their ids."""
    incomplete = repository.watch_events.incomplete()
    rows: defaultdict[int, list[GalleryFace]] = defaultdict(list)
    for row in repository.faces.rows_in_photos({photo for _, photo, _ in incomplete}):
        rows[row.photo].append(row)
    identities = {row.identity for in_photo in rows.values() for row in in_photo if row.identity is not None}
    probabilities = {
        confidence.face.face: confidence.probability
        for identity in identities
        for confidence in listing.face_confidences(gallery, identity)
    }
    last_identity = repository.watch_events.last_identity() or 0
    new_identities = {identity for identity in identities if identity > last_identity}
    bodies: dict[int, str] = {}
    for event, photo, body in incomplete:
        faces: list[dict[str, Any]] = []
        for row in rows[photo]:
            probability, is_new = probabilities.get(row.face), row.identity in new_identities
            face = Sighting(row.face, row.box_xyxy_px, row.species, row.identity, row.name, probability, is_new)
            faces.append(asdict(face))
            new_identities.discard(row.identity or 0)  # the next event that shows it is not the first
        bodies[event] = json.dumps(json.loads(body) | {"faces": faces})
    return bodies


def start_delivery(gallery: Store, destinations: Sequence[str], folders: Sequence[str]) -> None:
    """Write that a watch starts. From now on events are kept for these destinations, and for no others.

    Args:
        gallery: to write to.
        destinations: names of the receivers, which do not change from one watch to the next.
        folders: that are watched.
    """
    with gallery.write() as repository:
        repository.watch_events.set_destinations(destinations)
        if repository.watch_events.last_identity() is None:
            repository.watch_events.set_last_identity(repository.identities.last_number())
        add_event(repository, "started", folders=folders, photos=repository.photos.count())


def deliver(gallery: Store, destination: str, send: Callable[[Event], str | None]) -> str | None:
    """Send a destination the events that wait for it, in their order.

    Args:
        gallery: whose events they are.
        destination: its name.
        send: called with each event at least once. It returns why the event has to be sent again, or None.

    Returns:
        Why the rest has to be sent again; None: there is none.
    """
    while events := undelivered(gallery, destination, _BATCH):
        last = None
        try:
            for number, event in events:
                if (problem := send(event)) is not None:
                    return problem
                last = number
        finally:
            if last is not None:
                mark_delivered(gallery, destination, last)
    return None


def undelivered(gallery: Store, destination: str, limit: int) -> list[tuple[int, Event]]:
    """Return the next events for a destination, oldest first, each with its number for `mark_delivered`."""
    with gallery.read() as repository:
        rows = repository.watch_events.next(repository.watch_events.delivered(destination), limit)
    return [(number, parse_event(kind, f"{token}-{number}", time, body)) for number, token, time, kind, body in rows]


def mark_delivered(gallery: Store, destination: str, number: int) -> None:
    """Store that a destination has all events up to one."""
    with gallery.write() as repository:
        repository.watch_events.mark_delivered(destination, number)


def delete_oldest(gallery: Store) -> int:
    """Delete the oldest events where more than `MAX_EVENTS` wait, and return how many that were."""
    with gallery.read() as repository:
        if repository.watch_events.count() <= MAX_EVENTS:
            return 0
    with gallery.write() as repository:
        return repository.watch_events.delete_oldest(MAX_EVENTS)
