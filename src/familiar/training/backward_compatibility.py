"""The space of an old bundle, for a network whose vectors are to compare with those stored by it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from familiar.core.errors import BadRecipe
from familiar.datasets.folders import IdentityTable, open_photo
from familiar.embedding.embedder import Embedder, embed_photos
from familiar.training.recipe import Recipe


@dataclass(frozen=True, eq=False)
class OldSpace:
    """What the old bundle makes of each photo that is trained on, and what its space is called."""

    space_id: str
    embeddings: Float32[np.ndarray, "photos k"]

    def described(self) -> dict[str, str | int]:
        return {"space_id": self.space_id, "components": self.embeddings.shape[1]}


def old_space(recipe: Recipe, table: IdentityTable) -> OldSpace | None:
    """None where the recipe names no old bundle.

    BadBundle where that is none; BadRecipe where its vectors are longer than the new ones; the photo's own error where
    one cannot be read.
    """
    if not recipe.loss.compatible_with:
        return None
    embedder = Embedder(Path(recipe.loss.compatible_with))
    old, new = embedder.metadata.embedding_dim, recipe.model.embedding_dim
    if old > new:
        raise BadRecipe(
            f"vectors of {old} components, as {recipe.loss.compatible_with} gives them, cannot compare with {new}; "
            f"set model.embedding_dim to {old} or more"
        )
    found = embed_photos(embedder, table.photos, open_photo=open_photo)
    if found.skipped:
        raise found.skipped[0]
    return OldSpace(embedder.metadata.space_id, found.embeddings)
