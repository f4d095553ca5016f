"""Faces of a photo by several models, as Immich stores them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Protocol, TypeAlias

import numpy as np
from jaxtyping import Float32

from familiar import Box, Embedder, Face, FamiliarError
from familiar.integrations.immich.entries import DEFAULT_MIN_SCORE, ImmichError
from familiar.integrations.immich.vectors import make_blocks

ANY_NAME = ""
"""Of models that answer whatever name Immich asks for."""
MIN_SCORE = 0.5  # of the faces that familiar's detectors report


class UploadedPhoto(Protocol):
    """A photo of a request."""

    def read(self) -> bytes:
        """Read the whole content; it may wait for the disk."""
        ...


FoundFaces: TypeAlias = tuple[tuple[int, int], Sequence[Face]]
"""Width and height of an upright photo, and its faces with their embeddings."""


class Recognition:
    """Finds and embeds faces with all models of a name.

    Args:
        models: for each of Immich's names of models those that answer it; the order of all decides where their numbers
            are stored.
        find_faces: finds and embeds the faces of a photo with a model.

    Raises:
        FamiliarError: there is no model, or their numbers do not fit.
    """

    def __init__(
        self,
        models: Mapping[str, Sequence[Embedder]],
        find_faces: Callable[[Embedder, UploadedPhoto], Awaitable[FoundFaces]],
    ) -> None:
        distinct = dict.fromkeys(model for each in models.values() for model in each)
        if not distinct:
            raise FamiliarError("give the models that recognize faces, such as --model person-mobile --model pet-nano")
        self._models, self._find_faces = models, find_faces
        self._blocks = make_blocks([bundle for model in distinct for bundle in model.bundles.values()])

    async def recognize(self, photo: UploadedPhoto, name: str, min_score: float) -> tuple[tuple[int, int], list[Face]]:
        """Find the faces of a photo.

        Args:
            photo: of a request.
            name: Immich's name of the model.
            min_score: faces below it are left out; on Immich's scale.

        Returns:
            (width, height) of the upright photo, and its faces as Immich stores them, those of the highest score first:
            boxes of whole pixels, scores on Immich's scale and embeddings of 512 numbers.

        Raises:
            ImmichError: 500, no model answers to that name.
        """
        models = self._models.get(name) or self._models.get(ANY_NAME)
        if not models:
            names = ", ".join(sorted(self._models))
            raise ImmichError(
                HTTPStatus.INTERNAL_SERVER_ERROR, "no-model", f"no model answers to that name, only to: {names}"
            )
        results = await asyncio.gather(*(self._find_faces(model, photo) for model in models))
        size_px = results[0][0]
        faces_of_models = [(face, model) for model, (_, faces) in zip(models, results, strict=True) for face in faces]
        return size_px, [
            replace(
                face,
                box_xyxy_px=_whole_pixels(face, size_px),
                score=immich_score(face.score),
                embedding=self._store(model, face),
            )
            for face, model in _without_doubles(faces_of_models)
            if immich_score(face.score) >= min_score
        ]

    def _store(self, model: Embedder, face: Face) -> Float32[np.ndarray, "512"]:
        assert face.embedding is not None
        embedder, columns = model.only(face.species)
        return self._blocks[embedder.metadata.space_id].store(face.embedding[columns])


def immich_score(score: float) -> float:
    """Map a detector's score so that our lowest, .5, becomes Immich's default, .7; 0 and 1 stay.

    >>> immich_score(0.0), immich_score(0.5), immich_score(1.0)
    (0.0, 0.7, 1.0)
    """
    if score < MIN_SCORE:
        return score * DEFAULT_MIN_SCORE / MIN_SCORE
    return 1 - (1 - score) * (1 - DEFAULT_MIN_SCORE) / (1 - MIN_SCORE)


def _whole_pixels(face: Face, size_px: tuple[int, int]) -> Box:
    left, top, right, bottom = face.box_xyxy_px
    width, height = size_px
    x1, y1 = (min(max(0, round(low)), size - 1) for low, size in ((left, width), (top, height)))
    x2, y2 = (min(max(low + 1, round(high)), size) for low, high, size in ((x1, right, width), (y1, bottom, height)))
    return Box(x1, y1, x2, y2)


def _without_doubles(faces: Sequence[tuple[Face, Embedder]]) -> list[tuple[Face, Embedder]]:
    """Keep the best of faces that several models found at one place."""
    best: list[tuple[Face, Embedder]] = []
    for face, model in sorted(faces, key=lambda each: -each[0].score):
        if not any(face.box_xyxy_px.is_same_face(other.box_xyxy_px) for other, _ in best):
            best.append((face, model))
    return best
