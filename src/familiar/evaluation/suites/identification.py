"""Naming individuals: half of the identities are enrolled, and photos of the others should be named as nobody."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from familiar.core.errors import NothingToMeasure
from familiar.evaluation.context import REPLICATES, SEED, EvaluationContext, Outcome, resampled
from familiar.metrics.bootstrap import Replicates, identity_weights, intervals
from familiar.metrics.identification import (
    FARS,
    IdentifiedProbes,
    at_threshold,
    dir_at_far,
    enroll_split,
    identify,
    point_at_far,
    rank_k,
)

RANKS = (1, 5, 10)
PHOTOS_ENROLLED = 1


def identification(measured: EvaluationContext) -> Outcome:
    """DIR at FAR, ranks without a threshold, and what the bundle's balanced threshold does; one photo is enrolled."""
    enrollment = enroll_split(measured.labels, SEED, PHOTOS_ENROLLED)
    gallery, probes = (
        (measured.embeddings[rows], measured.labels[rows]) for rows in (enrollment.gallery, enrollment.probes)
    )
    found = identify(gallery, probes)
    enrolled = len(np.unique(gallery[1]))
    ranks = [k for k in RANKS if k < enrolled]
    replicates = resampled(found.label, lambda: _replicates(found, ranks))
    calibration = measured.embedder.metadata.calibration
    points = {name: dir_at_far(found, far) for name, far in FARS.items()}
    figures: dict[str, Any] = {
        "enrolled_identities": enrolled,
        "enrolled_photos_each": PHOTOS_ENROLLED,
        "known_probes": int(found.known.sum()),
        "unknown_probes": int((~found.known).sum()),
        "seed": SEED,
        **{f"rank_{k}": rank_k(found, k) if k in ranks else None for k in RANKS},
        "dir_at_far": {name: point and point.dir for name, point in points.items()},
        "at_bundle_thresholds": {
            name: dataclasses.asdict(at_threshold(found, getattr(calibration, name).similarity))
            for name in ("high_precision", "balanced", "high_recall")
        },
        "interval": intervals(replicates),
    }
    return Outcome(figures, replicates)


def _replicates(found: IdentifiedProbes, ranks: Sequence[int]) -> Replicates:
    """Of the known and the unknown probes' identities, drawn anew; the gallery stays."""
    identities, index = np.unique(found.label, return_inverse=True)
    stated = {name: far for name, far in FARS.items() if dir_at_far(found, far) is not None}
    names = (*(f"rank_{k}" for k in ranks), *(f"dir_at_far.{name}" for name in stated))
    drawn: list[list[float]] = []
    for weight in identity_weights(len(identities), REPLICATES, SEED):
        again = dataclasses.replace(found, weights=weight[index])
        try:
            found_first = [rank_k(again, k) for k in ranks]
            drawn.append(found_first + [point_at_far(again, far).dir for far in stated.values()])
        except NothingToMeasure:  # none of those drawn is known, or none unknown
            continue
    columns = np.array(drawn).reshape(len(drawn), len(names))
    return {name: columns[:, column] for column, name in enumerate(names)} if drawn else {}
