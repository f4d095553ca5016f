"""One embedder for several species: a head says which, and that species' own bundle embeds the crop."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Float64, Int64

from familiar.core.errors import FamiliarError, NoBundleForSpecies, NoFaceFound, UnsureSpecies
from familiar.core.types import Crop
from familiar.detection.alignment import align
from familiar.detection.detectors import Detector, WholePhoto
from familiar.embedding.embedder import Embedder, PhotoOpener, Source, crop_photo
from familiar.embedding.species.classifier import SpeciesClassifier
from familiar.embedding.verification import VerificationResult, verify_embeddings
from familiar.photos.decoding import load_photo
from familiar.photos.preprocessing import Preprocessing, resize_crop, to_tensor

CropsByPreprocessing = Mapping[Preprocessing, Crop]  # one face, as each of the networks wants it


@dataclass(frozen=True, eq=False)
class SpeciesEmbeddings:
    """The rows sent to one species' bundle, ascending, the probability of that species, and its embeddings."""

    rows: Int64[np.ndarray, " n"]
    probabilities: Float64[np.ndarray, " n"]
    embeddings: Float32[np.ndarray, "n d"]


@dataclass(frozen=True, eq=False)
class RoutedEmbeddings:
    """Embeddings by species, apart, since those of different species do not compare; and the rows without one.

    `of` holds every species that has a bundle. `skipped` are `UnsureSpecies`, `NoBundleForSpecies`, and photos that
    could not be read or held no face.
    """

    by_species: Mapping[str, SpeciesEmbeddings]
    skipped: tuple[FamiliarError, ...]

    def by_row(self) -> list[tuple[int, str, float]]:
        """(row, species, its probability) of each row that has an embedding, ascending."""
        return sorted(
            (row, name, probability)
            for name, own in self.by_species.items()
            for row, probability in zip(own.rows.tolist(), own.probabilities.tolist(), strict=True)
        )


class RoutedEmbedder:
    """Embeddings by the bundle of each crop's species.

    `head` tells the species by the embeddings of `features`, any bundle; `embedders` are those of the species.
    They may want crops of different sizes and give embeddings of different widths, and each is usable alone.
    SpaceMismatch where the head was fitted with another bundle than `features`.
    """

    def __init__(self, feature_embedder: Embedder, classifier: SpeciesClassifier, embedders: Mapping[str, Embedder]) -> None:
        if unknown := sorted(embedders.keys() - set(classifier.names)):
            raise ValueError(f"a bundle for {unknown[0]!r}, but the head knows {', '.join(classifier.names)}")
        classifier.check_space(feature_embedder.metadata.space_id, feature_embedder.metadata.embedding_dim)
        self.feature_embedder = feature_embedder
        self.classifier = classifier
        self.embedders = {name: embedders[name] for name in classifier.names if name in embedders}
        self._preprocessings = {e.metadata.preprocessing for e in (feature_embedder, *self.embedders.values())}

    def embed(self, crops: Sequence[Crop], *, flip: bool = False, batch_size: int | None = None) -> RoutedEmbeddings:
        """Crops of one margin; each network is given them at its own size. `flip` as in `Embedder.embed`."""
        return self._embed(len(crops), lambda row: self._resized(crops[row]), flip, batch_size)

    def embed_photos(
        self,
        sources: Sequence[Source],
        detector: Detector | None = None,
        *,
        open_photo: PhotoOpener[Source] = load_photo,
        flip: bool = False,
        batch_size: int | None = None,
        on_batch: Callable[[int], None] = lambda _: None,
    ) -> RoutedEmbeddings:
        """As `embedder.embed_photos`, each photo's best face cropped as each network's preprocessing says."""

        def cut(row: int) -> CropsByPreprocessing:
            return _crop_for_each(sources[row], self._preprocessings, detector, open_photo)

        return self._embed(len(sources), cut, flip, batch_size, on_batch)

    def _resized(self, crop: Crop) -> CropsByPreprocessing:
        def at(preprocessing: Preprocessing) -> Crop:
            return Crop(resize_crop(crop.rgb_u8, replace(preprocessing, resize="stretch")), crop.source)

        return {preprocessing: at(preprocessing) for preprocessing in self._preprocessings}

    def _embed(
        self,
        count: int,
        cut: Callable[[int], CropsByPreprocessing],
        flip: bool,
        batch_size: int | None,
        on_batch: Callable[[int], None] = lambda _: None,
    ) -> RoutedEmbeddings:
        threads = self.feature_embedder.threads
        size = max(1, min(batch_size or self.feature_embedder.batch_size, -(-count // threads)))
        batches = [range(start, min(start + size, count)) for start in range(0, count, size)]
        parts = [self._embed_batch(range(0), cut, flip)]
        with ThreadPoolExecutor(threads) as pool:
            done = pool.map(lambda batch: self._embed_batch(batch, cut, flip), batches)
            for batch, part in zip(batches, done, strict=True):
                parts.append(part)
                on_batch(batch.stop)
        return _concatenate(parts)

    def _embed_batch(self, batch: range, cut: Callable[[int], CropsByPreprocessing], flip: bool) -> RoutedEmbeddings:
        cuts: dict[int, CropsByPreprocessing] = {}
        skipped: dict[int, FamiliarError] = {}
        for row in batch:
            try:
                cuts[row] = cut(row)
            except FamiliarError as error:
                skipped[row] = error
        features = _embed_crops(self.feature_embedder, list(cuts.values()), flip)
        probabilities = self.classifier.probabilities(features, self.feature_embedder.metadata.space_id)
        places: dict[str, list[int]] = {name: [] for name in self.embedders}
        for place, (row, cut_row) in enumerate(cuts.items()):
            try:
                source = cut_row[self.feature_embedder.metadata.preprocessing].source
                places[self._route(probabilities[place], source)].append(place)
            except FamiliarError as error:
                skipped[row] = error
        rows, faces = np.array(list(cuts), np.int64), list(cuts.values())
        of: dict[str, SpeciesEmbeddings] = {}
        for name, embedder in self.embedders.items():
            own = np.array(places[name], np.int64)
            # A bundle that is also the head's has embedded its photos already.
            embeddings = (
                features[own]
                if embedder is self.feature_embedder
                else _embed_crops(embedder, [faces[place] for place in own], flip)
            )
            of[name] = SpeciesEmbeddings(rows[own], probabilities[own, self.classifier.names.index(name)], embeddings)
        return RoutedEmbeddings(of, tuple(error for _, error in sorted(skipped.items(), key=lambda item: item[0])))

    def _route(self, probabilities: Float64[np.ndarray, " k"], source: Path | str) -> str:
        """The species whose bundle it is for; UnsureSpecies or NoBundleForSpecies where there is none."""
        second, first = np.argsort(probabilities)[-2:]
        name, probability = self.classifier.names[first], probabilities[first]
        if probability < self.classifier.min_probability:
            raise UnsureSpecies(
                f"{source}: unsure of the species: {name} {probability:.0%}, {self.classifier.names[second]} "
                f"{probabilities[second]:.0%}; use the bundle of the right one alone"
            )
        if name not in self.embedders:
            raise NoBundleForSpecies(f"{source}: shows a {name} ({probability:.0%}), and no bundle is for that")
        return name


@dataclass(frozen=True)
class RoutedVerification:
    """The species of two photos and their probabilities; `answer` is that species' bundle's.

    `answer` is None where the species differ: two individuals, whose embeddings are not compared.
    """

    species: tuple[str, str]
    probabilities: tuple[float, float]
    verification: VerificationResult | None


def verify_routed(
    router: RoutedEmbedder, first: Path, second: Path, detector: Detector | None = None, *, flip: bool = False
) -> RoutedVerification:
    """UnsureSpecies, NoBundleForSpecies, UnreadablePhoto or NoFaceFound where one of the two cannot be judged."""
    routed = router.embed_photos([first, second], detector, flip=flip)
    if routed.skipped:
        raise routed.skipped[0]
    (_, left, p), (_, right, q) = routed.by_row()
    answer = None
    if left == right:
        # Both photos went to one bundle, so its two rows are theirs.
        one, other = routed.by_species[left].embeddings
        answer = verify_embeddings(one, other, router.embedders[left].metadata.calibration)
    return RoutedVerification((left, right), (p, q), answer)


def _crop_for_each(
    source: Source,
    preprocessings: set[Preprocessing],
    detector: Detector | None,
    open_photo: PhotoOpener[Source],
) -> CropsByPreprocessing:
    """The best face as each network wants it. What is opened whole, and searched, is so once."""
    if detector is None or isinstance(detector, WholePhoto):
        return {wanted: crop_photo(source, wanted, open_photo=open_photo) for wanted in preprocessings}
    photo = open_photo(source, min_side_px=None)
    detections = detector.detect(photo)
    if not detections:
        raise NoFaceFound(f"{photo.source}: no face found")
    return {wanted: align(photo, detections[0], wanted) for wanted in preprocessings}


def _embed_crops(embedder: Embedder, cuts: Sequence[CropsByPreprocessing], flip: bool) -> Float32[np.ndarray, "n d"]:
    if not cuts:
        return embedder.empty_embeddings()
    preprocessing = embedder.metadata.preprocessing
    return embedder.run(to_tensor([cut[preprocessing] for cut in cuts], preprocessing), flip=flip)


def _concatenate(parts: Sequence[RoutedEmbeddings]) -> RoutedEmbeddings:
    def of(name: str) -> SpeciesEmbeddings:
        own = [part.by_species[name] for part in parts]
        return SpeciesEmbeddings(
            np.concatenate([part.rows for part in own]),
            np.concatenate([part.probabilities for part in own]),
            np.concatenate([part.embeddings for part in own]),
        )

    return RoutedEmbeddings(
        {name: of(name) for name in parts[0].by_species}, tuple(e for part in parts for e in part.skipped)
    )
