"""A folder that is watched step by step, by a clock that the test sets, and the events that were reported."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from familiar.detection.detectors import WholePhoto
from familiar.embedding.embedder import Embedder
from familiar.gallery import Gallery
from familiar.integrations.watch import outbox
from familiar.integrations.watch.outbox import Event
from familiar.integrations.watch.watch import FolderWatch, WatchSettings
from support.color_album import draw_photo

SETTLE_SECONDS = 2.0


class WatchedFolder:
    """A folder, a gallery, and a watch that is started, restarted and stepped by the test.

    Attributes:
        photos: the folder.
        gallery: open.
        events: all that were reported, those that were reported again included.
        notes: messages for the user.
    """

    def __init__(self, folder: Path, bundle: Path, settings: WatchSettings | None = None) -> None:
        self.photos = folder / "photos"
        self.photos.mkdir()
        self.embedder = Embedder(bundle, threads=1)
        self.gallery = Gallery.create(folder / "gallery", self.embedder)
        self.settings = settings or WatchSettings(SETTLE_SECONDS, poll_seconds=10.0)
        self.events: list[Event] = []
        self.notes: list[str] = []
        self.seconds = 0.0
        self.modified_ns = 10**18
        self.on_event: Callable[[Event], None] = lambda _: None
        self.restart()

    def restart(self) -> None:
        """Start another watch, which knows only the database; the earlier one is as dead as if it had been killed."""
        self.gallery.close()
        self.gallery = Gallery.open(self.gallery.folder, self.embedder)
        self.gallery.store._connection.execute("PRAGMA synchronous = OFF")  # tests need not wait for the disk
        self.watch = FolderWatch(
            self.gallery,
            WholePhoto(),
            [self.photos],
            self.settings,
            on_event=self._report,
            on_note=self.notes.append,
            clock=lambda: self.seconds,
        )

    def _report(self, event: Event) -> None:
        self.on_event(event)
        self.events.append(event)

    def step(self, after_seconds: float = 0.0) -> None:
        """Let time pass, and the watch do what is to be done then."""
        self.seconds += after_seconds
        self.watch.step()

    def settle(self) -> None:
        """Let the watch do all that is to be done."""
        self.watch._next_scan = self.seconds
        for _ in range(3):
            self.step(SETTLE_SECONDS + 0.1)

    def touch(self, path: Path) -> Path:
        """Give a file a modification time that no other has."""
        self.modified_ns += 10**9
        os.utime(path, ns=(self.modified_ns, self.modified_ns))
        return path

    def draw(self, name: str, *colors: str, shade: int = 0) -> Path:
        """Save a drawn photo, which is whole when it comes into the folder: a half-written file is noted."""
        path = self.photos / name
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn = draw_photo(self.photos.parent / path.name, *colors, shade=shade)
        return self.touch(drawn.replace(path))

    def write(self, name: str, content: bytes) -> Path:
        """Save a file."""
        path = self.photos / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return self.touch(path)

    def reported(self) -> list[tuple[str, str]]:
        """Return kind and path, relative to the folder, of the events about files, each id once."""
        return [(event["event"], self.relative(event["path"])) for event in unique(self.events) if "path" in event]

    def take_reported(self) -> list[tuple[str, str]]:
        """Return what `reported` does, and forget it."""
        reported = self.reported()
        self.events.clear()
        return reported

    def relative(self, path: str) -> str:
        return os.path.relpath(path, self.photos)

    def rows(self) -> dict[int, tuple[str, bytes, bool]]:
        """Return path, SHA-256 and whether it is missing, of each photo of the gallery."""
        with self.gallery.read():
            missing = outbox.missing_photos(self.gallery)
            photos = self.gallery.photos_to_search(without_face=False)
        return {row.photo: (row.path, row.sha256, row.photo in missing) for row in photos}


def unique(reported: Iterable[Event]) -> list[Event]:
    """Return the events as a receiver keeps them: each id once."""
    return list({event["id"]: event for event in reported}.values())


def replay(reported: Iterable[Event]) -> dict[int, tuple[str, bool]]:
    """Return path of each photo, and whether it is missing, as the events tell; check that each fits the last.

    Raises:
        AssertionError: an event contradicts an earlier one.
    """
    photos: dict[int, tuple[str, bool]] = {}
    for event in unique(reported):
        match event:
            case {"event": "enrolled" | "edited", "photo": photo, "path": path}:
                assert photo not in photos, "enrolled twice"
                for number in event.get("replaces", ()):
                    del photos[number]
                photos[photo] = path, False
            case {"event": "moved" | "returned" as kind, "photo": photo, "path": path, "previous_path": previous_path}:
                assert photos[photo] == (previous_path, kind == "returned")
                photos[photo] = path, False
            case {"event": "missing", "photo": photo, "path": path}:
                assert photos[photo] == (path, False)
                photos[photo] = path, True
            case _:
                pass
    return photos
