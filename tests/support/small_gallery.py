"""Small galleries to test with: vectors whose groups are plain to see, and the rows that lie in the tables."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from familiar.core.calibration import Calibration, Threshold
from familiar.core.types import Detection, Photo
from familiar.core.vectors import normalize
from familiar.datasets.synthetic import SyntheticPhoto
from familiar.embedding.embedder import Embedder
from familiar.gallery.clustering.assignments import UNASSIGNED, load_assignments
from familiar.gallery.database.connection import Gallery, Space
from familiar.gallery.editing import manual_faces
from familiar.gallery.editing.manual_faces import Box, _EmbeddedFace
from familiar.gallery.enrollment.enroll import enroll_embeddings
from familiar.photos.decoding import save_photo

DIM = 16
THRESHOLD = 0.6  # strangers of `individuals` are alike by 0, the others by .9
_DECIDE = Threshold(THRESHOLD, 0.01, 0.9)
SPACE = Space("drawn", DIM, (DIM, 8), Calibration(_DECIDE, _DECIDE, _DECIDE, 20.0, -12.0, 0.01, 99, 99))
SAID = ("identities", "assignments", "constraints", "rejections")  # the tables that decisions change


def individuals(sizes: Sequence[int], seed: int = 0, noise: float = 0.08) -> np.ndarray:
    """Unit rows float32 "sum(sizes) 16": one individual along each axis, its photos a little beside it."""
    centers = np.repeat(np.eye(DIM)[: len(sizes)], sizes, axis=0)
    spread = np.random.default_rng(seed).normal(size=centers.shape) * noise
    return normalize((centers + spread).astype(np.float32))


def enrolled(gallery: Gallery, embeddings: np.ndarray, called: str = "photo") -> list[int]:
    """The faces of one new photo each."""
    names = [f"{called} {place}.jpg" for place in range(len(embeddings))]
    return enroll_embeddings(gallery, embeddings, names, gallery.space.space_id)


def in_one_photo(gallery: Gallery, embeddings: np.ndarray, called: str) -> list[int]:
    """The faces of one new photo that shows them all."""
    with gallery.writing(faces_change=True) as connection:
        photo = connection.execute(
            "INSERT INTO photos (sha256, path, size_bytes, modified_ns) VALUES (?, ?, 0, 0)",
            (called.encode(), called),
        ).lastrowid
        return [
            int(
                connection.execute(
                    "INSERT INTO faces (photo_id, left_px, top_px, right_px, bottom_px, score, quality, embedding) "
                    "VALUES (?, 0, 0, 0, 0, 1, 1, ?) RETURNING id",
                    (photo, packed),
                ).fetchone()[0]
            )
            for packed in gallery.encode_embeddings(embeddings)
        ]


@contextlib.contextmanager
def looking_like(embedding: np.ndarray) -> Iterator[Embedder]:
    """Whatever box is drawn by hand with this embedder, the face in it has that embedding; no photo is read."""

    def look(_: Gallery, __: Embedder, photo: int, box: Box, landmarks: None, ___: Path | None) -> _EmbeddedFace:
        return _EmbeddedFace(photo, Detection(box, landmarks, 1.0), 1.0, embedding)

    with (
        patch.object(manual_faces, "_embed_box", look),
        patch.object(manual_faces, "_check_space", lambda *_: None),
    ):
        yield object.__new__(Embedder)


def groups(gallery: Gallery) -> set[frozenset[int]]:
    """The faces of each identity that has some."""
    who = load_assignments(gallery)
    return {
        frozenset(who.faces.ids[who.rows_of_identity(number)].tolist())
        for number in np.unique(who.identity[who.identity != UNASSIGNED]).tolist()
    }


def identity_of(gallery: Gallery, face: int) -> int:
    """The number of whom a face shows, or -1."""
    who = load_assignments(gallery)
    return int(who.identity[who.faces.rows_of(np.array([face]))[0]])


def rows(gallery: Gallery, tables: Iterable[str] = SAID) -> dict[str, list[Any]]:
    """All that lies in these tables."""
    with gallery.reading() as connection:
        return {table: connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in tables}


def draw_pets(folder: Path, identities: int, each: int, *, seed: int = 0, suffix: str = ".png") -> list[Path]:
    """Drawn pets of 48 px, by identity."""
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
    """One photo of several, from the left to the right."""
    pixels = np.concatenate(photos, axis=1)
    return Photo(pixels, "side by side", (pixels.shape[1], pixels.shape[0]))
