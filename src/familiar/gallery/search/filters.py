"""Filters that restrict a search to some faces of a gallery."""

import re
from dataclasses import astuple, dataclass

import numpy as np
from jaxtyping import Bool

from familiar.gallery.store.face_table import EmbeddingTable
from familiar.gallery.store.store import Store

_ISO_TIME = re.compile(r"\d{4}(-\d\d(-\d\d(T\d\d(:\d\d(:\d\d)?)?)?)?)?")


@dataclass(frozen=True)
class Filter:
    """The faces that a search covers; None does not restrict.

    Attributes:
        identities: only faces of these identities.
        species: only faces of this species.
        since: only photos taken at this time or later; an ISO date or time, such as 2024-06 or 2024-06-01T12:00:00.
            Photos without a capture time are left out.
        until: only photos taken at this time or earlier, likewise; a given day, month or year is included.

    Raises:
        ValueError: `since` or `until` has another format.
    """

    identities: tuple[int, ...] | None = None
    species: str | None = None
    since: str | None = None
    until: str | None = None

    def __post_init__(self) -> None:
        for time in (self.since, self.until):
            if time is not None and not _ISO_TIME.fullmatch(time):
                raise ValueError(
                    f"a time must be written as 2024, 2024-06, 2024-06-01 or 2024-06-01T12:00:00, got {time!r}"
                )

    @property
    def empty(self) -> bool:
        """Whether every face passes."""
        return self == NO_FILTER


NO_FILTER = Filter()


def filter_mask(store: Store, faces: EmbeddingTable, only: Filter) -> Bool[np.ndarray, " n"]:
    """Mark the faces that pass a filter that is not empty."""
    with store.read() as repository:
        passing = repository.faces.filtered(*astuple(only))
    mask = np.zeros(len(faces.ids), np.bool_)
    mask[faces.rows_of(np.array(passing, np.int64))] = True
    return mask
