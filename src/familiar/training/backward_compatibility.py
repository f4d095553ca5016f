"""Reference embeddings by an old bundle, for training a network whose embeddings compare with the bundle's."""

from pathlib import Path

from familiar.core.errors import BadRecipe
from familiar.datasets.folders import IdentityTable, open_photo
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from familiar.training.distillation import BundleEmbeddings
from familiar.training.recipe import Recipe


def embed_with_reference_bundle(recipe: Recipe, table: IdentityTable) -> BundleEmbeddings | None:
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
    return BundleEmbeddings((embedder.metadata.space_id,), embedded.embeddings)
