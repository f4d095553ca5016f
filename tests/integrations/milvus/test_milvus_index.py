"""The index in Milvus: vectors by key, found, replaced and removed.

With a file of Milvus Lite, or the server that FAMILIAR_TEST_MILVUS names, such as milvus:http://localhost:19530.
"""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from familiar.core.errors import FamiliarError, IndexUnavailable
from familiar.core.vectors import normalize
from familiar.gallery import IndexRow
from familiar.integrations.milvus import MilvusIndex, open_index

pytest.importorskip("milvus_lite", reason="milvus-lite is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of gRPC and FAISS


def rows(count: int, seed: int = 0) -> list[IndexRow]:
    vectors = normalize(np.random.default_rng(seed).normal(size=(count, 16)).astype(np.float32))
    groups = ("cat", 'dog "Rex" \\', "")
    return [IndexRow(key, vector, key + 1000 * seed, groups[key % 3]) for key, vector in enumerate(vectors)]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[MilvusIndex]:
    address = os.environ.get("FAMILIAR_TEST_MILVUS", f"milvus:{tmp_path / 'faces.db'}")
    with contextlib.closing(open_index(address, "familiar_test", 16)) as index:
        index.drop()
        yield index
        index.drop()


def test_finds_what_exact_search_finds(index: MilvusIndex):
    written = rows(3000)
    index.write(written)
    index.flush()
    vectors = np.stack([row.vector for row in written])
    queries = np.stack([row.vector for row in rows(30, seed=1)])
    exact = np.argsort(-(queries @ vectors.T), axis=1)[:, :10]
    neighbors = [index.search(query, 10) for query in queries]
    assert np.mean([len({*a.tolist()} & {*b.tolist()}) for a, b in zip(neighbors, exact, strict=True)]) >= 9.9
    for group in ("cat", 'dog "Rex" \\'):
        members = [row.key for row in written if row.group == group]
        best = max(members, key=lambda key: float(queries[0] @ vectors[key]))
        assert index.search(queries[0], 5, group=group)[0] == best


def test_versions_follow_what_is_written_and_removed(index: MilvusIndex):
    assert index.versions() == {}
    index.write(rows(5))
    index.write(rows(2, seed=3))
    assert index.versions() == {0: 3000, 1: 3001, 2: 2, 3: 3, 4: 4}
    index.remove([0, 4, 99])
    assert index.versions().keys() == {1, 2, 3}
    assert set(index.search(rows(1)[0].vector, 10).tolist()) == {1, 2, 3}
    index.drop()
    assert index.versions() == {}


def test_unreachable_server_is_named():
    with pytest.raises(IndexUnavailable, match=r"^milvus:http://127\.0\.0\.1:1: .*127\.0\.0\.1:1"):
        open_index("milvus:http://127.0.0.1:1", "familiar_test", 16)


def test_missing_collection_is_named(index: MilvusIndex):
    with pytest.raises(IndexUnavailable, match=rf"^{re.escape(index.address)}: \w"):
        index.search(rows(1)[0].vector, 10)


def test_missing_package_and_other_addresses_say_what_to_do(monkeypatch: pytest.MonkeyPatch):
    for address in ("faiss:x", "milvus:"):
        with pytest.raises(FamiliarError, match=rf"milvus:http://HOST:19530 or milvus:FILE\.db, got '{address}'"):
            open_index(address, "familiar_test", 16)
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(FamiliarError, match=r"^milvus:http://host:19530: this needs pymilvus: pip install"):
        open_index("milvus:http://host:19530", "familiar_test", 16)
