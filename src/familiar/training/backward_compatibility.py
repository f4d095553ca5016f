"""Reference embeddings by an old bundle, for training a network whose embeddings compare with the bundle's."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from familiar.core.errors import BadRecipe
from familiar.datasets.folders import IdentityTable, open_photo
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from familiar.training.recipe import Recipe


@dataclass(frozen=True, eq=False)
class ReferenceEmbeddings:
    """The old bundle's embedding of each training photo, and the id of its space."""

    space_id: str
    embeddings: Float32[np.ndarray, "photos k"]

    def to_record(self) -> dict[str, str | int]:
        """Return what the run's `data.json` stores about the old bundle."""
        return {"space_id": self.space_id, "components": self.embeddings.shape[1]}


def embed_with_reference_bundle(recipe: Recipe, table: IdentityTable) -> ReferenceEmbeddings | None:
    """Embed the photos with the bundle that `loss.compatible_with` names.

    Returns:
        The embeddings, one row for each photo of `table`; None if the recipe names no old bundle.

    Raises:
        BadBundle: the file is not a bundle.
        BadRecipe: the bundle's embeddings are longer than the new network's.
        UnreadablePhoto: a photo cannot be read.
    """
    if not recipe.loss.compatible_with:
        return None
    embedder = Embedder(Path(recipe.loss.compatible_with))
    old_dim, new_dim = embedder.metadata.embedding_dim, recipe.model.embedding_dim
    if old_dim > new_dim:
        raise BadRecipe(
            f"embeddings of {recipe.loss.compatible_with} have {old_dim} components and cannot be compared with "
            f"{new_dim}; set model.embedding_dim to {old_dim} or more"
        )
    embedded = embed_photos(embedder, table.photos, open_photo=open_photo)
    if embedded.skipped:
        raise embedded.skipped[0]
    return ReferenceEmbeddings(embedder.metadata.space_id, embedded.embeddings)
