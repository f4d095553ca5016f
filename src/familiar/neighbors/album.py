"""What an album tells without labels: how to compare its faces, and from which similarity on they show one individual.

Most pairs of faces show two different individuals, so the bulk of the similarities tells how similar these are. The
more faces there are, the more similar is the most similar stranger: the threshold lies a number of spreads above the
median that grows with the logarithm of the number of faces, as the highest of many values with an exponential tail does
(extreme value theory). Independent of any model's calibration.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from familiar.core.blockwise import blocks
from familiar.core.vectors import normalize
from familiar.neighbors.clustering import cluster
from familiar.neighbors.domains import IN_DOMAIN, cluster_by_domain
from familiar.neighbors.purity import split_mixed

# Chosen on albums drawn from cats23, dogs29, ORL and LFW's peopleDevTrain (docs/explanation/clustering.md).
PRIOR_FACES = 3000
"""As many faces as the assumption counts that the embeddings vary alike in all directions."""
MAX_MEASURED = 0.2
"""Share at most of the measured covariance in the one that embeddings are whitened by; the rest is that assumption."""
SPREADS_PER_LOG = 0.7
"""The threshold in spreads above the median, for each e-fold of the number of faces."""
SATURATION_FACES = 1000
"""From here on the threshold no longer rises: 10,000 faces of people have the same best threshold."""
MIN_QUALITY = 0.02
"""Faces below it are in no cluster: blurred or tiny faces resemble each other. Chosen on dogs29 and cats23."""
MIN_FACES, MIN_INDIVIDUALS = 24, 4.0
"""With fewer faces, or of fewer individuals, the bulk does not tell how similar two individuals are."""
MAX_SPREAD = 0.35
"""With more, embeddings vary in fewer than some eight directions, and strangers are as similar as photos of one."""
UNCERTAINTY_SPREADS = 1.2
"""Standard deviation of the best threshold of an album from this one, on collections that nothing was chosen on."""
SAMPLE_FACES = 1500
"""So many faces of a large album tell how similar pairs are."""
_FITTED_FACES = 20_000
_BLOCK_ROWS = 20_000
_HIGHEST = 1 - 1e-6  # similarity
_ROUNDING = 1e-12  # of the largest variance: a smaller one is none
_SHORTEST = 1e-6  # what is left of a row that equals the mean has no direction
_TAIL_SPREADS = (1.0, 2.0)  # where the tail of similarities is measured; beyond, few pairs are of strangers


@dataclass(frozen=True)
class AlbumEstimate:
    """The threshold that an album's faces themselves suggest.

    Attributes:
        threshold: similarity of embeddings as `AlbumWhitening` returns them, in [-1, 1].
        uncertainty: standard deviation of the best threshold.
        false_match_rate: estimated share, in [0, 1], of the pairs of two individuals that reach the threshold. An upper
            limit: pairs of one individual count as well where the tail is measured.
        faces: how many it was estimated from.
    """

    threshold: float
    uncertainty: float
    false_match_rate: float
    faces: int


def shows_enough(embeddings: Float32[np.ndarray, "n d"], threshold: float) -> bool:
    """Decide whether an album has enough faces of enough individuals for `estimate_threshold`.

    Individuals are counted by clusters at a threshold of the model, each by its share of the faces (the inverse of the
    probability that two faces are in one cluster). A few clusters more or less do not matter.

    Args:
        embeddings: unit rows.
        threshold: from which the model takes two faces for one individual.

    Raises:
        ValueError: rows that are not unit vectors, or a threshold outside [-1, 1].
    """
    if len(embeddings) < MIN_FACES:
        return False
    sample = embeddings[evenly_spaced(len(embeddings))]
    shares = np.bincount(cluster(sample, threshold)) / len(sample)
    return bool(1.0 / (shares**2).sum() >= MIN_INDIVIDUALS)


@dataclass(frozen=True, eq=False)
class InverseRoot:
    """A symmetric matrix, `scale I + directions diag(weights) directions^T`.

    Attributes:
        scale: what rows are multiplied by in all other directions.
        directions: orthonormal columns, as many as rows were measured, and d at most.
        weights: what is added to `scale` in each of them.
    """

    scale: float
    directions: Float32[np.ndarray, "d k"]
    weights: Float32[np.ndarray, " k"]

    def multiply(self, rows: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n d"]:
        """Multiply rows by the matrix, which is not written out: k is often far below d."""
        return self.scale * rows + ((rows @ self.directions) * self.weights) @ self.directions.T


@dataclass(frozen=True, eq=False)
class AlbumWhitening:
    """What is done to an album's embeddings before its faces are compared.

    What differs most among all faces is light, pose and breed rather than identity. So the album's mean is subtracted,
    and the directions in which its faces differ most are damped: rows become `(row - mean) C^(-1/2)`, scaled to unit
    length. C is the covariance, shrunk towards a multiple of the identity matrix (Ledoit and Wolf 2004): its share is
    `min(n / (n + 3000), .2)`, so that a small album is hardly changed.

    Attributes:
        mean: of the album.
        matrix: C^(-1/2), up to a constant factor; symmetric, so it does not rotate the rows
            (`within_identity.sharpen` multiplies it by another one).
    """

    mean: Float32[np.ndarray, " d"]
    matrix: Float32[np.ndarray, "d d"]

    @staticmethod
    def fit(embeddings: Float[np.ndarray, "n d"]) -> "AlbumWhitening":
        """Measure an album; of a large one, 20,000 faces.

        Args:
            embeddings: unit rows, at least one, of several individuals: what a single one's photos share is subtracted
                too.
        """
        rows = embeddings[evenly_spaced(len(embeddings), _FITTED_FACES)].astype(np.float64)
        mean = rows.mean(axis=0)
        share = min(len(embeddings) / (len(embeddings) + PRIOR_FACES), MAX_MEASURED)
        root = inverse_root(rows - mean, share)
        return AlbumWhitening(mean.astype(np.float32), root.multiply(np.eye(rows.shape[1], dtype=np.float32)))

    def apply(self, embeddings: Float[np.ndarray, "n d"]) -> Float32[np.ndarray, "n d"]:
        """Whiten rows of the album, or others that are compared with them.

        Args:
            embeddings: unit rows.

        Returns:
            Unit rows. Those that equal the mean are returned as they are.
        """
        whitened = np.empty(embeddings.shape, np.float32)
        for block in blocks(len(embeddings), 0, _BLOCK_ROWS):
            rows = embeddings[block].astype(np.float32)
            moved = (rows - self.mean) @ self.matrix
            is_mean = np.linalg.norm(moved, axis=1, keepdims=True) < _SHORTEST
            whitened[block] = normalize(np.where(is_mean, rows, moved))
        return whitened


def inverse_root(rows: Float64[np.ndarray, "n d"], share: float) -> InverseRoot:
    """Compute C^(-1/2), with C the covariance of rows of mean 0, shrunk towards the identity matrix.

    C is `share S + (1 - share) I`, with S the covariance, divided by the mean of its d variances. Of fewer rows than d,
    the n x n matrix of products has the same variances: of 80 faces with 1,024 numbers each, that takes a hundredth of
    the time.

    Args:
        rows: of mean 0.
        share: of the measured covariance, in [0, 1).
    """
    count, length = rows.shape
    few = count < length
    variances, directions = np.linalg.eigh(rows @ rows.T if few else rows.T @ rows)
    if few:
        is_nonzero = variances > _ROUNDING * variances.max(initial=0.0)
        variances = variances[is_nonzero]
        directions = rows.T @ directions[:, is_nonzero] / variances**0.5
    average = max(float(variances.sum()) / length, np.finfo(np.float64).tiny)
    elsewhere = (1 - share) ** -0.5
    relative = share * np.maximum(variances, 0.0) / average + 1 - share
    return InverseRoot(elsewhere, directions.astype(np.float32), (relative**-0.5 - elsewhere).astype(np.float32))


def estimate_threshold(whitened: Float32[np.ndarray, "k d"], faces: int) -> AlbumEstimate | None:
    """Estimate from which similarity on two faces of an album show one individual.

    Similarities c are transformed to atanh(c) (Fisher 1915), which has no upper limit and for small ones is the same.
    With their median m and their spread s (from m down to the quantile at which a normal distribution is one standard
    deviation below), the threshold is `tanh(m + .7 s ln(min(n, 1000)))`.

    Args:
        whitened: rows as `AlbumWhitening` returns them, at least two: all of the album's, or `evenly_spaced` ones.
        faces: n, the number of faces of the album.

    Returns:
        The estimate; None if the spread is above `MAX_SPREAD`.
    """
    similarities = (whitened @ whitened.T)[np.triu_indices(len(whitened), 1)]
    transformed = np.arctanh(np.clip(similarities, -_HIGHEST, _HIGHEST))
    median = float(np.median(transformed))
    spread = median - float(np.quantile(transformed, 0.5 * math.erfc(math.sqrt(0.5))))
    if spread > MAX_SPREAD:
        return None
    spreads = SPREADS_PER_LOG * math.log(min(faces, SATURATION_FACES))
    lowest, threshold, highest = (
        math.tanh(median + spread * each)
        for each in (spreads - UNCERTAINTY_SPREADS, spreads, spreads + UNCERTAINTY_SPREADS)
    )
    near, far = (float((transformed >= median + each * spread).mean()) for each in _TAIL_SPREADS)
    decay = math.log(near / far) / (_TAIL_SPREADS[1] - _TAIL_SPREADS[0]) if far > 0 else 0.0
    rate = far * math.exp(-decay * (spreads - _TAIL_SPREADS[1]))
    return AlbumEstimate(threshold, (highest - lowest) / 2, min(1.0, rate), faces)


def cluster_album(embeddings: Float32[np.ndarray, "n d"], threshold: float) -> Int64[np.ndarray, " n"]:
    """Cluster the faces of an album of one species, without labels, as a gallery does.

    Args:
        embeddings: unit rows.
        threshold: of the model, from which two faces of an album that shows too little are clustered together.

    Returns:
        The cluster of each row, numbered by first appearance.

    Raises:
        ValueError: rows that are not unit vectors, or a threshold outside [-1, 1].
    """
    return cluster_measured(embeddings, measure_album(embeddings, threshold), threshold)


def cluster_measured(
    embeddings: Float32[np.ndarray, "n d"], album: tuple[AlbumWhitening, AlbumEstimate] | None, threshold: float
) -> Int64[np.ndarray, " n"]:
    """Cluster as `cluster_album` does, where the album is measured already.

    Args:
        embeddings: unit rows.
        album: as `measure_album` returns it.
        threshold: of the model.
    """
    if album is None:
        return cluster_by_domain(embeddings, threshold)[0]
    whitening, estimate = album
    whitened = whitening.apply(embeddings)
    clusters, domains = cluster_by_domain(whitened, estimate.threshold)
    return split_mixed(whitened, clusters, estimate.threshold, estimate.uncertainty, domains == IN_DOMAIN)


def measure_album(
    embeddings: Float[np.ndarray, "n d"], threshold: float
) -> tuple[AlbumWhitening, AlbumEstimate] | None:
    """Measure how the faces of an album are compared, and from which similarity on they show one individual.

    Args:
        embeddings: unit rows.
        threshold: of the model.

    Returns:
        Both; None if the album shows too little.
    """
    if not shows_enough(embeddings, threshold):
        return None
    whitening = AlbumWhitening.fit(embeddings)
    estimate = album_threshold(whitening, embeddings)
    return None if estimate is None else (whitening, estimate)


def album_threshold(whitening: AlbumWhitening, embeddings: Float[np.ndarray, "n d"]) -> AlbumEstimate | None:
    """Estimate the threshold of an album from a sample of its faces.

    Args:
        whitening: how they are compared.
        embeddings: unit rows, at least two.
    """
    return estimate_threshold(whitening.apply(embeddings[evenly_spaced(len(embeddings))]), len(embeddings))


def evenly_spaced(count: int, limit: int = SAMPLE_FACES) -> Int64[np.ndarray, " k"]:
    """Return at most `limit` of the rows 0 to `count` - 1."""
    return np.unique(np.linspace(0, count - 1, min(count, limit)).astype(np.int64))
