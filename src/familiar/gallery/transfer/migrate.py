"""Migrate a gallery to another model: every name, constraint and correction stays, and the embeddings are replaced.

New embeddings are collected next to the old ones, a batch at a time, and replace them in one transaction at the end.
Until then the gallery remains usable with the old model. An interrupted run resumes when the call is repeated.

The undo log contains old embeddings of faces that were moved or deleted by hand, which are not comparable with new
ones, unless the new model is compatible with the old one and its embeddings are as long. Otherwise decisions up to the
last of these cannot be undone any more; later ones can.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from familiar.core.errors import (
    BadDetector,
    FamiliarError,
    GalleryBusy,
    SpaceMismatch,
    UnreadablePhoto,
)
from familiar.core.gallery_types import GalleryFace
from familiar.core.types import Face, Photo
from familiar.core.vectors import prefix, ridge_bridge
from familiar.detection.detector import labels_of
from familiar.detection.detectors import CROP_DETECTORS, KnownFaces, available_detector
from familiar.detection.faces import DetectedFaces
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import stack_embeddings
from familiar.gallery.enroll.enroll import NOTHING_ENROLLED, EnrollResult
from familiar.gallery.enroll.gallery_model import build_gallery_detector, remember
from familiar.gallery.enroll.redetect import photos_to_search, redetect_photos
from familiar.gallery.store.face_table import EmbeddingTable
from familiar.gallery.store.photo_paths import require_sha256
from familiar.gallery.store.repository import Repository
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.photos.decoding import load_photo

MIN_BRIDGE_PAIRS = 50  # faces embedded by both models: fewer do not determine the mapping between the spaces
HELD_OUT_EVERY = 5  # every fifth pair is held out to measure how well the bridge does


@dataclass(frozen=True)
class MigrationResult:
    """How the faces got their new embeddings.

    Attributes:
        reembedded_faces: faces embedded again from their photos.
        truncated_faces: faces whose embeddings were truncated to a prefix.
        mapped_faces: faces mapped by a bridge, a linear map learned between the two spaces.
        kept_faces: faces without a photo whose embeddings are kept, as the new model is compatible with the old one.
        mapped_mean_cosine: mean cosine similarity of mapped embeddings with the new model's own, over faces that the
            bridge was not fitted on; None if no bridge was needed.
        detector: with which faces were looked for in all photos, as the new model can use more of them; None: they were
            not.
        redetection: what was found then.
    """

    reembedded_faces: int
    truncated_faces: int
    mapped_faces: int
    kept_faces: int
    mapped_mean_cosine: float | None
    detector: str | None = None
    redetection: EnrollResult = NOTHING_ENROLLED


def migrate(
    store: Store,
    embedder: Embedder,
    *,
    flip: bool = False,
    on_batch: Callable[[int], None] = lambda _: None,
) -> MigrationResult:
    """Replace a gallery's embeddings with those of another model.

    If the new model has the same space and shorter embeddings, the stored ones are truncated. Otherwise each photo that
    is still where it was, unchanged, is embedded again with the stored boxes. The remaining faces are mapped by a
    bridge learned from these, if there are at least fifty. If the new model was trained to be compatible with the old
    one and its embeddings are as long, or there are fewer than fifty others, these faces keep their embeddings, with
    zeros for components that the old model did not have.

    If the new model has bundles for more species, or its detector finds more, all photos are searched again for faces
    that can be used now.

    Args:
        store: to write to.
        embedder: the new model.
        flip: as in `Embedder.embed`.
        on_batch: called with the number of faces done, and then of photos, after each batch has been committed.

    Raises:
        GalleryBusy: another process has started or finished a migration in the meantime.
        SpaceMismatch: the space is the same, and neither length is a valid prefix of the other model's.
        FamiliarError: photos are missing and there are too few others to learn a bridge from. The old embeddings
            stay, and the new ones so far are kept for the next call.
    """
    old, new = store.space, Space.from_model(embedder)
    store.make_automatic_copy("before-migrate")
    if new.space_id == old.space_id and new.embedding_dim < old.embedding_dim:
        return _truncate(store, old, new, embedder.names)
    if new.space_id == old.space_id:
        store.check_space(*embedder.space)
    _begin_migration(store, old, new)
    cosine: float | None = None
    while True:
        pending = _load_pending_faces(store)
        without_photo = _embed_photos(store, new, embedder, pending, flip, on_batch)
        if without_photo:
            cosine = _map_embeddings(store, old, new, without_photo)
        if (result := _swap_embeddings(store, new, embedder.names, cosine)) is not None:
            return _find_more_faces(store, embedder, result, flip, on_batch)
        # Another process has enrolled photos in the meantime.


def _truncate(store: Store, old: Space, new: Space, names: tuple[str, ...]) -> MigrationResult:
    if new.embedding_dim not in old.prefixes:
        raise SpaceMismatch(
            f"{store.folder}: its model's valid prefixes are {', '.join(map(str, old.prefixes))}, not "
            f"{new.embedding_dim}; migrate to a model of one of these lengths"
        )
    with store.write(faces_change=True) as repository:
        _check_model_unchanged(store, old)
        faces = store.stored_faces()
        rows = store.encode_embeddings(prefix(faces.unit_rows(), new.embedding_dim)) if len(faces.ids) else []
        repository.faces.set_embeddings(zip(rows, faces.ids.tolist(), strict=True))
        repository.undo_log.delete_decisions_with_embeddings()
        _change_space(repository, new, names)
    return MigrationResult(0, len(faces.ids), 0, 0, None)


def _begin_migration(store: Store, old: Space, new: Space) -> None:
    """Record the migration, and delete embeddings that an interrupted one has left for another model."""
    with store.write() as repository:
        _check_model_unchanged(store, old)
        if repository.migration.space() != new:
            repository.migration.begin(new)
        repository.migration.delete_mapped()  # their photos may be back


def _load_pending_faces(store: Store) -> list[GalleryFace]:
    """Return the faces without a new embedding, by photo."""
    with store.read() as repository:
        return repository.faces.rows_to_embed_again()


def _embed_photos(
    store: Store,
    new: Space,
    embedder: Embedder,
    pending: list[GalleryFace],
    flip: bool,
    on_batch: Callable[[int], None],
) -> list[GalleryFace]:
    """Embed the faces whose photos are still there, and save the embeddings.

    Returns:
        The faces whose photos are missing or changed.
    """
    photos = [list(faces) for _, faces in groupby(pending, key=lambda stored: stored.sha256)]
    known: dict[Path | str, list[Face]] = {}

    def open_unchanged(faces: list[GalleryFace], *, min_side_px: int | None = None) -> Photo:
        path, is_photo = Path(faces[0].path), not any(face.box_xyxy_px.is_empty for face in faces)
        if not is_photo or require_sha256(path) != faces[0].sha256:
            raise UnreadablePhoto(f"{path}: is missing or has changed")
        known[path] = [*faces]
        return load_photo(path, min_side_px=min_side_px)

    embedded_photos = embedder.faces(photos, KnownFaces(known), open_photo=open_unchanged, flip=flip, min_score=0)
    all_missing: list[GalleryFace] = []
    embedded: list[GalleryFace] = []
    done, size = 0, embedder.photos_per_batch(len(photos))
    for number, (faces, photo) in enumerate(zip(photos, embedded_photos, strict=True), start=1):
        if isinstance(photo, DetectedFaces) and photo.skipped:
            raise FamiliarError(
                f"{photo.skipped[0]}; forget the photo, or migrate to models that have one for this species. The new "
                "embeddings so far are kept"
            )
        photo_faces = photo.faces if isinstance(photo, DetectedFaces) else ()
        embedded += [face for face in photo_faces if isinstance(face, GalleryFace)]
        numbers = {face.face for face in embedded}
        all_missing += [face for face in faces if face.face not in numbers]
        done += len(faces)
        if number % size == 0 or number == len(photos):
            if embedded:
                _save_next_embeddings(store, new, embedded, stack_embeddings(embedded), "photo")
            embedded = []
            on_batch(done)
    return all_missing


def _save_next_embeddings(
    store: Store,
    new: Space,
    faces: Sequence[GalleryFace],
    embeddings: Float32[np.ndarray, "n d"],
    origin: str,
) -> None:
    """Save the new embeddings of faces that have not changed since they were read.

    Another process may have moved or deleted a face, or enrolled an edited version of its photo.

    Args:
        store: to write to.
        new: the space that the gallery is being migrated to.
        faces: as they were embedded.
        embeddings: unit rows, one per face.
        origin: "photo" or "bridge".
    """
    encoded = store.encode_embeddings(embeddings)
    with store.write() as repository:
        _check_migration_unchanged(store, repository, new)
        repository.migration.save(
            origin,
            ((row, stored.face, stored.sha256, stored.box_xyxy_px) for stored, row in zip(faces, encoded, strict=True)),
        )


def _map_embeddings(store: Store, old: Space, new: Space, without_photo: list[GalleryFace]) -> float | None:
    """Give the faces without a photo embeddings of the new space: their own, if it is compatible, or by a bridge.

    Zeros take the place of components that their own embeddings do not have. The bridge is learned from other faces.

    Returns:
        `MigrationResult.mapped_mean_cosine`; None if the embeddings are kept.
    """
    with store.read() as repository:
        faces, rows = store.stored_faces(), repository.migration.embeddings_from_photos()
    can_bridge, cosine = len(rows) >= MIN_BRIDGE_PAIRS, None
    is_kept = new.space_id == old.space_id and not (new.embedding_dim > old.embedding_dim and can_bridge)
    if not is_kept and (new.parts or not can_bridge):
        too_few = f"{len(rows)} others are too few to learn a bridge from ({MIN_BRIDGE_PAIRS})"
        raise FamiliarError(
            f"{store.folder}: the photos of {len(without_photo)} faces are missing or changed (the first: "
            f"{without_photo[0].path}), and {'several bundles need them' if new.parts else too_few}; put the photos "
            "back and enroll them, or forget them. The new embeddings so far are kept"
        )
    existing = set(faces.ids.tolist())
    present = [stored for stored in without_photo if stored.face in existing]
    vectors = _unit_rows(faces, [stored.face for stored in present])
    if is_kept:
        mapped = np.pad(vectors, ((0, 0), (0, new.embedding_dim - vectors.shape[1])))
    else:
        source = _unit_rows(faces, [face for face, _ in rows])
        target = store.decode_embeddings([row for _, row in rows])
        held_out = np.arange(len(rows)) % HELD_OUT_EVERY == 0
        measured_bridge = ridge_bridge(source[~held_out], target[~held_out])
        cosine = float((measured_bridge(source[held_out]) * target[held_out]).sum(axis=1).mean())
        mapped = ridge_bridge(source, target)(vectors)
    _save_next_embeddings(store, new, present, mapped, "bridge")
    return cosine


def _unit_rows(faces: EmbeddingTable, numbers: Sequence[int]) -> Float32[np.ndarray, "n d"]:
    return faces.unit_rows(faces.rows_of(np.array(numbers, np.int64)))


def _swap_embeddings(store: Store, new: Space, names: tuple[str, ...], cosine: float | None) -> MigrationResult | None:
    """Replace all old embeddings with the new ones; None if some new embeddings are missing."""
    with store.write(faces_change=True) as repository:
        _check_migration_unchanged(store, repository, new)
        if repository.migration.has_pending_faces():
            return None
        counts = repository.migration.counts_by_origin()
        repository.migration.swap_embeddings()
        old = repository.settings.space()
        if (old.space_id, old.embedding_dim) != (new.space_id, new.embedding_dim):
            repository.undo_log.delete_decisions_with_embeddings()
        _change_space(repository, new, names)
    without_photo = counts.get("bridge", 0)
    mapped = without_photo if cosine is not None else 0
    return MigrationResult(counts.get("photo", 0), 0, mapped, without_photo - mapped, cosine)


def _check_migration_unchanged(store: Store, repository: Repository, new: Space) -> None:
    """Raise GalleryBusy if another process began or ended a migration: embeddings of two models must never mix."""
    if repository.migration.space() != new:
        raise GalleryBusy(
            f"{store.folder}: another process has started or finished a migration of this gallery; see which model "
            f"it uses now: familiar gallery stats {store.folder}"
        )


def _check_model_unchanged(store: Store, old: Space) -> None:
    """Raise GalleryBusy if another process has finished a migration: what was decided by the old space is void."""
    if store.space != old:
        raise GalleryBusy(
            f"{store.folder}: another process has moved this gallery to another model meanwhile; see which one: "
            f"familiar gallery stats {store.folder}"
        )


def _change_space(repository: Repository, new: Space, names: tuple[str, ...]) -> None:
    """Store the new space, and the name of its model."""
    repository.settings.mark_faces_clustered(0)
    repository.settings.replace_space(new)
    reference = repository.settings.model_reference()
    repository.settings.set_model_reference(replace(reference, models=names))


def _find_more_faces(
    store: Store, embedder: Embedder, result: MigrationResult, flip: bool, on_batch: Callable[[int], None]
) -> MigrationResult:
    """Look for faces in all photos again, if the new model can use faces that the old one could not.

    It can if it has bundles for more species, or is made for a detector that finds more than the gallery's. A detector
    that finds less does not replace the gallery's. What is remembered of both changes last, so that a repeated call
    does what an interrupted one has left.
    """
    old = store.model_reference
    new = replace(old, species=embedder.species)
    if old.detector is not None and _finds_more(embedder, old.detector):
        new = replace(new, detector=available_detector(embedder.detector_name), detector_model=None)
    has_more_species = old.species is not None and (new.species is None or not set(new.species) <= set(old.species))
    if old.detector is not None and (new.detector != old.detector or has_more_species):
        detector = build_gallery_detector(embedder, new)
        photos = photos_to_search(store, without_face=False)
        redetection = redetect_photos(
            store, embedder, photos, detector, flip=flip, on_batch=lambda done, _: on_batch(done)
        )
        result = replace(result, detector=new.detector, redetection=redetection)
    remember(store, species=new.species, detector=new.detector, detector_model=new.detector_model)
    return result


def _finds_more(embedder: Embedder, detector: str) -> bool:
    """Whether the detector of a model finds all that another one finds, and more."""
    if detector in CROP_DETECTORS:
        return False
    try:
        return labels_of(embedder.detector(detector)) < labels_of(embedder.detector())
    except BadDetector:  # its file is missing
        return False
