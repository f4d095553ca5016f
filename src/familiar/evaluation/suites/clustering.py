"""Do the groups found match the identities? With their number told (k-means), and without (`neighbors.group`)."""

from typing import Any

import numpy as np
from jaxtyping import Int64

from familiar.core.errors import NothingToMeasure
from familiar.evaluation.context import REPLICATES, SEED, EvaluationContext, Outcome, resampled
from familiar.metrics.bootstrap import Replicates, identity_weights, intervals
from familiar.metrics.clustering import Contingency, ami, ari, contingency, kmeans_groups, nmi, purity
from familiar.neighbors.clustering import cluster
from familiar.neighbors.whitening import domain_shift, whiten_to_domain

FEW_TO_ADAPT = 8  # individuals: what the photos of fewer share is not what all of their kind share
LOWERED = 0.4  # by so much of itself in a wholly foreign collection, where adapted similarities are lower
MAX_KMEANS_PHOTOS = 20_000  # with thousands of groups its time grows with the square of the photos


def clustering(measured: EvaluationContext) -> Outcome:
    """`kmeans` is told the true number of groups; `groups` is told nothing but a similarity of the bundle.

    That is lowered for photos unlike those the bundle was made for, whose embeddings are adapted first.
    """
    if len(measured.table.names) < 2:
        raise NothingToMeasure("clustering: needs photos of two identities or more")
    threshold, source = _threshold(measured)
    foreign = domain_shift(measured.embeddings)
    embeddings = measured.embeddings
    if len(measured.table.names) >= FEW_TO_ADAPT:
        embeddings, threshold = whiten_to_domain(embeddings), threshold * (1 - LOWERED * foreign)
        source += ", lowered as far as these photos are foreign to it" if foreign else ""
    found = cluster(embeddings, threshold)
    table = contingency(measured.labels, found)
    replicates = resampled(measured.labels, lambda: _replicates(table))
    figures: dict[str, Any] = {
        "kmeans": _kmeans(measured),
        "groups": {
            "threshold": threshold,
            "threshold_from": source,
            "foreignness": foreign,
            "groups": len(table.group_sizes),
            "identities": len(measured.table.names),
            **_against_identities(measured.labels, found),
            "pairwise": _pairwise(table),
            "bcubed": vars(table.bcubed()) if (table.identity_sizes > 1).any() else None,
        },
        "interval": intervals(replicates),
    }
    return Outcome(figures, replicates)


def _threshold(measured: EvaluationContext) -> tuple[float, str]:
    """The bundle's high precision: a wrong pair in a group draws whole groups together."""
    calibration = measured.embedder.metadata.calibration
    fitted = "the bundle's high-precision threshold" if calibration.fitted else "a fixed one: nothing is known"
    return calibration.high_precision.similarity, fitted


def _kmeans(measured: EvaluationContext) -> dict[str, Any]:
    rows = measured.sample_of(MAX_KMEANS_PHOTOS)
    labels = measured.labels[rows]
    k = len(np.unique(labels))
    found = kmeans_groups(measured.embeddings[rows], k, SEED)
    return {"k": k, "photos": len(rows), "seed": SEED, **_against_identities(labels, found)}


def _against_identities(labels: Int64[np.ndarray, " n"], groups: Int64[np.ndarray, " n"]) -> dict[str, float]:
    return {
        "nmi": nmi(labels, groups),
        "ami": ami(labels, groups),
        "ari": ari(labels, groups),
        "purity": purity(labels, groups),
    }


def _pairwise(table: Contingency) -> dict[str, float | None] | None:
    """None where no identity has two photos: there is no pair to find."""
    try:
        return vars(table.pairwise())
    except NothingToMeasure:
        return None


def _replicates(table: Contingency) -> Replicates:
    """Identities drawn anew; the groups stay as they were found."""
    drawn: list[tuple[float, float]] = []
    for weights in identity_weights(len(table.identity_sizes), REPLICATES, SEED):
        try:
            drawn.append((table.pairwise(weights).f, table.bcubed(weights).f))
        except NothingToMeasure:  # none of those drawn has two photos
            continue
    columns = np.array(drawn).reshape(len(drawn), 2)
    return {"groups.pairwise.f": columns[:, 0], "groups.bcubed.f": columns[:, 1]} if drawn else {}
