"""How far apart are the identities, measured against how wide each is?"""

import numpy as np

from familiar.evaluation.context import REPLICATES, SEED, EvaluationContext, Outcome, resampled
from familiar.metrics.bootstrap import intervals, mean_replicates
from familiar.metrics.separation import Distribution, dunn, silhouettes, similarity_distributions

MAX_PHOTOS = 20_000  # distances of all pairs, in float64: beyond that a sample of identities


def separation(measured: EvaluationContext) -> Outcome:
    """The three Dunn indices of unit embeddings, the silhouette, and how similarities of either kind spread."""
    rows = measured.sample_of(MAX_PHOTOS)
    embeddings, labels = measured.embeddings[rows], measured.labels[rows]
    indices = dunn(embeddings, labels)
    of_photos = {"silhouette": silhouettes(embeddings, labels)}
    replicates = resampled(labels, lambda: mean_replicates(of_photos, labels, replicates=REPLICATES, seed=SEED))
    spread = similarity_distributions(measured.judged.counts)
    return Outcome(
        {
            "photos": len(rows),
            "identities": len(np.unique(labels)),
            "dunn": {
                "members": indices.members,
                "centroids": indices.centroids,
                "centroids_to_mean": indices.centroids_to_mean,
                "photos_dropped": indices.dropped,
            },
            "silhouette": float(of_photos["silhouette"].mean()),
            "same": _described(spread.same),
            "different": _described(spread.different),
            "d_prime": spread.d_prime,
            "interval": intervals(replicates),
        }
    )


def _described(found: Distribution) -> dict[str, object]:
    percentiles = {str(percentage): value for percentage, value in found.percentiles.items()}
    return {"mean": found.mean, "std": found.std, "percentiles": percentiles}
