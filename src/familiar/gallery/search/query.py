"""Queries as users give them: a photo, a crop or an embedding."""

from pathlib import Path
from typing import TypeAlias

import numpy as np
from jaxtyping import Float32

from familiar.core.errors import FamiliarError
from familiar.core.types import Crop
from familiar.detection.detector import Detector
from familiar.embedding.model import Model, embed_face
from familiar.gallery.database.connection import GalleryDatabase

Query: TypeAlias = Path | str | Crop | Float32[np.ndarray, " d"]


def require_embedder(gallery: GalleryDatabase, embedder: Model | None) -> Model:
    """Return the model that a gallery was opened with.

    Raises:
        FamiliarError: it was opened without one.
    """
    if embedder is None:
        raise FamiliarError(
            f"{gallery.folder}: was opened without a model; photos need one: Gallery.open(folder, model)"
        )
    return embedder


def query_embedding(
    gallery: GalleryDatabase,
    embedder: Model | None,
    query: Query,
    detector: Detector | str | None,
    face: int | None,
    *,
    flip: bool,
) -> Float32[np.ndarray, " d"]:
    """Embed a query, for comparison with the faces of a gallery; an embedding stays as it is.

    Args:
        gallery: that is searched.
        embedder: needed unless the query is an embedding.
        query: a photo's path, a crop, or an embedding.
        detector: finds the face in a photo; None: the one that the model names.
        face: number of the face in a photo, counted from the left and from 1; None: the best one.
        flip: average the query's embedding with that of its mirror image.
    """
    if isinstance(query, np.ndarray):
        return query
    embedder = require_embedder(gallery, embedder)
    gallery.check_comparable(*embedder.space)
    if not isinstance(query, Crop):
        query = embedder.crop(Path(query), embedder.detector(detector), face=face)
    return gallery.truncate_query(embed_face(embedder, query, flip=flip))
