"""Embedding by the workers of a Ray cluster, or of one that Ray starts on this machine."""

import logging
import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import filterfalse
from pathlib import Path
from unittest.mock import patch

import ray
import ray._private.node
import ray.data
import ray.exceptions
from filelock import FileLock, Timeout

from familiar import CannotWrite, FamiliarError, datasets, detector_for, find_photos
from familiar.integrations.ray.parts import DRAFT, PhotoFile, read_states, remove_photos
from familiar.integrations.ray.worker import EmbeddingSettings, Worker

MAX_PART_PHOTOS = 1_000  # what a killed worker loses is a part
PARTS_PER_WORKER = 16  # at least, if there are enough photos: so that no worker waits long for the last one


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
    exclude: Sequence[str] = (),
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
        exclude: patterns of files and folders to leave out, as for `find_photos`.
        on_photos: called after each part with the numbers of photos embedded and to be embedded.

    Raises:
        BadDataset: a Parquet file in the folder is damaged or none of ours.
        SpaceMismatch: the folder has embeddings of another model.
        CannotWrite: another process writes to the folder, or the system refuses.
        FamiliarError: a part ended every worker that tried it.
    """
    photos = list_photo_files(sources, exclude)
    model, detector, embedded_with = settings.open()
    if settings.detector is None:
        files = [photo.photo for photo in photos]
        chosen = detector_for(model, files, None, settings.detector_model, open_photo=datasets.open_photo)
        if type(chosen) is not type(detector):  # crops already, which the workers take as they are
            settings = replace(settings, detector="none")
            _, _, embedded_with = settings.open()
    detector_model = settings.detector_model and settings.detector_model.absolute()
    settings = replace(settings, models=model.names, detector_model=detector_model)  # a worker's folder is another
    with _lock(folder):
        for draft in folder.glob(f"{DRAFT}*"):  # of workers that were killed
            draft.unlink(missing_ok=True)
        missing = {photo.name: photo for photo in photos}
        counts = Counter(photos=0, faces=0, without_embedding=0, changed=0)
        for path in sorted(folder.glob("*.parquet")):
            known = {name: state for name, state in read_states(path, embedded_with).items() if name in missing}
            if outdated := {name for name, state in known.items() if missing[name].state != state}:
                remove_photos(path, outdated)
                counts["changed"] += len(outdated)
            for name in known.keys() - outdated:
                del missing[name]
        for part in _embed_parts(settings, list(missing.values()), folder.absolute(), workers or model.threads):
            counts.update(part)
            on_photos(counts["photos"], len(missing))
    return EmbeddedParts(**counts, known=len(photos) - len(missing))


def list_photo_files(sources: Sequence[str], exclude: Sequence[str] = ()) -> list[PhotoFile]:
    """List photos with the state of their files, each once.

    Raises:
        BadDataset: there is no shard, or a damaged one.
        UnreadablePhoto: no source that is not shards exists, or none has a photo.
    """
    files: list[PhotoFile] = []
    for source in filter(datasets.names_shards, sources):
        for photo in datasets.scan_shards(source, Counter()).photos:
            assert isinstance(photo, datasets.ShardPhoto)
            # In a shard two photos may have one name, but not one position.
            files.append(PhotoFile(f"{photo}@{photo.position}", photo))
    files_and_folders = list(filterfalse(datasets.names_shards, sources))
    for path in find_photos(files_and_folders, exclude=exclude) if files_and_folders else []:
        absolute = os.path.abspath(path)  # noqa: PTH100 - `resolve` would follow links, `absolute` keeps `..`
        state = 0, 0
        with suppress(OSError):  # the worker reports why
            state = (status := path.stat()).st_size, status.st_mtime_ns
        files.append(PhotoFile(absolute, Path(absolute), state))
    return list({file.name: file for file in files}.values())


def _embed_parts(
    settings: EmbeddingSettings, photos: Sequence[PhotoFile], folder: Path, workers: int
) -> Iterator[dict[str, int]]:
    """Yield the counts of each part that is embedded."""
    if not photos:
        return
    parts = max(-(-len(photos) // MAX_PART_PHOTOS), min(len(photos), workers * PARTS_PER_WORKER))
    with _cluster(workers):
        rows = [{"photo": pickle.dumps(photo)} for photo in photos]
        dataset = ray.data.from_items(rows, override_num_blocks=parts).map_batches(
            Worker,
            fn_constructor_args=(settings, folder),
            batch_size=None,  # the whole block, which is a part
            batch_format="numpy",
            compute=ray.data.ActorPoolStrategy(size=min(workers, parts)),
            num_cpus=1,
        )
        for row in dataset.iter_rows():
            result = pickle.loads(row["result"])
            if isinstance(result, FamiliarError):
                raise result
            yield result


@contextmanager
def _cluster(workers: int) -> Iterator[None]:
    """Connect to a Ray cluster, or start one of this process."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it reports to its makers otherwise
    is_ours = not ray.is_initialized()
    if is_ours:
        local = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": workers, "include_dashboard": False}
        # Keeps Ray from starting the process for its statistics of usage, which is started without a dashboard, too;
        # and even if it is to report nothing, it asks addresses of three clouds which of them this machine is in. No
        # setting of Ray prevents that.
        with patch.object(ray._private.node.Node, "start_api_server", lambda *_, **__: None):
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **local)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        yield
    except ray.exceptions.RayError as error:
        cause = str(error).strip().rpartition("\n")[2]  # of a traceback
        raise FamiliarError(f"Ray's workers stopped ({cause}); repeat the command to embed what is missing") from error
    finally:
        if is_ours:
            ray.shutdown()


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Create a folder, and keep other commands from writing to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock").acquire(timeout=0)
    except Timeout as error:
        raise CannotWrite(f"{folder}: another process is embedding photos into it; wait until it has ended") from error
    except OSError as error:
        raise CannotWrite(f"{folder}: cannot be written ({error.strerror or error})") from error
    with lock:
        yield
