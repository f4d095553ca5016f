"""How the faces of a gallery are compared to cluster them, and from which similarity on, as the album itself tells."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Float64, Int64

from familiar.core.gallery_types import SpeciesClustering
from familiar.gallery.same.assignments import load_assignments
from familiar.gallery.same.calibration import (
    ClusteringSettings,
    clustering_calibration,
    model_clustering,
)
from familiar.gallery.same.constraints import are_together, burst_pairs, gallery_photo_pairs
from familiar.gallery.same.learning import learn, learned_rows
from familiar.gallery.store.face_table import EmbeddingTable
from familiar.gallery.store.store import Store
from familiar.neighbors.album import AlbumEstimate, AlbumWhitening, album_threshold, measure_album
from familiar.neighbors.domains import DOMAIN_THRESHOLD, IN_DOMAIN, whiten_by_domain

UNKNOWN_UNCERTAINTY = 0.08
"""Of a threshold that was not estimated, at most: what it is in albums of cats, dogs and people."""


@dataclass(frozen=True, eq=False)
class Comparable:
    """Faces as they are compared, given their domains.

    Attributes:
        embeddings: unit rows.
        kind: only faces of one kind are compared, those of one species and domain.
        thresholds: of each face: similarity from which it is clustered with another of its kind.
        uncertainties: standard deviations of the best thresholds.
    """

    embeddings: Float32[np.ndarray, "n d"]
    kind: Int64[np.ndarray, " n"]
    thresholds: Float64[np.ndarray, " n"]
    uncertainties: Float64[np.ndarray, " n"]


@dataclass(frozen=True, eq=False)
class Album:
    """The faces of a gallery as they are clustered.

    Attributes:
        faces: ids, photos and embeddings of the n faces.
        species: number of each face's species; faces of two species are never compared.
        parts: of each species, the part of the space that its embeddings belong to (`Space.parts`).
        whitenings: of each species; None: its embeddings are compared as they are.
        thresholds: of each species.
    """

    faces: EmbeddingTable
    species: Int64[np.ndarray, " n"]
    parts: tuple[int, ...]
    whitenings: tuple[AlbumWhitening | None, ...]
    thresholds: tuple[SpeciesClustering, ...]

    @cached_property
    def rows(self) -> Float32[np.ndarray, "n d"]:
        """The embeddings, whitened by species."""
        rows = self.faces.unit_rows()
        if all(whitening is None for whitening in self.whitenings):
            return rows
        whitened = rows.copy()
        for number, whitening in enumerate(self.whitenings):
            if whitening is not None:
                is_species = self.species == number
                columns = self.faces.space.part_columns[self.parts[number]]
                whitened[is_species, columns] = whitening.apply(rows[is_species, columns])
        return whitened

    @property
    def main(self) -> SpeciesClustering:
        """That of the species with most faces."""
        return max(self.thresholds, key=lambda each: each.faces)

    @property
    def main_part(self) -> int:
        """The part of the space of the species with most faces."""
        return self.parts[self.thresholds.index(self.main)]

    def comparable(self, domain: Int64[np.ndarray, " n"]) -> Comparable:
        """Return the faces as they are compared.

        Args:
            domain: of each face (`neighbors.domains`).
        """
        kind = self.species * (int(domain.max(initial=IN_DOMAIN)) + 1) + domain
        by_species = np.array(
            [[each.threshold, each.uncertainty or unknown_uncertainty(each.threshold)] for each in self.thresholds]
        )
        out_of_domain = np.array([DOMAIN_THRESHOLD, unknown_uncertainty(DOMAIN_THRESHOLD)])
        limits = np.where((domain == IN_DOMAIN)[:, None], by_species[self.species], out_of_domain)
        return Comparable(whiten_by_domain(self.rows, domain), kind, limits[:, 0], limits[:, 1])


def unknown_uncertainty(threshold: float) -> float:
    """Return the uncertainty of a threshold that was not estimated: at most half of what is left above it."""
    return min(UNKNOWN_UNCERTAINTY, max((1 - threshold) / 2, 1e-3))


def load_album(store: Store) -> Album:
    """Measure how the faces of a gallery are compared.

    For each species, if the album shows enough individuals (`shows_enough`), embeddings are whitened and the threshold
    is estimated from their similarities; five confirmed individuals or more may teach how (`same.learning`).
    Otherwise they are compared as they are, from the threshold of `clustering_calibration` on. If the user calibrated
    the gallery, all of them are.

    Cached until a face is added, deleted or changed, or one that the gallery learned from is corrected, or other faces
    of one photo show one individual.
    """
    with store.read():
        calibrated = [clustering_calibration(store, part) for part in range(len(store.space.part_spaces))]
        if len(calibrated) == 1 and _is_by_user(calibrated[0]):
            return album_at(store.faces(), calibrated[0].threshold)
        learned = learned_rows(store)
        identities = load_assignments(store).identity
        lesson = learned.tobytes() + identities[learned].tobytes()
        pairs = gallery_photo_pairs(store, store.faces())
        together = are_together(pairs, identities)  # by the user's word
        state = store.faces().revision, tuple(calibrated), lesson, pairs[together].tobytes()
        return store.cached("album", state, lambda: _measure(store, calibrated, learned, pairs[~together]))


def is_guess(store: Store) -> bool:
    """Tell whether faces are clustered from a fixed number on: neither the album nor a calibration tells another."""
    album = load_album(store)
    return clustering_calibration(store, album.main_part).is_guess and album.main.uncertainty is None


def album_at(faces: EmbeddingTable, threshold: float) -> Album:
    """Return the faces, to be compared as they are from a given threshold on, whatever their species."""
    parts = tuple(range(len(faces.space.part_spaces)))
    counts = np.bincount(faces.parts, minlength=len(parts)).tolist()
    thresholds = (SpeciesClustering(None, count, threshold, None, None, 0, 0, 0, 0, 0, None) for count in counts)
    return Album(faces, faces.parts, parts, (None,) * len(parts), tuple(thresholds))


def _is_by_user(clustering: ClusteringSettings) -> bool:
    return clustering.from_gallery and not clustering.is_automatic


def _measure(
    store: Store,
    calibrated: Sequence[ClusteringSettings],
    learned: Int64[np.ndarray, " k"],
    different: Int64[np.ndarray, "p 2"],
) -> Album:
    faces, identities = store.faces(), load_assignments(store).identity
    with store.read() as repository:
        labels, times = repository.faces.species(), repository.photos.times()
    names, parts, species = _number_species(labels, faces)
    compared_as_they_are = tuple(_is_by_user(calibrated[part]) for part in parts)

    def measure() -> list[tuple[AlbumWhitening, AlbumEstimate] | None]:
        # By the model's threshold: a calibration on few confirmed faces may be far too low for all others, which
        # would be one cluster.
        return [
            None
            if as_they_are
            else measure_album(
                faces.unit_rows(np.flatnonzero(species == number))[:, faces.space.part_columns[part]],
                model_clustering(store, part).threshold,
            )
            for number, (part, as_they_are) in enumerate(zip(parts, compared_as_they_are, strict=True))
        ]

    # Answers change what is learned, not this, which takes seconds in a large album.
    measurements = store.cached("measured album", (faces.revision, compared_as_they_are), measure)
    whitenings: list[AlbumWhitening | None] = []
    thresholds: list[SpeciesClustering] = []
    for number, (name, part) in enumerate(zip(names, parts, strict=True)):
        rows = np.flatnonzero(species == number)
        embeddings = faces.unit_rows(rows)[:, faces.space.part_columns[part]]
        learned_within = np.flatnonzero(np.isin(rows, learned))
        (whitening, estimate), gain = measurements[number] or (None, None), None
        if whitening and (result := learn(whitening, embeddings, identities[rows], learned_within)):
            whitening, gain = result
            estimate = album_threshold(whitening, embeddings) or estimate
        threshold = calibrated[part].threshold if estimate is None else estimate.threshold
        different_rows = np.searchsorted(rows, different[(species[different] == number).all(axis=1)])
        uncertainty, rate = (estimate.uncertainty, estimate.false_match_rate) if estimate else (None, None)
        in_one_photo, in_bursts = (
            (len(pairs), _count_matches(embeddings, whitening, pairs, threshold))
            for pairs in (different_rows, burst_pairs(faces.photo_ids[rows], times))
        )
        individuals = len(np.unique(identities[rows[learned_within]]))
        lesson = (individuals, gain.after - gain.before) if gain else (0, None)
        whitenings.append(whitening)
        thresholds.append(
            SpeciesClustering(name, len(rows), threshold, uncertainty, rate, *in_one_photo, *in_bursts, *lesson)
        )
    return Album(faces, species, parts, tuple(whitenings), tuple(thresholds))


def _number_species(
    labels: list[str | None], faces: EmbeddingTable
) -> tuple[list[str | None], tuple[int, ...], Int64[np.ndarray, " n"]]:
    """Number the species of faces. One without a label is of the species with the nearest mean.

    If no face has a label, all are of one species without a name. Faces of one species that two networks embedded, in
    two parts of the space, are apart.

    Returns:
        The name and the part of each number, and the number of each face.
    """
    names: list[str | None] = [*sorted({label for label in labels if label is not None})] or [None]
    if not labels:
        return names, (0,), np.zeros(0, np.int64)
    numbers = {name: number for number, name in enumerate(names)}
    species = np.array([numbers.get(label, -1) for label in labels], np.int64)
    unknown = species < 0
    if unknown.any():
        embeddings = faces.unit_rows()
        means = np.stack([embeddings[species == number].mean(axis=0) for number in range(len(names))])
        means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        species[unknown] = (embeddings[unknown] @ means.T).argmax(axis=1)
    part_count = len(faces.space.part_spaces)
    combined, numbered = np.unique(species * part_count + faces.parts, return_inverse=True)
    return [names[each // part_count] for each in combined], tuple((combined % part_count).tolist()), numbered


def _count_matches(
    embeddings: Float32[np.ndarray, "n d"],
    whitening: AlbumWhitening | None,
    pairs: Int64[np.ndarray, "p 2"],
    threshold: float,
) -> int:
    """Count the pairs of rows that reach a threshold."""
    first, second = (embeddings[side] if whitening is None else whitening.apply(embeddings[side]) for side in pairs.T)
    return int((np.einsum("pd,pd->p", first, second) >= threshold).sum())
