"""Small galleries for tests: embeddings in clear clusters, and access to the rows of the tables."""

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from familiar.core.calibration import Calibration, Threshold
from familiar.core.types import Face, Photo
from familiar.core.vectors import normalize
from familiar.datasets.synthetic import SyntheticPhoto
from familiar.embedding.embedder import Embedder
from familiar.gallery.edits import manual_faces
from familiar.gallery.edits.manual_faces import Box
from familiar.gallery.enroll.enroll import enroll_embeddings
from familiar.gallery.same.assignments import UNASSIGNED, load_assignments
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.metrics.calibration import calibrate
from familiar.photos.decoding import save_photo

DIM = 16
THRESHOLD = 0.6  # different individuals of `individuals` have a similarity of about 0, the same one of about 0.9
_DECIDE = Threshold(THRESHOLD, 0.01, 0.9)
SPACE = Space("drawn", DIM, (DIM, 8), Calibration(_DECIDE, _DECIDE, _DECIDE, 20.0, -12.0, 0.01, 99, 99))
UNCALIBRATED_SPACE = Space("drawn", DIM, (DIM, 8), calibrate(np.empty((0, DIM), np.float32), np.empty(0, np.int64)))
DECISION_TABLES = ("identities", "assignments", "constraints", "rejections")  # tables that decisions change


def draw_individuals(sizes: Sequence[int], seed: int = 0, noise: float = 0.08) -> np.ndarray:
    """Draw embeddings of individuals, each near its own axis.

    Args:
        sizes: the number of embeddings of each individual.
        seed: of the noise.
        noise: standard deviation of each component.

    Returns:
        Unit rows float32, shape (sum(sizes), 16).
    """
    centers = np.repeat(np.eye(DIM)[: len(sizes)], sizes, axis=0)
    spread = np.random.default_rng(seed).normal(size=centers.shape) * noise
    return normalize((centers + spread).astype(np.float32))


def close_together(sizes: Sequence[int], seed: int = 0) -> np.ndarray:
    """Draw individuals that are similar by .8 or more, .99 within each: the model's threshold joins them all."""
    rows = draw_individuals(sizes, seed, noise=0.01)
    rows[:, DIM - 1] += 2.0
    return normalize(rows)


def enroll_vectors(gallery: Store, embeddings: np.ndarray, prefix: str = "photo") -> list[int]:
    """Enroll each embedding as the face of a new photo; return the faces' numbers."""
    names = [f"{prefix} {index}.jpg" for index in range(len(embeddings))]
    return enroll_embeddings(gallery, embeddings, names, gallery.space.space_id)


def enroll_in_one_photo(gallery: Store, embeddings: np.ndarray, name: str) -> list[int]:
    """Enroll embeddings as the faces of one new photo; return their numbers."""
    with gallery.write(faces_change=True) as repository:
        photo = repository.connection.value(
            "INSERT INTO photos (sha256, path, size_bytes, modified_ns) VALUES (?1, ?1, 0, 0) RETURNING id",
            (os.fsencode(name),),
        )
        return [
            repository.connection.value(
                "INSERT INTO faces (photo_id, left_px, top_px, right_px, bottom_px, score, quality, embedding) "
                "VALUES (?, 0, 0, 0, 0, 1, 1, ?) RETURNING id",
                (photo, packed),
            )
            for packed in gallery.encode_embeddings(embeddings)
        ]


@contextlib.contextmanager
def embedder_returning(embedding: np.ndarray) -> Iterator[Embedder]:
    """Give an embedder for manual edits: any box has this embedding, and no photo is read."""

    def embed_box(
        _: Store, __: Embedder, ___: int, box: Box, landmarks: None, ____: Path | None, species: None = None
    ) -> Face:
        return Face(box, landmarks, 1.0, quality=1.0, embedding=embedding, species=species)

    with (
        patch.object(manual_faces, "_embed_box", embed_box),
        patch.object(Store, "check_space", lambda *_: None),
    ):
        yield _unused_model()


@functools.cache
def _unused_model() -> Embedder:
    return Embedder("pet-nano", threads=1)


def groups(gallery: Store) -> set[frozenset[int]]:
    """Return the faces of each identity that has any."""
    assignments = load_assignments(gallery)
    return {
        frozenset(assignments.faces.ids[assignments.rows_of_identity(number)].tolist())
        for number in np.unique(assignments.identity[assignments.identity != UNASSIGNED]).tolist()
    }


def identity_of(gallery: Store, face: int) -> int:
    """Return the number of a face's identity, or -1."""
    assignments = load_assignments(gallery)
    return int(assignments.identity[assignments.faces.rows_of(np.array([face]))[0]])


def rows(gallery: Store, tables: Iterable[str] = DECISION_TABLES) -> dict[str, list[Any]]:
    """Return all rows of some tables."""
    with gallery.read() as repository:
        return {table: repository.connection.rows(f"SELECT * FROM {table} ORDER BY 1") for table in tables}


def draw_pets(folder: Path, identities: int, each: int, *, seed: int = 0, suffix: str = ".png") -> list[Path]:
    """Draw and save photos of pets, 48 px wide; return their paths by identity."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        save_photo(
            SyntheticPhoto("cats", identity, index, seed=seed, size_px=48).draw(),
            folder / f"{identity}-{index}{suffix}",
        )
        for identity in range(identities)
        for index in range(each)
    ]


def side_by_side(*photos: np.ndarray) -> Photo:
    """Join photos from left to right into one."""
    pixels = np.concatenate(photos, axis=1)
    return Photo(pixels, "side by side", (pixels.shape[1], pixels.shape[0]))
