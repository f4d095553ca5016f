"""Clusters of the faces in a folder of Parquet files, written to one Parquet file."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int64

from familiar.core.errors import BadDataset, CannotWrite, SpaceMismatch
from familiar.core.files import fsync_directory, make_folder
from familiar.embedding.distributed.parts import (
    METADATA_KEY,
    EmbeddedWith,
    list_parts,
    read_columns,
    read_embedded_with,
    require_pyarrow,
)
from familiar.embedding.embedder import Embedder
from familiar.neighbors.album import (
    MIN_QUALITY,
    AlbumEstimate,
    AlbumWhitening,
    cluster_measured,
    evenly_spaced,
    measure_album,
)
from familiar.neighbors.large_clustering import LargeClustering, reserve_array
from familiar.neighbors.purity import split_mixed

MAX_IN_MEMORY = 100_000
"""Faces of a species that are clustered in memory, as in a gallery; more are clustered with files."""
SAMPLE_ROWS = 20_000
NO_CLUSTER = -1
_Album = tuple[AlbumWhitening, AlbumEstimate] | None  # None: the faces show too little
COLUMNS = {
    "photo": "as in the folder of embeddings",
    "face": "likewise",
    "species": "likewise; faces of two species are never in one cluster",
    "cluster": "from 0; -1: the quality of the face is too low",
}


@dataclass(frozen=True)
class SpeciesClusters:
    """The clusters of one species.

    Attributes:
        species: None: unknown.
        faces: in a cluster.
        clusters: their number.
        threshold: similarity that they were made at.
        is_estimated: whether the faces themselves told the threshold; otherwise it is the model's.
    """

    species: str | None
    faces: int
    clusters: int
    threshold: float
    is_estimated: bool


def cluster_parts(
    folder: Path,
    model: Embedder,
    output: Path,
    *,
    share: int = 0,
    shares: int = 1,
    on_progress: Callable[[str, int, int], None] = lambda _what, _done, _all: None,
) -> list[SpeciesClusters] | None:
    """Cluster the faces of a folder, each species by itself, and write the cluster of each face.

    Up to 100,000 faces of a species are clustered as by `cluster_album`; more by `LargeClustering`, whitened and from
    the threshold that they themselves suggest, with mixed clusters split, but without out-of-domain clusters. What it
    has searched for is kept in the folder OUTPUT.work until the output is written.

    Args:
        folder: as `embed_with_ray` writes it.
        model: that embedded the faces.
        output: Parquet file with the columns photo, face, species and cluster; -1: the face's quality is too low.
        share: number of the share of the search to do, from 0.
        shares: processes that divide the search among them, with the folder on a disk that all of them reach. All but
            the one that ends last only search.
        on_progress: called with what is done now, how much of it is done, and how much there is.

    Returns:
        What was written, by species: nothing if another share has done so; None if others are not done yet.

    Raises:
        BadDataset: there is no Parquet file, or a damaged one or one of another origin.
        SpaceMismatch: a file is of another model.
        CannotWrite: the system refuses.
    """
    require_pyarrow()
    if output.parent.resolve() == folder.resolve():
        raise CannotWrite(f"{output}: the folder is that of the embeddings; choose another one")
    faces = _read_faces(folder, model)
    work = output.with_name(f"{output.name}.work")
    groups = [_Group(faces, number, model) for number in range(len(faces.species_names))]
    large = {
        number: _LargeSpecies(faces, group, work / str(number), on_progress)
        for number, group in enumerate(groups)
        if len(group.rows) > MAX_IN_MEMORY
    }
    is_searched = [each.clustering.search(share, shares) for each in large.values()]
    if not all(is_searched):
        return None
    with _lock(output):
        if large and not work.exists():
            return []  # another share ended at the same time, and has written it
        cluster = np.full(len(faces.species), NO_CLUSTER, np.int64)
        results: list[SpeciesClusters] = []
        for number, group in enumerate(groups):
            if len(group.rows):
                album, clusters = large[number].cluster() if number in large else group.cluster_in_memory()
                threshold = album[1].threshold if album else group.fallback
                name, count = faces.species_names[number], int(clusters.max()) + 1
                results.append(SpeciesClusters(name, len(group.rows), count, threshold, album is not None))
                cluster[group.rows] = cluster.max(initial=NO_CLUSTER) + 1 + clusters
        on_progress("writing", 0, 1)
        _write(output, faces, cluster)
        shutil.rmtree(work, ignore_errors=True)
    return results


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of a folder that have an embedding, in the order of its files."""

    parts: list[tuple[Path, int]]  # and how many faces each has
    embedded_with: EmbeddedWith
    species_names: list[str | None]
    species: Int64[np.ndarray, " n"]
    is_clustered: Bool[np.ndarray, " n"]

    def embeddings(self, rows: Int64[np.ndarray, " m"], columns: slice) -> Iterator[Float32[np.ndarray, "p d"]]:
        """Yield the embeddings of rising rows, file by file."""
        start = 0
        for path, count in self.parts:
            first, last = np.searchsorted(rows, (start, start + count))
            if last > first:
                table = _read_faces_of(path, "embedding")
                values = table["embedding"].combine_chunks().flatten().to_numpy().reshape(count, -1)
                yield values[rows[first:last] - start][:, columns]
            start += count

    def fingerprint(self, rows: Int64[np.ndarray, " m"]) -> str:
        """Return what changes whenever the embeddings of `rows` do: a part with others has another name or size."""
        names = [[path.name, path.stat().st_size, count] for path, count in self.parts]
        return hashlib.sha256(json.dumps(names).encode() + rows.tobytes()).hexdigest()[:24]


class _Group:
    """The faces of a species that are clustered.

    Attributes:
        rows: rising.
        columns: of the species' bundle.
        fallback: threshold of the bundle.
    """

    def __init__(self, faces: _Rows, species: int, model: Embedder) -> None:
        self._faces = faces
        self.rows = np.flatnonzero((faces.species == species) & faces.is_clustered)
        embedder, self.columns = model.only(faces.species_names[species])
        self.fallback = embedder.metadata.calibration.high_precision.similarity

    def cluster_in_memory(self) -> tuple[_Album, Int64[np.ndarray, " m"]]:
        embeddings = np.concatenate(list(self._faces.embeddings(self.rows, self.columns)))
        album = measure_album(embeddings, self.fallback)
        return album, cluster_measured(embeddings, album, self.fallback)


class _LargeSpecies:
    """Faces of a species that are clustered with files.

    Args:
        faces: of all species.
        group: of the species.
        work: folder for the files.
        on_progress: as for `cluster_parts`.
    """

    def __init__(self, faces: _Rows, group: _Group, work: Path, on_progress: Callable[[str, int, int], None]) -> None:
        from filelock import FileLock

        on_progress("measuring", 0, 1)
        rows, columns = group.rows, group.columns
        sample = np.concatenate(list(faces.embeddings(rows[evenly_spaced(len(rows), SAMPLE_ROWS)], columns)))
        self.album = measure_album(sample, group.fallback)
        self._fallback = group.fallback
        path = work / "vectors" / f"{faces.fingerprint(rows)}.npy"
        make_folder(path.parent)
        with FileLock(work / ".lock"):  # processes that share the search wait until the first has prepared it
            if not path.exists():
                draft = reserve_array(path.with_suffix(".draft"), (len(rows), sample.shape[1]))
                start = 0
                for part in faces.embeddings(rows, columns):
                    draft[start : start + len(part)] = self.album[0].apply(part) if self.album else part
                    start += len(part)
                draft.flush()
                path.with_suffix(".draft").replace(path)
            self._rows = np.load(path, mmap_mode="r")
            self.clustering = LargeClustering(self._rows, work, on_progress)

    def cluster(self) -> tuple[_Album, Int64[np.ndarray, " m"]]:
        if self.album is None:
            return None, self.clustering.clusters_at(self._fallback)
        estimate = self.album[1]
        clusters = self.clustering.clusters_at(estimate.threshold)
        return self.album, split_mixed(self._rows, clusters, estimate.threshold, estimate.uncertainty)


@contextlib.contextmanager
def _lock(output: Path) -> Generator[None]:
    """Let one process at a time cluster and write; shares may end at the same time."""
    from filelock import FileLock

    path = output.with_name(f".{output.name}.lock")
    with FileLock(path):
        yield
    path.unlink(missing_ok=True)


def _read_faces(folder: Path, model: Embedder) -> _Rows:
    paths = list_parts(folder)
    if not paths:
        raise BadDataset(f"{folder}: has no Parquet files; write them with familiar embed --engine ray")
    space_id, dim, _ = model.space
    embedded_with = read_embedded_with(paths[0])
    parts: list[tuple[Path, int]] = []
    names: dict[str | None, int] = {}
    species: list[np.ndarray] = [np.empty(0, np.int64)]
    is_clustered: list[np.ndarray] = [np.empty(0, bool)]
    for path in paths:
        stored = read_embedded_with(path)
        if stored != embedded_with:
            raise SpaceMismatch(f"{path}: not embedded as {paths[0].name} was; embed all photos into one folder")
        if (stored.space_id, stored.embedding_dim) != (space_id, dim):
            raise SpaceMismatch(f"{path}: embedded by another model, of the space {stored.space_id}, not {space_id}")
        table = _read_faces_of(path, "species", "quality")
        parts.append((path, table.num_rows))
        species.append(
            np.array([names.setdefault(name, len(names)) for name in table["species"].to_pylist()], np.int64)
        )
        is_clustered.append(table["quality"].to_numpy() >= MIN_QUALITY)
    return _Rows(parts, embedded_with, list(names), np.concatenate(species), np.concatenate(is_clustered))


def _read_faces_of(path: Path, *columns: str) -> Any:
    """Read the number and some other columns of a part's faces, without the photos that have no embedding."""
    table = read_columns(path, [*columns, "face"])
    return table.filter(table["face"].is_valid())


def _write(output: Path, faces: _Rows, cluster: Int64[np.ndarray, " n"]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    draft = output.with_name(f".familiar.{output.name}")
    types = {"photo": pa.string(), "face": pa.int32(), "species": pa.string(), "cluster": pa.int64()}
    metadata = json.dumps(asdict(faces.embedded_with) | {"columns": COLUMNS})
    schema = pa.schema(list(types.items()), metadata={METADATA_KEY: metadata})
    try:
        with pq.ParquetWriter(draft, schema) as writer:
            start = 0
            for path, count in faces.parts:
                table = _read_faces_of(path, "photo", "species").select(["photo", "face", "species"])
                table = table.append_column("cluster", pa.array(cluster[start : start + count]))
                writer.write_table(table.cast(schema))
                start += count
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        draft.replace(output)
        fsync_directory(output.parent)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise CannotWrite(f"{output}: cannot be written ({error.strerror or error})") from error
