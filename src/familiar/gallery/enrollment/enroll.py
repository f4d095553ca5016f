"""Photos into a gallery: each known by its content, wherever it lies, and its faces embedded once."""

import hashlib
import os
import sqlite3
import stat
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from familiar.core.errors import FamiliarError, UnreadablePhoto
from familiar.core.files import absolute_path, content_sha256
from familiar.core.types import Crop, Detection
from familiar.detection.detectors import Detector, WholePhoto
from familiar.detection.quality import detect_faces, to_full_resolution
from familiar.embedding.embedder import Embedder, min_decoded_side_px
from familiar.gallery.database.connection import Gallery
from familiar.photos.decoding import load_photo
from familiar.photos.exif import capture_time
from familiar.photos.preprocessing import Preprocessing, to_tensor

MIN_SCORE = 0.5  # of the detector, below which what it found is often no face
SAME_PICTURE = 0.9
"""Similarity of a face before and after its photo was edited; another photo's is hardly so close."""
_ROWS_AT_ONCE = 20_000  # of a transaction, which writes nearly every page of a large gallery's index by content


@dataclass(frozen=True)
class EnrollResult:
    """What became of the photos of one call.

    `photos` are new, with `faces` in them, and `without_face` of them show none; `known` were here already, `moved` of
    them in another place, `copies` of them once more beside the first; `edited` had other content when they were
    enrolled. `skipped` could not be read.
    """

    photos: int
    faces: int
    without_face: int
    known: int
    moved: int
    copies: int
    edited: int
    skipped: tuple[FamiliarError, ...]


@dataclass(frozen=True, eq=False)
class _Found:
    """One face of a photo that was looked at."""

    detection: Detection
    quality: float
    embedding: Float32[np.ndarray, " d"]


@dataclass(frozen=True, eq=False)
class _File:
    """A photo's file as it was looked at. `faces` is None where its content is known already."""

    path: Path
    sha256: bytes
    size_bytes: int
    modified_ns: int
    taken_at: str | None = None
    faces: tuple[_Found, ...] | None = None

    @property
    def name(self) -> bytes:
        """As the file system has it, which may be no UTF-8."""
        return os.fsencode(self.path)


@dataclass(frozen=True, eq=False)
class _Known:
    """What the gallery holds when a call begins: each path's size and time, and every photo's content."""

    files: Mapping[str, tuple[int, int]]
    contents: frozenset[bytes]


def enroll(
    gallery: Gallery,
    embedder: Embedder,
    paths: Sequence[Path],
    detector: Detector | None = None,
    *,
    flip: bool = False,
    species: str | None = None,
    min_score: float = MIN_SCORE,
    on_batch: Callable[[int, EnrollResult], None] = lambda _, __: None,
) -> EnrollResult:
    """Every photo's faces, found by `detector` (None: photos are crops already) and embedded.

    Each batch is on the disk before `on_batch` is told the number of photos done and what became of them; what it
    raises ends the call before another batch is begun. A call that was cut short is gone on with by the same call; a
    photo that is here already costs a look at its size and time. Where these are new its content decides: it may have
    moved, or have been edited, and then its faces keep their numbers, and whose they are. `species` is written beside
    each new face; `flip` as in `Embedder.embed`.

    SpaceMismatch where the embedder is not the gallery's.
    """
    _check_space(gallery, embedder)
    known, detector = _known(gallery), detector or WholePhoto()
    size = max(1, min(embedder.batch_size, -(-len(paths) // embedder.threads)))
    batches = [paths[start : start + size] for start in range(0, len(paths), size)]

    def look(batch: Sequence[Path]) -> tuple[list[_File], list[FamiliarError]]:
        return _look(batch, known, embedder, detector, flip, min_score)

    counts, skipped, done = Counter[str](), list[FamiliarError](), 0
    pool = ThreadPoolExecutor(embedder.threads)
    looked = pool.map(look, batches)
    try:
        for batch, (files, unread) in zip(batches, looked, strict=True):
            skipped += unread
            counts["known"] += len(batch) - len(files) - len(unread)
            if files:
                with gallery.writing(faces_change=any(file.faces for file in files)) as connection:
                    _check_space(gallery, embedder)  # again: another process may have migrated it meanwhile
                    for file in files:
                        counts.update(_write(connection, gallery, file, species))
            done += len(batch)
            on_batch(done, _enrolled(counts, skipped))
    finally:
        pool.shutdown(cancel_futures=True)
    return _enrolled(counts, skipped)


def _enrolled(counts: Counter[str], skipped: Sequence[FamiliarError]) -> EnrollResult:
    named = ("photos", "faces", "without_face", "known", "moved", "copies", "edited")
    return EnrollResult(**{name: counts[name] for name in named}, skipped=tuple(skipped))


def enroll_embeddings(
    gallery: Gallery, embeddings: Float32[np.ndarray, "n d"], names: Sequence[str], space_id: str
) -> list[int]:
    """Embeddings computed elsewhere, each of a photo of one face that is known by its name; the new faces' numbers.

    A name and embedding that are here already are not taken again. SpaceMismatch where they are of another space,
    ValueError where they are no unit vectors: of each 20,000 either all are taken or none.
    """
    gallery.check_space(space_id, embeddings.shape[1])
    added: list[int] = []
    for start in range(0, len(embeddings), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        packed, encoded = gallery.encode_embeddings(embeddings[part]), [os.fsencode(name) for name in names[part]]
        of = {
            hashlib.sha256(name + b"\0" + row).digest(): (name, row) for name, row in zip(encoded, packed, strict=True)
        }
        with gallery.writing(faces_change=True) as connection:
            gallery.check_space(space_id, embeddings.shape[1])
            photo, face = (_last(connection, table) for table in ("photos", "faces"))
            connection.executemany(
                "INSERT INTO photos (sha256, path, size_bytes, modified_ns) VALUES (?, CAST(? AS TEXT), 0, 0) "
                "ON CONFLICT DO NOTHING",
                ((sha256, name) for sha256, (name, _) in of.items()),
            )
            new = connection.execute("SELECT id, sha256 FROM photos WHERE id > ? ORDER BY id", (photo,)).fetchall()
            connection.executemany(
                "INSERT INTO faces (photo_id, left_px, top_px, right_px, bottom_px, score, quality, embedding) "
                "VALUES (?, 0, 0, 0, 0, 1, 1, ?)",
                ((photo, of[sha256][1]) for photo, sha256 in new),
            )
            rows = connection.execute("SELECT id FROM faces WHERE id > ? ORDER BY id", (face,))
            added += [row[0] for row in rows]
    return added


def _check_space(gallery: Gallery, embedder: Embedder) -> None:
    gallery.check_space(embedder.metadata.space_id, embedder.metadata.embedding_dim)


def _known(gallery: Gallery) -> _Known:
    with gallery.reading() as connection:
        rows = connection.execute("SELECT path, size_bytes, modified_ns, sha256 FROM photos").fetchall()
    return _Known({path: (size, modified) for path, size, modified, _ in rows}, frozenset(row[3] for row in rows))


def _last(connection: sqlite3.Connection, table: str) -> int:
    return connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0]


# --- looking at photos: in several threads, without the gallery --------------------------------------------------


def _look(
    paths: Sequence[Path], known: _Known, embedder: Embedder, detector: Detector, flip: bool, min_score: float
) -> tuple[list[_File], list[FamiliarError]]:
    """The files that are not here just as they are, and why some could not be read."""
    files: list[_File] = []
    skipped: list[FamiliarError] = []
    crops: list[Crop] = []
    seen: list[tuple[int, Detection, float]] = []  # of each crop: its file, where it is, its quality
    for path in paths:
        try:
            file = _look_at(absolute_path(path), known)
            if file is not None and file.sha256 not in known.contents:
                file = replace(file, taken_at=capture_time(file.path), faces=())
                photo = load_photo(file.path, min_side_px=min_decoded_side_px(detector, _crops(embedder)))
                for face in detect_faces(photo, detector, _crops(embedder), min_score):
                    crops.append(face.crop)
                    seen.append((len(files), to_full_resolution(face.detection, photo), face.quality))
        except FamiliarError as error:
            skipped.append(error)
        else:
            files += [] if file is None else [file]
    if crops:
        embeddings = embedder.run(to_tensor(crops, _crops(embedder)), flip=flip)
        for (place, detection, quality), embedding in zip(seen, embeddings, strict=True):
            found = (*(files[place].faces or ()), _Found(detection, quality, embedding))
            files[place] = replace(files[place], faces=found)
    return files, skipped


def _look_at(path: Path, known: _Known) -> _File | None:
    """None where size and time are those it was enrolled with."""
    try:
        facts = path.stat()
        if known.files.get(str(path)) == (facts.st_size, facts.st_mtime_ns):
            return None
        if not stat.S_ISREG(facts.st_mode):  # hashing a named pipe would wait for ever
            raise UnreadablePhoto(f"{path}: a folder or a special file, not a photo")
        sha256 = content_sha256(path)
    except OSError as error:
        raise UnreadablePhoto(f"{path}: {error.strerror}") from error
    return _File(path, sha256, facts.st_size, facts.st_mtime_ns)


def _crops(embedder: Embedder) -> Preprocessing:
    return embedder.metadata.preprocessing


# --- writing them down: one transaction a batch, in which other processes may have come first --------------------


def _write(connection: sqlite3.Connection, gallery: Gallery, file: _File, species: str | None) -> dict[str, int]:
    """One file's place among the photos; what to count."""
    row = connection.execute("SELECT id, path FROM photos WHERE sha256 = ?", (file.sha256,)).fetchone()
    if row is not None:
        moved = row[1] != str(file.path)
        if moved and _holds(Path(row[1]), file):
            return {"known": 1, "copies": 1}
        connection.execute(
            "UPDATE photos SET path = CAST(? AS TEXT), size_bytes = ?, modified_ns = ? WHERE id = ?",
            (file.name, file.size_bytes, file.modified_ns, row[0]),
        )
        return {"known": 1, "moved": int(moved)}
    if file.faces is None:  # forgotten since the call began, and so it stays
        return {}
    (photo,) = connection.execute(
        "INSERT INTO photos (sha256, path, size_bytes, modified_ns, taken_at) VALUES (?, CAST(? AS TEXT), ?, ?, ?) "
        "RETURNING id",
        (file.sha256, file.name, file.size_bytes, file.modified_ns, file.taken_at),
    ).fetchone()
    before = _faces_before(connection, gallery, file, photo)
    for place, face in enumerate(file.faces):
        landmarks = face.detection.landmarks_px
        values = (
            photo,
            *face.detection.box_xyxy_px,
            None if landmarks is None else landmarks.astype("<f4").tobytes(),
            face.detection.score,
            face.quality,
            gallery.encode_embeddings(face.embedding[None])[0],
        )
        if place in before:
            # What a migration under way has made of it was made of the photo as it was.
            connection.execute("DELETE FROM next_embeddings WHERE face_id = ?", (before[place],))
            connection.execute(
                "UPDATE faces SET photo_id = ?, left_px = ?, top_px = ?, right_px = ?, bottom_px = ?, "
                "landmarks_px = ?, score = ?, quality = ?, embedding = ? WHERE id = ?",
                (*values, before[place]),
            )
        else:
            connection.execute(
                "INSERT INTO faces (photo_id, left_px, top_px, right_px, bottom_px, landmarks_px, score, quality, "
                "embedding, species) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*values, species),
            )
    # Only now: deleting a photo takes the faces that are still its own with it.
    edited = connection.execute(
        "DELETE FROM photos WHERE path = CAST(? AS TEXT) AND id <> ? "
        "AND NOT EXISTS (SELECT 1 FROM faces WHERE photo_id = photos.id)",
        (file.name, photo),
    ).rowcount
    return {
        "edited" if edited else "photos": 1,
        "faces": len(file.faces) - len(before),
        "without_face": int(not file.faces),
    }


def _holds(path: Path, file: _File) -> bool:
    """Whether the same content lies there too: another photo may have taken the name."""
    try:
        same_size = path.stat().st_size == file.size_bytes and path.is_file()
        return same_size and content_sha256(path) == file.sha256
    except OSError:
        return False


def _faces_before(connection: sqlite3.Connection, gallery: Gallery, file: _File, photo: int) -> dict[int, int]:
    """For places among the file's faces the number that each had before the photo was edited.

    Only where every face that it showed before is there still. If not, another photo has taken its name, and the one
    that was there keeps what is known of it, should it turn up elsewhere. Of several that had the name, the last.
    """
    rows = connection.execute(
        "SELECT photos.id, faces.id, embedding FROM faces JOIN photos ON photos.id = photo_id "
        "WHERE path = CAST(? AS TEXT) AND photos.id <> ? ORDER BY photos.id DESC, faces.id",
        (file.name, photo),
    ).fetchall()
    if not file.faces:
        return {}
    now = np.stack([face.embedding for face in file.faces])
    for _, old in groupby(rows, key=lambda row: row[0]):
        numbers, packed = zip(*((row[1], row[2]) for row in old), strict=True)
        before = np.stack([np.frombuffer(row, gallery.embedding_dtype) for row in packed]).astype(np.float32)
        similarity = before @ now.T
        places = similarity.argmax(axis=1).tolist()
        if len(set(places)) == len(numbers) and similarity.max(axis=1).min() >= SAME_PICTURE:
            return dict(zip(places, numbers, strict=True))
    return {}
