"""Train/test leakage: photos that the model was trained on too, and photos labeled with two identities."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from familiar.core.cpu import available_cores
from familiar.datasets.duplicates import DuplicateGroup, find_duplicates
from familiar.datasets.folders import IdentityTable, PhotoRef
from familiar.datasets.image_stats import ImageStats, read_all_image_stats
from familiar.datasets.photo_references import BoxedPhoto, photo_path
from familiar.datasets.synthetic import SyntheticPhoto
from familiar.evaluation.results.document import ComparedPhotos, LeakedPicture, LeakResults


def find_leaks(
    evaluated: IdentityTable,
    seen: IdentityTable | None = None,
    *,
    on_photo: Callable[[int], None] = lambda _: None,
) -> tuple[LeakResults, Int64[np.ndarray, " k"]]:
    """Read every photo of both tables once and find pictures that occur twice, exactly or nearly.

    The comparison is that of `datasets.duplicates`. Left out are synthetic photos, since no two identities are drawn
    the same; photos that cannot be read, which take no part in the evaluation; and photos of `seen` that are evaluated
    themselves, since an evaluation on trained identities is reported anyway.

    Args:
        evaluated: the photos to evaluate on.
        seen: photos that the model was trained on or selected by, if they are available.
        on_photo: called with the number of photos read so far.

    Returns:
        The leaks, none of them excluded yet; and every evaluated row that leaks, ascending.
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
    across_splits: list[LeakedPicture] = []
    across_identities: list[LeakedPicture] = []
    leaking: set[int] = set()
    for group in _find_same_pictures(photos, on_photo):
        picture = LeakedPicture(
            photos=tuple(photo_path(photos[index]) for index in group.rows),
            identities=tuple(sorted({names[index] for index in group.rows})),
            exact=group.exact,
            similarity=round(group.similarity, 4),
        )
        rows = [evaluated_rows[index] for index in group.rows if index < len(evaluated_rows)]
        is_across_splits = 0 < len(rows) < len(group.rows)
        is_across_identities = len({int(evaluated.labels[row]) for row in rows}) > 1
        across_splits += [picture] if is_across_splits else []
        across_identities += [picture] if is_across_identities else []
        leaking.update(rows if is_across_splits or is_across_identities else ())
    compared = ComparedPhotos(len(evaluated_rows), None if seen is None else len(photos) - len(evaluated_rows))
    leaks = LeakResults(compared, tuple(across_splits), tuple(across_identities), excluded=0)
    return leaks, np.array(sorted(leaking), np.int64)


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


def _resolved(photo: PhotoRef) -> PhotoRef:
    """Return the same value for the same file, however its path is written."""
    if isinstance(photo, BoxedPhoto) and isinstance(photo.photo, Path):
        return replace(photo, photo=photo.photo.resolve())
    return photo.resolve() if isinstance(photo, Path) else photo
