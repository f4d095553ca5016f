"""Open-set identification: half of the identities are enrolled, photos of the others should be rejected."""

import dataclasses

import numpy as np
from jaxtyping import Float64

from familiar.evaluation.context import SEED, EvaluationContext, SuiteResult, resample_metrics
from familiar.evaluation.results.figures import make_figures
from familiar.evaluation.verification_pairs import THRESHOLDS
from familiar.metrics.identification import (
    FARS,
    at_threshold,
    dir_at_far,
    enroll_split,
    identify,
    point_at_far,
    rank_k,
)

RANKS = (1, 5, 10)
PHOTOS_ENROLLED = 1


def identification(context: EvaluationContext) -> SuiteResult:
    """Measure DIR at FAR, rank-k rates without a threshold, and the rates at the bundle's thresholds.

    One photo of each known identity is enrolled.
    """
    enrollment = enroll_split(context.labels, SEED, PHOTOS_ENROLLED)
    gallery, probes = (
        (context.embeddings[rows], context.labels[rows]) for rows in (enrollment.gallery, enrollment.probes)
    )
    identified = identify(gallery, probes)
    enrolled = len(np.unique(gallery[1]))
    ranks = [k for k in RANKS if k < enrolled]
    calibration = context.calibration
    points = {name: dir_at_far(identified, far) for name, far in FARS.items()}

    def measure(weights: Float64[np.ndarray, " p"]) -> dict[str, float]:
        replicate = dataclasses.replace(identified, weights=weights)
        rates = {f"rank_{k}": rank_k(replicate, k) for k in ranks}
        stated = [name for name, point in points.items() if point is not None]
        return rates | {f"dir_at_far.{name}": point_at_far(replicate, FARS[name]).dir for name in stated}

    replicates = resample_metrics(identified.label, measure)  # of known and unknown probes, with one gallery
    values = {
        "enrolled_identities": enrolled,
        "enrolled_photos_per_identity": PHOTOS_ENROLLED,
        "known_probes": int(identified.known.sum()),
        "unknown_probes": int((~identified.known).sum()),
        "seed": SEED,
        **{f"rank_{k}": rank_k(identified, k) if k in ranks else None for k in RANKS},
        "dir_at_far": {name: None if point is None else point.dir for name, point in points.items()},
        "at_bundle_thresholds": {
            name: vars(at_threshold(identified, getattr(calibration, name).similarity)) for name in THRESHOLDS
        },
    }
    return SuiteResult(make_figures(values, replicates), replicates)
