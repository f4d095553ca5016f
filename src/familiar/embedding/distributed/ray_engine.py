"""Embedding by the workers of a Ray cluster, or of one that Ray starts on this machine."""

import logging
import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cv2

from familiar.core.cpu import available_cores
from familiar.core.errors import CannotWrite, FamiliarError
from familiar.core.files import absolute_path, make_folder, remove_unfinished_files
from familiar.datasets.shards.scanning import names_shards, scan_shards
from familiar.embedding.distributed.parts import PhotoFile, read_states, remove_photos, require_pyarrow
from familiar.embedding.distributed.worker import EmbeddingSettings, PartEmbedder
from familiar.photos.decoding import find_photos

MAX_PART_PHOTOS = 1_000  # what a killed worker loses is a part
PARTS_PER_WORKER = 16  # at least, if there are enough photos: so that no worker waits long for the last one
MAX_BLOCKS = 10_000  # what Ray schedules; each holds one part or more
STALE_SECONDS = 3_600  # age of an unfinished file that no worker can be writing any more


@dataclass(frozen=True)
class EmbeddedParts:
    """Counts of a call.

    Attributes:
        photos: embedded by this call.
        faces: found in them.
        without_embedding: rows with a reason instead of an embedding.
        known: photos that earlier calls have embedded.
        changed: photos that were embedded again, as their files have changed.
    """

    photos: int
    faces: int
    without_embedding: int
    known: int
    changed: int


def embed_with_ray(
    settings: EmbeddingSettings,
    sources: Sequence[str],
    folder: Path,
    *,
    workers: int | None = None,
    on_photos: Callable[[int, int], None] = lambda _done, _all: None,
) -> EmbeddedParts:
    """Embed all faces of the photos that a folder of Parquet files does not have yet.

    Photos are divided into parts. Each is embedded by one worker and written to one file, all at once, so that a part
    whose worker was killed can be repeated: no row is lost or doubled. Ray Data hands out the parts as workers become
    free, and again if a worker dies. It uses the cluster that the environment variable RAY_ADDRESS names, or starts one
    on this machine.

    Args:
        settings: model and detector; all workers have the model at this path.
        sources: photos, folders of photos, and shards as `familiar pack` writes them; the same paths on all workers.
        folder: of the Parquet files, see `parts`; created if it is missing.
        workers: processes that embed, one core each; None: as many as there are cores.
        on_photos: called after each part with the numbers of photos embedded and to be embedded.

    Raises:
        BadDataset: a Parquet file in the folder is damaged or none of ours.
        SpaceMismatch: the folder has embeddings of another model.
        CannotWrite: another process writes to the folder, or the system refuses.
        FamiliarError: Ray is not installed, or a part ended every worker that tried it.
    """
    require_pyarrow()
    photos, settings = list_photo_files(sources), settings.with_absolute_paths()
    model, detector = settings.open()
    embedded_with = settings.describe(model, detector)
    make_folder(folder)
    with _lock(folder):
        remove_unfinished_files(folder, STALE_SECONDS)
        missing = {photo.name: photo for photo in photos}
        changed = 0
        for path, states in read_states(folder, embedded_with):
            same = {name for name, state in states.items() if name in missing and missing[name].state == state}
            if outdated := [name for name in states if name in missing and name not in same]:
                remove_photos(path, outdated)
                changed += len(outdated)
            for name in same:
                del missing[name]
        counts = _embed_parts(settings, list(missing.values()), folder, workers or available_cores(), on_photos)
    return EmbeddedParts(*counts, known=len(photos) - len(missing), changed=changed)


def list_photo_files(sources: Iterable[str]) -> list[PhotoFile]:
    """List photos with the state of their files, each once.

    Raises:
        BadDataset: there is no shard, or a damaged one.
        UnreadablePhoto: no source that is not shards exists, or none has a photo.
    """
    photos: dict[str, PhotoFile] = {}
    files_and_folders: list[str] = []
    for source in sources:
        if names_shards(source):
            for photos_in_shards in scan_shards(source, Counter()).values():
                # In a shard two photos may have one name, but not one position.
                files = [PhotoFile(f"{photo}@{photo.position}", photo) for photo in photos_in_shards]
                photos |= {file.name: file for file in files}
        else:
            files_and_folders.append(source)
    for path in map(absolute_path, find_photos(files_and_folders) if files_and_folders else []):
        photos[str(path)] = _photo_file(path)
    return list(photos.values())


def divide(photos: Sequence[PhotoFile], workers: int) -> list[Sequence[PhotoFile]]:
    """Divide photos into parts of nearly equal size."""
    parts = max(-(-len(photos) // MAX_PART_PHOTOS), min(len(photos), workers * PARTS_PER_WORKER))
    bounds = [len(photos) * part // parts for part in range(parts + 1)] if parts else []
    return [photos[start:stop] for start, stop in pairwise(bounds)]


def _photo_file(path: Path) -> PhotoFile:
    try:
        status = path.stat()
    except OSError:  # the worker reports why
        return PhotoFile(str(path), path)
    return PhotoFile(str(path), path, status.st_size, status.st_mtime_ns)


def _embed_parts(
    settings: EmbeddingSettings,
    photos: Sequence[PhotoFile],
    folder: Path,
    workers: int,
    on_photos: Callable[[int, int], None],
) -> tuple[int, int, int]:
    parts = divide(photos, workers)
    if not parts:
        return 0, 0, 0
    done, faces, without_embedding = 0, 0, 0
    with _cluster(workers) as ray, _named_errors():
        rows = [{"part": pickle.dumps(list(part))} for part in parts]
        dataset = ray.data.from_items(rows, override_num_blocks=min(len(rows), MAX_BLOCKS)).map_batches(
            _RayWorker,
            fn_constructor_args=(settings, str(folder.absolute())),
            batch_size=1,
            batch_format="numpy",
            compute=ray.data.ActorPoolStrategy(size=min(workers, len(parts))),
            num_cpus=1,
        )
        for row in dataset.iter_rows():
            done, faces = done + row["photos"], faces + row["faces"]
            without_embedding += row["without_embedding"]
            on_photos(done, len(photos))
    return done, faces, without_embedding


class _RayWorker:
    """What Ray Data constructs once in each worker and calls with rows of parts."""

    def __init__(self, settings: EmbeddingSettings, folder: str) -> None:
        cv2.setNumThreads(1)  # the other cores have workers of their own
        self.embedder = PartEmbedder(settings, Path(folder))

    def __call__(self, rows: dict[str, Any]) -> dict[str, list[int]]:
        counts = [self.embedder.embed_part(pickle.loads(part)) for part in rows["part"]]
        names = ("photos", "faces", "without_embedding")
        return {name: list(column) for name, column in zip(names, zip(*counts, strict=True), strict=True)}


@contextmanager
def _cluster(workers: int) -> Iterator[Any]:
    """Connect to a Ray cluster, or start one of this process."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it reports to its makers otherwise
    try:
        import ray
        import ray.data
    except ModuleNotFoundError as error:
        raise FamiliarError("--engine ray needs Ray: pip install 'familiar-faces[ray]'") from error
    is_ours = not ray.is_initialized()
    if is_ours:
        local = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": workers, "include_dashboard": False}
        with _without_usage_server():
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **local)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        yield ray
    finally:
        if is_ours:
            ray.shutdown()


@contextmanager
def _without_usage_server() -> Iterator[None]:
    """Keep Ray from starting the process for its statistics of usage.

    It is started without a dashboard, too; and even if it is to report nothing, it asks addresses of three clouds which
    of them this machine is in. No setting of Ray prevents that.
    """
    import ray._private.node

    with patch.object(ray._private.node.Node, "start_api_server", lambda *_, **__: None):
        yield


@contextmanager
def _named_errors() -> Iterator[None]:
    """Raise the error of a worker as it was there, without Ray's traceback."""
    import ray.exceptions

    try:
        yield
    except FamiliarError:
        raise
    except ray.exceptions.RayError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, FamiliarError):
            cause = getattr(cause, "cause", None) or cause.__cause__
        if cause is not None:
            raise cause from error
        raise FamiliarError(
            f"the workers of Ray stopped ({str(error).splitlines()[0]}); repeat the command to embed what is missing"
        ) from error


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    try:
        with FileLock(folder / ".lock", timeout=0):
            yield
    except Timeout as error:
        raise CannotWrite(f"{folder}: another process is embedding photos into it; wait until it has ended") from error
