"""Routing of crops by species: the detector or a classifier tells the species, and its bundle embeds the crop."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Float64, Int64

from familiar.core.errors import FamiliarError, NoBundleForSpecies, UnsureSpecies
from familiar.core.recognition_types import VerificationResult
from familiar.core.types import Crop, Label
from familiar.detection.alignment import align, choose_face, from_left
from familiar.detection.detector import Detector
from familiar.detection.detectors import WholePhoto
from familiar.embedding.embedder import Embedder, PhotoOpener, Source, crop_photo
from familiar.embedding.species.classifier import SpeciesClassifier
from familiar.embedding.verification import BEST_FACES, verify_embeddings
from familiar.photos.decoding import load_photo
from familiar.photos.preprocessing import Preprocessing, resize_crop, stack_crops

CropsByPreprocessing = Mapping[Preprocessing, Crop]  # one face, cropped for each of the networks


@dataclass(frozen=True, eq=False)
class SpeciesEmbeddings:
    """Embeddings by the bundle of one species.

    Attributes:
        rows: indices among the photos given, ascending.
        probabilities: of this species.
        embeddings: unit rows in the space of the species' bundle.
    """

    rows: Int64[np.ndarray, " n"]
    probabilities: Float64[np.ndarray, " n"]
    embeddings: Float32[np.ndarray, "n d"]


@dataclass(frozen=True, eq=False)
class RoutedEmbeddings:
    """Embeddings by species, kept apart because those of different species do not compare.

    Attributes:
        by_species: the embeddings of every species that has a bundle.
        skipped: an error for each photo without an embedding: `UnsureSpecies`, `NoBundleForSpecies`, unreadable, or
            without a face.
    """

    by_species: Mapping[str, SpeciesEmbeddings]
    skipped: tuple[FamiliarError, ...]

    def by_row(self) -> list[tuple[int, str, float]]:
        """List (row, species, probability of the species) of each row with an embedding, by row."""
        return sorted(
            (row, name, probability)
            for name, species in self.by_species.items()
            for row, probability in zip(species.rows.tolist(), species.probabilities.tolist(), strict=True)
        )


class RoutedEmbedder:
    """Embeds each crop with the bundle of its species.

    A species that the detector has told ("cat", and a species called cat or cats) needs no classifier. The bundles may
    take crops of different sizes and give embeddings of different dimensions, and each can be used alone.
    """

    def __init__(
        self, feature_embedder: Embedder, classifier: SpeciesClassifier, embedders: Mapping[str, Embedder]
    ) -> None:
        """Combine a species classifier with a bundle for each species.

        Args:
            feature_embedder: any bundle; the classifier takes its embeddings.
            classifier: fitted on embeddings of that bundle.
            embedders: the bundles of the species; a species of the classifier may have none.

        Raises:
            SpaceMismatch: the classifier was fitted with another bundle.
            ValueError: a bundle for a species that the classifier does not know.
        """
        if unknown := sorted(embedders.keys() - set(classifier.names)):
            raise ValueError(f"a bundle for {unknown[0]!r}, but the classifier knows {', '.join(classifier.names)}")
        classifier.check_space(feature_embedder.metadata.space_id, feature_embedder.metadata.embedding_dim)
        self.feature_embedder = feature_embedder
        self.classifier = classifier
        self.embedders = {name: embedders[name] for name in classifier.names if name in embedders}
        self._preprocessings = {e.metadata.preprocessing for e in (feature_embedder, *self.embedders.values())}

    def detector(self, chosen: Detector | str | None = None, model_path: Path | None = None) -> Detector:
        """Return the detector to use with these bundles, as `Embedder.detector`; None: the `feature_embedder`'s.

        Args:
            chosen: a detector, or the name of one.
            model_path: as for `build_detector`.
        """
        return self.feature_embedder.detector(chosen, model_path)

    def embed(self, crops: Sequence[Crop], *, flip: bool = False, batch_size: int | None = None) -> RoutedEmbeddings:
        """Embed crops, resized for each network.

        Args:
            crops: of any size, but all cropped with the same margin.
            flip: average each crop's embedding with that of its mirror image, at twice the cost.
            batch_size: crops per batch; None: the `feature_embedder`'s.

        Returns:
            The embeddings by species, and the errors of crops that have none.
        """
        return self._embed(len(crops), lambda row: self._resize_for_each(crops[row]), flip, batch_size)

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
        """Embed the best face of every source, cropped by each network's own preprocessing.

        Args:
            sources: what `open_photo` loads.
            detector: finds the faces; None: the photos are crops already.
            open_photo: loads a source.
            flip: average each face's embedding with that of its mirror image, at twice the cost.
            batch_size: photos per batch; None: the `feature_embedder`'s.
            on_batch: called after each batch with the number of sources done.

        Returns:
            The embeddings by species, and the errors of photos that have none.
        """

        def crop(row: int) -> CropsByPreprocessing:
            return _crop_for_each(sources[row], self._preprocessings, detector, open_photo)

        return self._embed(len(sources), crop, flip, batch_size, on_batch)

    def crop(self, photo: Path, detector: Detector | None = None, face: int | None = None) -> CropsByPreprocessing:
        """Crop one face of a photo for each network.

        Args:
            photo: its file.
            detector: finds the faces; None: the photo is a crop already.
            face: number of the face, counted from the left and from 1; None: the best one.
        """
        return _crop_for_each(photo, self._preprocessings, detector, load_photo, face)

    def embed_crops(self, crops: Sequence[CropsByPreprocessing], *, flip: bool = False) -> RoutedEmbeddings:
        """Embed faces.

        Args:
            crops: each as `crop` returns it.
            flip: average each face's embedding with that of its mirror image, at twice the cost.
        """
        return self._embed(len(crops), crops.__getitem__, flip, None)

    def _resize_for_each(self, crop: Crop) -> CropsByPreprocessing:
        def resize(preprocessing: Preprocessing) -> Crop:
            return Crop(resize_crop(crop.rgb_u8, replace(preprocessing, resize="stretch")), crop.source)

        return {preprocessing: resize(preprocessing) for preprocessing in self._preprocessings}

    def _embed(
        self,
        count: int,
        crop: Callable[[int], CropsByPreprocessing],
        flip: bool,
        batch_size: int | None,
        on_batch: Callable[[int], None] = lambda _: None,
    ) -> RoutedEmbeddings:
        threads = self.feature_embedder.threads
        size = max(1, min(batch_size or self.feature_embedder.batch_size, -(-count // threads)))
        batches = [range(start, min(start + size, count)) for start in range(0, count, size)]
        parts = [self._embed_batch(range(0), crop, flip)]
        with ThreadPoolExecutor(threads) as pool:
            done = pool.map(lambda batch: self._embed_batch(batch, crop, flip), batches)
            for batch, part in zip(batches, done, strict=True):
                parts.append(part)
                on_batch(batch.stop)
        return _concatenate(parts)

    def _embed_batch(self, batch: range, crop: Callable[[int], CropsByPreprocessing], flip: bool) -> RoutedEmbeddings:
        crops: dict[int, CropsByPreprocessing] = {}
        skipped: dict[int, FamiliarError] = {}
        for row in batch:
            try:
                crops[row] = crop(row)
            except FamiliarError as error:
                skipped[row] = error
        features = _embed_crops(self.feature_embedder, list(crops.values()), flip)
        probabilities = self.classifier.probabilities(features, self.feature_embedder.metadata.space_id)
        routed: dict[str, list[int]] = {name: [] for name in self.embedders}  # indices into `crops` and `features`
        for index, (row, face) in enumerate(crops.items()):
            try:
                crop_for_features = face[self.feature_embedder.metadata.preprocessing]
                if labeled := self._species_of_label(crop_for_features.label):
                    probabilities[index] = [float(name == labeled) for name in self.classifier.names]
                routed[self._route(probabilities[index], crop_for_features.source)].append(index)
            except FamiliarError as error:
                skipped[row] = error
        rows, faces = np.array(list(crops), np.int64), list(crops.values())
        by_species: dict[str, SpeciesEmbeddings] = {}
        for column, name in enumerate(self.classifier.names):
            if name not in self.embedders:
                continue
            indices = np.array(routed[name], np.int64)
            if self.embedders[name] is self.feature_embedder:  # which has embedded its photos already
                embeddings = features[indices]
            else:
                embeddings = _embed_crops(self.embedders[name], [faces[index] for index in indices], flip)
            by_species[name] = SpeciesEmbeddings(rows[indices], probabilities[indices, column], embeddings)
        return RoutedEmbeddings(by_species, tuple(skipped[row] for row in sorted(skipped)))

    def _species_of_label(self, label: Label | None) -> str | None:
        """Return the species that the detector has told, in the singular or the plural, if the classifier knows it."""
        return next((name for name in self.classifier.names if label and name.lower() in (label, f"{label}s")), None)

    def _route(self, probabilities: Float64[np.ndarray, " k"], source: Path | str) -> str:
        """Pick the species whose bundle embeds a crop; raise UnsureSpecies or NoBundleForSpecies if there is none."""
        second, first = np.argsort(probabilities)[-2:]
        name, probability = self.classifier.names[first], probabilities[first]
        if probability < self.classifier.min_probability:
            raise UnsureSpecies(
                f"{source}: unsure of the species: {name} {probability:.0%}, {self.classifier.names[second]} "
                f"{probabilities[second]:.0%}; use the bundle of the right one alone"
            )
        if name not in self.embedders:
            raise NoBundleForSpecies(f"{source}: shows a {name} ({probability:.0%}), and there is no bundle for that")
        return name


@dataclass(frozen=True)
class RoutedVerification:
    """The decision for two photos.

    Attributes:
        species: of each photo.
        probabilities: of these species.
        verification: by the bundle of the species, without a verdict if that was never calibrated; None if the
            species differ. Then the photos show two individuals, and their embeddings are not compared.
    """

    species: tuple[str, str]
    probabilities: tuple[float, float]
    verification: VerificationResult | None


def verify_routed(
    router: RoutedEmbedder,
    first: Path,
    second: Path,
    detector: Detector | None = None,
    *,
    flip: bool = False,
    faces: tuple[int | None, int | None] = BEST_FACES,
    on_crop: Callable[[Crop], None] = lambda _: None,
) -> RoutedVerification:
    """Decide whether two photos show the same individual of one species.

    Arguments as for `verification.verify_photos`.

    Raises:
        UnsureSpecies, NoBundleForSpecies, UnreadablePhoto, NoFaceFound: one of the photos has no embedding.
    """
    photos = zip((first, second), faces, strict=True)
    crops = [router.crop(photo, detector, face) for photo, face in photos]
    for each in crops:
        on_crop(next(iter(each.values())))
    routed = router.embed_crops(crops, flip=flip)
    if routed.skipped:
        raise routed.skipped[0]
    (_, first_species, first_probability), (_, second_species, second_probability) = routed.by_row()
    verification = None
    if first_species == second_species:
        # The species' bundle has embedded these two photos and no others.
        embeddings = routed.by_species[first_species].embeddings
        calibration = router.embedders[first_species].metadata.calibration
        verification = verify_embeddings(embeddings[0], embeddings[1], calibration)
    return RoutedVerification((first_species, second_species), (first_probability, second_probability), verification)


def _crop_for_each(
    source: Source,
    preprocessings: set[Preprocessing],
    detector: Detector | None,
    open_photo: PhotoOpener[Source],
    face: int | None = None,
) -> CropsByPreprocessing:
    """Crop a face, the best or by its number, for each network. A detector searches the photo only once."""
    if detector is None or isinstance(detector, WholePhoto):
        return {each: crop_photo(source, each, open_photo=open_photo, face=face) for each in preprocessings}
    photo = open_photo(source, min_side_px=None)
    detections = detector.detect(photo)
    number = choose_face(photo, detections, face)
    chosen, count = from_left(detections)[number - 1], len(detections)
    return {each: replace(align(photo, chosen, each), face=number, face_count=count) for each in preprocessings}


def _embed_crops(embedder: Embedder, faces: Sequence[CropsByPreprocessing], flip: bool) -> Float32[np.ndarray, "n d"]:
    if not faces:
        return embedder.empty_embeddings()
    preprocessing = embedder.metadata.preprocessing
    return embedder.run(stack_crops([face[preprocessing] for face in faces], preprocessing.size_px), flip=flip)


def _concatenate(parts: Sequence[RoutedEmbeddings]) -> RoutedEmbeddings:
    def species(name: str) -> SpeciesEmbeddings:
        pieces = [part.by_species[name] for part in parts]
        return SpeciesEmbeddings(
            np.concatenate([piece.rows for piece in pieces]),
            np.concatenate([piece.probabilities for piece in pieces]),
            np.concatenate([piece.embeddings for piece in pieces]),
        )

    return RoutedEmbeddings(
        {name: species(name) for name in parts[0].by_species}, tuple(e for part in parts for e in part.skipped)
    )
