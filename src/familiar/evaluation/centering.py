"""Evaluate embeddings as a gallery compares them: less the means of the collection's own photos."""

from dataclasses import replace

import numpy as np

from familiar.embedding.embedder import Embedder
from familiar.evaluation.context import EvaluationContext
from familiar.metrics.calibration import calibrate
from familiar.neighbors.centering import Centering


def center_on_collection(context: EvaluationContext) -> EvaluationContext:
    """Subtract the means of the evaluated photos from all embeddings, those of changed photos included.

    The thresholds become those that the bundle has for galleries. A bundle without species means has none; all photos
    then have one mean.

    Args:
        context: with the embeddings of a bundle as they are.
    """
    embedder, embeddings = context.model, context.embeddings
    assert isinstance(embedder, Embedder)
    means = embedder.metadata.species_means
    if means is None:
        centering = Centering.fit(embeddings)
        calibration = calibrate(embedder.empty_embeddings(), np.empty(0, np.int64))
    else:
        centering, calibration = Centering.fit(embeddings, means.rows()), means.calibration
    bundle = embedder.bundle
    centered = Embedder(
        replace(bundle, metadata=replace(bundle.metadata, calibration=calibration)),
        embedder.threads,
        network=lambda crops_u8: centering.apply(embedder.run(crops_u8)),
    )
    return replace(context, model=centered, embeddings=centering.apply(embeddings))
