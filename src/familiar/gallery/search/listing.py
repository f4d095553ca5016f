"""List the photos, faces and identities of a gallery page by page, and how certain each assignment is."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from jaxtyping import Bool, Float32, Int64

from familiar.core.errors import NotInGallery
from familiar.core.gallery_types import Counts, FaceConfidence, GalleryFace, GalleryPhoto, IdentitySummary
from familiar.core.names import unify_spelling
from familiar.embedding.verification import probability_same
from familiar.gallery.clustering.album import load_album
from familiar.gallery.clustering.assignments import (
    UNASSIGNED,
    FaceAssignments,
    check_faces,
    check_identities,
    load_assignments,
)
from familiar.gallery.clustering.calibration import calibration
from familiar.gallery.search.templates import central_faces, compute_templates
from familiar.gallery.store.faces import FaceRow
from familiar.gallery.store.store import Store
from familiar.neighbors.domains import DOMAIN_THRESHOLD, IN_DOMAIN
from familiar.neighbors.whitening import whiten_to_domain

SUMMARY_FACES = 4  # faces in an identity's summary


def face(gallery: Store, number: int) -> GalleryFace:
    """Return a face; raise NotInGallery if it does not exist."""
    with gallery.read() as repository:
        check_faces(gallery, [number])
        return _known_faces(repository.faces.rows([number]))[0]


def photo(gallery: Store, number: int) -> GalleryPhoto:
    """Return a photo; raise NotInGallery if it does not exist."""
    page = photos(gallery, after=max(0, number - 1), limit=1)
    if not page or page[0].photo != number:
        raise NotInGallery(f"{gallery.folder}: has no photo {number}")
    return page[0]


def photos(gallery: Store, *, after: int = 0, before: int | None = None, limit: int = 100) -> list[GalleryPhoto]:
    """Return a page of photos.

    Args:
        gallery: the gallery to list.
        after: only photos with a larger id, by rising id.
        before: if given, only photos with a smaller id instead, newest first.
        limit: maximum number of photos.
    """
    with gallery.read() as repository:
        rows = repository.photos.page(after=after, before=before, limit=limit)
        faces = _known_faces(repository.faces.rows_in_photos(row.photo for row in rows))
    faces_by_photo = {number: tuple(group) for number, group in groupby(faces, key=lambda face: face.photo)}
    return [
        GalleryPhoto(row.photo, row.path, row.sha256.hex(), row.taken_at, faces_by_photo.get(row.photo, ()))
        for row in rows
    ]


def identity_summaries(
    gallery: Store,
    *,
    named: bool | None = None,
    after: tuple[int, int] | None = None,
    limit: int = 100,
) -> list[IdentitySummary]:
    """Return a page of identities, those with most faces first, then by number.

    Identities without a name and a face are left out.

    Args:
        gallery: the gallery to list.
        named: only identities that have a name (True) or have none (False).
        after: number of faces and identity number of the last identity of the previous page.
        limit: maximum number of identities.
    """
    index = _identity_index(gallery)
    mask = np.ones(len(index.numbers), np.bool_)
    if named is not None:
        mask &= index.named == named
    if after is not None:
        faces, identity = after
        mask &= (index.faces < faces) | ((index.faces == faces) & (index.numbers > identity))
    return [index.summary(position) for position in np.flatnonzero(mask)[:limit].tolist()]


def identity_summary(gallery: Store, identity: int) -> IdentitySummary:
    """Return the summary of one identity; raise NotInGallery if it does not exist."""
    with gallery.read():
        check_identities(gallery, [identity])
        index = _identity_index(gallery)
    positions = np.flatnonzero(index.numbers == identity).tolist()
    return index.summary(positions[0]) if positions else IdentitySummary(identity, None, 0, 0, ())


def face_confidences(gallery: Store, identity: int) -> list[FaceConfidence]:
    """Return all faces of an identity, those that fit best first; raise NotInGallery if it does not exist.

    They are ordered as they are clustered: by the similarity to the others as the album is measured (`load_album`). For
    the probability, a face is compared with the other faces of its domain. Where there is no other one, its similarity
    is 1 and its probability None. The prior of the probability is one half.
    """
    with gallery.read() as repository:
        check_identities(gallery, [identity])
        assignments = load_assignments(gallery)
        members = assignments.rows_of_identity(identity)
        faces = {face.face: face for face in _known_faces(repository.faces.rows_of_identity(identity))}
        album = load_album(gallery)
        models = [calibration(gallery, part) for part in range(len(gallery.space.part_spaces))]
    scored: list[tuple[float, FaceConfidence]] = []
    domains, parts = assignments.domain, assignments.faces.parts
    comparable: set[tuple[int, int]] = {(int(domains[row]), int(parts[row])) for row in members}
    for domain, part in sorted(comparable):
        model, rows = models[part], members[(domains[members] == domain) & (parts[members] == part)]
        # Out of domain only the clustering threshold is known, as in `search.verify`.
        shift = 0.0 if domain == IN_DOMAIN else model.balanced.similarity - DOMAIN_THRESHOLD
        vectors = assignments.faces.unit_rows(rows) if domain == IN_DOMAIN else _whitened(assignments, rows, domain)
        similarities = fits = _similarity_to_others(vectors)
        threshold = DOMAIN_THRESHOLD
        if domain == IN_DOMAIN:
            fits = _similarity_to_others(album.rows[rows])
            threshold = album.thresholds[album.species[rows[0]]].threshold
        for row, similarity, fit in zip(rows.tolist(), similarities.tolist(), fits.tolist(), strict=True):
            probability = None if len(rows) < 2 else probability_same(similarity + shift, model)
            confidence = FaceConfidence(faces[int(assignments.faces.ids[row])], similarity, probability)
            scored.append((fit - threshold, confidence))
    scored.sort(key=lambda pair: (-pair[0], pair[1].face.face))
    return [confidence for _, confidence in scored]


def unassigned_faces(gallery: Store, *, after: int = 0, limit: int = 100) -> list[GalleryFace]:
    """Return a page of the unassigned faces with an id above `after`, by rising id."""
    with gallery.read() as repository:
        assignments = load_assignments(gallery)
        ids = assignments.faces.ids
        page = ids[(assignments.identity == UNASSIGNED) & (ids > after)][:limit].tolist()
        faces = _known_faces(repository.faces.rows(page))
    return sorted(faces, key=lambda face: face.face)


def counts(gallery: Store) -> Counts:
    """Count photos, faces and identities; cached until the gallery changes."""
    with gallery.read():
        return gallery.cached("counts", gallery.revision, lambda: _count(gallery))


def names(gallery: Store, beginning: str, limit: int = 10) -> list[str]:
    """List the names that begin with a text, ignoring case, in alphabetical order."""
    prefix = unify_spelling(beginning).casefold()
    all_names = load_assignments(gallery).names.values()
    return sorted((name for name in all_names if name.casefold().startswith(prefix)), key=str.casefold)[:limit]


@dataclass(frozen=True, eq=False)
class _IdentityIndex:
    """All identities that are listed, in the order of `identity_summaries`; `best` is filled up with -1."""

    numbers: Int64[np.ndarray, " i"]
    faces: Int64[np.ndarray, " i"]
    confirmed: Int64[np.ndarray, " i"]
    best: Int64[np.ndarray, "i 4"]
    named: Bool[np.ndarray, " i"]
    names: dict[int, str]

    def summary(self, position: int) -> IdentitySummary:
        number = int(self.numbers[position])
        return IdentitySummary(
            identity=number,
            name=self.names.get(number),
            faces=int(self.faces[position]),
            confirmed=int(self.confirmed[position]),
            best=tuple(face for face in self.best[position].tolist() if face != UNASSIGNED),
        )


def _identity_index(gallery: Store) -> _IdentityIndex:
    with gallery.read():
        return gallery.cached("identity index", gallery.revision, lambda: _compute_identity_index(gallery))


def _compute_identity_index(gallery: Store) -> _IdentityIndex:
    assignments = load_assignments(gallery)
    templates = compute_templates(assignments, np.arange(len(assignments.identity)))
    central = central_faces(assignments, templates, SUMMARY_FACES)
    with_faces = len(templates.numbers)
    is_confirmed = assignments.by_user[templates.rows]
    named_numbers = np.array(list(assignments.names), np.int64)
    numbers = np.concatenate([templates.numbers, np.setdiff1d(named_numbers, templates.numbers)])
    faces, confirmed = np.zeros((2, len(numbers)), np.int64)
    faces[:with_faces] = templates.sizes
    confirmed[:with_faces] = np.bincount(templates.identity_indices, is_confirmed, with_faces)
    best = np.full((len(numbers), SUMMARY_FACES), UNASSIGNED, np.int64)
    best[:with_faces] = np.where(central == UNASSIGNED, UNASSIGNED, assignments.faces.ids[central])
    order = np.argsort(-faces, kind="stable")  # equal counts stay sorted by number
    named = np.isin(numbers, named_numbers)
    return _IdentityIndex(numbers[order], faces[order], confirmed[order], best[order], named[order], assignments.names)


def _count(gallery: Store) -> Counts:
    with gallery.read() as repository:
        photo_count = repository.photos.count()
        assignments = load_assignments(gallery)
    assigned = assignments.identity[assignments.identity != UNASSIGNED]
    named = np.array(list(assignments.names), np.int64)
    return Counts(
        photos=photo_count,
        faces=len(assignments.identity),
        named=len(named),
        unnamed=len(np.setdiff1d(assigned, named)),
        unassigned=len(assignments.identity) - len(assigned),
    )


def _whitened(assignments: FaceAssignments, rows: Int64[np.ndarray, " k"], domain: int) -> Float32[np.ndarray, "k d"]:
    """Return the embeddings of faces of a domain as they are compared."""
    domain_rows = np.flatnonzero(assignments.domain == domain)
    return whiten_to_domain(assignments.faces.unit_rows(domain_rows))[np.searchsorted(domain_rows, rows)]


def _similarity_to_others(vectors: Float32[np.ndarray, "k d"]) -> Float32[np.ndarray, " k"]:
    """Return the similarity of each row to the mean of the others; 1 for a single one."""
    if len(vectors) < 2:
        return np.ones(len(vectors), np.float32)
    others = vectors.sum(axis=0) - vectors
    lengths = np.maximum(np.linalg.norm(others, axis=1), np.finfo(np.float32).tiny)
    return np.clip(np.einsum("kd,kd->k", vectors, others) / lengths, -1.0, 1.0)


def _known_faces(rows: Iterable[FaceRow]) -> list[GalleryFace]:
    return [
        GalleryFace(
            *(row.face, row.photo, row.box_xyxy_px, row.score, row.quality),
            *(row.species, row.identity, row.name, bool(row.by_user)),
        )
        for row in rows
    ]
