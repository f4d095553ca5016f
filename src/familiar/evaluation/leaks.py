"""Photos that give the answer away: judged though the model saw them, or standing under two identities."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from familiar.core.cpu import available_cores
from familiar.datasets.duplicates import Alike, find_duplicates
from familiar.datasets.folders import IdentityTable, PhotoRef
from familiar.datasets.image_stats import PhotoFacts, facts_of_all
from familiar.datasets.inspection import photo_path
from familiar.datasets.synthetic import SyntheticPhoto


@dataclass(frozen=True, eq=False)
class Leak:
    """Photos that show one picture. `photos` and `identities` are named; `judged`: rows of the judged table."""

    photos: tuple[str, ...]
    identities: tuple[str, ...]
    exact: bool
    similarity: float
    judged: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "photos": list(self.photos),
            "identities": list(self.identities),
            "exact": self.exact,
            "similarity": round(self.similarity, 4),
        }


@dataclass(frozen=True, eq=False)
class Leaks:
    """`across_splits`: judged photos that the model was trained on, or its thresholds and epoch chosen by.

    `across_identities`: judged photos that stand under two identities, of which one must be wrong. `seen_photos`: how
    many photos of the run the judged ones were compared with, None where the run or its photos are not at hand.
    """

    across_splits: tuple[Leak, ...]
    across_identities: tuple[Leak, ...]
    judged_photos: int
    seen_photos: int | None

    @property
    def rows(self) -> Int64[np.ndarray, " k"]:
        """Every judged row that leaks."""
        leaks = (*self.across_splits, *self.across_identities)
        return np.unique(np.array([row for leak in leaks for row in leak.judged], np.int64))

    def as_dict(self) -> dict[str, Any]:
        return {
            "compared": {"judged": self.judged_photos, "seen": self.seen_photos},
            "across_splits": [leak.as_dict() for leak in self.across_splits],
            "across_identities": [leak.as_dict() for leak in self.across_identities],
        }


def find_leaks(
    judged: IdentityTable,
    seen: IdentityTable | None = None,
    *,
    on_photo: Callable[[int], None] = lambda _: None,
) -> Leaks:
    """Opens every photo of both tables once and looks for the same picture, exactly or nearly (`datasets.duplicates`).

    Drawn photos are left out: no two identities are drawn alike. So are photos that cannot be read, which nobody is
    judged by, and those of `seen` that are judged themselves, as whoever judges by trained identities is told anyway.
    """
    judged_rows = [row for row, photo in enumerate(judged.photos) if not isinstance(photo, SyntheticPhoto)]
    photos: list[PhotoRef] = [judged.photos[row] for row in judged_rows]
    names = [judged.names[judged.labels[row]] for row in judged_rows]
    if seen is not None:
        own = set(map(_place, photos))
        for photo, label in zip(seen.photos, seen.labels, strict=True):
            if _place(photo) not in own and not isinstance(photo, SyntheticPhoto):
                photos.append(photo)
                names.append(seen.names[label])
    leaks = [_leak(alike, photos, names, judged_rows) for alike in _alike(photos, on_photo)]
    return Leaks(
        across_splits=tuple(leak for leak in leaks if 0 < len(leak.judged) < len(leak.photos)),
        across_identities=tuple(leak for leak in leaks if len(np.unique(judged.labels[list(leak.judged)])) > 1),
        judged_photos=len(judged_rows),
        seen_photos=None if seen is None else len(photos) - len(judged_rows),
    )


def _alike(photos: Sequence[PhotoRef], on_photo: Callable[[int], None]) -> list[Alike]:
    """Groups of places in `photos`."""
    places: list[int] = []
    facts: list[PhotoFacts] = []
    for place, found in enumerate(facts_of_all(photos, available_cores())):
        on_photo(place + 1)
        if isinstance(found, PhotoFacts):
            places.append(place)
            facts.append(found)
    if not facts:
        return []
    groups = find_duplicates(
        [one.digest for one in facts],
        np.array([one.hash for one in facts], np.uint64),
        np.stack([one.structure for one in facts]),
    )
    return [replace(alike, rows=tuple(places[row] for row in alike.rows)) for alike in groups]


def _leak(alike: Alike, photos: Sequence[PhotoRef], names: Sequence[str], judged_rows: Sequence[int]) -> Leak:
    return Leak(
        photos=tuple(photo_path(photos[place]) for place in alike.rows),
        identities=tuple(sorted({names[place] for place in alike.rows})),
        exact=alike.exact,
        similarity=alike.similarity,
        judged=tuple(judged_rows[place] for place in alike.rows if place < len(judged_rows)),
    )


def _place(photo: PhotoRef) -> PhotoRef:
    """The same for one file, however it was named."""
    return photo.resolve() if isinstance(photo, Path) else photo
