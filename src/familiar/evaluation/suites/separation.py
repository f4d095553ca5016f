"""Separation: the distance between identities relative to the spread within them."""

import numpy as np

from familiar.evaluation.context import REPLICATES, SEED, EvaluationContext, SuiteResult, resampled
from familiar.metrics.bootstrap import intervals, mean_replicates
from familiar.metrics.separation import Distribution, dunn, silhouettes, similarity_distributions

MAX_PHOTOS = 20_000  # distances of all pairs, in float64: beyond that, a sample of identities


def separation(context: EvaluationContext) -> SuiteResult:
    """Measure the three Dunn indices of unit embeddings, the silhouette, and the distributions of similarities."""
    rows = context.sample_rows(MAX_PHOTOS)
    embeddings, labels = context.embeddings[rows], context.labels[rows]
    indices = dunn(embeddings, labels)
    photo_values = {"silhouette": silhouettes(embeddings, labels)}
    replicates = resampled(labels, lambda: mean_replicates(photo_values, labels, replicates=REPLICATES, seed=SEED))
    distributions = similarity_distributions(context.scored_pairs.counts)
    return SuiteResult(
        {
            "photos": len(rows),
            "identities": len(np.unique(labels)),
            "dunn": {
                "members": indices.members,
                "centroids": indices.centroids,
                "centroids_to_mean": indices.centroids_to_mean,
                "photos_dropped": indices.dropped,
            },
            "silhouette": float(photo_values["silhouette"].mean()),
            "same": _to_dict(distributions.same),
            "different": _to_dict(distributions.different),
            "d_prime": distributions.d_prime,
            "interval": intervals(replicates),
        }
    )


def _to_dict(distribution: Distribution) -> dict[str, object]:
    percentiles = {str(percentage): value for percentage, value in distribution.percentiles.items()}
    return {"mean": distribution.mean, "std": distribution.std, "percentiles": percentiles}
