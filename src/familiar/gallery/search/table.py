"""The faces of a gallery as a table for pandas, Arrow and NumPy."""

from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Float32, Float64

from familiar.core.data_table import (
    Column,
    DataTable,
    optional_integers,
    optional_times,
    read_only,
    texts,
    vectors_from_arrow,
)
from familiar.core.vectors import check_unit_rows
from familiar.gallery.store.store import Store

EmbeddingDtype = Literal["float16", "float32"]


def face_table(store: Store, embedding_dtype: EmbeddingDtype | None = None) -> DataTable:
    """Return a table with a row for each face, by rising number.

    Its columns are face, photo, path, identity, name, confirmed, species, score, quality, left_px, top_px, right_px,
    bottom_px, taken_at, space and embedding. Its metadata name the model's space, and which components of an embedding
    belong to which of its parts.

    Args:
        store: to read.
        embedding_dtype: of the embeddings; None: as they are in memory, without copying them.
    """
    with store.read() as repository:  # one snapshot
        stored = store.stored_faces()
        faces = sorted(repository.faces.rows(), key=lambda row: row.face)
    boxes: Float64[np.ndarray, "n 4"] = np.array([row.box_xyxy_px for row in faces], np.float64).reshape(-1, 4)
    spaces, space_id = stored.space.part_spaces, stored.space.space_id
    embeddings = stored.embeddings if embedding_dtype is None else stored.embeddings.astype(embedding_dtype, copy=False)
    columns: dict[str, Column] = {
        "face": stored.ids.copy(),
        "photo": stored.photo_ids.copy(),
        "path": texts(row.path for row in faces),
        "identity": optional_integers(row.identity for row in faces),
        "name": texts(row.name for row in faces),
        "confirmed": np.array([bool(row.by_user) for row in faces], np.bool_),
        "species": texts(row.species for row in faces),
        "score": np.array([row.score for row in faces], np.float64),
        "quality": np.array([row.quality for row in faces], np.float64),
        **dict(zip(("left_px", "top_px", "right_px", "bottom_px"), np.ascontiguousarray(boxes.T), strict=True)),
        "taken_at": optional_times(row.taken_at for row in faces),
        "space": texts(space.space_id for space in spaces)[stored.parts],
        "embedding": read_only(embeddings),
    }
    components = [
        {"space": space.space_id, "first": part.start, "end": part.stop}
        for space, part in zip(spaces, stored.space.part_columns, strict=True)
    ]
    return DataTable(columns, {"space_id": space_id, "components": components})


def embedding_matrix(store: Store, *, centered: bool = False) -> Float[np.ndarray, "n d"]:
    """Return the embeddings of all faces, by rising number: a read-only view of what the gallery has in memory.

    Args:
        store: to read.
        centered: less the means that the gallery subtracts before it compares faces, if its model has any.
    """
    return read_only((store.faces() if centered else store.stored_faces()).embeddings)


def as_unit_rows(embeddings: Any) -> Float32[np.ndarray, "n d"]:
    """Return embeddings as unit rows; those of float32 are not copied.

    Args:
        embeddings: a 2-D array, or a column of an Arrow table (`core.data_table.vectors_from_arrow`).

    Raises:
        ValueError: it is neither, or a row is not of unit length.
    """
    if hasattr(embeddings, "__arrow_c_array__") or hasattr(embeddings, "__arrow_c_stream__"):
        embeddings = vectors_from_arrow(embeddings)
    rows = np.asarray(embeddings)
    if rows.ndim != 2 or rows.dtype.kind != "f":
        raise ValueError(f"embeddings must be rows of numbers, got {rows.dtype} of shape {rows.shape}")
    rows = rows.astype(np.float32, copy=False)
    check_unit_rows(rows)
    return rows
