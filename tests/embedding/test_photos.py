"""Embeddings of photos as a table."""

import numpy as np

from familiar.core.data_table import vectors_from_arrow
from familiar.core.errors import NoFaceFound
from familiar.embedding.photos import EmbedResult


def test_embeddings_become_a_table_without_being_copied() -> None:
    embeddings = np.eye(2, 4, dtype=np.float32)
    result = EmbedResult(embeddings, np.array([0, 2]), (NoFaceFound("b.jpg: no face"),), ("cat", None))
    frame, arrow = result.to_pandas(vectors=True), result.to_arrow()
    assert frame["row"].tolist() == arrow["row"].to_pylist() == [0, 2]
    assert arrow["species"].to_pylist() == ["cat", None]
    assert vectors_from_arrow(arrow["embedding"]).ctypes.data == embeddings.ctypes.data
    assert np.shares_memory(frame["embedding"][1], embeddings)
