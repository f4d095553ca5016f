"""Five tasks on a small gallery whose process may be killed at any time, and the invariants that must hold afterwards.

After a kill the gallery must equal one of the states that the uninterrupted task goes through: `rehearse` records them
by revision. `killed` runs the task in its own process, kills it and checks the gallery.
"""

import contextlib
import shutil
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from PIL import Image

from familiar.core.calibration import Calibration, Threshold
from familiar.core.vectors import normalize
from familiar.embedding.bundle import Bundle, BundleMetadata
from familiar.embedding.embedder import Embedder
from familiar.gallery.clustering.cluster import cluster
from familiar.gallery.database.connection import DATABASE, Gallery, Space
from familiar.gallery.database.repository import Repository
from familiar.gallery.editing.corrections import merge, name_identity
from familiar.gallery.editing.forget import forget_identity, forget_photos
from familiar.gallery.enrollment.enroll import enroll, enroll_embeddings
from familiar.gallery.transfer.migrate import migrate
from familiar.photos.preprocessing import Preprocessing

PHOTOS = 40
INDIVIDUALS = 24
EACH = 5  # faces per individual
PARTS = 6  # batches in which individuals are enrolled
WIDTH, NEXT_WIDTH = 16, 12  # of embeddings, before and after a migration
_TIMEOUT_SECONDS = 60.0

Contents = dict[str, list[tuple[object, ...]]]


@dataclass(frozen=True)
class Scenario:
    """A task on a gallery.

    `prepare` creates the initial gallery; the task continues from wherever it was interrupted. The SQL of
    `violation_queries` selects states that must never be visible between two transactions.
    """

    prepare: Callable[[Path, Path], None]  # the gallery's folder, that of the photos
    work: Callable[[Gallery, Path], None]
    violation_queries: tuple[str, ...]


@dataclass(frozen=True)
class UninterruptedRun:
    """An uninterrupted task: its duration, and the gallery's contents at each revision."""

    seconds: float
    contents: dict[int, Contents]


@dataclass(frozen=True)
class KillResult:
    """Outcome of one kill.

    Whether it hit a transaction (or the purging of deleted data) or came after the task's end; the last revision that
    was `acknowledged`; and the problems found afterwards.
    """

    in_transaction: bool
    after_end: bool
    acknowledged: int
    wrong: tuple[str, ...]


# --- the tasks -----------------------------------------------------------------------------------------------------


def embedder(space: str = "old", width: int = WIDTH) -> Embedder:
    """Create an embedder of mean colors of a photo's parts, so that a row never depends on its batch."""
    threshold = Threshold(0.8, 0.001, 0.9)
    metadata = BundleMetadata(
        space_id=space,
        embedding_dim=width,
        preprocessing=Preprocessing(size_px=224, resize_px=224, mean=(0.5,) * 3, std=(0.25,) * 3),
        calibration=Calibration(threshold, threshold, threshold, 8.0, -6.0, 0.1, 99, 99),
        prefixes=(width,),
        recipe="none",
        network="mean colors",
        precision="float32",
        trained_on={},
        results={},
        parity={},
        license="Apache-2.0",
    )

    def network(images: np.ndarray) -> np.ndarray:
        return np.stack([_unit(image.reshape(3, 4, 56, 4, 56).mean(axis=(2, 4))) for image in images])

    def _unit(colors: np.ndarray) -> np.ndarray:
        turned = colors.reshape(-1)[::-1] if space == "new" else colors.reshape(-1)
        return normalize(turned[None, :width])[0]

    return Embedder(Bundle(Path("none"), b"", "none", metadata), threads=1, network=network)


def draw_photos(folder: Path) -> None:
    rng = np.random.default_rng(0)
    folder.mkdir()
    for number in range(PHOTOS):
        tiles = Image.fromarray(rng.integers(0, 256, (4, 4, 3), np.uint8))
        tiles.resize((64, 64), Image.Resampling.NEAREST).save(folder / f"{number:03}.png")


def individuals() -> np.ndarray:
    """Draw unit embeddings "individuals each width": cosine .99 within an individual, less than .8 between two."""
    rng = np.random.default_rng(1)
    centers = normalize(rng.normal(size=(1000, WIDTH)).astype(np.float32))
    chosen: list[np.ndarray] = []
    for center in centers:
        if len(chosen) < INDIVIDUALS and all(center @ other < 0.5 for other in chosen):
            chosen.append(center)
    noise = rng.normal(size=(INDIVIDUALS, EACH, WIDTH), scale=0.02).astype(np.float32)
    return normalize((np.stack(chosen)[:, None] + noise).reshape(-1, WIDTH)).reshape(INDIVIDUALS, EACH, WIDTH)


def _enroll_part(gallery: Gallery, part: int) -> None:
    numbers = range(part, INDIVIDUALS, PARTS)
    rows = individuals()[list(numbers)].reshape(-1, WIDTH)
    names = [f"{number:02} {face}" for number in numbers for face in range(EACH)]
    enroll_embeddings(gallery, rows, names, "old")


def _empty(folder: Path, _: Path) -> None:
    Gallery.create(folder, Space.from_metadata(embedder().metadata)).close()


def _grouped(folder: Path, photos: Path) -> None:
    _empty(folder, photos)
    with Gallery.open(folder) as gallery:
        for part in range(PARTS):
            _enroll_part(gallery, part)
        cluster(gallery)
        for number in range(1, INDIVIDUALS + 1, 2):
            name_identity(gallery, number, f"number {number}", confirm=True)


def _with_photos(folder: Path, photos: Path) -> None:
    _empty(folder, photos)
    with Gallery.open(folder) as gallery:
        _enroll(gallery, photos, vectors=False)
        cluster(gallery, threshold=0.2)


def _enroll(gallery: Gallery, photos: Path, vectors: bool = True) -> None:
    enroll(gallery, embedder(), sorted(photos.iterdir()))
    for part in range(PARTS if vectors else 0):
        _enroll_part(gallery, part)


def _group(gallery: Gallery, _: Path) -> None:
    for part in range(PARTS):
        _enroll_part(gallery, part)
        cluster(gallery)


def _merge(gallery: Gallery, _: Path) -> None:
    for number in range(1, INDIVIDUALS, 2):
        if number + 1 in _identities(gallery):
            merge(gallery, number, [number + 1])


def _forget(gallery: Gallery, _: Path) -> None:
    for number in range(1, INDIVIDUALS + 1):
        if number % 3 == 1 and number in _identities(gallery):
            forget_identity(gallery, number)
    with gallery.reading() as repository:
        going = repository.connection.execute("SELECT path FROM photos WHERE path LIKE '%/02 _'").fetchall()
    if going:
        forget_photos(gallery, [Path(path) for (path,) in going])


def _migrate(gallery: Gallery, _: Path) -> None:
    migrate(gallery, embedder("new", NEXT_WIDTH))


def _identities(gallery: Gallery) -> set[int]:
    with gallery.reading() as repository:
        return {row[0] for row in repository.connection.execute("SELECT id FROM identities")}


_SIZES = "SELECT identity_id, count(*) AS faces FROM assignments GROUP BY identity_id"
_ALWAYS = (
    "SELECT 'a decision is half made' FROM gallery WHERE open_decision IS NOT NULL",
    "SELECT 'an embedding of another width: ' || faces.id FROM faces, gallery "
    "WHERE length(embedding) <> 2 * json_extract(space, '$.embedding_dim')",
    "SELECT 'an identity without faces: ' || id FROM identities WHERE id NOT IN (SELECT identity_id FROM assignments)",
)
_PHOTO_WITHOUT_FACE = (
    "SELECT 'a photo without its face: ' || path FROM photos WHERE id NOT IN (SELECT photo_id FROM faces)"
)
WALKS = {
    "enroll": Scenario(_empty, _enroll, (_PHOTO_WITHOUT_FACE,)),
    "group": Scenario(
        _empty,
        _group,
        (_PHOTO_WITHOUT_FACE, f"SELECT 'half a cluster: ' || identity_id FROM ({_SIZES}) WHERE faces <> {EACH}"),
    ),
    "merge": Scenario(
        _grouped,
        _merge,
        (
            _PHOTO_WITHOUT_FACE,
            f"SELECT 'half a merge: ' || identity_id FROM ({_SIZES}) WHERE faces NOT IN ({EACH}, {2 * EACH})",
            f"SELECT 'a merge without constraint' WHERE (SELECT count(*) FROM ({_SIZES}) WHERE faces = {2 * EACH}) "
            "<> (SELECT count(*) FROM constraints WHERE same = 1)",
            "SELECT 'a name is lost' WHERE (SELECT count(name) FROM identities) <> "
            f"{len(range(1, INDIVIDUALS + 1, 2))}",
        ),
    ),
    "forget": Scenario(
        _grouped,
        _forget,
        (
            "SELECT 'half forgotten: ' || substr(path, 1, 2) FROM photos LEFT JOIN faces ON photo_id = photos.id "
            f"GROUP BY substr(path, 1, 2) HAVING count(faces.id) NOT IN (0, {EACH})",
            "SELECT 'a face without identity: ' || id FROM faces WHERE id NOT IN (SELECT face_id FROM assignments)",
            "SELECT 'forgotten faces may still be on the disk' FROM gallery WHERE erasure_due",
        ),
    ),
    "migrate": Scenario(
        _with_photos,
        _migrate,
        (
            _PHOTO_WITHOUT_FACE,
            "SELECT 'half migrated' FROM gallery WHERE json_extract(space, '$.space_id') = 'new' AND "
            "(EXISTS (SELECT 1 FROM migration) OR EXISTS (SELECT 1 FROM next_embeddings))",
        ),
    ),
}


# --- invariants of the contents -------------------------------------------------------------------------


def contents(gallery: Gallery) -> Contents:
    """Read every row of every table, except when decisions were made."""
    with gallery.reading() as repository:
        tables = [
            row[0]
            for row in repository.connection.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
            )
        ]
        rows_by_table = {
            table: repository.connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in tables
        }
        rows_by_table["decisions"] = repository.connection.execute(
            "SELECT id, kind FROM decisions ORDER BY id"
        ).fetchall()
    return rows_by_table


def in_the_end(rows_by_table: Contents) -> list[object]:
    """Reduce contents to what repeated runs share: a restarted task uses up more ids of photos and decisions."""
    photo_by_id = {row[0]: row[1:3] for row in rows_by_table["photos"]}
    faces = [(*photo_by_id[row[1]], row[0], *row[2:]) for row in rows_by_table["faces"]]
    tables = [rows_by_table[table] for table in ("identities", "assignments", "constraints", "rejections", "migration")]
    return [sorted(photo_by_id.values()), sorted(faces), *tables, rows_by_table["gallery"][0][2:5]]


def broken(walk: Scenario, gallery: Gallery) -> list[str]:
    """List violated invariants; empty if there are none."""
    with gallery.reading() as repository:
        wrong = [row[0] for row in repository.connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
        wrong += [f"dangling: {row}" for row in repository.connection.execute("PRAGMA foreign_key_check")]
        for query in (*_ALWAYS, *walk.violation_queries):
            wrong += [row[0] for row in repository.connection.execute(query)]
    return wrong


def problems_after_kill(walk: Scenario, gallery: Gallery, rehearsed: UninterruptedRun, acknowledged: int) -> list[str]:
    """List the problems of a gallery whose task was killed; empty if there are none."""
    wrong = broken(walk, gallery)
    revision, current = gallery.revision, contents(gallery)
    if revision < acknowledged:
        wrong.append(f"revision {acknowledged} was acknowledged, {revision} is there")
    if revision not in rehearsed.contents:
        wrong.append(f"revision {revision} does not occur in the uninterrupted task")
    else:
        expected = rehearsed.contents[revision]
        changed = [table for table in current if current[table] != expected[table]]
        wrong += [f"{table} differs from revision {revision}" for table in changed]
    return wrong + _deleted_faces_on_disk(gallery, rehearsed)


def _deleted_faces_on_disk(gallery: Gallery, rehearsed: UninterruptedRun) -> list[str]:
    """List deleted faces whose embeddings are still in the files."""
    first = rehearsed.contents[min(rehearsed.contents)]["faces"]
    present = {row[0] for row in contents(gallery)["faces"]}
    files = [gallery.folder / DATABASE, gallery.folder / f"{DATABASE}-wal"]
    on_disk = b"".join(file.read_bytes() for file in files if file.exists())
    return [f"face {row[0]} is still on the disk" for row in first if row[0] not in present and row[-1] in on_disk]


# --- killing -------------------------------------------------------------------------------------------------------


class _ReportingGallery(Gallery):
    """A gallery that reports when each transaction begins and when it is durable."""

    def __init__(self, opened: Gallery, tell: Callable[[str], None]) -> None:
        super().__init__(opened.folder, opened._connection, opened._file)
        self._tell = tell

    @contextlib.contextmanager
    def writing(self, *, faces_change: bool = False) -> Generator[Repository, None, None]:
        self._tell("begun")
        with super().writing(faces_change=faces_change) as repository:
            yield repository
        self._tell(str(self.revision))

    def purge_deleted(self) -> bool:
        self._tell("begun")
        erased = super().purge_deleted()
        self._tell(str(self.revision))
        return erased


def rehearse(walk: str, start: Path, photos: Path, scratch: Path) -> UninterruptedRun:
    """Create the initial gallery in `start`, and run the task uninterrupted in copies of it."""
    WALKS[walk].prepare(start, photos)
    seen: dict[int, Contents] = {}
    shutil.copytree(start, scratch)
    with Gallery.open(scratch) as opened:
        seen[opened.revision] = contents(opened)
        watched = _ReportingGallery(
            opened, lambda word: seen.update({int(word): contents(opened)}) if word.isdecimal() else None
        )
        WALKS[walk].work(watched, photos)
    shutil.rmtree(scratch)
    seconds = min(_timed(walk, start, photos, scratch) for _ in range(4))
    return UninterruptedRun(seconds, seen)


def _timed(walk: str, start: Path, photos: Path, scratch: Path) -> float:
    shutil.copytree(start, scratch)
    with _process_at_work(walk, scratch, photos) as (_, heard):
        started = time.perf_counter()
        while (word := _next(heard)) not in ("", "done"):
            pass
        seconds = time.perf_counter() - started
    assert word == "done", f"{walk}: ended before it was done"
    shutil.rmtree(scratch)
    return seconds


def killed(
    walk: str, rehearsed: UninterruptedRun, start: Path, photos: Path, scratch: Path, after: float
) -> KillResult:
    """Kill the task `after` seconds, check the gallery, and run the task again to its end."""
    shutil.copytree(start, scratch)
    with _process_at_work(walk, scratch, photos) as (kill, heard):
        time.sleep(after)
        kill()
        words: list[str] = []
        while word := _next(heard):
            words.append(word)
    acknowledged = max([int(word) for word in words if word.isdecimal()], default=0)
    wrong: list[str] = []
    try:
        with Gallery.open(scratch) as gallery:
            wrong += problems_after_kill(WALKS[walk], gallery, rehearsed, acknowledged)
            WALKS[walk].work(gallery, photos)
            last = rehearsed.contents[max(rehearsed.contents)]
            if in_the_end(contents(gallery)) != in_the_end(last):
                wrong.append("the restarted task ended in a different state")
    except Exception as error:  # any error is a result of the benchmark
        wrong.append(f"{type(error).__name__}: {error}")
    shutil.rmtree(scratch)
    return KillResult(words[-1:] == ["begun"], "done" in words, acknowledged, tuple(wrong))


@contextlib.contextmanager
def _process_at_work(
    walk: str, folder: Path, photos: Path
) -> Generator[tuple[Callable[[], None], Connection], None, None]:
    """Start the task in a process; yield a function that kills it, and the pipe with its reports."""
    context = get_context("forkserver")  # forks a process that has already imported the modules
    context.set_forkserver_preload(
        ["familiar.gallery.editing.corrections", "familiar.gallery.transfer.migrate", "PIL.Image"]
    )
    heard, tells = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(walk, folder, photos, tells))
    process.start()
    tells.close()
    try:
        assert _next(heard) == "ready", f"{walk}: did not start"
        yield process.kill, heard
    finally:
        process.kill()
        process.join(_TIMEOUT_SECONDS)
        process.close()
        heard.close()


def _work(walk: str, folder: Path, photos: Path, tells: Connection) -> None:
    def tell(word: str) -> None:
        tells.send_bytes(word.encode())

    embedder()  # loads what the task needs before the time is measured
    tell("ready")
    with Gallery.open(folder) as opened:
        WALKS[walk].work(_ReportingGallery(opened, tell), photos)
    tell("done")


def _next(heard: Connection) -> str:
    """Return the process's next report; empty if it has died."""
    assert heard.poll(_TIMEOUT_SECONDS), "the process hangs"
    try:
        return heard.recv_bytes().decode()
    except EOFError:
        return ""
