"""What happened in a gallery, for programs that follow it."""

from dataclasses import dataclass

from familiar.gallery.store.repository import Repository
from familiar.gallery.store.store import Store


@dataclass(frozen=True)
class GalleryEvent:
    """What happened in a gallery.

    Attributes:
        number: later events have higher numbers.
        kind: "enrolled", "named", "merged", or "undone": something is as it was before the last change.
        happened_at: ISO 8601, UTC.
        photos: numbers of the photos that were enrolled, without those that were forgotten since.
        identity: that was named, or that the other one was merged into.
        name: that this identity has now, if any.
        merged: number of the identity that was merged into it.
    """

    number: int
    kind: str
    happened_at: str
    photos: tuple[int, ...] = ()
    identity: int | None = None
    name: str | None = None
    merged: int | None = None


def list_events(store: Store, since: int, limit: int) -> list[GalleryEvent]:
    """List what was enrolled, named, merged and undone after an event, oldest first."""
    with store.read() as repository:
        names = repository.identities.names()
        return [
            GalleryEvent(
                number,
                kind,
                happened_at,
                _photos(repository, body),
                identity,
                None if identity is None else names.get(identity),
                body.get("merged"),
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
