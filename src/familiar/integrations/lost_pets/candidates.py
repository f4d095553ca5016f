"""Rank the lost pets that a found one may be, and the found pets that a lost one may be."""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float32

from familiar.core.errors import Contradiction, FamiliarError, NotInGallery
from familiar.core.names import unify_spelling
from familiar.core.vectors import normalize
from familiar.gallery import Filter, Gallery, Match
from familiar.integrations.lost_pets.reports import Pet, Report, Status, find_pet, list_pets

_DATE = re.compile(r"\d{4}(-\d\d(-\d\d)?)?")
_ALL = 2**31 - 1
OPPOSITE: dict[Status, Status] = {"lost": "found", "found": "lost"}
FOUND_PET = Report("found")


@dataclass(frozen=True)
class PetFilter:
    """The pets that are compared. "" does not restrict, and a pet whose field is empty always passes.

    Attributes:
        species: only this species, in any case.
        location: only pets whose place contains this text, in any case.
        since: ISO date; only pets lost or found then or later. A year or a month will do.
        until: ISO date; only pets lost or found then or earlier. A given year or month is included.
        possible_dates: leave out pets that were lost after the found one was found.

    Raises:
        Contradiction: `since` or `until` is no date.
    """

    species: str = ""
    location: str = ""
    since: str = ""
    until: str = ""
    possible_dates: bool = False

    def __post_init__(self) -> None:
        for date in (self.since, self.until):
            if date and not _DATE.fullmatch(date):
                raise Contradiction(f"a date must be written as 2026, 2026-05 or 2026-05-31, got {date!r}")

    def passes(self, pet: Pet, other: Report) -> bool:
        """Tell whether a pet is to be compared with the one that `other` is the report of."""
        report = pet.report
        if self.species and pet.species and pet.species.casefold() != unify_spelling(self.species).casefold():
            return False
        if report.location and unify_spelling(self.location).casefold() not in report.location.casefold():
            return False
        if report.reported_on and self.since and report.reported_on < self.since:
            return False
        if report.reported_on and self.until and report.reported_on[: len(self.until)] > self.until:
            return False
        return not (self.possible_dates and is_impossible(report, other))


NO_PET_FILTER = PetFilter()


@dataclass(frozen=True)
class Candidate:
    """A pet that may be the one that was searched for.

    Attributes:
        pet: the candidate.
        match: its similarity and the probability that it is the same pet.
        photo: row of the query's photo in the most similar pair of photos.
        face: the candidate's face in that pair.
        pair_similarity: cosine similarity of that pair, in [-1, 1].
        impossible_dates: whether the reports say that it was lost after it was found.
    """

    pet: Pet
    match: Match
    photo: int
    face: int
    pair_similarity: float
    impossible_dates: bool


@dataclass(frozen=True)
class Ranking:
    """The outcome of a search for a pet.

    Attributes:
        candidates: the most similar first.
        compared: the number of pets that were compared.
        dismissed: pets that were marked as not the same, which are not compared.
        filtered: the number of pets that the filter leaves out.
        without_photo: pets that pass the filter, but have no photo to compare.
        query_faces: of a pet of the gallery, its face for each row of the query.
    """

    candidates: tuple[Candidate, ...]
    compared: int
    dismissed: tuple[Pet, ...]
    filtered: int
    without_photo: tuple[Pet, ...]
    query_faces: tuple[int, ...] = ()


def rank_candidates(gallery: Gallery, identity: int, k: int = 10, *, only: PetFilter = NO_PET_FILTER) -> Ranking:
    """Rank the lost pets that a found pet of the gallery may be; for a lost pet, the found ones.

    Args:
        gallery: to search.
        identity: of the pet.
        k: maximum number of candidates, at least 1.
        only: the pets that are compared.

    Raises:
        NotInGallery: there is no such pet.
        Contradiction: the pet is home.
        FamiliarError: the pet has no photo.
    """
    with gallery.read():
        pet = find_pet(gallery, identity)
        if pet.report.status not in OPPOSITE:
            raise Contradiction(f"{pet.label} is home; change its status to search for it again")
        faces = [face.face for face in gallery.faces(identity=identity)]
        if not faces:
            raise FamiliarError(f"{gallery.folder}: {pet.label} has no photo to compare; add one")
        embeddings, dismissed = _embeddings(gallery, faces), gallery.different_identities(identity)
        ranking = rank_pets(gallery, embeddings, pet.report, k, only=only, dismissed=dismissed)
    return replace(ranking, query_faces=tuple(faces))


def compare_pets(
    gallery: Gallery, identity: int, candidate: int, *, only: PetFilter = NO_PET_FILTER
) -> tuple[Candidate, tuple[int, ...]]:
    """Compare a pet with one candidate, with the probability that `rank_candidates` gives it.

    Args:
        gallery: of both.
        identity: of the pet.
        candidate: identity of the candidate.
        only: the pets that are compared, which the probability depends on.

    Returns:
        The candidate, and the pet's faces by `Candidate.photo`.

    Raises:
        NotInGallery: there is no such pet, or no such candidate for it.
        Contradiction: the pet is home.
        FamiliarError: the pet has no photo.
    """
    ranking = rank_candidates(gallery, identity, _ALL, only=only)
    for each in ranking.candidates:
        if each.pet.identity == candidate:
            return each, ranking.query_faces
    raise NotInGallery(f"{gallery.folder}: #{candidate} is no candidate for #{identity} any more")


def rank_pets(
    gallery: Gallery,
    embeddings: Float32[np.ndarray, "n d"],
    report: Report = FOUND_PET,
    k: int = 10,
    *,
    only: PetFilter = NO_PET_FILTER,
    dismissed: Collection[int] = (),
) -> Ranking:
    """Rank the lost pets that a found pet may be, by its photos; for a lost pet, the found ones.

    All photos of a pet count together, as the mean of its embeddings. The probability is that of `Gallery.identify`:
    the pet may be one that is not in the register. With several bundles only pets of the same bundle are compared.

    Args:
        gallery: to search.
        embeddings: unit rows of its photos, by the gallery's model, at least one.
        report: what is known about it: it is lost or found.
        k: maximum number of candidates, at least 1.
        only: the pets that are compared.
        dismissed: identities that it is known not to be.
    """
    with gallery.read():
        embeddings = np.stack([gallery.truncate_query(row) for row in embeddings])
        pool = list_pets(gallery, OPPOSITE[report.status])
        others = [pet for pet in pool if pet.identity not in dismissed]
        passing = [pet for pet in others if only.passes(pet, report)]
        pets = {pet.identity: pet for pet in passing if pet.faces}
        query = _mean_of_main_part(gallery, embeddings)
        matches = gallery.identify(query, k, only=Filter(tuple(pets))) if pets else []
        candidates: list[Candidate] = []
        for match in matches:
            pet, faces = pets[match.identity], [face.face for face in gallery.faces(identity=match.identity)]
            similarity = gallery.similarities(embeddings, faces)
            photo, face = np.unravel_index(int(similarity.argmax()), similarity.shape)
            pair = int(photo), faces[face], float(similarity[photo, face])
            candidates.append(Candidate(pet, match, *pair, is_impossible(report, pet.report)))
    return Ranking(
        tuple(candidates),
        len(pets),
        tuple(pet for pet in pool if pet.identity in dismissed),
        len(others) - len(passing),
        tuple(pet for pet in passing if not pet.faces),
    )


def is_impossible(first: Report, second: Report) -> bool:
    """Tell whether a lost and a found pet cannot be the same, as it was found before it was lost."""
    dates = {report.status: report.reported_on for report in (first, second)}
    return bool(dates.get("found") and dates.get("lost") and dates["lost"] > dates["found"])


def _embeddings(gallery: Gallery, faces: Collection[int]) -> Float32[np.ndarray, "n d"]:
    return np.stack([gallery.face_embedding(face) for face in faces])


def _mean_of_main_part(gallery: Gallery, embeddings: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, " d"]:
    """Return the mean of the photos, without those of another species than most."""
    parts = gallery.space.part_of(embeddings)
    main = int(np.bincount(parts).argmax())
    return normalize(embeddings[parts == main].mean(axis=0, keepdims=True))[0]
