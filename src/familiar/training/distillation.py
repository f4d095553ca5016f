"""Teacher embeddings: vectors of other bundles that a network learns in addition to the labels."""

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
class TeacherEmbeddings:
    """The vector to learn for each training photo, and the ids of the teachers' spaces."""

    space_ids: tuple[str, ...]
    embeddings: Float32[np.ndarray, "photos k"]

    def to_record(self) -> dict[str, list[str]]:
        """Return what the run's `data.json` stores about the teachers."""
        return {"space_ids": list(self.space_ids)}


def check_teachers(recipe: Recipe) -> None:
    """Raise BadRecipe if a teacher's file is missing."""
    for teacher in recipe.distill.teacher:
        try:
            resolve_model(teacher)
        except BadBundle as error:
            raise BadRecipe(f"distill.teacher: {error}") from error


def embed_with_teachers(recipe: Recipe, table: IdentityTable) -> TeacherEmbeddings | None:
    """Embed the photos with the bundles that `distill.teacher` names.

    Each teacher embeds the photo and its mirror image. The vectors of several teachers are concatenated, so that a
    similarity is the mean of theirs. If that is longer than the network's embedding, it is projected to the network's
    length by PCA.

    Returns:
        The embeddings, one row for each photo of `table`; None if the recipe names no teacher.

    Raises:
        BadBundle: a teacher is not a bundle.
        BadRecipe: there are too few photos for the projection.
        UnreadablePhoto: a photo cannot be read.
    """
    embedders = [Embedder(Path(teacher)) for teacher in recipe.distill.teacher]
    if not embedders:
        return None
    parts: list[Float32[np.ndarray, "photos k"]] = []
    for embedder in embedders:
        embedded = embed_photos(embedder, table.photos, open_photo=open_photo, flip=True)
        if embedded.skipped:
            raise embedded.skipped[0]
        parts.append(embedded.embeddings)
    try:
        embeddings = pca_project(normalize(np.concatenate(parts, axis=1)), recipe.model.embedding_dim)
    except ValueError as error:
        raise BadRecipe(f"distill.teacher: {error}; use fewer teachers or more photos") from error
    return TeacherEmbeddings(tuple(embedder.metadata.space_id for embedder in embedders), embeddings)
