"""Teacher embeddings: vectors of other bundles that a network learns in addition to the labels."""

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Float32

from familiar.core.errors import BadBundle, BadRecipe
from familiar.core.files import write_atomically
from familiar.core.types import Photo
from familiar.core.vectors import normalize, pca_project
from familiar.datasets.folders import open_photo
from familiar.embedding.bundle import resolve_model
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from familiar.loading.dataset import FaceDataset
from familiar.training.recipe import Recipe


@dataclass(frozen=True, eq=False)
class BundleEmbeddings:
    """Vectors by other bundles for the rows of the training dataset, and the ids of the bundles' spaces."""

    space_ids: tuple[str, ...]
    embeddings: Float32[np.ndarray, "rows k"]


def check_teachers(recipe: Recipe) -> None:
    """Raise BadRecipe if a teacher's file is missing, or if there is none and only teachers are to be learned from."""
    needed = recipe.distill.blends or not recipe.distill.label_weight
    if needed and not recipe.distill.teacher:
        raise BadRecipe(f"the recipe {recipe.name} learns from another network: name its bundle with --teacher BUNDLE")
    for teacher in recipe.distill.teacher:
        try:
            resolve_model(teacher)
        except BadBundle as error:
            raise BadRecipe(f"distill.teacher: {error}") from error


def embed_with_teachers(
    recipe: Recipe,
    dataset: FaceDataset,
    contents: str = "",
    stored: Path | None = None,
    on_crop: Callable[[int, int], None] = lambda _done, _total: None,
) -> BundleEmbeddings | None:
    """Embed the photos and the blended faces with the bundles that `distill.teacher` names.

    Each teacher embeds a photo and, if the recipe says so, its mirror image; a blended face as it is. The vectors of
    several teachers are concatenated, so that a similarity is the mean of theirs. If that is longer than the network's
    embedding, it is projected to the network's length by PCA.

    Args:
        recipe: of the run.
        dataset: the training photos, and the blended faces behind them.
        contents: hash of the photos, by which stored embeddings are recognized.
        stored: the file to keep the embeddings in, and to read them from if they are there already.
        on_crop: called with the numbers of crops done and of all crops.

    Returns:
        The embeddings, one row for each of `dataset`; None if the recipe names no teacher.

    Raises:
        BadBundle: a teacher is not a bundle.
        BadRecipe: there are too few photos for the projection.
        UnreadablePhoto: a photo cannot be read.
    """
    embedders = [Embedder(Path(teacher)) for teacher in recipe.distill.teacher]
    if not embedders:
        return None
    space_ids = tuple(embedder.metadata.space_id for embedder in embedders)
    key = hashlib.sha256("\n".join((contents, *space_ids, recipe.to_json())).encode()).hexdigest()
    embeddings = None if stored is None else _read_stored(stored, key, len(dataset))
    if embeddings is None:
        rows = len(dataset)
        parts: list[Float32[np.ndarray, "rows k"]] = []
        for embedder in embedders:
            before, total = rows * len(parts), rows * len(embedders)
            on_row = lambda done, before=before, total=total: on_crop(before + done, total)  # noqa: E731
            parts.append(_embed_rows(embedder, dataset, recipe.distill.mirrored, on_row))
        embeddings = normalize(np.concatenate(parts, axis=1))
        if stored is not None:
            _store(stored, key, embeddings)
    try:
        return BundleEmbeddings(space_ids, pca_project(embeddings, recipe.model.embedding_dim))
    except ValueError as error:
        raise BadRecipe(f"distill.teacher: {error}; use fewer teachers or more photos") from error


def _embed_rows(
    embedder: Embedder, dataset: FaceDataset, mirrored: bool, on_row: Callable[[int], None]
) -> Float32[np.ndarray, "rows k"]:
    photos = dataset.table.photos

    def open_blend(row: int, /, *, min_side_px: int | None = None) -> Photo:  # noqa: ARG001 (a crop is small)
        pixels = dataset.crop(row)
        return Photo(pixels, f"blended face {row}", (pixels.shape[1], pixels.shape[0]))

    blends = range(len(photos), len(dataset))
    embedded = (
        embed_photos(embedder, photos, "none", open_photo=open_photo, flip=mirrored, on_photo=on_row),
        embed_photos(embedder, blends, "none", open_photo=open_blend, on_photo=lambda done: on_row(len(photos) + done)),
    )
    for skipped in (error for part in embedded for error in part.skipped):
        raise skipped
    return np.concatenate([part.embeddings for part in embedded])


def _read_stored(path: Path, key: str, rows: int) -> Float32[np.ndarray, "rows k"] | None:
    """Return the embeddings of a file, or None if it is missing, damaged or of another training."""
    try:
        # Opened here, since NumPy does not close a damaged file.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            embeddings = arrays["embeddings"] if str(arrays["key"]) == key else None
    except (OSError, KeyError, ValueError, BadZipFile):
        return None
    return embeddings if embeddings is not None and len(embeddings) == rows else None


def _store(path: Path, key: str, embeddings: Float32[np.ndarray, "rows k"]) -> None:
    file = io.BytesIO()
    np.savez(file, key=np.array(key), embeddings=embeddings)
    write_atomically(path, file.getvalue())
