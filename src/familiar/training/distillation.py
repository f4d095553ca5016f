"""What teachers make of the photos: vectors that a network learns besides the labels."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from familiar.core.errors import BadBundle, BadRecipe
from familiar.core.vectors import normalize, pca_project
from familiar.datasets.folders import IdentityTable, open_photo
from familiar.embedding.bundle import resolve_model
from familiar.embedding.embedder import Embedder, embed_photos
from familiar.training.recipe import Recipe


@dataclass(frozen=True, eq=False)
class Lessons:
    """The vector to learn for each photo that is trained on, and whose spaces they come from."""

    space_ids: tuple[str, ...]
    embeddings: Float32[np.ndarray, "photos k"]

    def described(self) -> dict[str, list[str]]:
        return {"space_ids": list(self.space_ids)}


def check_teachers(recipe: Recipe) -> None:
    """BadRecipe where a teacher's file is missing."""
    for teacher in recipe.distill.teacher:
        try:
            resolve_model(teacher)
        except BadBundle as error:
            raise BadRecipe(f"distill.teacher: {error}") from error


def lessons(recipe: Recipe, table: IdentityTable) -> Lessons | None:
    """None where the recipe names no teacher.

    Each teacher sees the photo and its mirror image. Several are one: their vectors side by side, so that a
    similarity is the mean of theirs; longer than the network's own, they are shortened to its length.

    BadBundle where a teacher is none; BadRecipe where photos are too few to shorten by; the photo's own error where
    one cannot be read.
    """
    embedders = [Embedder(Path(teacher)) for teacher in recipe.distill.teacher]
    if not embedders:
        return None
    parts: list[Float32[np.ndarray, "photos k"]] = []
    for embedder in embedders:
        found = embed_photos(embedder, table.photos, open_photo=open_photo, flip=True)
        if found.skipped:
            raise found.skipped[0]
        parts.append(found.embeddings)
    try:
        taught = pca_project(normalize(np.concatenate(parts, axis=1)), recipe.model.embedding_dim)
    except ValueError as error:
        raise BadRecipe(f"distill.teacher: {error}; use fewer teachers or more photos") from error
    return Lessons(tuple(embedder.metadata.space_id for embedder in embedders), taught)
