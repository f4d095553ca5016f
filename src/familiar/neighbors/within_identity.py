"""What confirmed individuals teach about an album: in which directions photos of one individual differ.

Within-class covariance normalization (Hatch, Kajarekar and Stolcke 2006), shrunk, and used only where it helps with
individuals that it was not learned from.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int64

from familiar.core.vectors import normalize
from familiar.neighbors.labels import sum_by_label
from familiar.neighbors.whitening import InverseRoot, Whitening, inverse_root

# Both chosen on cats23, dogs29, ORL and LFW's peopleDevTrain (docs/explanation/clustering.md).
MEASURED_SHARE = 0.3
"""Share of the measured covariance in the one that is divided by; the rest is an equal one in all directions."""
MIN_STANDARD_ERRORS = 1.0
"""The gain, in its standard errors, from which on what was learned is used."""
MIN_IDENTITIES = 5
"""Individuals with two faces or more; the photos of fewer differ by chance."""
FOLDS = 5
_ROUNDING = 1e-10  # of the variance of equal rows


@dataclass(frozen=True)
class Gain:
    """How much better individuals that nothing was learned from are retrieved.

    Attributes:
        before: mean average precision, in [0, 1], as the album is measured; each individual counts equally.
        after: likewise, with what was learned from the others.
        standard_error: of the difference, over individuals.
    """

    before: float
    after: float
    standard_error: float

    @property
    def is_sure(self) -> bool:
        """Whether the difference is more than a standard error above zero."""
        return self.after - self.before > MIN_STANDARD_ERRORS * self.standard_error


def sharpen(
    whitening: Whitening, embeddings: Float[np.ndarray, "n d"], identities: Int64[np.ndarray, " n"]
) -> Whitening:
    """Damp the directions in which photos of one individual differ most.

    With W the covariance of whitened rows around the mean of their individual, whitened rows are multiplied by
    `(.7 I + .3 W / mean variance)^(-1/2)`. So no direction is amplified by more than `.7^(-1/2)`.

    Args:
        whitening: of the album.
        embeddings: unit rows of some of its faces.
        identities: whom they show; only individuals with two faces or more count.

    Returns:
        The album's whitening and that in one; the album's own if no two faces of one individual differ.
    """
    damping = _damping(whitening.apply(embeddings), identities)
    return whitening if damping is None else Whitening(whitening.mean, damping.multiply(whitening.matrix))


def _damping(rows: Float32[np.ndarray, "n d"], identities: Int64[np.ndarray, " n"]) -> InverseRoot | None:
    """Compute what `sharpen` multiplies whitened rows by; None if no two rows of one individual differ."""
    labels = np.unique(identities, return_inverse=True)[1].astype(np.int64)
    exact = rows.astype(np.float64)
    within = exact - sum_by_label(exact, labels)[labels] / np.bincount(labels)[labels][:, None]
    return None if (within**2).sum() <= _ROUNDING * within.shape[1] else inverse_root(within, MEASURED_SHARE)


def cross_validate(
    whitening: Whitening,
    embeddings: Float32[np.ndarray, "n d"],
    identities: Int64[np.ndarray, " n"],
    confirmed: Bool[np.ndarray, " n"],
) -> Gain:
    """Measure what `sharpen` gains for individuals that are left out of it, in five folds of individuals.

    A query is a confirmed face; what it should retrieve are the confirmed faces of its individual, among the faces of
    all others. Faces that only clustering put into its individual do not count.

    Args:
        whitening: of the album.
        embeddings: unit rows of the album, or of a sample with all confirmed faces.
        identities: -1 for faces that are in none.
        confirmed: faces that the user confirmed.

    Raises:
        ValueError: fewer than five individuals have two confirmed faces.
    """
    individuals, counts = np.unique(identities[confirmed], return_counts=True)
    individuals = individuals[counts > 1]
    if len(individuals) < MIN_IDENTITIES:
        raise ValueError(f"{MIN_IDENTITIES} individuals with two confirmed faces are needed, got {len(individuals)}")
    rows_before = whitening.apply(embeddings)
    before, after = np.zeros((2, len(individuals)))
    for fold in range(FOLDS):
        tested = np.arange(len(individuals)) % FOLDS == fold
        learned = confirmed & np.isin(identities, individuals[~tested])
        damping = _damping(rows_before[learned], identities[learned])
        rows_after = rows_before if damping is None else normalize(damping.multiply(rows_before))
        for index in np.flatnonzero(tested):
            is_own = identities == individuals[index]
            before[index], after[index] = (
                _mean_average_precision(rows, is_own & confirmed, is_own & ~confirmed)
                for rows in (rows_before, rows_after)
            )
    difference = after - before
    error = float(difference.std(ddof=1)) / len(individuals) ** 0.5
    return Gain(float(before.mean()), float(after.mean()), error)


def _mean_average_precision(
    rows: Float32[np.ndarray, "n d"], relevant: Bool[np.ndarray, " n"], left_out: Bool[np.ndarray, " n"]
) -> float:
    """Compute the mean average precision of retrieving `relevant` rows by each other."""
    queries = np.flatnonzero(relevant)
    similarity: Float64[np.ndarray, "q n"] = (rows[queries] @ rows.T).astype(np.float64)
    similarity[:, left_out] = -np.inf
    similarity[np.arange(len(queries)), queries] = -np.inf
    found_at = np.sort((-similarity).argsort(axis=1, kind="stable").argsort(axis=1)[:, queries], axis=1)[:, :-1]
    return float((np.arange(1, len(queries)) / (found_at + 1)).mean())
