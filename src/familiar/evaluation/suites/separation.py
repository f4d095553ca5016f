"""Separation: the distance between identities relative to the spread within them."""

import numpy as np

from familiar.evaluation.context import EvaluationContext, SuiteResult, resample_means
from familiar.evaluation.results.figures import make_figures
from familiar.metrics.separation import dunn, silhouettes, similarity_distributions

MAX_PHOTOS = 20_000  # distances of all pairs, in float64: beyond that, a sample of identities


def separation(context: EvaluationContext) -> SuiteResult:
    """Measure the three Dunn indices of unit embeddings, the silhouette, and the distributions of similarities."""
    rows = context.sample_rows(MAX_PHOTOS)
    embeddings, labels = context.embeddings[rows], context.labels[rows]
    photo_values = {"silhouette": silhouettes(embeddings, labels)}
    replicates = resample_means(photo_values, labels)
    distributions = similarity_distributions(context.scored_pairs.counts)
    values = {
        "photos": len(rows),
        "identities": len(np.unique(labels)),
        "dunn": vars(dunn(embeddings, labels)),
        "silhouette": float(photo_values["silhouette"].mean()),
        "same": vars(distributions.same),
        "different": vars(distributions.different),
        "d_prime": distributions.d_prime,
    }
    return SuiteResult(make_figures(values, replicates))
