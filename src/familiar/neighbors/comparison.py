"""Whether two faces of an album show the same individual: how they are compared, and from which similarity on.

Most pairs of faces show two different individuals, so the bulk of the similarities tells how similar these are, and how
fast their tail falls. The more faces there are, and the more of them look alike, the more similar is the most similar
stranger: the threshold lies where a face has about one. Where an album shows too little, the model's calibration
decides.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from familiar.core.calibration import HIGH_PRECISION_FAR, Calibration
from familiar.neighbors.clustering import Linkage, cluster
from familiar.neighbors.constraints import Constraints
from familiar.neighbors.whitening import Whitening, evenly_spaced

# Chosen on albums drawn from cats23, dogs29, ORL and LFW's peopleDevTrain (docs/explanation/clustering.md).
SPREADS_PER_LOG = 0.7
"""The threshold in spreads above the median, for each e-fold of the number of faces, at least."""
TAIL_SPREADS = (2.0, 4.0)
"""Spreads above the median between which the tail of strangers' similarities is measured."""
PRIOR_PAIRS, PRIOR_DECAY, MIN_DECAY = 20.0, 1.05, 0.55
"""As many pairs as the assumption counts that the tail falls by this exponent with each spread, and the lowest one."""
SATURATION_FACES = 1000
"""From here on the threshold no longer rises: 10,000 faces of people have the same best threshold."""
MIN_QUALITY = 0.02
"""Faces below it are in no cluster: blurred or tiny faces resemble each other. Chosen on dogs29 and cats23."""
MIN_FACES, MIN_INDIVIDUALS = 24, 4.0
"""With fewer faces, or of fewer individuals, the bulk does not tell how similar two individuals are."""
MAX_FOREIGN_INDIVIDUALS, MIN_GROUPS, MIN_GROUPED_SHARE = 1.5, 12, 0.5
"""Up to so many individuals by the model, the faces may be of a species that it does not know (`has_many_groups`)."""
MAX_SPREAD = 0.35
"""With more, embeddings vary in fewer than some eight directions, and strangers are as similar as photos of one."""
UNCERTAINTY_SPREADS = 1.2
"""Standard deviation of the best threshold of an album from this one, on collections that nothing was chosen on."""
UNKNOWN_UNCERTAINTY = 0.08
"""Of a threshold that was not estimated, at most: what it is in albums of cats, dogs and people."""
MAX_ODDS = 500
"""Of one individual to two, that the model's threshold asks for; chosen on people of LFW's peopleDevTrain, 100 to
2,000 of them."""
_HIGHEST = 1 - 1e-6  # similarity
_STEPS = 4


@dataclass(frozen=True)
class AlbumEstimate:
    """The threshold that an album's faces themselves suggest.

    Attributes:
        threshold: similarity of embeddings as `Whitening` returns them, in [-1, 1].
        uncertainty: standard deviation of the best threshold.
        false_match_rate: estimated share, in [0, 1], of all pairs that reach the threshold and show two individuals.
        faces: how many it was estimated from.
    """

    threshold: float
    uncertainty: float
    false_match_rate: float
    faces: int


@dataclass(frozen=True, eq=False)
class Comparison:
    """How the faces of one species in an album are compared, and when two of them show the same individual.

    Three things decide beside the embedding: it is compared less the mean of the album's faces of its species
    (`Centering`, done before), whitened, and from the threshold on that the album suggests. Where the album shows too
    little, faces are compared as they are, from the threshold of `clustering_threshold` on.

    Attributes:
        calibration: of the model: what similarities of embeddings mean that are not whitened, as in searching.
        faces: how many faces the album has of this species.
        whitening: None: faces are clustered as they are.
        estimate: of the threshold; None: the model's is used.
    """

    calibration: Calibration
    faces: int
    whitening: Whitening | None = None
    estimate: AlbumEstimate | None = None

    @staticmethod
    def measure(embeddings: Float[np.ndarray, "n d"], calibration: Calibration) -> "Comparison":
        """Measure an album.

        Args:
            embeddings: unit rows of one species, less its mean if the model has one.
            calibration: of the model.

        Raises:
            ValueError: rows that are not unit vectors.
        """
        by_model = Comparison(calibration, len(embeddings))
        if len(embeddings) < MIN_FACES:
            return by_model
        sample = embeddings[evenly_spaced(len(embeddings))].astype(np.float32, copy=False)
        individuals = count_individuals(cluster(sample, by_model.threshold))
        if MAX_FOREIGN_INDIVIDUALS < individuals < MIN_INDIVIDUALS:
            return by_model
        by_album = by_model.whitened_by(Whitening.fit(embeddings), embeddings)
        return (
            by_album if individuals > MAX_FOREIGN_INDIVIDUALS or has_many_groups(by_album.cluster(sample)) else by_model
        )

    def whitened_by(self, whitening: Whitening, embeddings: Float[np.ndarray, "n d"]) -> "Comparison":
        """Compare faces by another whitening, if they suggest a threshold then.

        Args:
            whitening: to apply.
            embeddings: unit rows of the album, at least two.
        """
        sample = whitening.apply(embeddings[evenly_spaced(len(embeddings))])
        estimate = estimate_threshold(sample, len(embeddings)) or self.estimate
        return self if estimate is None else replace(self, whitening=whitening, estimate=estimate)

    @property
    def threshold(self) -> float:
        """Similarity of compared faces in [-1, 1] from which they are clustered together."""
        if self.estimate is not None:
            return self.estimate.threshold
        return clustering_threshold(self.calibration, self.faces)

    @property
    def pair_threshold(self) -> float:
        """Similarity in [-1, 1] from which two faces show the same individual, if nothing else is known of them."""
        return self.calibration.balanced.similarity

    @property
    def uncertainty(self) -> float:
        """Standard deviation of the best threshold; of one that was not estimated, at most half of what is above it."""
        if self.estimate is not None:
            return self.estimate.uncertainty
        return min(UNKNOWN_UNCERTAINTY, max((1 - self.threshold) / 2, 1e-3))

    @property
    def is_guess(self) -> bool:
        """Whether the threshold is a fixed number: neither the album nor a calibration tells another."""
        return self.estimate is None and not self.calibration.fitted

    @property
    def sentence(self) -> str:
        """How it was decided, in one sentence."""
        if self.estimate is not None:
            return (
                f"faces are compared less what the {self.faces:,} of this album have in common, and grouped from "
                f"{self.threshold:.3f} ± {self.uncertainty:.3f} on, as their similarities suggest"
            )
        if self.is_guess:
            return (
                f"faces are grouped from {self.threshold:.3f} on, a guess: the model was never calibrated, and the "
                "album shows too few individuals"
            )
        return (
            f"faces are grouped from {self.threshold:.3f} on, as the model was calibrated: the album shows too few "
            "individuals to tell"
        )

    def apply(self, embeddings: Float[np.ndarray, "n d"]) -> Float32[np.ndarray, "n d"]:
        """Return unit rows as they are compared to cluster them.

        Args:
            embeddings: unit rows of the album, or others that are compared with them.
        """
        return embeddings.astype(np.float32, copy=False) if self.whitening is None else self.whitening.apply(embeddings)

    def cluster(
        self, embeddings: Float[np.ndarray, "n d"], constraints: Constraints | None = None
    ) -> Int64[np.ndarray, " n"]:
        """Cluster faces of the album.

        Args:
            embeddings: unit rows.
            constraints: as for `clustering.cluster`.

        Returns:
            The cluster of each row, numbered by first appearance.
        """
        return cluster(self.apply(embeddings), self.threshold, constraints=constraints)

    def odds(self, similarity: Float[np.ndarray, " i"], individuals: int) -> Float64[np.ndarray, " i"] | None:
        """Return the odds of each of N individuals against an unknown one, who is as likely as all N together.

        Args:
            similarity: of a query to each of them, not whitened.
            individuals: N.

        Returns:
            L / N, with L the odds by the calibration; None: the model was never calibrated.
        """
        slope, intercept = self.calibration.slope, self.calibration.intercept
        if slope is None or intercept is None:
            return None
        return np.exp(np.clip(slope * similarity.astype(np.float64) + intercept, -500, 500)) / individuals


def clustering_threshold(calibration: Calibration, faces: int) -> float:
    """Return the similarity from which a model takes two faces of an album for one individual.

    It is the similarity at which two faces are 500 times as likely to show the same individual as not (fewer times in
    an album of fewer faces: as many as it has faces), since one false pair merges whole clusters. Where the model was
    calibrated on too few pairs to know that, it is no higher than its `high_precision` threshold. If the model was
    never calibrated, it is a guess.

    Args:
        calibration: of the model.
        faces: of the album.
    """
    threshold = calibration.high_precision.similarity
    if calibration.slope is not None and calibration.intercept is not None:
        odds = min(MAX_ODDS, max(2, faces))
        at_odds = (math.log(odds) - calibration.intercept) / calibration.slope
        threshold = at_odds if calibration.target_far == HIGH_PRECISION_FAR else min(threshold, at_odds)
    return max(threshold, calibration.balanced.similarity)


def count_individuals(clusters: Int64[np.ndarray, " n"]) -> float:
    """Count clusters by their shares of the faces: a few small ones more or less do not matter.

    Args:
        clusters: of at least one face.

    Returns:
        The inverse of the probability that two faces are in one cluster.
    """
    shares = np.bincount(clusters) / len(clusters)
    return float(1.0 / (shares**2).sum())


def has_many_groups(clusters: Int64[np.ndarray, " n"]) -> bool:
    """Decide whether faces that a model takes for one individual are many: a species that it does not know.

    They are if half of them or more come together in twelve clusters of three or more once they are compared as an
    album. Photos of one individual do not: of people with up to 530 photos .46 at most.

    Args:
        clusters: of the faces, as an album.
    """
    sizes = np.bincount(clusters)
    groups = sizes[sizes > 2]
    return bool(len(groups) >= MIN_GROUPS and groups.sum() >= MIN_GROUPED_SHARE * len(clusters))


def estimate_threshold(whitened: Float32[np.ndarray, "k d"], faces: int) -> AlbumEstimate | None:
    """Estimate from which similarity on two faces of an album show one individual.

    Similarities c are transformed to atanh(c) (Fisher 1915), which has no upper limit and for small ones is the same,
    and counted in spreads s above their median m (s: down to the quantile at which a normal distribution is one
    standard deviation below). The threshold is `.7 ln(min(n, 1000))` spreads above it at least, as the highest of many
    values with an exponential tail. Where many look alike, the tail falls more slowly: faces are clustered at that
    threshold, and what is still in two clusters then are mostly pairs of two individuals. With a share p of all pairs
    beyond two spreads, which falls by `exp(-a)` with each spread, a face has about one more similar stranger beyond
    `2 + ln(p min(n, 1000)) / a` spreads. If that is more, faces are clustered again from there on, and so on.

    Args:
        whitened: rows as `Whitening` returns them, at least two: all of the album's, or `evenly_spaced` ones.
        faces: n, the number of faces of the album.

    Returns:
        The estimate; None if the spread is above `MAX_SPREAD`.
    """
    first, second = np.triu_indices(len(whitened), 1)
    transformed = np.arctanh(np.clip((whitened @ whitened.T)[first, second], -_HIGHEST, _HIGHEST))
    median = float(np.median(transformed))
    spread = median - float(np.quantile(transformed, 0.5 * math.erfc(math.sqrt(0.5))))
    if spread > MAX_SPREAD:
        return None
    limits = [median + each * spread for each in TAIL_SPREADS]
    width, count = TAIL_SPREADS[1] - TAIL_SPREADS[0], min(faces, SATURATION_FACES)
    spreads = lowest_spreads = SPREADS_PER_LOG * math.log(count)
    near = decay = 0.0
    linkage = Linkage(whitened)
    for _ in range(_STEPS):
        (clusters,) = linkage.clusters_at([math.tanh(median + spreads * spread)])
        across = transformed[clusters[first] != clusters[second]]
        near, far = (float((across >= limit).sum()) for limit in limits)
        ratio = (near + PRIOR_PAIRS) / (far + PRIOR_PAIRS * math.exp(-PRIOR_DECAY * width))
        decay = max(math.log(ratio) / width, MIN_DECAY)
        stranger_count = max(1.0, count * near / len(transformed))  # of a face, beyond two spreads
        previous, spreads = spreads, max(lowest_spreads, TAIL_SPREADS[0] + math.log(stranger_count) / decay)
        if spreads == previous:
            break
    lowest, threshold, highest = (
        math.tanh(median + spread * each)
        for each in (spreads - UNCERTAINTY_SPREADS, spreads, spreads + UNCERTAINTY_SPREADS)
    )
    rate = near / len(transformed) * math.exp(-decay * (spreads - TAIL_SPREADS[0]))
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
    return Comparison.measure(embeddings, Calibration.fixed(threshold)).cluster(embeddings)
