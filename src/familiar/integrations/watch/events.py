"""The events of `familiar watch`, and their JSON: lines on stdout and the content of webhooks.

docs/reference/formats.md describes them for other programs.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from familiar import Box
from familiar.core.json_codec import JsonCodec


@dataclass(frozen=True)
class Sighting:
    """A face in a photo, and who it shows.

    Attributes:
        face: its number in the gallery.
        box_xyxy_px: left, top, right and bottom, in pixels of the whole upright photo.
        species: if known.
        identity: its number; None: nobody that the gallery knows.
        name: of the identity, if it has one.
        probability: that the face belongs to the identity, in [0, 1]; None: there is no other face to compare with, or
            neither the gallery nor its model is calibrated.
        new_identity: this event is the first that shows the identity, which clustering has just formed.
    """

    face: int
    box_xyxy_px: Box
    species: str | None = None
    identity: int | None = None
    name: str | None = None
    probability: float | None = None
    new_identity: bool = False


@dataclass(frozen=True)
class Event:
    """What all events have.

    Attributes:
        kind: the event's name in JSON.
        id: unique, and the same whenever the event is delivered again. A later event of one gallery has a higher
            number after the hyphen.
        time: when it happened, ISO 8601, UTC; `at` in JSON.
    """

    kind: ClassVar[str]
    id: str
    time: str


@dataclass(frozen=True)
class StartEvent(Event):
    """The watch has started.

    Attributes:
        folders: that are watched.
        photos: of the gallery.
    """

    kind: ClassVar[str] = "started"
    folders: tuple[str, ...]
    photos: int


@dataclass(frozen=True)
class EnrollEvent(Event):
    """A photo is new in the gallery.

    Attributes:
        photo: its number.
        path: of its file.
        taken_at: ISO 8601, local time, from EXIF; None: unknown.
        faces: in the order of their numbers.
    """

    kind: ClassVar[str] = "enrolled"
    photo: int
    path: str
    taken_at: str | None
    faces: tuple[Sighting, ...] = ()


@dataclass(frozen=True)
class EditEvent(EnrollEvent):
    """A photo's file has other content, which shows the same faces.

    Attributes:
        replaces: the numbers that the photo had before.
    """

    kind: ClassVar[str] = "edited"
    replaces: tuple[int, ...] = ()


@dataclass(frozen=True)
class MoveEvent(Event):
    """A photo's file lies elsewhere.

    Attributes:
        photo: its number.
        path: of its file.
        previous_path: where it was before.
    """

    kind: ClassVar[str] = "moved"
    photo: int
    path: str
    previous_path: str


@dataclass(frozen=True)
class MissingEvent(Event):
    """A photo's file is gone. Its faces and names stay in the gallery.

    Attributes:
        photo: its number.
        path: where it was.
    """

    kind: ClassVar[str] = "missing"
    photo: int
    path: str


@dataclass(frozen=True)
class ReturnEvent(MoveEvent):
    """A missing photo's file is there again, where it was or elsewhere."""

    kind: ClassVar[str] = "returned"


@dataclass(frozen=True)
class SkipEvent(Event):
    """A file or folder cannot be read; reported once, until it changes.

    Attributes:
        path: of the file or folder.
        reason: why.
    """

    kind: ClassVar[str] = "skipped"
    path: str
    reason: str


@dataclass(frozen=True)
class StopEvent(Event):
    """The watch has stopped as it was told to. A killed one writes none."""

    kind: ClassVar[str] = "stopped"


EVENTS: dict[str, type[Event]] = {
    event.kind: event
    for event in (StartEvent, EnrollEvent, EditEvent, MoveEvent, MissingEvent, ReturnEvent, SkipEvent, StopEvent)
}

_EVENTS = JsonCodec(defaults=True)


def parse_event(kind: str, event_id: str, time: str, fields: Mapping[str, Any]) -> Event:
    """Return an event from its name, its id, its time and its other fields as JSON has them.

    Raises:
        KeyError: there is no such event.
        ValueError: it has other fields.
    """
    return _EVENTS.from_json(EVENTS[kind], {"id": event_id, "time": time, **fields})


def to_json_line(event: Event) -> bytes:
    """Return an event as one line of JSON in UTF-8, without the line break.

    A byte of a path that is not UTF-8 is written as an escape such as `\\udcff`, which is valid JSON.
    """
    fields = _EVENTS.to_json(event)
    document = {"event": event.kind, "id": fields.pop("id"), "at": fields.pop("time"), **fields}
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace")
