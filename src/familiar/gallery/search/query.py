"""Queries as users give them: a photo, a crop or an embedding."""

from pathlib import Path
from typing import TypeAlias

import numpy as np
from jaxtyping import Float32

from familiar.core.errors import NoFaceFound, NothingDetected
from familiar.core.types import Crop
from familiar.detection.detector import Detector, looked_for, not_looked_for
from familiar.detection.faces import DetectedFaces
from familiar.embedding.embedder import Embedder
from familiar.gallery.enroll.gallery_model import gallery_detector
from familiar.gallery.store.store import Store

Query: TypeAlias = Path | str | Crop | Float32[np.ndarray, " d"]


def query_embedding(
    gallery: Store,
    embedder: Embedder,
    query: Path | str | Crop,
    detector: Detector | str | None,
    face: int | None,
    *,
    flip: bool,
    species: str | None = None,
) -> Float32[np.ndarray, " d"]:
    """Embed a query, for comparison with the faces of a gallery.

    Args:
        gallery: that is searched.
        embedder: the gallery's model.
        query: a photo's path, or a crop.
        detector: as for `gallery_detector`.
        face: number of the face in a photo, counted from the left and from 1; None: the best one.
        flip: average the query's embedding with that of its mirror image.
        species: of the face; None: what the detector says.
    """
    gallery.check_space(*embedder.space, to_compare=True)
    if isinstance(query, Crop):
        (embedding,) = embedder.embed([query], species=species, flip=flip)
        return gallery.truncate_query(embedding)
    face_detector = gallery_detector(gallery, embedder, detector, for_query=True)
    photo = find_query(gallery, embedder, Path(query), face_detector, face, species)
    return embed_query(gallery, embedder, photo, flip=flip)


def find_query(
    gallery: Store,
    embedder: Embedder,
    photo: Path,
    detector: Detector,
    face: int | None = None,
    species: str | None = None,
) -> DetectedFaces:
    """Find the face of a photo that is compared with a gallery.

    Args:
        gallery: that is searched.
        embedder: the gallery's model.
        photo: the file.
        detector: finds the face.
        face: as for `query_embedding`.
        species: as for `query_embedding`.

    Raises:
        NoFaceFound: there is none, and a remedy is one that the gallery has.
    """
    try:
        return embedder.detect_faces(photo, detector, choice=face or "best", species=species, rate=False)
    except NothingDetected as error:
        raise NoFaceFound(f"{photo}: {nothing_detected(gallery, detector)}") from error


def embed_query(gallery: Store, embedder: Embedder, photo: DetectedFaces, *, flip: bool) -> Float32[np.ndarray, " d"]:
    """Embed the face of a query.

    Args:
        gallery: that is searched.
        embedder: the gallery's model.
        photo: as from `find_query`.
        flip: as for `query_embedding`.
    """
    (face,) = embedder.embed_faces(photo.faces, flip=flip)
    assert face.embedding is not None
    return gallery.truncate_query(face.embedding)


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
