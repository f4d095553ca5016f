"""Who was last seen, when and where, as MQTT messages that Home Assistant turns into sensors by itself.

Every message is retained, so a broker and Home Assistant may start again at any time. The format:
https://www.home-assistant.io/integrations/mqtt/#mqtt-discovery
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from familiar import Gallery, __version__
from familiar.gallery import GalleryFace, PhotoRow
from familiar.integrations.watch.frigate import camera_of_clip
from familiar.integrations.watch.outbox import to_json_line

DISCOVERY_PREFIX = "homeassistant"  # Home Assistant's default
_ICONS = {"cat": "mdi:cat", "dog": "mdi:dog", "person": "mdi:account"}
_OTHER_ICON = "mdi:paw"


@dataclass(frozen=True)
class Sighting:
    """The newest photo of somebody.

    Attributes:
        name: of the individual; of several in one photo, all names.
        identity: its number; None: several, or nobody known.
        species: of the face; None: unknown.
        seen_at: when the photo was taken, ISO 8601 with a time zone: the machine's, if the photo does not say.
        location: the camera's name, or that of the folder.
        photo: its number.
        path: of the photo.
    """

    name: str
    identity: int | None
    species: str | None
    seen_at: str
    location: str
    photo: int
    path: str


def album_id(folder: Path) -> str:
    """Return the name of a gallery in topics: that of its folder, in small letters, digits and underscores.

    >>> album_id(Path("/home/ada/Mia & Tom"))
    'mia_tom'
    """
    return re.sub(r"[^a-z0-9]+", "_", folder.name.lower()).strip("_") or "album"


def base_topic(album: str) -> str:
    """Return the beginning of an album's topics."""
    return f"familiar/{album}"


def retained_topics(album: str) -> list[str]:
    """Return filters for all topics that may have a retained message about an individual."""
    base = base_topic(album)
    return [f"{base}/identity/+", f"{base}/last_seen", f"{DISCOVERY_PREFIX}/sensor/familiar_{album}/+/config"]


def last_sightings(gallery: Gallery, folders: Sequence[str]) -> tuple[list[Sighting], Sighting | None]:
    """Find when each named individual was last seen.

    Args:
        gallery: to read.
        folders: the watched ones; cameras are their subfolders.

    Returns:
        One for each name, by the number of the identity; and one for the newest photo with a face, if there is any.
    """
    with gallery.read():
        photos = {row.photo: row for row in gallery.photos_to_search(without_face=False)}
        faces = [face for face in gallery.faces() if face.photo in photos]
    seen_at = {face.photo: _time_of(photos[face.photo]) for face in faces}
    faces.sort(key=lambda face: (seen_at[face.photo], face.photo))
    newest_faces: dict[int, GalleryFace] = {face.identity: face for face in faces if face.identity and face.name}

    def describe(name: str, identity: int | None, face: GalleryFace) -> Sighting:
        path = photos[face.photo].original_path
        moment = seen_at[face.photo].isoformat(timespec="seconds")
        return Sighting(name, identity, face.species, moment, location_of(path, folders), face.photo, path)

    named = [describe(face.name or "", number, face) for number, face in sorted(newest_faces.items())]
    if not faces:
        return named, None
    together = [face for face in faces if face.photo == faces[-1].photo]
    identities = {face.identity for face in together}
    names = ", ".join(dict.fromkeys(map(_label, together)))
    return named, describe(names, together[0].identity if len(identities) == 1 else None, together[0])


def location_of(path: str, folders: Sequence[str]) -> str:
    """Return where a photo was taken: the camera in the name of Frigate's file, else the subfolder, else the folder.

    >>> location_of("/photos/garden/2026/1.jpg", ["/photos"]), location_of("/photos/1.jpg", ["/photos"])
    ('garden', 'photos')
    """
    if (camera := camera_of_clip(os.path.basename(path))) is not None:  # noqa: PTH119
        return camera
    around = [folder for folder in folders if path.startswith(folder.rstrip(os.sep) + os.sep)]
    if not around:
        return Path(path).parent.name
    folder = Path(max(around, key=len))
    parts = Path(path).relative_to(folder).parts
    return parts[0] if len(parts) > 1 else folder.name


def messages(album: str, named: Iterable[Sighting], newest: Sighting | None) -> dict[str, bytes]:
    """Return the retained messages about an album, by topic: what Home Assistant discovers before the states.

    Args:
        album: its name in topics.
        named: the last sighting of each named individual.
        newest: of the newest photo with a face.
    """
    described: dict[str, Any] = {}
    if newest is not None:
        topic = f"{base_topic(album)}/last_seen"
        described |= _sensor(album, "last_seen", "Last seen", topic, "name", icon="mdi:eye")
        described[topic] = asdict(newest)
    for each in named:
        topic, sensor = f"{base_topic(album)}/identity/{each.identity}", f"identity_{each.identity}"
        icon = _ICONS.get(each.species or "", _OTHER_ICON)
        described |= _sensor(album, sensor, each.name, topic, "location", icon=icon)
        described |= _sensor(
            album, f"{sensor}_seen", f"{each.name} last seen", topic, "seen_at", device_class="timestamp"
        )
        described[topic] = asdict(each)
    return {topic: to_json_line(each) for topic, each in described.items()}


def _sensor(album: str, sensor: str, name: str, topic: str, state: str, **fields: str) -> Mapping[str, Any]:
    """Return the message by which Home Assistant discovers a sensor, by its topic."""
    device = {"identifiers": [f"familiar_{album}"], "name": f"familiar {album}", "sw_version": __version__}
    return {
        f"{DISCOVERY_PREFIX}/sensor/familiar_{album}/{sensor}/config": {
            "name": name,
            "unique_id": f"familiar_{album}_{sensor}",
            "state_topic": topic,
            "value_template": f"{{{{ value_json.{state} }}}}",
            "json_attributes_topic": topic,
            "availability_topic": f"{base_topic(album)}/available",
            "device": device,
            "origin": {"name": "familiar", "sw_version": __version__},
        }
        | fields
    }


def _label(face: GalleryFace) -> str:
    return face.name or (f"unknown {face.species or 'face'}" if face.identity is None else f"#{face.identity}")


def _time_of(photo: PhotoRow) -> datetime:
    """Return when a photo was taken, in the machine's time zone; if it does not say, when its file was written."""
    try:
        if photo.taken_at is not None:
            return datetime.fromisoformat(photo.taken_at).astimezone()
        return datetime.fromtimestamp(photo.modified_ns / 1e9).astimezone()
    except (ValueError, OverflowError, OSError):  # of a year that no clock has
        return datetime.fromtimestamp(0, UTC).astimezone()
