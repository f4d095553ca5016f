"""Evaluate embeddings as a gallery compares them: less the means of the collection's own photos."""

from dataclasses import replace

import numpy as np

from familiar.core.calibration import Calibration
from familiar.embedding.bundle import Bundle
from familiar.embedding.networks import Network
from familiar.evaluation.context import EvaluationContext
from familiar.neighbors.centering import Centering


def center_on_collection(context: EvaluationContext) -> EvaluationContext:
    """Subtract the means of the evaluated photos from all embeddings, those of changed photos included.

    As in a gallery, each bundle that has species means is centered on the photos that it embeds, and its thresholds
    become those that it has for galleries. Without such a bundle the context stays as it is.

    Args:
        context: with the embeddings as they are.
    """
    model, embeddings = context.model, context.embeddings.copy()
    centerings: dict[tuple[str, int, tuple[int, ...]], tuple[Centering, Calibration]] = {}
    for species, bundle in model.bundles.items():
        means = bundle.metadata.species_means
        if means is None:
            continue
        embedder, columns = model.only(species[0] if species else None)
        rows = np.flatnonzero(embeddings[:, columns].any(axis=1))  # those of other bundles are zero there
        centering = Centering.fit(embeddings[rows, columns], means.rows())
        embeddings[rows, columns] = centering.apply(embeddings[rows, columns])
        centerings[embedder.space] = centering, means.calibration
    if not centerings:
        return context

    def center(bundle: Bundle, network: Network) -> tuple[Bundle, Network]:
        if bundle.metadata.space not in centerings:
            return bundle, network
        centering, calibration = centerings[bundle.metadata.space]
        metadata = replace(bundle.metadata, calibration=calibration)
        return replace(bundle, metadata=metadata), lambda crops_u8: centering.apply(network(crops_u8))

    centered = model.with_bundles({species: center(*each) for species, each in model.networks.items()})
    return replace(context, model=centered, embeddings=embeddings, uncentered_model=model)
