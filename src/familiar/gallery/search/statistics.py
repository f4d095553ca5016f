"""What is in a gallery, at a glance."""

import contextlib
from dataclasses import dataclass

import numpy as np

from familiar.gallery.clustering.assignments import load_assignments
from familiar.gallery.clustering.calibration import ClusteringCalibration, clustering_calibration
from familiar.gallery.database.connection import Gallery, Space
from familiar.gallery.editing.undo_log import Decision, decisions
from familiar.gallery.search.search import open_index
from familiar.gallery.search.templates import central_faces, templates

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
class GalleryStatistics:
    """`identities`, most faces first; faces `alone` are nobody's. `indexed`: an index is there and up to date.

    `decisions`: the last ones, newest first, that can be taken back.
    """

    photos: int
    faces: int
    identities: tuple[Identity, ...]
    unassigned: int
    space: Space
    grouping: ClusteringCalibration
    size_bytes: int
    indexed: bool
    decisions: tuple[Decision, ...]


def gallery_statistics(gallery: Gallery) -> GalleryStatistics:
    """All of it as it is at one moment."""
    with gallery.reading() as connection:
        (photos,) = connection.execute("SELECT count(*) FROM photos").fetchone()
        paths = dict(
            connection.execute("SELECT faces.id, path FROM faces JOIN photos ON photos.id = photo_id").fetchall()
        )
        numbers = [row[0] for row in connection.execute("SELECT id FROM identities")]
        identities = _identities(gallery, numbers, paths)
        faces = len(gallery.faces().ids)
        return GalleryStatistics(
            photos=photos,
            faces=faces,
            identities=identities,
            unassigned=faces - sum(identity.faces for identity in identities),
            space=gallery.space,
            grouping=clustering_calibration(gallery),
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
    who = load_assignments(gallery)
    of = templates(who, np.arange(len(who.identity)))
    central = who.faces.ids[central_faces(who, of, 1)[:, 0]].tolist()
    confirmed = np.bincount(of.places, who.by_user[of.rows], len(of.numbers)).astype(np.int64).tolist()
    held = dict(zip(of.numbers.tolist(), zip(of.sizes.tolist(), confirmed, central, strict=True), strict=True))
    found: list[Identity] = []
    for number in numbers:
        faces, by_user, face = held.get(number, (0, 0, None))
        path = None if face is None else paths[face]
        found.append(Identity(number, who.names.get(number), faces, by_user, face, path))
    return tuple(sorted(found, key=lambda identity: (-identity.faces, identity.number)))
