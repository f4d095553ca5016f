"""List the photos, faces and identities of a gallery page by page, and how certain each assignment is."""

from bisect import bisect_right
from itertools import groupby, islice

import numpy as np
from jaxtyping import Bool, Float32

from familiar.core.errors import NotInGallery
from familiar.core.gallery_types import AssignmentConfidence, Counts, GalleryFace, GalleryPhoto, IdentitySummary
from familiar.core.names import unify_spelling
from familiar.gallery.same.album import load_album
from familiar.gallery.same.assignments import UNASSIGNED, check_faces, check_identities, load_assignments
from familiar.gallery.same.templates import central_faces, compute_templates
from familiar.gallery.store.repository import Repository
from familiar.gallery.store.store import Store

SUMMARY_FACES = 4  # faces in an identity's summary


def face(store: Store, number: int) -> GalleryFace:
    """Return a face; raise NotInGallery if it does not exist."""
    with store.read() as repository:
        check_faces(store, [number])
        return repository.faces.row(number)


def photo(store: Store, number: int) -> GalleryPhoto:
    """Return a photo; raise NotInGallery if it does not exist."""
    page = photos(store, after=max(0, number - 1), limit=1)
    if not page or page[0].photo != number:
        raise NotInGallery(f"{store.folder}: has no photo {number}")
    return page[0]


def photos(
    store: Store, *, after: int = 0, before: int | None = None, species: str | None = None, limit: int = 100
) -> list[GalleryPhoto]:
    """Return a page of photos.

    Args:
        store: the gallery to list.
        after: only photos with a larger id, by rising id.
        before: if given, only photos with a smaller id instead, newest first.
        species: only photos with a face of this species.
        limit: maximum number of photos.
    """
    with store.read() as repository:
        rows = repository.photos.page(after=after, before=before, species=species, limit=limit)
        faces = repository.faces.rows_in_photos(row.photo for row in rows)
    faces_by_photo = {number: tuple(group) for number, group in groupby(faces, key=lambda face: face.photo)}
    return [
        GalleryPhoto(row.photo, row.path, row.sha256.hex(), row.taken_at, faces_by_photo.get(row.photo, ()))
        for row in rows
    ]


def identity_summaries(
    store: Store,
    *,
    named: bool | None = None,
    species: str | None = None,
    after: tuple[int, int] | None = None,
    limit: int = 100,
) -> list[IdentitySummary]:
    """Return a page of identities, those with most faces first, then by number.

    Identities without a name and a face are left out.

    Args:
        store: the gallery to list.
        named: only identities that have a name (True) or have none (False).
        species: only identities of which most faces are of this species.
        after: number of faces and identity number of the last identity of the previous page.
        limit: maximum number of identities.
    """
    summaries = list(all_summaries(store).values())
    if species is not None:
        with store.read() as repository:
            species_of = repository.identities.species()
        summaries = [each for each in summaries if species_of.get(each.identity) == species]
    start = 0 if after is None else bisect_right(summaries, (-after[0], after[1]), key=_order)
    listed = (
        each
        for each in islice(summaries, start, None)
        if (each.faces or each.name is not None) and named in (None, each.name is not None)
    )
    return list(islice(listed, limit))


def identity_summary(store: Store, identity: int) -> IdentitySummary:
    """Return the summary of one identity; raise NotInGallery if it does not exist."""
    with store.read():
        check_identities(store, [identity])
        return all_summaries(store)[identity]


def face_confidences(store: Store, identity: int) -> list[AssignmentConfidence]:
    """Return all faces of an identity, those that fit best first; raise NotInGallery if it does not exist.

    They are ordered as they are clustered: by the similarity to the others as the album is measured (`load_album`). For
    the probability, faces are compared as they are. Where there is no other one of its species, a face's similarity is
    1 and its probability None. The prior of the probability is one half.
    """
    with store.read() as repository:
        check_identities(store, [identity])
        assignments = load_assignments(store)
        members = assignments.rows_of_identity(identity)
        faces = {face.face: face for face in repository.faces.rows_of_identity(identity)}
        album = load_album(store)
    scored: list[tuple[float, AssignmentConfidence]] = []
    numbers: list[int] = np.unique(album.species[members]).tolist()
    for species in numbers:
        rows, comparison = members[album.species[members] == species], album.comparisons[species]
        similarities = _similarity_to_others(assignments.faces.unit_rows(rows))
        fits = _similarity_to_others(album.rows[rows])
        for row, similarity, fit in zip(rows.tolist(), similarities.tolist(), fits.tolist(), strict=True):
            probability = None if len(rows) < 2 else comparison.calibration.probability(similarity)
            confidence = AssignmentConfidence(faces[int(assignments.faces.ids[row])], similarity, probability)
            scored.append((fit - comparison.threshold, confidence))
    scored.sort(key=lambda pair: (-pair[0], pair[1].face.face))
    return [confidence for _, confidence in scored]


def unassigned_faces(
    store: Store, *, species: str | None = None, after: int = 0, limit: int = 100
) -> list[GalleryFace]:
    """Return a page of the unassigned faces with an id above `after`, by rising id, of one species or of all."""
    with store.read() as repository:
        assignments = load_assignments(store)
        ids = assignments.faces.ids
        listed = (assignments.identity == UNASSIGNED) & (ids > after)
        if species is not None:
            listed &= _is_of_species(repository, species)
        page = ids[listed][:limit].tolist()
        faces = repository.faces.rows(page)
    return sorted(faces, key=lambda face: face.face)


def counts(store: Store, *, species: str | None = None) -> Counts:
    """Count photos, faces and identities, of one species or of all; cached until the gallery changes."""
    with store.read():
        return store.cached(f"counts of {species or 'all'}", store.revision, lambda: _count(store, species))


def names(store: Store, beginning: str, limit: int = 10) -> list[str]:
    """List the names that begin with a text, ignoring case, in alphabetical order."""
    prefix = unify_spelling(beginning).casefold()
    all_names = load_assignments(store).names.values()
    return sorted((name for name in all_names if name.casefold().startswith(prefix)), key=str.casefold)[:limit]


def all_summaries(store: Store) -> dict[int, IdentitySummary]:
    """Summarize all identities, by their numbers, in the order of `identity_summaries`.

    Those without a name and a face are among them. Cached until the gallery changes.
    """
    with store.read():
        return store.cached("summaries", store.revision, lambda: _summarize(store))


def _summarize(store: Store) -> dict[int, IdentitySummary]:
    with store.read() as repository:
        assignments, numbers = load_assignments(store), repository.identities.numbers()
    templates = compute_templates(assignments, np.arange(len(assignments.identity)))
    central = central_faces(assignments, templates, SUMMARY_FACES)
    confirmed = np.bincount(templates.indices[assignments.by_user[templates.rows]], minlength=len(central))
    faces = np.where(central == UNASSIGNED, UNASSIGNED, assignments.faces.ids[central])
    best = [tuple(face for face in row if face != UNASSIGNED) for row in faces.tolist()]
    details = zip(np.diff(templates.starts).tolist(), confirmed.tolist(), best, strict=True)
    details_by_number = dict(zip(templates.numbers.tolist(), details, strict=True))
    summaries = [
        IdentitySummary(number, assignments.names.get(number), *details_by_number.get(number, (0, 0, ())))
        for number in numbers
    ]
    return {each.identity: each for each in sorted(summaries, key=_order)}


def _order(summary: IdentitySummary) -> tuple[int, int]:
    return -summary.faces, summary.identity


def _count(store: Store, species: str | None) -> Counts:
    with store.read() as repository:
        photo_count = repository.photos.count()
        assignments = load_assignments(store)
        identity, numbers = assignments.identity, [*assignments.names, *np.unique(assignments.identity).tolist()]
        if species is not None:
            is_counted, species_of = _is_of_species(repository, species), repository.identities.species()
            photo_count = len(np.unique(assignments.faces.photo_ids[is_counted]))
            identity = identity[is_counted]
            numbers = [number for number in numbers if species_of.get(number) == species]
    identities = set(numbers) - {UNASSIGNED}
    named = len(identities & assignments.names.keys())
    return Counts(
        photos=photo_count,
        faces=len(identity),
        named=named,
        unnamed=len(identities) - named,
        unassigned=int((identity == UNASSIGNED).sum()),
    )


def _is_of_species(repository: Repository, species: str) -> Bool[np.ndarray, " n"]:
    """Mark the faces of a species."""
    return np.array([label == species for label in repository.faces.species()], np.bool_)


def _similarity_to_others(vectors: Float32[np.ndarray, "k d"]) -> Float32[np.ndarray, " k"]:
    """Return the similarity of each row to the mean of the others; 1 for a single one."""
    if len(vectors) < 2:
        return np.ones(len(vectors), np.float32)
    others = vectors.sum(axis=0) - vectors
    lengths = np.maximum(np.linalg.norm(others, axis=1), np.finfo(np.float32).tiny)
    return np.clip(np.einsum("kd,kd->k", vectors, others) / lengths, -1.0, 1.0)
