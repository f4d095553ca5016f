"""The events of a watch as notes of the gallery: written together with what they are about, kept until delivered.

An event is a JSON object, as docs/reference/formats.md describes it for other programs.
"""

import json
import os
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import groupby, takewhile
from typing import Any

from familiar.gallery import EnrolledBatch, Gallery, Note, WrittenPhoto

Event = dict[str, Any]

MAX_EVENTS = 100_000  # kept for a receiver that does not answer, some 50 MB
EVENTS, MISSING, STATE = "watch events", "watch missing", "watch state"  # topics of notes
_SHOW_FACES = ("enrolled", "edited")
_BATCH = 20  # events between two writes: a killed watch delivers as many again at most


def to_json_line(event: Event) -> bytes:
    """Return an event as one line of JSON in UTF-8, without the line break.

    A byte of a path that is not UTF-8 is written as an escape such as `\\udcff`, which is valid JSON.
    """
    return json.dumps(event, ensure_ascii=False).encode("utf-8", "backslashreplace")


def add_event(gallery: Gallery, kind: str, photo: int | None = None, **fields: Any) -> int:
    """Write an event, and return its number. Those that show faces wait for `complete_events`.

    Args:
        gallery: to write to.
        kind: of the event.
        photo: its number, if it is about a photo.
        **fields: the others of the event.
    """
    # A restored backup counts from the same number again, so the id has a random part, too.
    body = {"event": kind, "id": secrets.token_hex(8), "at": datetime.now(UTC).isoformat(timespec="milliseconds")}
    body |= ({} if photo is None else {"photo": photo}) | fields
    return gallery.add_note(EVENTS, body, photo=photo, faces=None if kind in _SHOW_FACES else [])


def record_batch(gallery: Gallery, batch: EnrolledBatch) -> None:
    """Write the events of a batch of `Gallery.enroll`, within its transaction."""
    missing = missing_photos(gallery)
    for photo in batch.written:
        if photo.photo is not None and photo.change != "copy":
            gallery.delete_notes([missing[photo.photo]] if photo.photo in missing else [])
            _record_photo(gallery, photo, photo.photo, photo.photo in missing)
    for path, error in batch.skipped:
        if os.path.lexists(path):  # else it was deleted in the meantime
            add_event(gallery, "skipped", path=str(path), reason=str(error).removeprefix(f"{path}: "))


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


def complete_events(gallery: Gallery) -> None:
    """Add to the events of new and edited photos who is in them, after clustering."""
    if gallery.notes(EVENTS, without_faces=True):
        with gallery.write():
            for number, faces in _faces_of_events(gallery).items():
                gallery.change_note(number, faces=faces)
            _set_state(gallery, identity=gallery.last_identity())


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
            face = {"face": row.face, "box_xyxy_px": row.box_xyxy_px, "species": row.species, "identity": row.identity}
            face |= {"name": row.name, "probability": probabilities.get(row.face)}
            faces[note.number].append(face | {"new_identity": row.identity in new_identities})
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
    event = note.body | {"id": f"{note.body['id']}-{note.number}"}
    return event | ({"faces": note.faces} if event["event"] in _SHOW_FACES else {})


def mark_delivered(gallery: Gallery, destination: str, number: int) -> None:
    """Store that a destination has all events up to one, and delete those that all destinations have."""
    with gallery.write():
        destinations = _state(gallery)[1]["destinations"]
        _set_state(gallery, destinations=destinations | {destination: max(number, destinations.get(destination, 0))})
        _delete_until(gallery, min(_state(gallery)[1]["destinations"].values()))


def delete_oldest(gallery: Gallery) -> int:
    """Delete the oldest events where more than `MAX_EVENTS` wait, and return how many that were."""
    first = next((note.number for note in gallery.notes(EVENTS, limit=1)), 0)
    beyond = gallery.notes(EVENTS, after=first + MAX_EVENTS - 1)
    return _delete_until(gallery, beyond[-1].number - MAX_EVENTS) if beyond else 0


def _delete_until(gallery: Gallery, last: int) -> int:
    if not any(note.number <= last for note in gallery.notes(EVENTS, limit=1)):
        return 0
    numbers = [note.number for note in gallery.notes(EVENTS) if note.number <= last and note.faces is not None]
    gallery.delete_notes(numbers)
    return len(numbers)
