"""Frigate's snapshots as photos: what it publishes by MQTT becomes files in a watched folder.

Its topics and file names: https://docs.frigate.video/integrations/mqtt and /configuration/snapshots.
"""

import re
from datetime import datetime
from pathlib import Path

from familiar.core.files import make_folder, write_atomically

LABELS = ("cat", "dog", "person")  # of Frigate's; other objects have no face that a model knows
TOPICS = tuple(f"frigate/+/{label}/snapshot" for label in LABELS)
MAX_SNAPSHOT_BYTES = 1 << 24
_TOPIC = re.compile(r"frigate/([\w-]+)/([\w-]+)/snapshot")
_CLIP_NAME = re.compile(r"(.+)-\d{9,}\.\d+-[a-z0-9]+(?:-clean)?")
_JPEG = b"\xff\xd8\xff"


def save_snapshot(folder: Path, topic: str, content: bytes) -> Path | None:
    """Save a snapshot as `FOLDER/CAMERA/TIME-LABEL.jpg`.

    Args:
        folder: of all cameras.
        topic: of the message.
        content: of the message.

    Returns:
        The new file; None: the message is no snapshot.

    Raises:
        CannotWrite: the system refuses.
    """
    match = _TOPIC.fullmatch(topic)
    if match is None or not content.startswith(_JPEG) or len(content) > MAX_SNAPSHOT_BYTES:
        return None
    camera, label = match.groups()
    path = folder / camera / f"{datetime.now():%Y%m%dT%H%M%S%f}-{label}.jpg"
    make_folder(path.parent)
    write_atomically(path, content)
    return path


def camera_of_clip(file_name: str) -> str | None:
    """Return the camera of a file in Frigate's own folder of snapshots; None: its name is not of that kind.

    >>> camera_of_clip("cat-flap-1607123955.475377-mxklsc.jpg"), camera_of_clip("IMG-20261128.jpg")
    ('cat-flap', None)
    """
    match = _CLIP_NAME.fullmatch(Path(file_name).stem)
    return match[1] if match else None
