"""Five tasks on a small gallery, and the invariants that must hold whenever their process is killed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from familiar.core.calibration import Calibration, Threshold
from familiar.core.vectors import normalize
from familiar.embedding.bundle import Bundle, BundleMetadata
from familiar.embedding.embedder import Embedder
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits.corrections import merge, name_identity
from familiar.gallery.edits.forget import forget_identity
from familiar.gallery.enroll.enroll import enroll, enroll_embeddings
from familiar.gallery.store.connection import find_damage
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.gallery.transfer.migrate import migrate
from familiar.photos.preprocessing import Preprocessing, standardize

PHOTOS = 40
INDIVIDUALS = 24
FACES = 5  # per individual
BATCHES = 6  # batches in which individuals are enrolled
WIDTH, NEXT_WIDTH = 16, 12  # of embeddings, before and after a migration

Contents = dict[str, list[tuple[object, ...]]]


@dataclass(frozen=True)
class Scenario:
    """A task on a gallery.

    `prepare` creates the initial gallery; the task continues from wherever it was interrupted. The SQL of
    `violation_queries` selects states that must never be visible between two transactions.
    """

    prepare: Callable[[Path, Path], None]  # the gallery's folder, that of the photos
    run: Callable[[Store, Path], None]
    violation_queries: tuple[str, ...]


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

    def network(crops_u8: np.ndarray) -> np.ndarray:
        images = standardize(crops_u8, metadata.preprocessing)
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


def draw_individuals() -> np.ndarray:
    """Draw unit embeddings "individuals each width": cosine .99 within an individual, less than .8 between two."""
    rng = np.random.default_rng(1)
    centers = normalize(rng.normal(size=(1000, WIDTH)).astype(np.float32))
    chosen: list[np.ndarray] = []
    for center in centers:
        if len(chosen) < INDIVIDUALS and all(center @ other < 0.5 for other in chosen):
            chosen.append(center)
    noise = rng.normal(size=(INDIVIDUALS, FACES, WIDTH), scale=0.02).astype(np.float32)
    return normalize((np.stack(chosen)[:, None] + noise).reshape(-1, WIDTH)).reshape(INDIVIDUALS, FACES, WIDTH)


def _enroll_part(gallery: Store, part: int) -> None:
    numbers = range(part, INDIVIDUALS, BATCHES)
    rows = draw_individuals()[list(numbers)].reshape(-1, WIDTH)
    names = [f"{number:02} {face}" for number in numbers for face in range(FACES)]
    enroll_embeddings(gallery, rows, names, "old")


def _empty_gallery(folder: Path, _: Path) -> None:
    Store.create(folder, Space.from_metadata(embedder().metadata)).close()


def _clustered_gallery(folder: Path, photos: Path) -> None:
    _empty_gallery(folder, photos)
    with Store.open(folder) as gallery:
        for part in range(BATCHES):
            _enroll_part(gallery, part)
        cluster(gallery)
        for number in range(1, INDIVIDUALS + 1, 2):
            name_identity(gallery, number, f"number {number}", confirm=True)


def _gallery_with_photos(folder: Path, photos: Path) -> None:
    _empty_gallery(folder, photos)
    with Store.open(folder) as gallery:
        _enroll(gallery, photos, vectors=False)
        cluster(gallery, threshold=0.2)


def _enroll(gallery: Store, photos: Path, vectors: bool = True) -> None:
    enroll(gallery, embedder(), sorted(photos.iterdir()))
    for part in range(BATCHES if vectors else 0):
        _enroll_part(gallery, part)


def _cluster(gallery: Store, _: Path) -> None:
    for part in range(BATCHES):
        _enroll_part(gallery, part)
        cluster(gallery)


def _merge(gallery: Store, _: Path) -> None:
    for number in range(1, INDIVIDUALS, 2):
        if number + 1 in _identities(gallery):
            merge(gallery, number, [number + 1])


def _forget(gallery: Store, _: Path) -> None:
    for number in range(1, INDIVIDUALS + 1):
        if number % 3 == 1 and number in _identities(gallery):
            forget_identity(gallery, number)


def _migrate(gallery: Store, _: Path) -> None:
    migrate(gallery, embedder("new", NEXT_WIDTH))


def _identities(gallery: Store) -> set[int]:
    with gallery.read() as repository:
        return {number for (number,) in repository.connection.rows("SELECT id FROM identities")}


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
SCENARIOS = {
    "enroll": Scenario(_empty_gallery, _enroll, (_PHOTO_WITHOUT_FACE,)),
    "cluster": Scenario(
        _empty_gallery,
        _cluster,
        (_PHOTO_WITHOUT_FACE, f"SELECT 'half a cluster: ' || identity_id FROM ({_SIZES}) WHERE faces <> {FACES}"),
    ),
    "merge": Scenario(
        _clustered_gallery,
        _merge,
        (
            _PHOTO_WITHOUT_FACE,
            f"SELECT 'half a merge: ' || identity_id FROM ({_SIZES}) WHERE faces NOT IN ({FACES}, {2 * FACES})",
            f"SELECT 'a merge without constraint' WHERE (SELECT count(*) FROM ({_SIZES}) WHERE faces = {2 * FACES}) "
            "<> (SELECT count(*) FROM constraints WHERE same = 1)",
            "SELECT 'a name is lost' WHERE (SELECT count(name) FROM identities) <> "
            f"{len(range(1, INDIVIDUALS + 1, 2))}",
        ),
    ),
    "forget": Scenario(
        _clustered_gallery,
        _forget,
        (
            "SELECT 'half forgotten: ' || substr(path, 1, 2) FROM photos LEFT JOIN faces ON photo_id = photos.id "
            f"GROUP BY substr(path, 1, 2) HAVING count(faces.id) NOT IN (0, {FACES})",
            "SELECT 'a face without identity: ' || id FROM faces WHERE id NOT IN (SELECT face_id FROM assignments)",
            "SELECT 'forgotten faces may still be on the disk' FROM forgotten",
        ),
    ),
    "migrate": Scenario(
        _gallery_with_photos,
        _migrate,
        (
            _PHOTO_WITHOUT_FACE,
            "SELECT 'half migrated' FROM gallery WHERE json_extract(space, '$.space_id') = 'new' AND "
            "(next_space IS NOT NULL OR EXISTS (SELECT 1 FROM next_embeddings))",
        ),
    ),
}


# --- invariants of the contents -------------------------------------------------------------------------


def contents(gallery: Store) -> Contents:
    """Read every row of every table, except when decisions were made and events happened."""
    with gallery.read() as repository:
        connection = repository.connection
        tables = connection.rows("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        rows_by_table: Contents = {table: connection.rows(f"SELECT * FROM {table} ORDER BY 1") for (table,) in tables}
        rows_by_table["decisions"] = connection.rows("SELECT id, kind FROM decisions ORDER BY id")
        rows_by_table["events"] = connection.rows("SELECT id, kind, identity_id, body FROM events ORDER BY id")
    return rows_by_table


def comparable_contents(rows_by_table: Contents) -> list[object]:
    """Reduce contents to what repeated runs share: a restarted task uses up more ids of photos and decisions."""
    photo_by_id = {row[0]: row[1:3] for row in rows_by_table["photos"]}
    faces = [(*photo_by_id[row[1]], row[0], *row[2:]) for row in rows_by_table["faces"]]
    tables = [rows_by_table[table] for table in ("identities", "assignments", "constraints", "rejections")]
    return [sorted(photo_by_id.values()), sorted(faces), *tables, rows_by_table["gallery"][0][2:5]]


def violated_invariants(scenario: Scenario, gallery: Store) -> list[str]:
    """List violated invariants; empty if there are none."""
    with gallery.read() as repository:
        problems = find_damage(repository.connection)
        for query in (*_ALWAYS, *scenario.violation_queries):
            problems += [str(problem) for (problem,) in repository.connection.rows(query)]
    return problems
