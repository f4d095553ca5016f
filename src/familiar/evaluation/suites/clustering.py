"""Clustering metrics against the true identities: of k-means with the true k, and of clustering without it."""

import numpy as np
from jaxtyping import Int64

from familiar.core.errors import NothingToMeasure
from familiar.evaluation.context import SEED, EvaluationContext, SuiteResult, resample_metrics
from familiar.evaluation.results.figures import make_figures
from familiar.metrics.clustering import Contingency, ami, ari, contingency, kmeans_groups, nmi, purity
from familiar.neighbors.clustering import cluster
from familiar.neighbors.whitening import domain_shift, whiten_to_domain

MIN_WHITENING_IDENTITIES = 8  # what photos of fewer identities have in common is not what their whole domain has
MAX_THRESHOLD_REDUCTION = 0.4  # share of the threshold, in a wholly foreign domain, where whitening lowers similarities
MAX_KMEANS_PHOTOS = 20_000  # with thousands of clusters its time grows with the square of the photos


def clustering(context: EvaluationContext) -> SuiteResult:
    """Measure k-means with the true number of clusters (`kmeans`) and clustering at a threshold (`groups`).

    The threshold is a similarity of the bundle. For photos unlike those the bundle was made for, the embeddings are
    whitened and the threshold is lowered. With several bundles, the photos of each species are clustered
    apart, by the threshold of its bundle.
    """
    if len(context.table.names) < 2:
        raise NothingToMeasure("clustering: needs photos of two identities or more")
    assignments, threshold, source, shift = _group_photos(context)
    table = contingency(context.labels, assignments)
    identities = np.arange(len(table.identity_sizes))
    replicates = resample_metrics(
        identities,  # the clusters stay as they are
        lambda weights: {
            "groups.pairwise.f": table.pairwise(weights).f,
            "groups.bcubed.f": table.bcubed(weights).f,
        },
    )
    groups = {
        "threshold": threshold,
        "threshold_source": source,
        "domain_shift": shift,
        "groups": len(table.group_sizes),
        "identities": len(context.table.names),
        **_agreement(context.labels, assignments),
        "pairwise": _pairwise(table),
        "bcubed": vars(table.bcubed()) if (table.identity_sizes > 1).any() else None,
    }
    return SuiteResult(make_figures({"kmeans": _kmeans(context), "groups": groups}, replicates), replicates)


def _group_photos(context: EvaluationContext) -> tuple[Int64[np.ndarray, " n"], float | None, str, float | None]:
    """Return the cluster of each photo, the threshold, its source and the domain shift (None: of several bundles)."""
    if len(context.model.bundles) == 1:
        return _group_by_bundle(context)
    groups, sources, count = np.empty(len(context.table), np.int64), list[str](), 0
    for species, rows in context.rows_by_species(np.arange(len(context.table))).items():
        assignments, threshold, source, _ = _group_by_bundle(context.select_species(species))
        groups[rows] = assignments + count
        count += int(assignments.max()) + 1
        sources.append(f"{species} {threshold:.3f}, {source}")
    return groups, None, "; ".join(sources), None


def _group_by_bundle(context: EvaluationContext) -> tuple[Int64[np.ndarray, " n"], float, str, float]:
    threshold, source = _threshold(context)
    shift = domain_shift(context.embeddings)
    embeddings = context.embeddings
    if len(context.table.names) >= MIN_WHITENING_IDENTITIES:
        embeddings, threshold = whiten_to_domain(embeddings), threshold * (1 - MAX_THRESHOLD_REDUCTION * shift)
        source += ", lowered by the domain shift of these photos" if shift else ""
    return cluster(embeddings, threshold), threshold, source, shift


def _threshold(context: EvaluationContext) -> tuple[float, str]:
    """Return the bundle's high-precision threshold, since one wrong pair merges whole clusters, and its source."""
    calibration = context.calibration
    source = "the bundle's high-precision threshold" if calibration.fitted else "a fixed one, without calibration"
    return calibration.high_precision.similarity, source


def _kmeans(context: EvaluationContext) -> dict[str, float]:
    rows = context.sample_rows(MAX_KMEANS_PHOTOS)
    labels = context.labels[rows]
    k = len(np.unique(labels))
    assignments = kmeans_groups(context.embeddings[rows], k, SEED)
    return {"k": k, "photos": len(rows), "seed": SEED, **_agreement(labels, assignments)}


def _agreement(labels: Int64[np.ndarray, " n"], groups: Int64[np.ndarray, " n"]) -> dict[str, float]:
    return {
        "nmi": nmi(labels, groups),
        "ami": ami(labels, groups),
        "ari": ari(labels, groups),
        "purity": purity(labels, groups),
    }


def _pairwise(table: Contingency) -> dict[str, float | None] | None:
    """Return pairwise precision, recall and F; None if no identity has two photos."""
    try:
        return vars(table.pairwise())
    except NothingToMeasure:
        return None
