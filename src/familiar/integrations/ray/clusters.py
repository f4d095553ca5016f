"""Clusters of the faces in a folder of Parquet files, written to one Parquet file."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from filelock import FileLock
from jaxtyping import Float32, Int64

from familiar import BadDataset, CannotWrite, Embedder, LargeAlbum, SpaceMismatch
from familiar.integrations.ray.parts import (
    COLUMNS,
    EmbeddedWith,
    parquet_writer,
    read_part,
    schema,
)

NO_CLUSTER = -1
CLUSTER_COLUMNS = {
    "photo": (COLUMNS["photo"][0], "as in the folder of embeddings"),
    "face": (COLUMNS["face"][0], "likewise"),
    "species": (COLUMNS["species"][0], "likewise; faces of two species are never in one cluster"),
    "cluster": (pa.int64(), "from 0; -1: the quality of the face is too low"),
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

    Each species is clustered as by `LargeAlbum`. What it has searched for is in the folder OUTPUT.work until the output
    is written.

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
    if output.parent.resolve() == folder.resolve():
        raise CannotWrite(f"{output}: the folder is that of the embeddings; choose another one")
    faces = _Faces(folder, model)
    work = output.with_name(f"{output.name}.work")
    lock_path = output.with_name(f".{output.name}.lock")
    albums: dict[str | None, LargeAlbum] = {}
    with FileLock(lock_path):  # processes that share the search wait until the first has prepared it
        for species, rows in faces.rows.items():
            embedder, columns = model.only(species)
            albums[species] = LargeAlbum(
                partial(faces.read, rows, columns),
                len(rows),
                embedder.metadata.calibration,
                work / faces.fingerprint(rows),
                on_progress,
            )
        uses_files = work.exists()
    is_searched = [album.search(share, shares) for album in albums.values()]
    if not all(is_searched):
        return None
    results: list[SpeciesClusters] = []
    with FileLock(lock_path):
        if work.exists() or not uses_files:  # else another share ended at the same time, and has written it
            cluster = np.full(faces.count, NO_CLUSTER, np.int64)
            for (species, rows), album in zip(faces.rows.items(), albums.values(), strict=True):
                clusters = album.cluster()
                count = int(clusters.max()) + 1
                results.append(
                    SpeciesClusters(
                        species, len(rows), count, album.comparison.threshold, album.comparison.estimate is not None
                    )
                )
                cluster[rows] = cluster.max(initial=NO_CLUSTER) + 1 + clusters
            on_progress("writing", 0, 1)
            faces.write(output, cluster)
            shutil.rmtree(work, ignore_errors=True)
    lock_path.unlink(missing_ok=True)
    return results


class _Faces:
    """The faces of a folder, in the order of its files.

    Attributes:
        count: of all.
        rows: of each species that has some: its faces that are clustered, by their index among all, rising.
    """

    def __init__(self, folder: Path, model: Embedder) -> None:
        paths = sorted(folder.glob("*.parquet"))
        if not paths:
            raise BadDataset(f"{folder}: has no Parquet files; write them with familiar embed --engine ray")
        self._embedded_with, _ = read_part(paths[0], ["photo"])
        self._parts: list[tuple[Path, int, int]] = []  # and the range of its faces
        self.count = 0
        names: dict[str | None, int] = {}
        numbers: list[Int64[np.ndarray, " p"]] = []
        for path in paths:
            stored, table = _read_faces(path, "species", "quality")
            if stored != self._embedded_with:
                raise SpaceMismatch(f"{path}: not embedded as {paths[0].name} was; embed all photos into one folder")
            if (stored["space_id"], stored["embedding_dim"]) != model.space[:2]:
                raise SpaceMismatch(f"{path}: embedded by another model")
            self._parts.append((path, self.count, self.count + table.num_rows))
            self.count += table.num_rows
            species = [names.setdefault(name, len(names)) for name in table["species"].to_pylist()]
            is_clustered = table["quality"].to_numpy() >= LargeAlbum.MIN_QUALITY
            numbers.append(np.where(is_clustered, np.array(species, np.int64), -1))
        by_name = {name: np.flatnonzero(np.concatenate(numbers) == number) for name, number in names.items()}
        self.rows = {name: rows for name, rows in by_name.items() if len(rows)}

    def fingerprint(self, rows: Int64[np.ndarray, " m"]) -> str:
        """Return what changes whenever the embeddings of `rows` do: a part with others has another name or size."""
        names = json.dumps([[path.name, path.stat().st_size, start] for path, start, _ in self._parts])
        return hashlib.sha256(names.encode() + rows.tobytes()).hexdigest()[:24]

    def read(
        self, rows: Int64[np.ndarray, " m"], columns: slice, chosen: Int64[np.ndarray, " k"]
    ) -> Iterator[Float32[np.ndarray, "p d"]]:
        """Yield components of the embeddings of `rows[chosen]`, both rising, file by file."""
        rows = rows[chosen]
        for path, start, stop in self._parts:
            first, last = np.searchsorted(rows, (start, stop))
            if last > first:
                _, table = _read_faces(path, "embedding")
                values = table["embedding"].combine_chunks().flatten().to_numpy().reshape(stop - start, -1)
                yield values[rows[first:last] - start][:, columns]

    def write(self, output: Path, cluster: Int64[np.ndarray, " n"]) -> None:
        """Write the cluster of each face."""
        with parquet_writer(output, schema(CLUSTER_COLUMNS, self._embedded_with)) as writer:
            for path, start, stop in self._parts:
                _, table = _read_faces(path, "photo", "species")
                table = table.append_column("cluster", pa.array(cluster[start:stop]))
                writer.write_table(table.select(list(CLUSTER_COLUMNS)))


def _read_faces(path: Path, *columns: str) -> tuple[EmbeddedWith, pa.Table]:
    """Read the number and some other columns of a part's faces, without the photos that have no embedding."""
    embedded_with, table = read_part(path, [*columns, "face"])
    return embedded_with, table.filter(table["face"].is_valid())
