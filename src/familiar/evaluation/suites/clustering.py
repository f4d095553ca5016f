"""Clustering metrics against the true identities: of k-means with the true k, and of clustering without it."""

import numpy as np
from jaxtyping import Int64

from familiar.core.errors import NothingToMeasure
from familiar.evaluation.context import SEED, EvaluationContext, SuiteResult, resample_metrics
from familiar.evaluation.results.figures import make_figures
from familiar.metrics.clustering import Contingency, ami, ari, contingency, kmeans_groups, nmi, purity
from familiar.neighbors.comparison import Comparison

MAX_KMEANS_PHOTOS = 20_000  # with thousands of clusters its time grows with the square of the photos


def clustering(context: EvaluationContext) -> SuiteResult:
    """Measure k-means with the true number of clusters (`kmeans`) and clustering without it, as a gallery does it.

    The faces tell how they are compared, and from which similarity on (`neighbors.Comparison`); so few that they do not
    are compared by the bundle's calibration. With several bundles, the photos of each species are clustered apart.
    """
    if len(context.table.names) < 2:
        raise NothingToMeasure("clustering: needs photos of two identities or more")
    assignments, threshold, source = _group_photos(context)
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
        "groups": len(table.group_sizes),
        "identities": len(context.table.names),
        **_agreement(context.labels, assignments),
        "pairwise": _pairwise(table),
        "bcubed": vars(table.bcubed()) if (table.identity_sizes > 1).any() else None,
    }
    return SuiteResult(make_figures({"kmeans": _kmeans(context), "groups": groups}, replicates), replicates)


def _group_photos(context: EvaluationContext) -> tuple[Int64[np.ndarray, " n"], float | None, str]:
    """Return the cluster of each photo, the threshold (None: of several bundles), and how it was decided."""
    if len(context.model.bundles) == 1:
        return _group_by_bundle(context)
    groups, sources, count = np.empty(len(context.table), np.int64), list[str](), 0
    for species, rows in context.rows_by_species(np.arange(len(context.table))).items():
        assignments, _, source = _group_by_bundle(context.select_species(species))
        groups[rows] = assignments + count
        count += int(assignments.max()) + 1
        sources.append(f"{species}: {source}")
    return groups, None, "; ".join(sources)


def _group_by_bundle(context: EvaluationContext) -> tuple[Int64[np.ndarray, " n"], float, str]:
    comparison = Comparison.measure(context.embeddings, context.calibration)
    return comparison.cluster(context.embeddings), comparison.threshold, comparison.sentence


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
