"""Whose photo is this, or nobody's we know? Open-set identification against a gallery of enrolled photos.

As in Phillips, Grother and Micheals, "Evaluation Methods in Face Recognition" (Handbook of Face Recognition,
2005); NIST's FRVT (NISTIR 8271) calls FAR the false positive identification rate and 1 - DIR the false
negative one. A probe's similarity to an identity is that to its nearest enrolled photo. Similarities are
those of `core.blocks`; a tie counts against the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int, Int64

from familiar.core.blockwise import blocks, similarities, unit_rows
from familiar.core.errors import NothingToMeasure
from familiar.metrics.verification import MIN_FALSE_ACCEPTS

FARS = {"1e-1": 1e-1, "1e-2": 1e-2, "1e-3": 1e-3}


@dataclass(frozen=True, eq=False)
class IdentifiedProbes:
    """What each probe found: all that the figures, and their bootstrap over identities, need.

    `label`: its true identity. `rank`: 1 where no other identity is as similar as its own, 0 where its own is
    not enrolled (an unknown probe). `similarity`: to the nearest enrolled photo, in [-1, 1]. `weights`: how
    often each probe counts: once, or in a bootstrap as often as its identity was drawn.
    """

    label: Int[np.ndarray, " p"]
    rank: Int64[np.ndarray, " p"]
    similarity: Float32[np.ndarray, " p"]
    weights: Float64[np.ndarray, " p"]

    @property
    def known(self) -> Bool[np.ndarray, " p"]:
        """Whose identity is enrolled."""
        return self.rank > 0


@dataclass(frozen=True)
class IdentificationPoint:
    """What happens where a probe is named from `similarity` on.

    Of the known probes, `dir` are named rightly, `misnamed` as another and `refused`: together 1. `far` of
    the unknown ones are named at all; None where there are none.
    """

    similarity: float
    dir: float
    misnamed: float
    refused: float
    far: float | None


@dataclass(frozen=True)
class Identification:
    """`dir_at_far`: None where there are fewer than 10/FAR unknown probes. `cmc[k]`: share of known probes whose
    own identity is among the k nearest, without any threshold (closed set); `cmc[1]` is the rank-1 rate.
    """

    dir_at_far: dict[str, IdentificationPoint | None]
    cmc: dict[int, float]
    known_probes: int
    unknown_probes: int
    enrolled_identities: int
    enrolled_photos: int


@dataclass(frozen=True, eq=False)
class Enrollment:
    """Rows of the photos enrolled and of the probes, each ascending and together all."""

    gallery: Int64[np.ndarray, " g"]
    probes: Int64[np.ndarray, " p"]


def enroll_split(labels: Int[np.ndarray, " n"], seed: int = 0, photos_enrolled: int = 1) -> Enrollment:
    """Half of the identities of two photos or more are known; all photos of all others are unknown probes.

    Of each known identity `photos_enrolled` random photos are enrolled, but one at least stays a probe. Of an
    odd number of identities the known ones are one more. The same labels and seed give the same split. Raises
    `NothingToMeasure` unless an identity has two photos.
    """
    if photos_enrolled < 1:
        raise ValueError(f"at least one photo of each known identity is enrolled, not {photos_enrolled}")
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(len(labels))
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    _, identity, photos = np.unique(labels[order], return_inverse=True, return_counts=True)
    able = np.flatnonzero(photos >= 2)
    if not able.size:
        raise NothingToMeasure("identification: no identity has two photos, one to enroll and one to find")
    enrolled = np.zeros(len(photos), np.int64)
    known = rng.permutation(able)[: (len(able) + 1) // 2]
    enrolled[known] = np.minimum(photos[known] - 1, photos_enrolled)
    place = np.arange(len(labels)) - (np.cumsum(photos) - photos)[identity]
    taken = place < enrolled[identity]
    return Enrollment(np.sort(order[taken]), np.sort(order[~taken]))


def identify(
    gallery: tuple[Float32[np.ndarray, "g d"], Int[np.ndarray, " g"]],
    probes: tuple[Float32[np.ndarray, "p d"], Int[np.ndarray, " p"]],
    block_rows: int | None = None,
) -> IdentifiedProbes:
    """Looks each probe up in the gallery; both are unit embeddings and labels.

    Raises `NothingToMeasure` unless some probe's identity is enrolled, `ValueError` on rows that are no unit
    vectors.
    """
    embeddings, labels = probes
    identities, of_photo = np.unique(gallery[1], return_inverse=True)
    if not np.isin(labels, identities).any():
        raise NothingToMeasure("identification: no probe's identity is enrolled")
    order = np.argsort(of_photo, kind="stable")
    first = np.searchsorted(of_photo, np.arange(len(identities)), sorter=order)
    enrolled, rows = unit_rows(gallery[0])[order], unit_rows(embeddings)
    own = np.minimum(np.searchsorted(identities, labels), len(identities) - 1)
    known = identities[own] == labels

    rank = np.empty(len(labels), np.int64)
    nearest = np.empty(len(labels), np.float32)
    for part in blocks(len(rows), len(enrolled), block_rows):
        best = np.maximum.reduceat(similarities(rows[part], enrolled), first, axis=1)
        nearest[part] = best.max(axis=1)
        score = best[np.arange(len(best)), own[part]]
        rank[part] = np.where(known[part], np.count_nonzero(best >= score[:, None], axis=1), 0)
    return IdentifiedProbes(labels, rank, nearest, np.ones(len(labels)))


def identification(
    gallery: tuple[Float32[np.ndarray, "g d"], Int[np.ndarray, " g"]],
    probes: tuple[Float32[np.ndarray, "p d"], Int[np.ndarray, " p"]],
    ks: Sequence[int] = (1, 5, 10),
) -> Identification:
    """All figures of probes against a gallery. Raises as `identify`."""
    found = identify(gallery, probes)
    return Identification(
        dir_at_far={name: dir_at_far(found, far) for name, far in FARS.items()},
        cmc={k: rank_k(found, k) for k in ks},
        known_probes=int(found.known.sum()),
        unknown_probes=int((~found.known).sum()),
        enrolled_identities=len(np.unique(gallery[1])),
        enrolled_photos=len(gallery[1]),
    )


def rank_k(found: IdentifiedProbes, k: int) -> float:
    """Share of the known probes whose own identity is among the k nearest (closed set: the CMC at k)."""
    weights = _known_weights(found)
    return float(weights[found.rank <= k].sum() / weights.sum())


def at_threshold(found: IdentifiedProbes, threshold: float) -> IdentificationPoint:
    """What happens where probes are named from this similarity on. `NothingToMeasure` without a known probe.

    Where an identity ties with another as the nearest, it is the other that is named.
    """
    weights = _known_weights(found)
    unknown = np.where(found.known, 0.0, found.weights)
    # In float64: NumPy would round the threshold to float32.
    named = found.similarity.astype(np.float64) >= threshold
    right, total = found.rank == 1, weights.sum()
    return IdentificationPoint(
        similarity=threshold,
        dir=float(weights[named & right].sum() / total),
        misnamed=float(weights[named & ~right].sum() / total),
        refused=float(weights[~named].sum() / total),
        far=float(unknown[named].sum() / unknown.sum()) if unknown.any() else None,
    )


def dir_at_far(found: IdentifiedProbes, far: float) -> IdentificationPoint | None:
    """The point of the largest FAR not above `far`; None with fewer than 10/FAR unknown probes."""
    if found.weights[~found.known].sum() * far < MIN_FALSE_ACCEPTS * (1 - 1e-9):
        return None
    return point_at_far(found, far)


def point_at_far(found: IdentifiedProbes, far: float) -> IdentificationPoint:
    """As `dir_at_far`, however few unknown probes there are. `NothingToMeasure` if there are none."""
    if not 0 <= far < 1:
        raise ValueError(f"a false accept rate to be held to is in [0, 1), not {far}")
    weights, similarity = found.weights[~found.known], found.similarity[~found.known]
    if not weights.any():
        raise NothingToMeasure("identification: every probe's identity is enrolled")
    order = np.argsort(-similarity, kind="stable")
    too_many = np.cumsum(weights[order]) > weights.sum() * far * (1 + 1e-9)
    refused = similarity[order][np.argmax(too_many)]
    return at_threshold(found, float(np.nextafter(refused, np.float32(2))))


def _known_weights(found: IdentifiedProbes) -> Float64[np.ndarray, " p"]:
    """Weights of the known probes, 0 for the others."""
    weights = np.where(found.known, found.weights, 0.0)
    if not weights.any():
        raise NothingToMeasure("identification: no probe's identity is enrolled")
    return weights
