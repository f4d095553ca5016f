"""Separation: the distance between identities relative to the spread within them."""

import numpy as np

from familiar.evaluation.context import REPLICATES, SEED, EvaluationContext, SuiteResult, resampled
from familiar.evaluation.results.figures import make_figures
from familiar.metrics.bootstrap import mean_replicates
from familiar.metrics.separation import dunn, silhouettes, similarity_distributions

MAX_PHOTOS = 20_000  # distances of all pairs, in float64: beyond that, a sample of identities


def separation(context: EvaluationContext) -> SuiteResult:
    """Measure the three Dunn indices of unit embeddings, the silhouette, and the distributions of similarities."""
    rows = context.sample_rows(MAX_PHOTOS)
    embeddings, labels = context.embeddings[rows], context.labels[rows]
    indices = dunn(embeddings, labels)
    photo_values = {"silhouette": silhouettes(embeddings, labels)}
    replicates = resampled(labels, lambda: mean_replicates(photo_values, labels, replicates=REPLICATES, seed=SEED))
    distributions = similarity_distributions(context.scored_pairs.counts)
    values = {
        "photos": len(rows),
        "identities": len(np.unique(labels)),
        "dunn": {
            "members": indices.members,
            "centroids": indices.centroids,
            "centroids_to_mean": indices.centroids_to_mean,
            "photos_dropped": indices.dropped,
        },
        "silhouette": float(photo_values["silhouette"].mean()),
        "same": vars(distributions.same),
        "different": vars(distributions.different),
        "d_prime": distributions.d_prime,
    }
    return SuiteResult(make_figures(values, replicates))
