"""Open-set identification of probe photos against a gallery of enrolled photos.

As in Phillips, Grother and Micheals, "Evaluation Methods in Face Recognition" (Handbook of Face Recognition,
2005); NIST's FRVT (NISTIR 8271) calls FAR the false positive identification rate and 1 - DIR the false
negative one. A probe's similarity to an identity is that to its nearest enrolled photo. Similarities are
those of `core.blockwise`; a tie counts against the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int, Int64

from familiar.core.blockwise import blocks, similarities, unit_rows
from familiar.core.errors import NothingToMeasure
from familiar.metrics.validation import check_rows
from familiar.metrics.verification import MIN_FALSE_ACCEPTS

FARS = {"1e-1": 1e-1, "1e-2": 1e-2, "1e-3": 1e-3}


@dataclass(frozen=True, eq=False)
class IdentifiedProbes:
    """The search results of each probe, from which all metrics and their bootstrap are computed.

    `label`: its true identity. `rank`: 1 if no other identity is as similar as its own; 0 if its own is not enrolled
    (an unknown probe). `similarity`: to the nearest enrolled photo, in [-1, 1]. `weights`: how often each probe
    counts: once, or in a bootstrap as often as its identity was drawn.
    """

    label: Int[np.ndarray, " p"]
    rank: Int64[np.ndarray, " p"]
    similarity: Float32[np.ndarray, " p"]
    weights: Float64[np.ndarray, " p"]

    @property
    def known(self) -> Bool[np.ndarray, " p"]:
        """Mask of the probes whose identity is enrolled."""
        return self.rank > 0


@dataclass(frozen=True)
class IdentificationPoint:
    """The rates at a threshold on similarity, from which on a probe is accepted.

    `dir`, `misidentified` and `rejected`: shares of the known probes that are identified correctly, identified as
    another identity, or not accepted; they sum to 1. `far`: share of the unknown probes that are accepted; None if
    there are none.
    """

    similarity: float
    dir: float
    misidentified: float
    rejected: float
    far: float | None


@dataclass(frozen=True)
class Identification:
    """The metrics of probes against a gallery.

    Attributes:
        dir_at_far: rates by FAR ("1e-1", "1e-2", "1e-3"); None with fewer than 10/FAR unknown probes.
        cmc: by k, the share of known probes whose own identity is among the k nearest, in [0, 1], without any threshold
            (closed set); `cmc[1]` is the rank-1 rate.
        known_probes: number of probes whose identity is enrolled.
        unknown_probes: number of probes whose identity is not enrolled.
        enrolled_identities: number of identities in the gallery.
        enrolled_photos: number of photos in the gallery.
    """

    dir_at_far: dict[str, IdentificationPoint | None]
    cmc: dict[int, float]
    known_probes: int
    unknown_probes: int
    enrolled_identities: int
    enrolled_photos: int


@dataclass(frozen=True, eq=False)
class Enrollment:
    """Rows of the enrolled photos and of the probes, each ascending; together they are all rows."""

    gallery: Int64[np.ndarray, " g"]
    probes: Int64[np.ndarray, " p"]


def enroll_split(labels: Int[np.ndarray, " n"], seed: int = 0, photos_enrolled: int = 1) -> Enrollment:
    """Split photos into a gallery and probes.

    Half of the identities with two photos or more are known (one more than half of an odd number); all photos of all
    others are unknown probes. The same labels and seed give the same split.

    Args:
        labels: the identity of each row.
        seed: of the split.
        photos_enrolled: number of random photos of each known identity to enroll; at least one remains a probe.

    Raises:
        NothingToMeasure: no identity has two photos.
        ValueError: `photos_enrolled` is below 1.
    """
    if photos_enrolled < 1:
        raise ValueError(f"photos_enrolled must be at least 1, got {photos_enrolled}")
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(len(labels))
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    _, identity, photos = np.unique(labels[order], return_inverse=True, return_counts=True)
    candidates = np.flatnonzero(photos >= 2)
    if not candidates.size:
        raise NothingToMeasure("identification: no identity has two photos, one to enroll and one to search for")
    enrolled = np.zeros(len(photos), np.int64)
    known = rng.permutation(candidates)[: (len(candidates) + 1) // 2]
    enrolled[known] = np.minimum(photos[known] - 1, photos_enrolled)
    rank = np.arange(len(labels)) - (np.cumsum(photos) - photos)[identity]  # within the identity
    in_gallery = rank < enrolled[identity]
    return Enrollment(np.sort(order[in_gallery]), np.sort(order[~in_gallery]))


def identify(
    gallery: tuple[Float32[np.ndarray, "g d"], Int[np.ndarray, " g"]],
    probes: tuple[Float32[np.ndarray, "p d"], Int[np.ndarray, " p"]],
    block_rows: int | None = None,
) -> IdentifiedProbes:
    """Search for each probe in the gallery.

    Args:
        gallery: unit embeddings and labels of the enrolled photos.
        probes: those of the photos to search for.
        block_rows: probes searched at a time.

    Raises:
        NothingToMeasure: no probe's identity is enrolled.
        ValueError: the rows are not unit vectors.
    """
    check_rows(*gallery, finite=False)  # that they are unit vectors is checked below
    check_rows(*probes, finite=False)
    embeddings, labels = probes
    identities, gallery_identity = np.unique(gallery[1], return_inverse=True)
    if not np.isin(labels, identities).any():
        raise NothingToMeasure("identification: no probe's identity is enrolled")
    order = np.argsort(gallery_identity, kind="stable")
    first = np.searchsorted(gallery_identity, np.arange(len(identities)), sorter=order)
    enrolled, rows = unit_rows(gallery[0])[order], unit_rows(embeddings)
    own_column = np.minimum(np.searchsorted(identities, labels), len(identities) - 1)
    known = identities[own_column] == labels

    rank = np.empty(len(labels), np.int64)
    nearest_similarity = np.empty(len(labels), np.float32)
    for part in blocks(len(rows), len(enrolled), block_rows):
        best = np.maximum.reduceat(similarities(rows[part], enrolled), first, axis=1)
        nearest_similarity[part] = best.max(axis=1)
        score = best[np.arange(len(best)), own_column[part]]
        rank[part] = np.where(known[part], np.count_nonzero(best >= score[:, None], axis=1), 0)
    return IdentifiedProbes(labels, rank, nearest_similarity, np.ones(len(labels)))


def identification_metrics(
    gallery: tuple[Float32[np.ndarray, "g d"], Int[np.ndarray, " g"]],
    probes: tuple[Float32[np.ndarray, "p d"], Int[np.ndarray, " p"]],
    ks: Sequence[int] = (1, 5, 10),
) -> Identification:
    """Compute all metrics of open-set identification (Phillips, Grother and Micheals 2005): probes against a gallery.

    Args:
        gallery: embeddings ("g d", unit rows) and labels ("g": the identity of each row) of the enrolled photos.
        probes: embeddings ("p d", unit rows) and labels ("p") of the photos to search for; identities that are not
            enrolled are unknown probes.
        ks: numbers of nearest identities, each at least 1, for which `cmc` is computed.

    Returns:
        The detection and identification rate at a FAR of 1e-1, 1e-2 and 1e-3, the CMC, and the numbers of photos.

    Raises:
        NothingToMeasure: no probe's identity is enrolled.
        ValueError: the rows are not unit vectors.
    """
    identified = identify(gallery, probes)
    return Identification(
        dir_at_far={name: dir_at_far(identified, far) for name, far in FARS.items()},
        cmc={k: rank_k(identified, k) for k in ks},
        known_probes=int(identified.known.sum()),
        unknown_probes=int((~identified.known).sum()),
        enrolled_identities=len(np.unique(gallery[1])),
        enrolled_photos=len(gallery[1]),
    )


def rank_k(identified: IdentifiedProbes, k: int) -> float:
    """Compute the share of known probes whose own identity is among the k nearest (closed set: the CMC at k)."""
    weights = _known_weights(identified)
    return float(weights[identified.rank <= k].sum() / weights.sum())


def at_threshold(identified: IdentifiedProbes, threshold: float) -> IdentificationPoint:
    """Compute the rates if probes are accepted from this similarity on.

    If a probe's own identity ties with another one as the nearest, the other one is taken.

    Raises:
        NothingToMeasure: there is no known probe.
    """
    weights = _known_weights(identified)
    unknown = np.where(identified.known, 0.0, identified.weights)
    # In float64, since NumPy would round the threshold to float32.
    accepted = identified.similarity.astype(np.float64) >= threshold
    correct, total = identified.rank == 1, weights.sum()
    return IdentificationPoint(
        similarity=threshold,
        dir=float(weights[accepted & correct].sum() / total),
        misidentified=float(weights[accepted & ~correct].sum() / total),
        rejected=float(weights[~accepted].sum() / total),
        far=float(unknown[accepted].sum() / unknown.sum()) if unknown.any() else None,
    )


def dir_at_far(identified: IdentifiedProbes, far: float) -> IdentificationPoint | None:
    """Return the point of the largest FAR not above `far`; None with fewer than 10/FAR unknown probes."""
    if identified.weights[~identified.known].sum() * far < MIN_FALSE_ACCEPTS * (1 - 1e-9):
        return None
    return point_at_far(identified, far)


def point_at_far(identified: IdentifiedProbes, far: float) -> IdentificationPoint:
    """Return the point of the largest FAR not above `far`, however few unknown probes there are.

    Raises:
        NothingToMeasure: there are no unknown probes, or no known ones.
        ValueError: `far` is not in [0, 1).
    """
    if not 0 <= far < 1:
        raise ValueError(f"far must be in [0, 1), got {far}")
    weights, similarity = identified.weights[~identified.known], identified.similarity[~identified.known]
    if not weights.any():
        raise NothingToMeasure("identification: every probe's identity is enrolled")
    order = np.argsort(-similarity, kind="stable")
    too_many = np.cumsum(weights[order]) > weights.sum() * far * (1 + 1e-9)
    highest_rejected = similarity[order][np.argmax(too_many)]
    return at_threshold(identified, float(np.nextafter(highest_rejected, np.float32(2))))


def _known_weights(identified: IdentifiedProbes) -> Float64[np.ndarray, " p"]:
    """Return the weights of the known probes, 0 for the others."""
    weights = np.where(identified.known, identified.weights, 0.0)
    if not weights.any():
        raise NothingToMeasure("identification: no probe's identity is enrolled")
    return weights
