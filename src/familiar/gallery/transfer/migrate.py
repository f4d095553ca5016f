"""A gallery from one model to another: every name, constraint and correction stays, the embeddings become others.

New embeddings gather beside the old ones, a batch at a time, and take their place in one transaction at the end. Until
then the gallery is used as ever; a call that was cut short is gone on with by the same call.

Of faces that were moved or deleted by hand the log of decisions holds embeddings of the old model, which nothing would
compare with. So what was decided up to the last of these cannot be undone any more; what was decided since can.
"""

import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from familiar.core.errors import FamiliarError, GalleryBusy, NothingToMeasure, SpaceMismatch
from familiar.core.files import content_sha256
from familiar.core.types import Crop, Detection
from familiar.core.vectors import Bridge, normalize, prefix, ridge_bridge
from familiar.detection.alignment import align
from familiar.embedding.embedder import Embedder
from familiar.gallery.clustering.calibration import calibrate
from familiar.gallery.database.connection import FaceTable, Gallery, Space
from familiar.gallery.editing.undo_log import delete_empty_decisions
from familiar.photos.decoding import load_photo
from familiar.photos.preprocessing import Preprocessing, to_tensor

MIN_BRIDGE_PAIRS = 50  # faces embedded by both models: fewer say too little of how the spaces lie to each other
HELD_OUT = 5  # every so many-th of them tells how well the bridge does


@dataclass(frozen=True)
class MigrationResult:
    """How the faces came over: from their `photos`, by their first components (`prefix`), or over a `bridge`.

    `bridge_cosine`: of bridged faces with the new model's own embedding of them, over faces that the bridge was not
    fitted on; None where none was needed.
    """

    photos: int
    prefix: int
    bridge: int
    bridge_cosine: float | None


@dataclass(frozen=True, eq=False)
class _Stored:
    """A face as it lies in the gallery."""

    face: int
    path: str
    sha256: bytes
    box_xyxy_px: tuple[float, float, float, float]
    detection: Detection | None  # None of a face that came as a vector


def migrate(
    gallery: Gallery,
    embedder: Embedder,
    *,
    flip: bool = False,
    on_batch: Callable[[int], None] = lambda _: None,
) -> MigrationResult:
    """Takes a gallery over to another model.

    Where the new model speaks the same space with fewer numbers, one of the old model's valid prefixes, the stored
    vectors are cut. Else each photo that is still where it was, unchanged, is embedded anew, its faces where they were
    found; and the others are carried over a bridge learned from those, if they are fifty or more. `on_batch` is told
    the number of faces done.

    GalleryBusy where another process migrates it meanwhile. FamiliarError where a photo is gone and no bridge can be
    learned: nothing is swapped then, and what was embedded is kept for the next call. The gallery's own calibration is
    fitted again, if it had one and enough is confirmed.
    """
    old, new = gallery.space, Space.from_metadata(embedder.metadata)
    if new.space_id == old.space_id:
        return _cut(gallery, old, new)
    _begin(gallery, new)
    cosine: float | None = None
    while True:
        waiting = _waiting(gallery)
        gone = _embed_anew(gallery, new, embedder, waiting, flip, on_batch)
        cosine = _bridge(gallery, new, gone) if gone else cosine
        if (migrated := _swap(gallery, new, cosine)) is not None:
            _calibrate_again(gallery, migrated[1])
            return migrated[0]
        # Another process has enrolled photos meanwhile.


def _cut(gallery: Gallery, old: Space, new: Space) -> MigrationResult:
    if new.embedding_dim == old.embedding_dim:
        shorter = None
    elif new.embedding_dim in old.prefixes:
        shorter = new.embedding_dim
    else:
        raise SpaceMismatch(
            f"{gallery.folder}: its model's valid prefixes are {', '.join(map(str, old.prefixes))}, not "
            f"{new.embedding_dim}; migrate to a model of one of these lengths"
        )
    with gallery.writing(faces_change=True) as connection:
        faces = gallery.faces()
        if shorter is not None:
            rows = gallery.encode_embeddings(prefix(faces.unit_rows(), shorter)) if len(faces.ids) else []
            connection.executemany(
                "UPDATE faces SET embedding = ? WHERE id = ?", zip(rows, faces.ids.tolist(), strict=True)
            )
            _drop_embeddings_of_the_log(connection)
        had_own = connection.execute("SELECT own_calibration IS NOT NULL FROM gallery").fetchone()[0]
        _forget_kinds(connection)
        connection.execute("UPDATE gallery SET space = ?, own_calibration = NULL", (new.to_json(),))
    _calibrate_again(gallery, bool(had_own))
    return MigrationResult(0, len(faces.ids) if shorter else 0, 0, None)


def _begin(gallery: Gallery, new: Space) -> None:
    """What was gathered for another model is of no use."""
    with gallery.writing() as connection:
        row = connection.execute("SELECT space FROM migration").fetchone()
        if row is None or Space.from_json(row[0]) != new:
            connection.execute("DELETE FROM next_embeddings")
            connection.execute("DELETE FROM migration")
            connection.execute("INSERT INTO migration (id, space) VALUES (1, ?)", (new.to_json(),))
        connection.execute("DELETE FROM next_embeddings WHERE origin = 'bridge'")  # their photos may be back


def _waiting(gallery: Gallery) -> list[_Stored]:
    with gallery.reading() as connection:
        rows = connection.execute(
            "SELECT faces.id, path, sha256, left_px, top_px, right_px, bottom_px, landmarks_px, score FROM faces "
            "JOIN photos ON photos.id = photo_id WHERE faces.id NOT IN (SELECT face_id FROM next_embeddings) "
            "ORDER BY photo_id, faces.id"
        ).fetchall()
    return [
        _Stored(face, path, sha256, tuple(box), _detection(box, landmarks, score))
        for face, path, sha256, *box, landmarks, score in rows
    ]


def _detection(box: Sequence[float], landmarks: bytes | None, score: float) -> Detection | None:
    left, top, right, bottom = box
    if left >= right:
        return None
    points = None if landmarks is None else np.frombuffer(landmarks, "<f4").reshape(5, 2).astype(np.float32)
    return Detection((left, top, right, bottom), points, score)


def _embed_anew(
    gallery: Gallery,
    new: Space,
    embedder: Embedder,
    waiting: list[_Stored],
    flip: bool,
    on_batch: Callable[[int], None],
) -> list[_Stored]:
    """Embeds the faces whose photos are still there; the others."""
    photos = [list(faces) for _, faces in groupby(waiting, key=lambda stored: stored.sha256)]
    size = max(1, min(embedder.batch_size, -(-len(photos) // embedder.threads)))
    batches = [photos[start : start + size] for start in range(0, len(photos), size)]
    gone: list[_Stored] = []
    done = 0

    def embed(
        batch: Sequence[Sequence[_Stored]],
    ) -> tuple[list[_Stored], Float32[np.ndarray, "n d"], list[_Stored]]:
        crops: list[Crop] = []
        found: list[_Stored] = []
        missing: list[_Stored] = []
        for faces in batch:
            try:
                crops += _crops(faces, embedder.metadata.preprocessing)
                found += faces
            except (OSError, FamiliarError):
                missing += faces
        if not crops:
            return [], embedder.empty_embeddings(), missing
        return found, embedder.run(to_tensor(crops, embedder.metadata.preprocessing), flip=flip), missing

    with ThreadPoolExecutor(embedder.threads) as pool:
        for batch, (found, embeddings, missing) in zip(batches, pool.map(embed, batches), strict=True):
            _gather(gallery, new, found, embeddings, "photo")
            gone += missing
            done += sum(map(len, batch))
            on_batch(done)
    return gone


def _crops(faces: Sequence[_Stored], preprocessing: Preprocessing) -> list[Crop]:
    """OSError or FamiliarError where the photo is gone, is another by now, or never was one."""
    path = Path(faces[0].path)
    if content_sha256(path) != faces[0].sha256:
        raise FamiliarError(f"{path}: has changed since it was enrolled")
    photo = load_photo(path)
    if any(stored.detection is None for stored in faces):
        raise FamiliarError(f"{path}: is not known to show a face")
    return [align(photo, stored.detection, preprocessing) for stored in faces if stored.detection]


def _gather(
    gallery: Gallery,
    new: Space,
    faces: Sequence[_Stored],
    embeddings: Float32[np.ndarray, "n d"],
    origin: str,
) -> None:
    """Those that are still what was embedded: another process may have moved or deleted one, or enrolled its photo
    anew."""
    if not len(faces):
        return
    packed = gallery.encode_embeddings(embeddings)
    with gallery.writing() as connection:
        _require_under_way(gallery, connection, new)
        connection.executemany(
            "INSERT INTO next_embeddings (face_id, origin, embedding) SELECT faces.id, ?, ? FROM faces "
            "JOIN photos ON photos.id = photo_id WHERE faces.id = ? AND sha256 = ? "
            "AND (left_px, top_px, right_px, bottom_px) = (?, ?, ?, ?) ON CONFLICT (face_id) DO NOTHING",
            (
                (origin, row, stored.face, stored.sha256, *stored.box_xyxy_px)
                for stored, row in zip(faces, packed, strict=True)
            ),
        )


def _bridge(gallery: Gallery, new: Space, gone: list[_Stored]) -> float:
    """Carries over the faces whose photos are gone; how well, as `MigrationResult.bridge_cosine` says."""
    with gallery.reading() as connection:
        every = gallery.faces()
        rows: list[Any] = connection.execute(
            "SELECT face_id, embedding FROM next_embeddings WHERE origin = 'photo' ORDER BY face_id"
        ).fetchall()
    if len(rows) < MIN_BRIDGE_PAIRS:
        raise FamiliarError(
            f"{gallery.folder}: the photos of {len(gone)} faces are gone or changed (the first: {gone[0].path}), and "
            f"{len(rows)} others are too few to learn a bridge from ({MIN_BRIDGE_PAIRS}); put the photos back and "
            f"enroll them, or forget them; what was embedded is kept"
        )
    source = _vectors(every, [row[0] for row in rows])
    target = np.stack([np.frombuffer(row[1], gallery.embedding_dtype) for row in rows]).astype(np.float32)
    held_out = np.arange(len(rows)) % HELD_OUT == 0
    tried: Bridge = ridge_bridge(source[~held_out], normalize(target[~held_out]))
    cosine = float((tried(source[held_out]) * normalize(target[held_out])).sum(axis=1).mean())
    still_here = set(every.ids.tolist())
    carried = [stored for stored in gone if stored.face in still_here]
    bridge = ridge_bridge(source, normalize(target))
    if carried:
        vectors = _vectors(every, [stored.face for stored in carried])
        _gather(gallery, new, carried, bridge(vectors), "bridge")
    return cosine


def _vectors(every: FaceTable, wanted: Sequence[int]) -> Float32[np.ndarray, "n d"]:
    return every.unit_rows(every.rows_of(np.array(wanted, np.int64)))


def _swap(gallery: Gallery, new: Space, cosine: float | None) -> tuple[MigrationResult, bool] | None:
    """The new embeddings in place of the old, all or none; None where some are still missing. Had it an own
    calibration?"""
    with gallery.writing(faces_change=True) as connection:
        _require_under_way(gallery, connection, new)
        if connection.execute(
            "SELECT 1 FROM faces WHERE id NOT IN (SELECT face_id FROM next_embeddings) LIMIT 1"
        ).fetchone():
            return None
        counts = dict(connection.execute("SELECT origin, count(*) FROM next_embeddings GROUP BY origin").fetchall())
        had_own = connection.execute("SELECT own_calibration IS NOT NULL FROM gallery").fetchone()[0]
        connection.execute(
            "UPDATE faces SET embedding = (SELECT embedding FROM next_embeddings WHERE face_id = faces.id)"
        )
        connection.execute("DELETE FROM next_embeddings")
        connection.execute("DELETE FROM migration")
        _drop_embeddings_of_the_log(connection)
        _forget_kinds(connection)
        connection.execute("UPDATE gallery SET space = ?, own_calibration = NULL", (new.to_json(),))
    return MigrationResult(counts.get("photo", 0), 0, counts.get("bridge", 0), cosine), bool(had_own)


def _require_under_way(gallery: Gallery, connection: sqlite3.Connection, new: Space) -> None:
    """GalleryBusy where another migration has begun, or ended, meanwhile: vectors of two models never mix."""
    row = connection.execute("SELECT space FROM migration").fetchone()
    if row is None or Space.from_json(row[0]) != new:
        raise GalleryBusy(f"{gallery.folder}: another process has migrated it meanwhile; look which model it is of now")


def _drop_embeddings_of_the_log(connection: sqlite3.Connection) -> None:
    """With all that was decided before: decisions are only undone from the last one on."""
    connection.execute(
        "DELETE FROM decisions WHERE id <= "
        "(SELECT max(decision_id) FROM changes JOIN faces_before ON change_id = changes.id)"
    )


def _forget_kinds(connection: sqlite3.Connection) -> None:
    """They depend on what a model never learned."""
    connection.execute("DELETE FROM kinds")
    connection.execute("UPDATE gallery SET judged_face = 0")
    connection.execute("DELETE FROM changes WHERE table_name = 'kinds'")
    delete_empty_decisions(connection)


def _calibrate_again(gallery: Gallery, had_own: bool) -> None:
    if had_own:
        try:
            calibrate(gallery)
        except NothingToMeasure:  # faces may have been forgotten since
            return
