"""What happened in a gallery, for programs that follow it."""

import json

from familiar.core.gallery_types import GalleryEvent
from familiar.gallery.store.repository import Repository
from familiar.gallery.store.store import Store


def list_events(gallery: Store, since: int, limit: int) -> list[GalleryEvent]:
    """List what was enrolled, named, merged and undone after an event, oldest first."""
    with gallery.read() as repository:
        names = repository.identities.names()
        return [
            GalleryEvent(
                number,
                kind,
                happened_at,
                _photos(repository, json.loads(body)),
                identity,
                None if identity is None else names.get(identity),
                json.loads(body).get("merged"),
            )
            for number, happened_at, kind, identity, body in repository.events.after(since, limit)
        ]


def _photos(repository: Repository, body: dict[str, int]) -> tuple[int, ...]:
    """Return the photos of an event that were not forgotten since."""
    if "first" not in body:
        return ()
    first, last = body["first"], body["last"]
    rows = repository.photos.page(after=first - 1, limit=last - first + 1)
    return tuple(row.photo for row in rows if row.photo <= last)
