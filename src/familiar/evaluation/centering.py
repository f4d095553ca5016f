"""Evaluate embeddings as a gallery compares them: less the means of the collection's own photos."""

from dataclasses import replace

import numpy as np

from familiar.core.calibration import Calibration
from familiar.embedding.embedder import Embedder
from familiar.embedding.species.router import RoutedEmbedder
from familiar.evaluation.context import EvaluationContext
from familiar.neighbors.centering import Centering


def center_on_collection(context: EvaluationContext) -> EvaluationContext:
    """Subtract the means of the evaluated photos from all embeddings, those of changed photos included.

    As in a gallery, each bundle that has species means is centered on the photos that it embeds, and its thresholds
    become those that it has for galleries. Without such a bundle the context stays as it is.

    Args:
        context: with the embeddings of a bundle or a router as they are.
    """
    model, embeddings = context.model, context.embeddings.copy()
    centerings: dict[tuple[str, int, tuple[int, ...]], tuple[Centering, Calibration]] = {}
    for species, bundle in model.bundles.items():
        means = bundle.metadata.species_means
        if means is None:
            continue
        embedder, columns = model.embedder_for(species[0] if species else None)
        rows = np.flatnonzero(embeddings[:, columns].any(axis=1))  # those of other bundles are zero there
        centering = Centering.fit(embeddings[rows, columns], means.rows())
        embeddings[rows, columns] = centering.apply(embeddings[rows, columns])
        centerings[embedder.space] = centering, means.calibration
    if not centerings:
        return context

    def center(embedder: Embedder) -> Embedder:
        if embedder.space not in centerings:
            return embedder
        centering, calibration = centerings[embedder.space]
        metadata = replace(embedder.metadata, calibration=calibration)
        return Embedder(
            replace(embedder.bundle, metadata=metadata),
            embedder.threads,
            network=lambda crops_u8: centering.apply(embedder.run(crops_u8)),
        )

    if isinstance(model, RoutedEmbedder):
        embedders = {name: center(embedder) for name, embedder in model.embedders.items()}
        centered = RoutedEmbedder(model.feature_embedder, model.classifier, embedders, model.path)
    else:
        centered = center(model.embedder_for(None)[0])
    return replace(context, model=centered, embeddings=embeddings, uncentered_model=model)
