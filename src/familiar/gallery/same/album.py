"""How the faces of a gallery are compared, and from which similarity on two show the same individual."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Float64, Int64

from familiar.core.calibration import Calibration
from familiar.core.gallery_types import SpeciesClustering
from familiar.gallery.same.assignments import load_assignments
from familiar.gallery.same.constraints import are_together, burst_pairs, gallery_burst_pairs, gallery_photo_pairs
from familiar.gallery.same.learning import learn, learned_rows
from familiar.gallery.store.face_table import EmbeddingTable
from familiar.gallery.store.store import Store
from familiar.neighbors.comparison import Comparison
from familiar.neighbors.within_identity import Gain

BURST_UNCERTAINTIES = 2.0
"""By so many uncertainties of the threshold, two faces of a burst may be less similar than others."""


@dataclass(frozen=True, eq=False)
class Album:
    """The faces of a gallery as they are clustered.

    Attributes:
        faces: ids, photos and embeddings of the n faces.
        species: number of each face's species; faces of two species are never compared.
        names: of the species; None: not known.
        parts: of each species, the part of the space that its embeddings belong to (`Space.parts`).
        comparisons: how the faces of each species are compared.
        gains: what confirmed faces taught about each species, if anything.
    """

    faces: EmbeddingTable
    species: Int64[np.ndarray, " n"]
    names: tuple[str | None, ...]
    parts: tuple[int, ...]
    comparisons: tuple[Comparison, ...]
    gains: tuple[Gain | None, ...]

    def embeddings(self, number: int, rows: Int64[np.ndarray, " k"]) -> Float32[np.ndarray, "k d"]:
        """Return the embeddings of some faces of a species, less its mean, in its part of the space."""
        return self.faces.unit_rows(rows)[:, self.faces.space.part_columns[self.parts[number]]]

    @cached_property
    def rows(self) -> Float32[np.ndarray, "n d"]:
        """The embeddings as they are compared."""
        rows = self.faces.unit_rows()
        if all(comparison.whitening is None for comparison in self.comparisons):
            return rows
        compared = rows.copy()
        for number, comparison in enumerate(self.comparisons):
            is_species = np.flatnonzero(self.species == number)
            columns = self.faces.space.part_columns[self.parts[number]]
            compared[is_species, columns] = comparison.apply(self.embeddings(number, is_species))
        return compared

    @cached_property
    def thresholds(self) -> Float64[np.ndarray, " n"]:
        """Of each face: similarity from which it is clustered with another of its species."""
        return np.array([each.threshold for each in self.comparisons])[self.species]

    @cached_property
    def uncertainties(self) -> Float64[np.ndarray, " n"]:
        """Of each face: standard deviation of the best threshold."""
        return np.array([each.uncertainty for each in self.comparisons])[self.species]

    @property
    def main(self) -> int:
        """The number of the species with most faces."""
        return int(np.bincount(self.species, minlength=len(self.comparisons)).argmax())


def load_album(store: Store) -> Album:
    """Measure how the faces of a gallery are compared, each species by itself (`Comparison.measure`).

    Five confirmed individuals or more may teach how (`same.learning`). Cached until a face is added, deleted or
    changed, or one that the gallery learned from is corrected.
    """
    with store.read():
        learned = learned_rows(store)
        lesson = learned.tobytes() + load_assignments(store).identity[learned].tobytes()
        return store.cached("album", (store.faces().revision, lesson), lambda: _measure(store, learned))


def album_at(faces: EmbeddingTable, threshold: float) -> Album:
    """Return the faces, to be compared as they are from a given threshold on, whatever their species."""
    count = len(faces.space.part_spaces)
    comparison = Comparison(Calibration.fixed(threshold), len(faces.ids))
    return Album(faces, faces.parts, (None,) * count, tuple(range(count)), (comparison,) * count, (None,) * count)


def similar_bursts(store: Store, album: Album) -> Int64[np.ndarray, "p 2"]:
    """List the pairs of faces that were photographed within seconds, one in each photo, and are not too different.

    Nearly all show one individual; of those that do not, most are less similar than `BURST_UNCERTAINTIES` below the
    threshold (docs/benchmarks/layers.md).
    """
    pairs = gallery_burst_pairs(store, album.faces)
    first, second = pairs.T
    floor = album.thresholds[first] - BURST_UNCERTAINTIES * album.uncertainties[first]
    similar = np.einsum("pd,pd->p", album.rows[first], album.rows[second]) >= floor
    return pairs[similar & (album.species[first] == album.species[second])]


def comparison_of_part(store: Store, faces: EmbeddingTable, part: int) -> Comparison:
    """Return how a query is compared with the faces of a part of the space: as they are, by the model's calibration.

    Args:
        store: the gallery.
        faces: those that it is compared with, with embeddings of its length.
        part: number of the bundle, if the model has several.
    """
    return Comparison(store.space.calibration_at(faces.embeddings.shape[1], part), len(faces.ids))


def species_clusterings(store: Store) -> tuple[SpeciesClustering, ...]:
    """Describe how the faces of each species are clustered, and how well pairs of known identity agree with it.

    Cached until the gallery changes.
    """
    with store.read():
        return store.cached("species clusterings", store.revision, lambda: _describe(store))


def _describe(store: Store) -> tuple[SpeciesClustering, ...]:
    with store.read() as repository:
        album, identity, times = load_album(store), load_assignments(store).identity, repository.photos.times()
        pairs = gallery_photo_pairs(store, album.faces)
        different = pairs[~are_together(pairs, identity)]  # unless the user said otherwise
        learned = learned_rows(store)
    clusterings: list[SpeciesClustering] = []
    for number, (name, comparison, gain) in enumerate(zip(album.names, album.comparisons, album.gains, strict=True)):
        rows = np.flatnonzero(album.species == number)
        estimate = comparison.estimate
        in_one_photo = different[(album.species[different] == number).all(axis=1)]
        in_bursts = rows[burst_pairs(album.faces.photo_ids[rows], times)]
        clusterings.append(
            SpeciesClustering(
                name,
                len(rows),
                comparison.threshold,
                None if estimate is None else estimate.uncertainty,
                None if estimate is None else estimate.false_match_rate,
                len(in_one_photo),
                _count_matches(album, in_one_photo),
                len(in_bursts),
                _count_matches(album, in_bursts),
                0 if gain is None else len(np.unique(identity[learned[album.species[learned] == number]])),
                None if gain is None else gain.after - gain.before,
                comparison.sentence,
            )
        )
    return tuple(clusterings)


def _measure(store: Store, learned: Int64[np.ndarray, " k"]) -> Album:
    album = store.cached("measured album", store.faces().revision, lambda: _measure_unlearned(store))
    if not len(learned):
        return album
    identities = load_assignments(store).identity
    comparisons, gains = list(album.comparisons), list(album.gains)
    for number, comparison in enumerate(comparisons):
        rows = np.flatnonzero(album.species == number)
        embeddings, within = album.embeddings(number, rows), np.flatnonzero(np.isin(rows, learned))
        comparisons[number], gains[number] = learn(comparison, embeddings, identities[rows], within)
    return replace(album, comparisons=tuple(comparisons), gains=tuple(gains))


def _measure_unlearned(store: Store) -> Album:
    """Measure without what answers taught, which takes seconds in a large album: answers do not change it."""
    faces = store.faces()
    with store.read() as repository:
        names, parts, species = _number_species(repository.faces.species(), faces)
    album = Album(faces, species, names, parts, (), (None,) * len(names))
    comparisons = (
        Comparison.measure(
            album.embeddings(number, np.flatnonzero(species == number)),
            faces.space.part_spaces[part].gallery_calibration,
        )
        for number, part in enumerate(parts)
    )
    return replace(album, comparisons=tuple(comparisons))


def _number_species(
    labels: Sequence[str | None], faces: EmbeddingTable
) -> tuple[tuple[str | None, ...], tuple[int, ...], Int64[np.ndarray, " n"]]:
    """Number the species of faces. One without a label is of the species with the nearest mean.

    If no face has a label, all are of one species without a name. Faces of one species that two networks embedded, in
    two parts of the space, are apart.

    Returns:
        The name and the part of each number, and the number of each face.
    """
    names: list[str | None] = [*sorted({label for label in labels if label is not None})] or [None]
    if not labels:
        return tuple(names), (0,), np.zeros(0, np.int64)
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
    parts_of_species: list[int] = combined.tolist()
    species_names = tuple(names[each // part_count] for each in parts_of_species)
    return species_names, tuple(each % part_count for each in parts_of_species), numbered


def _count_matches(album: Album, pairs: Int64[np.ndarray, "p 2"]) -> int:
    """Count the pairs of rows that reach the threshold of their species."""
    first, second = album.rows[pairs[:, 0]], album.rows[pairs[:, 1]]
    return int((np.einsum("pd,pd->p", first, second) >= album.thresholds[pairs[:, 0]]).sum())
