"""A folder of embedded faces, as `familiar embed --engine ray` writes it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from familiar.core.vectors import normalize
from familiar.embedding.embedder import Embedder
from familiar.integrations.ray.parts import write_part
from familiar.integrations.ray.worker import EmbeddingSettings


def write_faces(
    folder: Path,
    model: Embedder,
    people: int = 40,
    photos: int = 6,
    species: Sequence[str | None] = (None,),
    noise: float = 0.4,
) -> dict[str, tuple[str | None, int]]:
    """Write faces in parts of 50, one blurred, and a photo without one; return the individual of each photo."""
    folder.mkdir(parents=True, exist_ok=True)
    generator, dim = np.random.default_rng(0), model.space[1]
    _, _, embedded_with = EmbeddingSettings(model.names, "none").open()
    rows: list[dict[str, Any]] = []
    true: dict[str, tuple[str | None, int]] = {}
    for kind in species:
        centers = generator.normal(size=(people, dim))
        for person in range(people):
            for photo in range(photos):
                name = f"/photos/{kind} {person} {photo}.jpg"
                vector = centers[person] + noise * generator.normal(size=dim)
                embedding = normalize(vector[None].astype(np.float32))[0]
                rows.append({"photo": name, "face": 1, "species": kind, "quality": 0.5, "embedding": embedding})
                true[name] = (kind, person)
    rows = [rows[row] for row in generator.permutation(len(rows))]
    rows.insert(3, {"photo": "/photos/empty.jpg", "error": "no face found"})
    rows.insert(7, rows[0] | {"photo": "/photos/blurred.jpg", "quality": 0.01})
    for start in range(0, len(rows), 50):
        write_part(folder / f"part-{start:04d}.parquet", rows[start : start + 50], embedded_with)
    return true
