"""What is in a gallery, at a glance."""

import contextlib
from dataclasses import dataclass

import numpy as np

from familiar.gallery.calibration import Grouping, grouping
from familiar.gallery.corrections import central_face
from familiar.gallery.decisions import Decision, decisions
from familiar.gallery.search import open_index
from familiar.gallery.store import Gallery, Space
from familiar.gallery.who import NOBODY, who_is_who

LAST_DECISIONS = 5


@dataclass(frozen=True)
class Identity:
    """One identity: how many faces it holds, how many of them the user `confirmed`, and the face most like all.

    `face` and its photo's `path` are None where it holds none.
    """

    number: int
    name: str | None
    faces: int
    confirmed: int
    face: int | None
    path: str | None


@dataclass(frozen=True)
class Overview:
    """`identities`, most faces first; faces `alone` are nobody's. `indexed`: an index is there and up to date.

    `decisions`: the last ones, newest first, that can be taken back.
    """

    photos: int
    faces: int
    identities: tuple[Identity, ...]
    alone: int
    space: Space
    grouping: Grouping
    size_bytes: int
    indexed: bool
    decisions: tuple[Decision, ...]


def overview(gallery: Gallery) -> Overview:
    """All of it as it is at one moment."""
    with gallery.reading() as connection:
        (photos,) = connection.execute("SELECT count(*) FROM photos").fetchone()
        paths = dict(
            connection.execute(
                "SELECT faces.id, path FROM faces JOIN photos ON photos.id = photo_id"
            ).fetchall()
        )
        numbers = [row[0] for row in connection.execute("SELECT id FROM identities")]
        identities = _identities(gallery, numbers, paths)
        faces = len(gallery.faces().ids)
        return Overview(
            photos=photos,
            faces=faces,
            identities=identities,
            alone=faces - sum(identity.faces for identity in identities),
            space=gallery.space,
            grouping=grouping(gallery),
            size_bytes=_size_bytes(gallery),
            indexed=open_index(gallery) is not None,
            decisions=tuple(decisions(gallery, LAST_DECISIONS)),
        )


def _size_bytes(gallery: Gallery) -> int:
    total = 0
    for path in gallery.folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # others write and tidy up meanwhile
            total += path.stat().st_size
    return total


def _identities(gallery: Gallery, numbers: list[int], paths: dict[int, str]) -> tuple[Identity, ...]:
    who = who_is_who(gallery)
    order = np.argsort(who.identity, kind="stable")
    held, starts = np.unique(who.identity[order], return_index=True)
    rows_of = dict(zip(held.tolist(), np.split(order, starts[1:]), strict=True)) if len(held) else {}
    rows_of.pop(NOBODY, None)
    found: list[Identity] = []
    for number in numbers:
        rows = rows_of.get(number)
        face = None if rows is None else central_face(who, rows)
        found.append(
            Identity(
                number,
                who.names.get(number),
                0 if rows is None else len(rows),
                0 if rows is None else int(who.by_user[rows].sum()),
                face,
                None if face is None else paths[face],
            )
        )
    return tuple(sorted(found, key=lambda identity: (-identity.faces, identity.number)))
