"""The events of a watch as notes of the gallery: written together with what they are about, kept until delivered."""

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import groupby, takewhile
from typing import Any

from familiar import FamiliarError
from familiar.gallery import EnrolledBatch, Gallery, Note, WrittenPhoto
from familiar.integrations.watch.disk import FileStatus
from familiar.integrations.watch.events import Event, Sighting, parse_event

MAX_EVENTS = 100_000  # kept for a webhook that does not answer, some 50 MB
EVENTS, MISSING, SKIPPED, STATE = "watch events", "watch missing", "watch skipped", "watch state"  # topics of notes
_SHOW_FACES = ("enrolled", "edited")
_BATCH = 20  # events between two writes: a killed watch delivers as many again at most
_MAX_ATTEMPTS = 3  # to say who is in the photos while others write


def add_event(gallery: Gallery, kind: str, photo: int | None = None, **fields: Any) -> int:
    """Write an event, and return its number. Those that show faces wait for `complete_events`.

    Args:
        gallery: to write to.
        kind: of the event.
        photo: its number, if it is about a photo.
        **fields: the others of the event's class.
    """
    if photo is not None and kind != "skipped":
        fields = {"photo": photo} | fields
    head = {"kind": kind, "time": datetime.now(UTC).isoformat(timespec="milliseconds")}
    # A restored backup counts from the same number again, so an event has a random token, too.
    body = fields | {"event": head | {"token": secrets.token_hex(8)}}
    return gallery.add_note(EVENTS, body, photo=photo, faces=None if kind in _SHOW_FACES else [])


def record_batch(
    gallery: Gallery, batch: EnrolledBatch, statuses: Mapping[str, FileStatus], photos: Mapping[str, int]
) -> None:
    """Write the events of a batch of `Gallery.enroll`, within its transaction.

    Args:
        gallery: to write to.
        batch: what became of its photos.
        statuses: of the files before they were read.
        photos: numbers of the gallery's photos by their paths, before.
    """
    missing, paths = missing_photos(gallery), {str(photo.file.path) for photo in batch.written}
    gallery.delete_notes(note.number for path, note in skipped_files(gallery).items() if path in paths)
    for photo in batch.written:
        if photo.photo is not None and photo.change != "copy":
            gallery.delete_notes([missing[photo.photo]] if photo.photo in missing else [])
            _record_photo(gallery, photo, photo.photo, photo.photo in missing)
    for path, error in batch.skipped:
        if os.path.lexists(path):  # else it was deleted in the meantime
            record_skipped(gallery, str(path), statuses[str(path)], error, photos.get(str(path)))


def _record_photo(gallery: Gallery, written: WrittenPhoto, photo: int, was_missing: bool) -> None:
    path, taken_at = str(written.file.path), written.file.taken_at
    if written.change == "new":
        add_event(gallery, "enrolled", photo, path=path, taken_at=taken_at)
    elif written.change == "edited":
        for earlier in written.replaced:  # an event about it may still wait
            gallery.move_notes(earlier, photo)
        add_event(gallery, "edited", photo, path=path, taken_at=taken_at, replaces=written.replaced)
    elif was_missing:
        add_event(gallery, "returned", photo, path=path, previous_path=written.previous_path or path)
    elif written.change == "moved":
        add_event(gallery, "moved", photo, path=path, previous_path=written.previous_path)


def missing_photos(gallery: Gallery) -> dict[int, int]:
    """Return the note on each photo that was reported as missing, by the photo's number."""
    return {note.photo: note.number for note in gallery.notes(MISSING) if note.photo is not None}


def skipped_files(gallery: Gallery) -> dict[str, Note]:
    """Return the note on each file or folder that was reported as not readable, by its path."""
    return {note.body["path"]: note for note in gallery.notes(SKIPPED)}


def record_skipped(
    gallery: Gallery, path: str, status: FileStatus, error: FamiliarError | str, photo: int | None = None
) -> None:
    """Write the event that a file or folder cannot be read, unless it was reported as it is now.

    Args:
        gallery: to write to.
        path: of the file or folder.
        status: of the file.
        error: why.
        photo: number of the photo that was enrolled from there, with which the event is erased.
    """
    earlier, body = skipped_files(gallery).get(path), {"path": path, "status": list(status)}
    if earlier is not None and earlier.body == body:
        return
    gallery.delete_notes([] if earlier is None else [earlier.number])
    gallery.add_note(SKIPPED, body)
    add_event(gallery, "skipped", photo, path=path, reason=str(error).removeprefix(f"{path}: "))


def complete_events(gallery: Gallery) -> None:
    """Add to the events of new and edited photos who is in them, after clustering."""
    for attempt in range(_MAX_ATTEMPTS):
        with gallery.read():
            revision, faces = gallery.revision, _faces_of_events(gallery)
        if not faces:
            return
        with gallery.write():
            if gallery.revision != revision:
                if attempt < _MAX_ATTEMPTS - 1:
                    continue  # a face may have been forgotten or named
                faces = _faces_of_events(gallery)
            for number, sightings in faces.items():
                gallery.change_note(number, faces=sightings)
            _set_state(gallery, identity=gallery.last_identity())
        return


def _faces_of_events(gallery: Gallery) -> dict[int, list[dict[str, Any]]]:
    """Return the faces for each event that waits for them, by its number."""
    waiting = gallery.notes(EVENTS, without_faces=True)
    photos = {note.photo for note in waiting if note.photo is not None}
    rows = {photo: list(faces) for photo, faces in groupby(gallery.faces(photos=photos), key=lambda row: row.photo)}
    identities = {row.identity for faces in rows.values() for row in faces if row.identity is not None}
    probabilities = {
        confidence.face.face: confidence.probability
        for identity in identities
        for confidence in gallery.identity_faces(identity)
    }
    new_identities = {identity for identity in identities if identity > _state(gallery)[1].get("identity", 0)}
    faces: dict[int, list[dict[str, Any]]] = {}
    for note in waiting:
        faces[note.number] = []
        for row in rows.get(note.photo or 0, ()):
            probability, is_new = probabilities.get(row.face), row.identity in new_identities
            face = Sighting(row.face, row.box_xyxy_px, row.species, row.identity, row.name, probability, is_new)
            faces[note.number].append(asdict(face))
            new_identities.discard(row.identity or 0)  # the next event that shows it is not the first
    return faces


def _state(gallery: Gallery) -> tuple[int | None, dict[str, Any]]:
    """Return the note with the state of deliveries, and its content."""
    note = next(iter(gallery.notes(STATE)), None)
    return (None, {}) if note is None else (note.number, note.body)


def _set_state(gallery: Gallery, **fields: Any) -> None:
    number, state = _state(gallery)
    if number is None:
        gallery.add_note(STATE, fields)
    else:
        gallery.change_note(number, body=state | fields)


def start_delivery(gallery: Gallery, destinations: Sequence[str], folders: Sequence[str]) -> None:
    """Write that a watch starts. From now on events are kept for these destinations, and for no others.

    Args:
        gallery: to write to.
        destinations: names of the receivers, which do not change from one watch to the next.
        folders: that are watched.
    """
    with gallery.write():
        number = add_event(gallery, "started", folders=folders, photos=gallery.counts().photos)
        _, state = _state(gallery)
        known = state.get("destinations", {})
        identity = state.get("identity", gallery.last_identity())
        _set_state(
            gallery, identity=identity, destinations={each: known.get(each, number - 1) for each in destinations}
        )


def deliver(gallery: Gallery, destination: str, send: Callable[[Event], str | None]) -> str | None:
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


def undelivered(gallery: Gallery, destination: str, limit: int) -> list[tuple[int, Event]]:
    """Return the next events for a destination, oldest first, each with its number for `mark_delivered`."""
    with gallery.read():
        delivered = _state(gallery)[1].get("destinations", {}).get(destination)
        notes = [] if delivered is None else gallery.notes(EVENTS, after=delivered, limit=limit)
    return [(note.number, _event(note)) for note in takewhile(lambda note: note.faces is not None, notes)]


def _event(note: Note) -> Event:
    fields = dict(note.body)
    head = fields.pop("event")
    fields |= {"faces": note.faces} if head["kind"] in _SHOW_FACES else {}
    return parse_event(head["kind"], f"{head['token']}-{note.number}", head["time"], fields)


def mark_delivered(gallery: Gallery, destination: str, number: int) -> None:
    """Store that a destination has all events up to one, and delete those that all destinations have."""
    with gallery.write():
        destinations = _state(gallery)[1]["destinations"]
        _set_state(gallery, destinations=destinations | {destination: max(number, destinations.get(destination, 0))})
        _delete_until(gallery, min(_state(gallery)[1]["destinations"].values()))


def delete_oldest(gallery: Gallery) -> int:
    """Delete the oldest events where more than `MAX_EVENTS` wait, and return how many that were."""
    with gallery.read():
        first = next((note.number for note in gallery.notes(EVENTS, limit=1)), 0)
        beyond = gallery.notes(EVENTS, after=first + MAX_EVENTS - 1)
    if not beyond:
        return 0
    with gallery.write():
        return _delete_until(gallery, beyond[-1].number - MAX_EVENTS)


def _delete_until(gallery: Gallery, last: int) -> int:
    if not any(note.number <= last for note in gallery.notes(EVENTS, limit=1)):
        return 0
    numbers = [note.number for note in gallery.notes(EVENTS) if note.number <= last and note.faces is not None]
    gallery.delete_notes(numbers)
    return len(numbers)
