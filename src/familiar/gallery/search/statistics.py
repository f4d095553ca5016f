"""Statistics of a gallery: its size, identities, model space, thresholds and latest decisions."""

import contextlib
from dataclasses import dataclass

from familiar.core.gallery_types import Decision, IdentitySummary, SpeciesClustering
from familiar.gallery.review.questions import doubtful_identities
from familiar.gallery.same.album import species_clusterings
from familiar.gallery.same.decisions import decisions
from familiar.gallery.search.folder_index import open_index
from familiar.gallery.search.listing import all_summaries
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store

MAX_DECISIONS = 5


@dataclass(frozen=True)
class Identity:
    """An identity of the gallery.

    Attributes:
        number: the identity's number.
        name: its name, if any.
        faces: number of its faces.
        confirmed: number of faces that the user assigned or confirmed.
        face: id of its most central face; None if it has no face.
        path: the photo of that face; None if it has no face.
        doubtful: whether it shows two individuals rather than one, as far as its faces tell.
    """

    number: int
    name: str | None
    faces: int
    confirmed: int
    face: int | None
    path: str | None
    doubtful: bool


@dataclass(frozen=True)
class GalleryStatistics:
    """Statistics of a gallery at one moment.

    Attributes:
        photos: number of photos.
        faces: number of faces.
        identities: those with most faces first, then by number.
        unassigned: number of faces in no identity.
        space: the model's embedding space.
        thresholds: from which on faces of each species are clustered.
        size_bytes: of all files in the gallery's folder.
        indexed: whether there is an index that is up to date.
        decisions: the latest that can be undone, newest first.
    """

    photos: int
    faces: int
    identities: tuple[Identity, ...]
    unassigned: int
    space: Space
    thresholds: tuple[SpeciesClustering, ...]
    size_bytes: int
    indexed: bool
    decisions: tuple[Decision, ...]


def gallery_statistics(store: Store) -> GalleryStatistics:
    """Collect the statistics of a gallery, all of them at one moment."""
    with store.read() as repository:
        photo_count, paths = repository.photos.count(), {row.face: row.path for row in repository.faces.rows()}
        face_count, doubtful = len(store.faces().ids), doubtful_identities(store)
        summaries = all_summaries(store).values()
        return GalleryStatistics(
            photos=photo_count,
            faces=face_count,
            identities=tuple(_identity(each, paths, doubtful) for each in summaries),
            unassigned=face_count - sum(each.faces for each in summaries),
            space=store.space,
            thresholds=species_clusterings(store),
            size_bytes=_size_bytes(store),
            indexed=open_index(store) is not None,
            decisions=tuple(decisions(store, MAX_DECISIONS)),
        )


def _size_bytes(store: Store) -> int:
    total = 0
    for path in store.folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # other processes may delete temporary files
            total += path.stat().st_size
    return total


def _identity(summary: IdentitySummary, paths: dict[int, str], doubtful: frozenset[int]) -> Identity:
    number, face = summary.identity, next(iter(summary.best), None)
    path = None if face is None else paths[face]
    return Identity(number, summary.name, summary.faces, summary.confirmed, face, path, number in doubtful)
