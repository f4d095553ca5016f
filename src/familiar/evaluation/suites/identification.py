"""Open-set identification: half of the identities are enrolled, photos of the others should be rejected."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from familiar.core.errors import NothingToMeasure
from familiar.evaluation.context import REPLICATES, SEED, EvaluationContext, SuiteResult, resampled
from familiar.evaluation.results.figures import make_figures
from familiar.evaluation.verification_pairs import THRESHOLDS
from familiar.metrics.bootstrap import Replicates, identity_weights
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
    replicates = resampled(identified.label, lambda: _replicates(identified, ranks))
    calibration = context.calibration
    points = {name: dir_at_far(identified, far) for name, far in FARS.items()}
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


def _replicates(identified: IdentifiedProbes, ranks: Sequence[int]) -> Replicates:
    """Compute the metrics on bootstrap samples of the identities of known and unknown probes, with one gallery."""
    identities, index = np.unique(identified.label, return_inverse=True)
    stated_fars = {name: far for name, far in FARS.items() if dir_at_far(identified, far) is not None}
    names = (*(f"rank_{k}" for k in ranks), *(f"dir_at_far.{name}" for name in stated_fars))
    rows: list[list[float]] = []
    for weight in identity_weights(len(identities), REPLICATES, SEED):
        replicate = dataclasses.replace(identified, weights=weight[index])
        try:
            rank_rates = [rank_k(replicate, k) for k in ranks]
            rows.append(rank_rates + [point_at_far(replicate, far).dir for far in stated_fars.values()])
        except NothingToMeasure:  # none of the probes drawn is known, or none is unknown
            continue
    columns = np.array(rows).reshape(len(rows), len(names))
    return {name: columns[:, column] for column, name in enumerate(names)} if rows else {}
