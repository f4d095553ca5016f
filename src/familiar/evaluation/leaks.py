"""Train/test leakage: photos that the model was trained on too, and photos labeled with two identities."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from familiar.core.cpu import available_cores
from familiar.datasets.duplicates import DuplicateGroup, find_duplicates
from familiar.datasets.folders import IdentityTable, PhotoRef
from familiar.datasets.image_stats import ImageStats, read_all_image_stats
from familiar.datasets.inspection import photo_path
from familiar.datasets.synthetic import SyntheticPhoto
from familiar.evaluation.results.document import ComparedPhotos, LeakedPicture, LeakResults


@dataclass(frozen=True, eq=False)
class Leak:
    """Photos that show the same picture.

    `photos`: their paths. `identities`: the names of their identities. `exact`: the same file or pixels.
    `evaluated_rows`: the rows of the evaluated table among them.
    """

    photos: tuple[str, ...]
    identities: tuple[str, ...]
    exact: bool
    similarity: float
    evaluated_rows: tuple[int, ...]

    def as_results(self) -> LeakedPicture:
        """Return what the results say about the leak."""
        return LeakedPicture(self.photos, self.identities, self.exact, round(self.similarity, 4))


@dataclass(frozen=True, eq=False)
class Leaks:
    """The result of a leak check.

    `across_splits`: evaluated photos that the model was trained on, or that its thresholds and epoch were chosen by.
    `across_identities`: evaluated photos that are labeled with two identities, one of which must be wrong.
    `seen_photos`: number of photos of the run that the evaluated ones were compared with; None if the run or its
    photos are not available.
    """

    across_splits: tuple[Leak, ...]
    across_identities: tuple[Leak, ...]
    evaluated_photos: int
    seen_photos: int | None

    @property
    def rows(self) -> Int64[np.ndarray, " k"]:
        """Every evaluated row that leaks, ascending."""
        leaks = (*self.across_splits, *self.across_identities)
        return np.unique(np.array([row for leak in leaks for row in leak.evaluated_rows], np.int64))

    def as_results(self, excluded: int) -> LeakResults:
        """Return what the results say about the leaks, of which `excluded` photos were left out."""
        return LeakResults(
            compared=ComparedPhotos(self.evaluated_photos, self.seen_photos),
            across_splits=tuple(leak.as_results() for leak in self.across_splits),
            across_identities=tuple(leak.as_results() for leak in self.across_identities),
            excluded=excluded,
        )


def find_leaks(
    evaluated: IdentityTable,
    seen: IdentityTable | None = None,
    *,
    on_photo: Callable[[int], None] = lambda _: None,
) -> Leaks:
    """Read every photo of both tables once and find pictures that occur twice, exactly or nearly.

    The comparison is that of `datasets.duplicates`. Left out are synthetic photos, since no two identities are drawn
    the same; photos that cannot be read, which take no part in the evaluation; and photos of `seen` that are evaluated
    themselves, since an evaluation on trained identities is reported anyway.

    Args:
        evaluated: the photos to evaluate on.
        seen: photos that the model was trained on or selected by, if they are available.
        on_photo: called with the number of photos read so far.
    """
    evaluated_rows = [row for row, photo in enumerate(evaluated.photos) if not isinstance(photo, SyntheticPhoto)]
    photos: list[PhotoRef] = [evaluated.photos[row] for row in evaluated_rows]
    names = [evaluated.names[evaluated.labels[row]] for row in evaluated_rows]
    if seen is not None:
        evaluated_files = set(map(_resolved, photos))
        for photo, label in zip(seen.photos, seen.labels, strict=True):
            if _resolved(photo) not in evaluated_files and not isinstance(photo, SyntheticPhoto):
                photos.append(photo)
                names.append(seen.names[label])
    leaks = [_to_leak(group, photos, names, evaluated_rows) for group in _find_same_pictures(photos, on_photo)]
    return Leaks(
        across_splits=tuple(leak for leak in leaks if 0 < len(leak.evaluated_rows) < len(leak.photos)),
        across_identities=tuple(
            leak for leak in leaks if len(np.unique(evaluated.labels[list(leak.evaluated_rows)])) > 1
        ),
        evaluated_photos=len(evaluated_rows),
        seen_photos=None if seen is None else len(photos) - len(evaluated_rows),
    )


def _find_same_pictures(photos: Sequence[PhotoRef], on_photo: Callable[[int], None]) -> list[DuplicateGroup]:
    """Group the indices of photos that are the same image, or nearly."""
    indices: list[int] = []
    facts: list[ImageStats] = []
    for index, photo_facts in enumerate(read_all_image_stats(photos, available_cores())):
        on_photo(index + 1)
        if isinstance(photo_facts, ImageStats):
            indices.append(index)
            facts.append(photo_facts)
    if not facts:
        return []
    groups = find_duplicates(
        [photo_facts.digest for photo_facts in facts],
        np.array([photo_facts.hash for photo_facts in facts], np.uint64),
        np.stack([photo_facts.structure for photo_facts in facts]),
    )
    return [replace(group, rows=tuple(indices[row] for row in group.rows)) for group in groups]


def _to_leak(
    group: DuplicateGroup, photos: Sequence[PhotoRef], names: Sequence[str], evaluated_rows: Sequence[int]
) -> Leak:
    return Leak(
        photos=tuple(photo_path(photos[index]) for index in group.rows),
        identities=tuple(sorted({names[index] for index in group.rows})),
        exact=group.exact,
        similarity=group.similarity,
        evaluated_rows=tuple(evaluated_rows[index] for index in group.rows if index < len(evaluated_rows)),
    )


def _resolved(photo: PhotoRef) -> PhotoRef:
    """Return the same value for the same file, however its path is written."""
    return photo.resolve() if isinstance(photo, Path) else photo
