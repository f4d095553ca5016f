"""How a gallery stores embeddings: as float32, as float16, or in 8 bits."""

from typing import get_args

import numpy as np
from jaxtyping import Float

from familiar.core.gallery_types import StoredType
from familiar.core.vectors import check_unit_rows, normalize

STORED_TYPES: tuple[StoredType, ...] = get_args(StoredType)
COMPONENT_BYTES: dict[StoredType, int] = {"float32": 4, "float16": 2, "int8": 1}
_STEPS = 127


def encode(embeddings: Float[np.ndarray, "n d"], stored_type: StoredType) -> list[bytes]:
    """Return each row as it is stored.

    In 8 bits the components are multiples of a 127th of the row's largest, which is not stored: the row has length 1.

    Args:
        embeddings: unit rows.
        stored_type: how to store them.

    Raises:
        ValueError: a row is not of unit length.
    """
    check_unit_rows(embeddings)
    if stored_type == "int8":
        largest = np.abs(embeddings).max(axis=1, keepdims=True, initial=0)
        return [row.tobytes() for row in np.rint(embeddings * (_STEPS / largest)).astype(np.int8)]
    return [row.tobytes() for row in embeddings.astype(np.dtype(stored_type).newbyteorder("<"))]


def decode(stored: bytes, stored_type: StoredType, length: int) -> Float[np.ndarray, "n d"]:
    """Return the rows that are stored one behind the other: in float16 or float32, those of 8 bits in float16.

    Args:
        stored: what `encode` returned, joined.
        stored_type: how they were stored.
        length: number of components of a row.

    Raises:
        ValueError: the bytes are no whole rows, or a row is not of unit length.
    """
    if stored_type == "int8":
        steps = np.frombuffer(stored, np.int8).reshape(-1, length).astype(np.float32)
        return normalize(steps).astype(np.float16)
    rows = np.frombuffer(stored, np.dtype(stored_type).newbyteorder("<")).reshape(-1, length)
    check_unit_rows(rows.astype(np.float32))
    return rows


def stored_type_of(size_bytes: int, length: int) -> StoredType:
    """Return how an embedding of some length is stored in so many bytes.

    Raises:
        ValueError: in no way.
    """
    for stored_type, each in COMPONENT_BYTES.items():
        if size_bytes == each * length:
            return stored_type
    raise ValueError(f"{size_bytes} bytes are no embedding of {length} components")
