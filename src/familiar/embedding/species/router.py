"""Routing of crops by species: the detector or a classifier tells the species, and its bundle embeds the crop."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Float64, UInt8

from familiar.core.errors import FamiliarError, NoBundleForSpecies, UnsureSpecies
from familiar.core.types import LABELS, Crop, Face, Photo
from familiar.detection.alignment import align, choose_face, from_left
from familiar.detection.cropping import crop_photo, min_decoded_side_px
from familiar.detection.detector import Detector
from familiar.detection.detectors import CROP_DETECTORS, WholePhoto, available_detector
from familiar.embedding.embedder import Embedder
from familiar.embedding.model import EmbedResult
from familiar.embedding.species.classifier import SpeciesClassifier
from familiar.embedding.species.routed_embeddings import RoutedEmbeddings, SpeciesEmbeddings, concatenate
from familiar.photos.decoding import PhotoOpener, Source, load_photo
from familiar.photos.preprocessing import Preprocessing, resize_crop

CropsByPreprocessing = Mapping[Preprocessing, Crop]  # one face, cropped for each of the networks
SPACE_ID_DIGITS = 32
PLURALS = {"person": ("people", "humans")}  # of a detector's labels, besides those with an s


@dataclass(frozen=True, eq=False)
class RoutedCrop(Crop):
    """A face as the `feature_embedder` of a router takes it, and `for_each` of its networks."""

    for_each: CropsByPreprocessing = field(default_factory=dict[Preprocessing, Crop])

    def map_pixels(self, change: Callable[[UInt8[np.ndarray, "s s 3"]], UInt8[np.ndarray, "s s 3"]]) -> "RoutedCrop":
        """Return the crop with changed pixels, those for each network."""
        for_each = {preprocessing: crop.map_pixels(change) for preprocessing, crop in self.for_each.items()}
        return replace(self, rgb_u8=change(self.rgb_u8), for_each=for_each)


class RoutedEmbedder:
    """Embeds each crop with the bundle of its species.

    A species that the detector has told ("cat", and a species called cat or cats) needs no classifier. The bundles may
    take crops of different sizes and give embeddings of different dimensions, and each can be used alone.

    For galleries and evaluations the embeddings of all species are rows of one length (`embed_faces`): each of its
    different bundles has `columns` of its own, and all others are zero. So the similarity of photos of the same bundle
    is what it is by that bundle alone, and that of others is 0.
    """

    def __init__(
        self,
        feature_embedder: Embedder,
        classifier: SpeciesClassifier,
        embedders: Mapping[str, Embedder],
        path: Path | None = None,
    ) -> None:
        """Combine a species classifier with a bundle for each species.

        Args:
            feature_embedder: any bundle; the classifier takes its embeddings.
            classifier: fitted on embeddings of that bundle.
            embedders: the bundles of the species; a species of the classifier may have none.
            path: the file that the router was opened from, if it was.

        Raises:
            SpaceMismatch: the classifier was fitted with another bundle.
            ValueError: a bundle for a species that the classifier does not know.
        """
        if unknown := sorted(embedders.keys() - set(classifier.names)):
            raise ValueError(f"a bundle for {unknown[0]!r}, but the classifier knows {', '.join(classifier.names)}")
        classifier.check_space(feature_embedder.metadata.space_id, feature_embedder.metadata.embedding_dim)
        self.feature_embedder = feature_embedder
        self.classifier = classifier
        self.path = path
        self.embedders = {name: embedders[name] for name in classifier.names if name in embedders}
        self._preprocessings = {e.metadata.preprocessing for e in (feature_embedder, *self.embedders.values())}
        species_of_space: dict[tuple[str, int, tuple[int, ...]], list[str]] = {}
        for name, embedder in self.embedders.items():
            species_of_space.setdefault(embedder.space, []).append(name)
        ends = np.cumsum([0, *(dim for _, dim, _ in species_of_space)]).tolist()
        self.columns: dict[str, slice] = {}
        for names, start, end in zip(species_of_space.values(), ends[:-1], ends[1:], strict=True):
            self.columns |= dict.fromkeys(names, slice(start, end))
        self.bundles = {tuple(names): self.embedders[names[0]].bundle for names in species_of_space.values()}

    @property
    def threads(self) -> int:
        """Batches computed at once."""
        return self.feature_embedder.threads

    @property
    def batch_size(self) -> int:
        """Default number of photos per batch."""
        return self.feature_embedder.batch_size

    @property
    def space(self) -> tuple[str, int, tuple[int, ...]]:
        """What tells whether embeddings of `embed_faces` can be compared with others: space, dimension and prefixes.

        That of the bundle if all species have the same one.
        """
        metadata = [bundle.metadata for bundle in self.bundles.values()]
        if len(metadata) == 1:
            return metadata[0].space
        spaces = [(each.space_id, each.embedding_dim) for each in metadata]
        space_id = hashlib.sha256(repr(spaces).encode()).hexdigest()[:SPACE_ID_DIGITS]
        return space_id, sum(dim for _, dim in spaces), ()

    @property
    def species(self) -> tuple[str, ...]:
        """The species that it has bundles for, as a detector calls them."""
        return tuple(map(self._label_of, self.embedders))

    @property
    def detector_name(self) -> str:
        """The name of the `feature_embedder`'s detector; of a router for people and others the one that finds both."""
        name = self.feature_embedder.detector_name
        return "auto" if name not in CROP_DETECTORS and {"person"} < set(self.species) else name

    def detector(self, chosen: Detector | str | None = None, model_path: Path | None = None) -> Detector:
        """Return the detector to use with these bundles, as `Embedder.detector`.

        Args:
            chosen: a detector, or the name of one; None: the one called `detector_name`.
            model_path: as for `build_detector`.
        """
        return self.feature_embedder.detector(chosen or available_detector(self.detector_name, model_path), model_path)

    def min_decoded_side_px(self, detector: Detector) -> int | None:
        """Return the `min_side_px` to load a photo with, as `Embedder.min_decoded_side_px`, for all networks.

        Args:
            detector: that will search the photo.
        """
        sides = [min_decoded_side_px(detector, each) for each in self._preprocessings]
        return max((side for side in sides if side is not None), default=None)

    def align(self, photo: Photo, face: Face) -> RoutedCrop:
        """Crop a face for each network; see `alignment.align`.

        Args:
            photo: decoded at `min_decoded_side_px` or more.
            face: in pixels of the photo.
        """
        return self._routed_crop({each: align(photo, face, each) for each in self._preprocessings})

    def check_species(self, species: str | None) -> None:
        """Check that there is a bundle for a species.

        Args:
            species: its name here, or a detector's label for it; None: any.

        Raises:
            NoBundleForSpecies: there is none.
        """
        if species is not None:
            self.embedder_for(species)

    def embedder_for(self, species: str | None) -> tuple[Embedder, slice]:
        """Return the bundle that embeds faces of a species, and its components of an embedding of `embed_faces`.

        Args:
            species: in the singular or the plural, such as `EmbedResult.species` has it.

        Raises:
            NoBundleForSpecies: there is none.
        """
        name = self._species_of_label(species)
        if name not in self.embedders:
            raise NoBundleForSpecies(f"the router has no bundle for {species}; it has {', '.join(self.embedders)}")
        return self.embedders[name], self.columns[name]

    def embed_faces(self, crops: Sequence[Crop], *, flip: bool = False, species: str | None = None) -> EmbedResult:
        """Embed one batch of crops in the calling thread, each by the bundle of its species, as rows of one length.

        Unlike in `embed`, a face of unsure species is embedded by the bundle of the most probable one.

        Args:
            crops: of `crop` or `align`; others are resized for each network.
            flip: average each crop's embedding with that of its mirror image, at twice the cost.
            species: of all crops; None: what the detector or the classifier says.

        Returns:
            The embeddings, and the species of each, as a detector calls it. Faces of a species without a bundle are
            skipped.

        Raises:
            NoBundleForSpecies: there is none for `species`.
        """
        self.check_species(species)
        faces = [crop if isinstance(crop, RoutedCrop) else self._resize_for_each(crop) for crop in crops]
        known = self._species_of_label(species)
        routed = self._embed_batch(range(len(faces)), faces.__getitem__, flip, self._most_probable, known)
        by_row = routed.by_row()
        rows = np.array([row for row, _, _ in by_row], np.int64)
        embeddings = np.zeros((len(rows), self.space[1]), np.float32)
        for name, each in routed.by_species.items():
            embeddings[np.searchsorted(rows, each.rows), self.columns[name]] = each.embeddings
        return EmbedResult(embeddings, rows, routed.skipped, tuple(self._label_of(name) for _, name, _ in by_row))

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

        def crop(row: int) -> RoutedCrop:
            return self.crop(sources[row], detector, open_photo=open_photo)

        return self._embed(len(sources), crop, flip, batch_size, on_batch)

    def crop(
        self,
        source: Source,
        detector: Detector | None = None,
        *,
        open_photo: PhotoOpener[Source] = load_photo,
        face: int | None = None,
    ) -> RoutedCrop:
        """Load a source and crop one of its faces for each network.

        Args:
            source: what `open_photo` loads.
            detector: finds the faces; None: the photo is a crop already.
            open_photo: loads the source.
            face: number of the face, counted from the left and from 1; None: the best one.
        """
        return self._routed_crop(_crop_for_each(source, self._preprocessings, detector, open_photo, face))

    def embed_crops(self, crops: Sequence[RoutedCrop], *, flip: bool = False) -> RoutedEmbeddings:
        """Embed faces.

        Args:
            crops: each as `crop` returns it.
            flip: average each face's embedding with that of its mirror image, at twice the cost.
        """
        return self._embed(len(crops), crops.__getitem__, flip, None)

    def _routed_crop(self, for_each: CropsByPreprocessing) -> RoutedCrop:
        crop = for_each[self.feature_embedder.metadata.preprocessing]
        return RoutedCrop(crop.rgb_u8, crop.source, crop.face, crop.face_count, crop.label, for_each)

    def _resize_for_each(self, crop: Crop) -> RoutedCrop:
        def resize(preprocessing: Preprocessing) -> Crop:
            return replace(crop, rgb_u8=resize_crop(crop.rgb_u8, replace(preprocessing, resize="stretch")))

        return self._routed_crop({preprocessing: resize(preprocessing) for preprocessing in self._preprocessings})

    def _embed(
        self,
        count: int,
        crop: Callable[[int], RoutedCrop],
        flip: bool,
        batch_size: int | None,
        on_batch: Callable[[int], None] = lambda _: None,
    ) -> RoutedEmbeddings:
        size = max(1, min(batch_size or self.batch_size, -(-count // self.threads)))
        batches = [range(start, min(start + size, count)) for start in range(0, count, size)]
        parts = [self._embed_batch(range(0), crop, flip, self._sure_species)]
        with ThreadPoolExecutor(self.threads) as pool:
            done = pool.map(lambda batch: self._embed_batch(batch, crop, flip, self._sure_species), batches)
            for batch, part in zip(batches, done, strict=True):
                parts.append(part)
                on_batch(batch.stop)
        return concatenate(parts)

    def _embed_batch(
        self,
        batch: range,
        crop: Callable[[int], RoutedCrop],
        flip: bool,
        choose_species: Callable[[Float64[np.ndarray, " k"], Path | str], str],
        species: str | None = None,
    ) -> RoutedEmbeddings:
        crops: dict[int, RoutedCrop] = {}
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
                if labeled := species or self._species_of_label(face.label):
                    probabilities[index] = [float(name == labeled) for name in self.classifier.names]
                routed[choose_species(probabilities[index], face.source)].append(index)
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

    def _species_of_label(self, label: str | None) -> str | None:
        """Return the species that the detector has told, in the singular or the plural, if the classifier knows it."""
        if label is None:
            return None
        forms = (label, f"{label}s", *PLURALS.get(label, ()))
        return next((name for name in self.classifier.names if name == label or name.lower() in forms), None)

    def _label_of(self, name: str) -> str:
        """Return what a detector calls a species, or else the name that it has here."""
        return next((label for label in LABELS if self._species_of_label(label) == name), name)

    def _sure_species(self, probabilities: Float64[np.ndarray, " k"], source: Path | str) -> str:
        """Pick the species whose bundle embeds a crop; raise UnsureSpecies or NoBundleForSpecies if there is none."""
        second, first = np.argsort(probabilities)[-2:]
        name, probability = self.classifier.names[first], probabilities[first]
        if probability < self.classifier.min_probability:
            raise UnsureSpecies(
                f"{source}: unsure of the species: {name} {probability:.0%}, {self.classifier.names[second]} "
                f"{probabilities[second]:.0%}; use the bundle of the right one alone"
            )
        return self._most_probable(probabilities, source)

    def _most_probable(self, probabilities: Float64[np.ndarray, " k"], source: Path | str) -> str:
        """Pick the most probable species; raise NoBundleForSpecies if it has no bundle."""
        name, probability = self.classifier.names[probabilities.argmax()], probabilities.max()
        if name not in self.embedders:
            raise NoBundleForSpecies(f"{source}: shows a {name} ({probability:.0%}), and there is no bundle for that")
        return name


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
    number = choose_face(photo, detections, face, detector)
    chosen, count = from_left(detections)[number - 1], len(detections)
    return {each: replace(align(photo, chosen, each), face=number, face_count=count) for each in preprocessings}


def _embed_crops(embedder: Embedder, faces: Sequence[RoutedCrop], flip: bool) -> Float32[np.ndarray, "n d"]:
    return embedder.embed_faces(
        [face.for_each[embedder.metadata.preprocessing] for face in faces], flip=flip
    ).embeddings
