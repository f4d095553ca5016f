"""Nearest-neighbor search in a collection of Milvus: a server, a cluster, or a file of Milvus Lite."""

import contextlib
import logging
import os
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64

from familiar import FamiliarError, IndexRow, IndexUnavailable

PREFIX = "milvus:"  # of the addresses of indexes
TOKEN_VARIABLE = "MILVUS_TOKEN"  # secrets are not stored with a gallery
TIMEOUT_SECONDS = 30.0
WRITING_SECONDS = 600.0  # for a request: Milvus Lite merges its files in between, for minutes at a million vectors
WRITTEN_ROWS = 2_000  # per request
LISTED_ROWS = 10_000
# As for HnswIndex: a recall@10 of .99 (benchmarks/gallery.py milvus).
CONNECTIVITY, EXPANSION_BUILDING, EXPANSION_SEARCHING = 32, 128, 256
KEY, VECTOR, VERSION, GROUP = "face", "embedding", "version", "species"


def open_index(address: str, collection: str, dim: int) -> "MilvusIndex":
    """Open a collection, which is created when the first vectors are written.

    Args:
        address: "milvus:" and the URI of a server (http://host:19530) or the path of a file (faces.db). The token of a
            server, if it needs one, is in the environment variable MILVUS_TOKEN.
        collection: its name: letters, digits and underscores.
        dim: of the vectors.

    Raises:
        IndexUnavailable: Milvus cannot be reached.
        FamiliarError: another kind of address, or pymilvus is not installed.
    """
    uri = address.removeprefix(PREFIX)
    if not uri or uri == address:
        raise FamiliarError(f"an index is given as milvus:http://HOST:19530 or milvus:FILE.db, got {address!r}")
    return MilvusIndex(address if "://" in uri else f"{PREFIX}{Path(uri).absolute()}", collection, dim)


class MilvusIndex:
    """A collection of unit vectors by key, which is a gallery's `VectorIndex`.

    Args:
        address: as for `open_index`; the path of a file is absolute.
        name: of the collection: letters, digits and underscores.
        dim: of the vectors.
    """

    def __init__(self, address: str, name: str, dim: int) -> None:
        self.address = address
        self.uri = address.removeprefix(PREFIX)
        self.name = name
        self.dim = dim
        with self._named_errors():
            self._client = _connect(self.uri)

    @property
    def is_file(self) -> bool:
        """Whether it is a file of Milvus Lite, which one process can open at a time."""
        return "://" not in self.uri

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _exists(self) -> bool:
        with self._named_errors():
            return self._client.has_collection(self.name, timeout=TIMEOUT_SECONDS)

    def _create(self) -> None:
        from pymilvus import DataType  # pyright: ignore[reportMissingTypeStubs]

        with self._named_errors():
            schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
            schema.add_field(KEY, DataType.INT64, is_primary=True)
            schema.add_field(VECTOR, DataType.FLOAT_VECTOR, dim=self.dim)
            schema.add_field(VERSION, DataType.INT64)
            schema.add_field(GROUP, DataType.VARCHAR, max_length=256)
            indexes = self._client.prepare_index_params()
            building = {"M": CONNECTIVITY, "efConstruction": EXPANSION_BUILDING}
            indexes.add_index(VECTOR, index_type="HNSW", metric_type="IP", params=building)
            # Strong: lists, and the proof that something is gone, are of what was written before.
            self._client.create_collection(
                self.name,
                schema=schema,
                index_params=indexes,
                consistency_level="Strong",
                timeout=TIMEOUT_SECONDS,
            )

    def drop(self) -> None:
        """Remove the collection with all its data, if there is one."""
        if self._exists():
            with self._named_errors():
                self._client.drop_collection(self.name, timeout=TIMEOUT_SECONDS)

    def versions(self) -> dict[int, int]:
        """List the version of every vector by key; none if there is no such collection."""
        if not self._exists():
            return {}
        versions: dict[int, int] = {}
        with self._named_errors():
            pages = self._client.query_iterator(
                self.name,
                batch_size=LISTED_ROWS,
                filter=f"{KEY} >= 0",
                output_fields=[KEY, VERSION],
                timeout=TIMEOUT_SECONDS,
            )
            try:
                while page := pages.next():
                    versions |= {row[KEY]: row[VERSION] for row in page}
            finally:
                pages.close()
        return versions

    def write(self, rows: Sequence[IndexRow]) -> None:
        """Add vectors, or replace those of the same keys."""
        if not self._exists():
            self._create()
        for start in range(0, len(rows), WRITTEN_ROWS):
            entries = [
                {KEY: row.key, VECTOR: row.vector, VERSION: row.version, GROUP: row.group}
                for row in rows[start : start + WRITTEN_ROWS]
            ]
            with self._named_errors():
                self._client.upsert(self.name, entries, timeout=WRITING_SECONDS)
        self._wait_until_visible()

    def remove(self, keys: Collection[int]) -> None:
        """Remove vectors, and ask for them to prove that they are gone.

        Raises:
            IndexUnavailable: some of them can still be found.
        """
        for part in _parts(sorted(keys)):
            with self._named_errors():
                self._client.delete(self.name, ids=part, timeout=WRITING_SECONDS)
                remaining = self._client.query(
                    self.name, filter=f"{KEY} in {part}", output_fields=[KEY], timeout=TIMEOUT_SECONDS
                )
            if remaining:
                raise IndexUnavailable(f"{self.address}: {len(remaining)} vectors were deleted but are still found")

    def erase_all_but(self, keys: Collection[int]) -> None:
        """Remove all vectors but these, or from a file the whole collection.

        A server frees their bytes when it compacts its files, a file of Milvus Lite never does.
        """
        if self.is_file:
            self.drop()
        elif others := self.versions().keys() - set(keys):
            self.remove(others)
            self.flush()

    def flush(self) -> None:
        """Let Milvus write everything to its storage, and index it."""
        with self._named_errors():
            self._client.flush(self.name, timeout=None)

    def search(
        self, query: Float32[np.ndarray, " d"], k: int, *, group: str | None = None
    ) -> Int64[np.ndarray, " hits"]:
        """Find about the k nearest vectors, nearest first.

        Args:
            query: unit vector.
            k: at least 1; Milvus allows up to 16,384.
            group: only vectors of this group. Of a small group some may not be found.

        Returns:
            Their keys.
        """
        with self._named_errors():
            (hits,) = self._client.search(
                self.name,
                [query],
                limit=k,
                filter="" if group is None else f"{GROUP} == {_quoted(group)}",
                search_params={"metric_type": "IP", "params": {"ef": max(EXPANSION_SEARCHING, 2 * k)}},
                output_fields=[KEY],
                consistency_level="Eventually",
                timeout=TIMEOUT_SECONDS,
            )
        return np.array([hit[KEY] for hit in hits], np.int64)

    def _wait_until_visible(self) -> None:
        """Wait until searches see what was written, once here, since waiting in each search takes .2 s."""
        with self._named_errors():
            self._client.query(
                self.name, filter=f"{KEY} >= 0", limit=1, consistency_level="Strong", timeout=TIMEOUT_SECONDS
            )

    @contextlib.contextmanager
    def _named_errors(self) -> Generator[None]:
        """Raise one kind of error, which names the index, for whatever goes wrong between here and there."""
        try:
            yield
        except FamiliarError:
            raise
        except Exception as error:  # pymilvus, gRPC and Milvus Lite have kinds of their own
            reason = getattr(error, "message", "") or str(error)
            raise IndexUnavailable(
                f"{self.address}: {reason.splitlines()[0] if reason else type(error).__name__}"
            ) from error


def _connect(uri: str) -> Any:
    try:
        from pymilvus import MilvusClient  # pyright: ignore[reportMissingTypeStubs]
    except ModuleNotFoundError as error:
        raise FamiliarError(f"{PREFIX}{uri}: this needs pymilvus: pip install 'familiar-faces[milvus]'") from error
    # Milvus Lite lacks a call of pymilvus that has a substitute, and both report that at every listing.
    logging.getLogger("pymilvus").setLevel(logging.ERROR)
    logging.getLogger("grpc._server").setLevel(logging.CRITICAL)
    token: Mapping[str, str] = {"token": os.environ[TOKEN_VARIABLE]} if TOKEN_VARIABLE in os.environ else {}
    return MilvusClient(uri, timeout=TIMEOUT_SECONDS, **token)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _parts(keys: Sequence[int]) -> Iterator[list[int]]:
    for start in range(0, len(keys), WRITTEN_ROWS):
        yield list(keys[start : start + WRITTEN_ROWS])
