"""Queries as users give them: a photo, a crop or an embedding."""

from pathlib import Path
from typing import TypeAlias

import numpy as np
from jaxtyping import Float32

from familiar.core.errors import NoFaceFound, NothingDetected
from familiar.core.types import Crop
from familiar.detection.detector import Detector, looked_for, not_looked_for
from familiar.embedding.model import Model, embed_face
from familiar.gallery.gallery_model import gallery_detector
from familiar.gallery.store.store import Store

Query: TypeAlias = Path | str | Crop | Float32[np.ndarray, " d"]


def query_embedding(
    gallery: Store,
    embedder: Model,
    query: Path | str | Crop,
    detector: Detector | str | None,
    face: int | None,
    *,
    flip: bool,
) -> Float32[np.ndarray, " d"]:
    """Embed a query, for comparison with the faces of a gallery.

    Args:
        gallery: that is searched.
        embedder: the gallery's model.
        query: a photo's path, or a crop.
        detector: as for `gallery_detector`.
        face: number of the face in a photo, counted from the left and from 1; None: the best one.
        flip: average the query's embedding with that of its mirror image.
    """
    gallery.check_space(*embedder.space, to_compare=True)
    if not isinstance(query, Crop):
        face_detector = gallery_detector(gallery, embedder, detector, for_query=True)
        query = crop_query(gallery, embedder, Path(query), face_detector, face)
    return gallery.truncate_query(embed_face(embedder, query, flip=flip))


def crop_query(gallery: Store, embedder: Model, photo: Path, detector: Detector, face: int | None = None) -> Crop:
    """Crop the face of a photo that is compared with a gallery.

    Args:
        gallery: that is searched.
        embedder: the gallery's model.
        photo: the file.
        detector: finds the face.
        face: as for `query_embedding`.

    Raises:
        NoFaceFound: there is none, and a remedy is one that the gallery has.
    """
    try:
        return embedder.crop(photo, detector, face=face)
    except NothingDetected as error:
        raise NoFaceFound(f"{photo}: {nothing_detected(gallery, detector)}") from error


def nothing_detected(gallery: Store, detector: Detector) -> str:
    """Say that nothing was detected in a query, and what to do.

    Args:
        gallery: that is searched.
        detector: that found nothing.
    """
    others = not_looked_for(detector)
    remedy = f"familiar gallery enroll {gallery.folder} --redetect --detector auto"
    return (
        f"no {looked_for(detector)} found; "
        + (f"to look for {others} in this gallery too: {remedy}; " if others else "")
        + "if the photo is cropped to a face already, use --detector none"
    )
