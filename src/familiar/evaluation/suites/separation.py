"""Separation: the distance between identities relative to the spread within them."""

import numpy as np

from familiar.evaluation.context import REPLICATES, SEED, EvaluationContext, SuiteResult, resampled
from familiar.evaluation.results.metrics import DunnMetrics, SeparationMetrics, SimilarityMetrics
from familiar.metrics.bootstrap import intervals, mean_replicates
from familiar.metrics.separation import Distribution, dunn, silhouettes, similarity_distributions

MAX_PHOTOS = 20_000  # distances of all pairs, in float64: beyond that, a sample of identities


def separation(context: EvaluationContext) -> SuiteResult[SeparationMetrics]:
    """Measure the three Dunn indices of unit embeddings, the silhouette, and the distributions of similarities."""
    rows = context.sample_rows(MAX_PHOTOS)
    embeddings, labels = context.embeddings[rows], context.labels[rows]
    indices = dunn(embeddings, labels)
    photo_values = {"silhouette": silhouettes(embeddings, labels)}
    replicates = resampled(labels, lambda: mean_replicates(photo_values, labels, replicates=REPLICATES, seed=SEED))
    distributions = similarity_distributions(context.scored_pairs.counts)
    return SuiteResult(
        SeparationMetrics(
            photos=len(rows),
            identities=len(np.unique(labels)),
            dunn=DunnMetrics(
                members=indices.members,
                centroids=indices.centroids,
                centroids_to_mean=indices.centroids_to_mean,
                photos_dropped=indices.dropped,
            ),
            silhouette=float(photo_values["silhouette"].mean()),
            same=_similarity_metrics(distributions.same),
            different=_similarity_metrics(distributions.different),
            d_prime=distributions.d_prime,
            interval=intervals(replicates),
        )
    )


def _similarity_metrics(distribution: Distribution) -> SimilarityMetrics:
    percentiles = {str(percentage): value for percentage, value in distribution.percentiles.items()}
    return SimilarityMetrics(
        mean=distribution.mean,
        std=distribution.std,
        percentiles=percentiles,
        minimum=distribution.minimum,
        maximum=distribution.maximum,
    )
