"""The class for users of the library: a photo collection and what one does with it."""

import contextlib
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Float, Float32

from familiar.core.calibration import Calibration
from familiar.core.data_table import DataTable, TableSource
from familiar.core.errors import Contradiction, NoFaceFound, NothingDetected
from familiar.core.files import absolute_path, content_sha256
from familiar.core.gallery_types import (
    AssignmentConfidence,
    ClusterResult,
    CorrectionResult,
    Counts,
    Decision,
    GalleryFace,
    GalleryPhoto,
    IdentitySummary,
    Question,
    SpeciesClustering,
    StoredType,
)
from familiar.core.notebook import NotebookHtml
from familiar.core.recognition_types import Hit, Match, VerificationResult
from familiar.core.types import Crop
from familiar.core.vectors import check_unit_rows
from familiar.detection.detector import Detector, looked_for
from familiar.detection.detectors import CROP_DETECTORS
from familiar.detection.faces import DetectedFaces
from familiar.embedding.bundle import load_bundle
from familiar.embedding.embedder import Embedder, as_embedder
from familiar.embedding.species import FAMILY, Models
from familiar.gallery.cluster import cluster as clusters
from familiar.gallery.edits import corrections, identity_state, manual_faces
from familiar.gallery.edits.forget import ForgetResult, forget_identity, forget_photos
from familiar.gallery.edits.identity_state import IdentityState, read_states
from familiar.gallery.edits.propagation import similar_faces
from familiar.gallery.enroll import gallery_model
from familiar.gallery.enroll.enroll import EnrolledBatch, EnrollResult, enroll, enroll_embeddings
from familiar.gallery.enroll.gallery_model import create_gallery, open_gallery_model
from familiar.gallery.enroll.redetect import photos_to_search, redetect_photos
from familiar.gallery.review import batches
from familiar.gallery.review import questions as reviews
from familiar.gallery.review.batches import Batch
from familiar.gallery.review.questions import Remaining
from familiar.gallery.same import assignments, decisions
from familiar.gallery.same.album import load_album, species_clusterings
from familiar.gallery.same.assignments import load_assignments, resolve_face, resolve_identity
from familiar.gallery.search import external_search, listing
from familiar.gallery.search import search as searches
from familiar.gallery.search.events import GalleryEvent, list_events
from familiar.gallery.search.filters import NO_FILTER, Filter
from familiar.gallery.search.html_view import Item, gallery_html, gallery_text, items_html
from familiar.gallery.search.index_update import IndexUpdate, update_index
from familiar.gallery.search.statistics import GalleryStatistics, gallery_statistics
from familiar.gallery.search.table import EmbeddingDtype, as_unit_rows, embedding_matrix, face_table
from familiar.gallery.store import automatic_copies, uploaded_files
from familiar.gallery.store.connection import DATABASE
from familiar.gallery.store.external_index import OpenIndex
from familiar.gallery.store.identities import Attributes
from familiar.gallery.store.model_reference import ModelReference
from familiar.gallery.store.notes import Note
from familiar.gallery.store.photos import PhotoRow
from familiar.gallery.store.retention import Retention
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import UPLOADED_PHOTOS, Store
from familiar.gallery.transfer import import_export, migrate
from familiar.gallery.transfer.backup import BackupResult, RestoreResult, backup, restore
from familiar.gallery.transfer.check import CheckResult, check
from familiar.gallery.transfer.repair import RepairResult, repair
from familiar.photos.listing import find_photos
from familiar.photos.photo_source import PhotoSource, photo_name

Photos = Path | str | Iterable[Path | str]
T = TypeVar("T")
Query: TypeAlias = PhotoSource | Crop | Float32[np.ndarray, " d"]


@dataclass
class _OpenModel:
    """The model of all objects that have one gallery open, once one of them has needed it."""

    embedder: Embedder | None = None


class Gallery(TableSource):
    """A photo collection: the faces in its photos, clustered into identities, with the user's corrections.

    Open it with `create` or `open`, use it in a `with` statement or `close` it, and use each object in one thread at a
    time. Every change is on the disk when its method returns, as a whole or, after an error or a crash, not at all.

    An identity is given by its number, by its name, or by a text such as "#12". A face is given by its number, or by
    the path of a photo with one face.

    `read` and `write` make several calls see one moment, or change all or nothing.

    Args:
        store: the open database, which only the functions of this package take.
        embedder: its model, if that is open already.

    >>> with Gallery.create("album") as gallery:
    ...     enrolled = gallery.enroll("photos")
    ...     clusters = gallery.cluster()
    ...     change = gallery.split(["photos/mia-1.png", "photos/mia-2.png"], "Mia")
    ...     (match,) = gallery.identify("photos/mia-2.png", k=1)
    >>> enrolled.faces, match.name
    (4, 'Mia')
    """

    def __init__(self, store: Store, embedder: Embedder | None = None) -> None:
        self.store = store
        self._model = _OpenModel(embedder)

    @staticmethod
    def exists(folder: Path | str) -> bool:
        """Whether a folder contains a gallery.

        Args:
            folder: to look into.
        """
        return (Path(folder) / DATABASE).exists()

    @staticmethod
    def create(
        folder: Path | str,
        model: Embedder | Models = FAMILY,
        *,
        detector: str | None = None,
        detector_model: Path | None = None,
        embedding_dtype: StoredType = "float16",
    ) -> "Gallery":
        """Create an empty gallery and open it. It remembers where its model is, and its detector.

        Args:
            folder: created if missing.
            model: an embedder, or what one is made of: a bundle (.onnx), a run folder, the name of a shipped bundle, or
                several bundles, each for its species. By default the shipped ones for cats, dogs and people.
                With several bundles each species has embeddings of its own, and all have one list of identities.
            detector: name of the detector that finds the faces, as for `build_detector`, such as "none" if each photo
                is one crop already. None: the one that the model names. Until the first photo is enrolled, `enroll` may
                name another one.
            detector_model: the detector's file, for one whose file is not in the package.
            embedding_dtype: how embeddings are stored: "float16", "float32", or "int8", at half the bytes of float16
                (on sixteen rows of photos recall@1 moved by -.004 to +.003, and on average not).

        Raises:
            BadBundle, BadDetector: there is no such model or detector.
            BadGallery: the folder contains a gallery already.
            CannotWrite: the folder cannot be written to.
        """
        embedder = as_embedder(model)
        return Gallery(create_gallery(Path(folder), embedder, detector, detector_model, embedding_dtype), embedder)

    @staticmethod
    def open(
        folder: Path | str,
        model: Embedder | Models | None = None,
        *,
        providers: Sequence[str] | None = None,
        backups: tuple[int, int] | None = None,
        open_index: OpenIndex | None = None,
    ) -> "Gallery":
        """Open the gallery of a folder.

        If the folder was moved or copied, the uploaded photos in it are known there from now on.

        Args:
            folder: the gallery's folder.
            model: needed only if the gallery's model is at another place now, which is remembered then, or is an object
                that was opened with other settings; as for `create`.
            providers: ONNX Runtime's, as for `Embedder`; with them the model is opened at once.
            backups: keep automatic copies of so many days and so many weeks from now on; (0, 0): make none. None: as
                before, at first 3 and 3.
            open_index: opens the index outside the folder, if the gallery has one (`update_index`), such as that of
                `familiar.integrations.milvus`. None: every face is compared, and that index falls behind.

        Raises:
            BadBundle: there is no such model.
            BadGallery: the folder contains no gallery.
            CorruptGallery: the gallery is damaged.
            SpaceMismatch: the model is not the gallery's.
        """
        gallery = Gallery(Store.open(Path(folder), open_index))
        try:
            uploaded_files.find_moved_uploads(gallery.store)
            if model is not None or providers is not None:
                gallery.open_model(model, providers=providers)
            if backups is not None:
                gallery.keep_copies(*backups)
        except BaseException:
            gallery.close()
            raise
        return gallery

    def connect(self) -> "Gallery":
        """Open the gallery once more, for another thread, with the same model. What is cached is shared."""
        gallery = Gallery(self.store.new_connection())
        gallery._model = self._model
        return gallery

    def close(self) -> None:
        """Close the database."""
        self.store.close()

    def __enter__(self) -> "Gallery":
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Gallery({gallery_text(self.store)})"

    def _repr_html_(self) -> str:
        return gallery_html(self.store)

    @contextlib.contextmanager
    def read(self) -> Generator[None, None, None]:
        """See the gallery as it is at one moment, whatever others write meanwhile."""
        with self.store.read():
            yield

    @contextlib.contextmanager
    def write(self) -> Generator[None, None, None]:
        """Let nobody else write, and write all changes at the end; after an error none of them.

        Raises:
            GalleryBusy: others have been writing for long.
            CannotWrite: the disk is full, or the folder cannot be written to.
        """
        with self.store.write():
            yield

    @contextlib.contextmanager
    def decision(self, kind: str) -> Generator[None, None, None]:
        """Make several corrections one decision, which `undo` reverts as a whole; after an error nothing is written.

        Args:
            kind: what it is, as `decisions` lists it, such as "reunite".
        """
        with decisions.decision(self.store, kind):
            yield

    @property
    def folder(self) -> Path:
        """The gallery's folder."""
        return self.store.folder

    @property
    def uploads(self) -> Path:
        """The folder of uploaded photos, each named by its content."""
        return self.folder / UPLOADED_PHOTOS

    # --- the model and the detector -----------------------------------------------------------------------------------

    @property
    def embedder(self) -> Embedder:
        """The model, which is opened when it is first needed."""
        return self._model.embedder or self.open_model()

    def open_model(
        self,
        model: Embedder | Models | None = None,
        *,
        providers: Sequence[str] | None = None,
        may_write: bool = True,
    ) -> Embedder:
        """Open the model, and use it from now on.

        Args:
            model: the same one as before, if its place is another now, which is remembered.
            providers: as for `Embedder`.
            may_write: whether the place may be remembered.

        Raises:
            BadBundle, FamiliarError: it cannot be found.
            SpaceMismatch: it is another one.
        """
        self._model.embedder = open_gallery_model(self.store, model, providers=providers, may_write=may_write)
        return self._model.embedder

    def check_model(self, model: Embedder, *, to_compare: bool = True) -> None:
        """Check that a model is still the gallery's: another process may migrate it.

        Args:
            model: that was the gallery's.
            to_compare: its embeddings are compared with those of the gallery, and may be shorter; False: they are
                stored.

        Raises:
            SpaceMismatch: it is another one, or its embeddings are too short.
        """
        self.store.check_space(*model.space, to_compare=to_compare)

    @property
    def space(self) -> Space:
        """The space of the embeddings."""
        return self.store.space

    @property
    def model_reference(self) -> ModelReference:
        """What the gallery remembers of its model and its detector."""
        return self.store.model_reference

    def truncate_query(self, query: Float32[np.ndarray, " d"]) -> Float32[np.ndarray, " k"]:
        """Shorten an embedding by the gallery's model to the length that is stored, if it is longer.

        Args:
            query: by the gallery's model.
        """
        return self.store.truncate(query[None])[0]

    @property
    def revision(self) -> int:
        """A number that rises with each change."""
        return self.store.revision

    def cached(self, key: str, compute: Callable[[], T]) -> T:
        """Return what is computed from the gallery, and computed anew only after a change.

        Args:
            key: under which it is stored in memory, for all connections to the gallery.
            compute: called within one snapshot.
        """
        with self.store.read():
            return self.store.cached(key, self.revision, compute)

    def detector(
        self, chosen: Detector | str | None = None, model_path: Path | None = None, *, for_query: bool = False
    ) -> Detector:
        """Return the detector that finds faces in the gallery's photos.

        Args:
            chosen: its name, or an object, which is returned as it is.
            model_path: its file, if it is not in the package.
            for_query: for a photo that is compared and not stored, which may be a crop: "none" or "center".

        Raises:
            Contradiction: the faces in the gallery's photos were found by another one.
            BadDetector: there is no such detector.
        """
        return gallery_model.gallery_detector(self.store, self.embedder, chosen, model_path, for_query=for_query)

    def other_detector(self, chosen: str) -> Detector:
        """Return a detector with which all photos may be searched again (`redetect`).

        Args:
            chosen: its name.
        """
        return gallery_model.build_gallery_detector(self.embedder, self.model_reference, chosen)

    def not_searched_for(self) -> str:
        """Say what the gallery's photos are not searched for, and which command changes that.

        Returns:
            To be put after what was not found, such as " (this album is not searched for people; ...)"; "" for nothing.
        """
        return gallery_model.not_searched_for(self.store, self.embedder, self.detector())

    def command_to_find_more(self) -> str | None:
        """Return the command after which the gallery has all faces of cats, dogs and people in its photos.

        None: the gallery's detector looks for all of them already.
        """
        return gallery_model.command_to_find_more(self.store, self.embedder, self.detector())

    def models_to_find_more(self) -> tuple[str, ...]:
        """List the models to migrate to, with which the gallery can use all faces of cats, dogs and people.

        Empty: its models are made for all of them.
        """
        return gallery_model.models_to_find_more(self.embedder, self.detector())

    def unsuited_for(self) -> str:
        """Say what the gallery's detector finds and its model is not made for, but embeds: such as "people"; or "".

        The faces of these are mixed up. `models_to_find_more` lists models that are made for them too.
        """
        return gallery_model.unsuited_for(self.embedder, self.detector())

    def remember_detector(self, chosen: Detector | str | None = None, model_path: Path | None = None) -> None:
        """Remember which detector finds faces from now on; None: the one of the gallery, or of its model.

        Args:
            chosen: its name; an object is not remembered.
            model_path: its file, if it is not in the package.
        """
        gallery_model.remember_detector(self.store, self.embedder, chosen, model_path)

    # --- photos in, results out ---------------------------------------------------------------------------------------

    def enroll(
        self,
        photos: Photos = (),
        detector: Detector | str | None = None,
        *,
        detector_model: Path | None = None,
        redetect: bool = False,
        flip: bool = False,
        species: str | None = None,
        on_batch: Callable[[int, EnrollResult], None] = lambda _, __: None,
        record: Callable[[EnrolledBatch], None] | None = None,
    ) -> EnrollResult:
        """Find and embed the faces of photos, and store them. Photos that were enrolled before are skipped.

        Args:
            photos: files and folders; folders are searched for photos.
            detector: finds the faces. None: the gallery's. A name, as for `build_detector`, is remembered with the
                first photos; later ones must be searched with the same, unless `redetect` is set. A detector object is
                used for this call, and not remembered.
            detector_model: the detector's file, for one whose file is not in the package.
            redetect: look again at photos that are in the gallery: with another detector at all of them, and the
                gallery remembers it; otherwise at those of `photos`, or without `photos` of the gallery, that have no
                face. All faces that are there stay; those that were deleted do not come back.
            flip: average each face's embedding with that of its mirror image.
            species: stored with each new face; None: what the detector says it is, if it does.
            on_batch: called after each batch with the number of photos done and the result so far.
            record: called within the transaction of each batch with what became of its photos, to write notes with it.

        Returns:
            The numbers of new, known and edited photos and of new faces, and the photos that could not be read.

        Raises:
            Contradiction: the gallery's detector is another one.
            SpaceMismatch: another process has moved the gallery to another model.
        """
        named = [photos] if isinstance(photos, str | Path) else list(photos)
        paths = find_photos(named) if named or not redetect else []
        reference = self.model_reference
        is_other = detector is not None and detector != reference.detector
        if redetect and isinstance(detector, str):
            chosen = gallery_model.build_gallery_detector(self.embedder, reference, detector, detector_model)
        else:
            chosen = self.detector(detector, detector_model)
        known: list[PhotoRow] = []
        if redetect:
            among = frozenset(map(absolute_path, paths)) if paths and not is_other else None
            known = photos_to_search(self.store, without_face=not is_other, paths=among)
        else:  # at once, so that an interrupted call goes on with the same one
            self.remember_detector(detector, detector_model)
        result = enroll(
            self.store, self.embedder, paths, chosen, flip=flip, species=species, on_batch=on_batch, record=record
        )
        if redetect:
            result += redetect_photos(
                self.store,
                self.embedder,
                known,
                chosen,
                enrolled_as_crops=reference.detector in CROP_DETECTORS,
                flip=flip,
                species=species,
                on_batch=lambda done, again: on_batch(len(paths) + done, result + again),
            )
            self.remember_detector(detector, detector_model)
        return result

    def photos_to_search(self, *, without_face: bool) -> list[PhotoRow]:
        """List the photos that have a file and may be searched again: all, or those in which no face was found.

        Args:
            without_face: only those in which no face was detected.
        """
        return photos_to_search(self.store, without_face=without_face)

    def redetect(
        self,
        photos: Sequence[PhotoRow],
        detector: Detector,
        *,
        were_crops: bool = False,
        on_batch: Callable[[int, EnrollResult], None] = lambda _, __: None,
    ) -> EnrollResult:
        """Detect the faces of photos again, and add those that are new; faces that are there stay.

        Args:
            photos: from `photos_to_search`.
            detector: finds the faces.
            were_crops: the photos were taken as crops until now: a face that is detected takes the crop's place.
            on_batch: as for `enroll`.

        Returns:
            What was found, and the photos whose files are missing or have changed.
        """
        return redetect_photos(
            self.store, self.embedder, photos, detector, enrolled_as_crops=were_crops, on_batch=on_batch
        )

    def enroll_embeddings(self, embeddings: Any, names: Sequence[str]) -> list[int]:
        """Store embeddings that were computed elsewhere, each as the only face of a photo.

        Those that were stored before under the same names are skipped.

        Args:
            embeddings: unit rows by the gallery's model: an array "n d", or a column of an Arrow table.
            names: of the photos, one for each row; they take the place of paths.

        Returns:
            The numbers of the new faces.

        Raises:
            SpaceMismatch: they are of another length.
            ValueError: a row is not of unit length, a name cannot be that of a file, or the numbers of rows and names
                differ; nothing is stored.
        """
        rows, listed = as_unit_rows(embeddings), list(names)
        if len(rows) != len(listed):
            raise ValueError(f"give a name for each embedding: {len(listed)} names, {len(rows)} embeddings")
        return enroll_embeddings(self.store, rows, listed, self.store.space.space_id)

    def find_face(
        self,
        photo: PhotoSource,
        detector: Detector | str | None = None,
        *,
        face: int | None = None,
        species: str | None = None,
    ) -> DetectedFaces:
        """Find the face of a photo that is compared with the gallery.

        Args:
            photo: a path, bytes, an open file, or what else `load_photo` takes.
            detector: as for `search`.
            face: as for `search`.
            species: of the face; None: what the detector says.

        Raises:
            NoFaceFound: there is none; the message says what was looked for.
            UnreadablePhoto: it is no photo.
        """
        self.check_model(self.embedder)
        chosen, choice = self.detector(detector, for_query=True), "best" if face is None else face
        try:
            return self.embedder.detect_faces(photo, chosen, choice=choice, species=species, rate=False)
        except NothingDetected as error:
            raise NoFaceFound(
                f"{photo_name(photo)}: no {looked_for(chosen)} found{self.not_searched_for()}; if the photo is cropped "
                "to a face already, use --detector none"
            ) from error

    def embed_face(self, photo: DetectedFaces, *, flip: bool = False) -> Float32[np.ndarray, " d"]:
        """Embed the face of what `find_face` returned, for `search`, `identify` and `verify`.

        Args:
            photo: what `find_face` returned.
            flip: average the embedding with that of its mirror image.

        Raises:
            SpaceMismatch: the gallery was migrated to another model since.
        """
        self.check_model(self.embedder)
        (face,) = self.embedder.embed_faces(photo.faces, flip=flip)
        assert face.embedding is not None
        return self.truncate_query(face.embedding)

    def _embed_query(
        self, query: Query, detector: Detector | str | None, face: int | None, *, flip: bool
    ) -> Float32[np.ndarray, " d"]:
        """Return the embedding of a query, which may be one already. Raises ValueError if that is no unit vector."""
        if isinstance(query, np.ndarray) and query.ndim != 3:
            check_unit_rows(query[None])
            return query
        if isinstance(query, Crop):
            self.check_model(self.embedder)
            return self.truncate_query(self.embedder.embed([query], flip=flip)[0])
        return self.embed_face(self.find_face(query, detector, face=face), flip=flip)

    def search(
        self,
        query: Query,
        k: int = 10,
        *,
        only: Filter = NO_FILTER,
        detector: Detector | str | None = None,
        face: int | None = None,
        flip: bool = False,
        prefix: int | None = None,
    ) -> list[Hit]:
        """Find the faces that are most similar to a query.

        Args:
            query: a photo as `load_photo` takes it (a path, bytes, an open file), a crop, or an embedding of the
                gallery's model, "d".
            k: maximum number of faces, at least 1.
            only: restricts the search to some faces.
            detector: finds the face in a photo. None: the gallery's; "none" or "center" if the photo is a crop; or a
                detector object.
            face: number of the face in a photo, counted from the left and from 1; None: the best one.
            flip: average the query's embedding with that of its mirror image.
            prefix: one of the model's valid prefix lengths: candidates are chosen by these first components.

        Returns:
            The faces with their photos, identities, similarities in [-1, 1] and probabilities, most similar first.

        Raises:
            UnreadablePhoto, NoFaceFound: the photo cannot be embedded.
            ValueError: `k` or `prefix` is not valid, or the embedding is not a unit vector of the gallery's length.
        """
        embedding = self._embed_query(query, detector, face, flip=flip)
        return searches.search_faces(self.store, embedding, k, only=only, prefix=prefix)

    def identify(
        self,
        query: Query,
        k: int = 5,
        *,
        only: Filter = NO_FILTER,
        detector: Detector | str | None = None,
        face: int | None = None,
        flip: bool = False,
    ) -> list[Match]:
        """Find the identities that are most similar to a query.

        Args:
            query: a photo as `load_photo` takes it (a path, bytes, an open file), a crop, or an embedding.
            k: maximum number of identities, at least 1.
            only: restricts the search to some faces.
            detector: finds the face in a photo.
            face: number of the face in a photo, counted from the left and from 1; None: the best one.
            flip: average the query's embedding with that of its mirror image.

        Returns:
            The identities, most similar first. If none of them is `known`, the query shows an unknown individual.

        Raises:
            UnreadablePhoto, NoFaceFound: the photo cannot be embedded.
            ValueError: `k` is below 1, or the embedding is not a unit vector of the gallery's length.
        """
        embedding = self._embed_query(query, detector, face, flip=flip)
        return searches.search_identities(self.store, embedding, k, only=only)

    def verify(
        self,
        query: Query,
        identity: int | str,
        *,
        detector: Detector | str | None = None,
        face: int | None = None,
        flip: bool = False,
    ) -> VerificationResult:
        """Decide whether a query shows an identity.

        Args:
            query: a photo as `load_photo` takes it (a path, bytes, an open file), a crop, or an embedding.
            identity: the identity.
            detector: finds the face in a photo.
            face: number of the face in a photo, counted from the left and from 1; None: the best one.
            flip: average the query's embedding with that of its mirror image.

        Returns:
            The similarity in [-1, 1], the probability, and the decision; only the similarity if neither the model nor
            the gallery is calibrated.

        Raises:
            NotInGallery: there is no such identity.
            UnreadablePhoto, NoFaceFound: the photo cannot be embedded.
        """
        embedding = self._embed_query(query, detector, face, flip=flip)
        return searches.verify(self.store, embedding, self.resolve_identity(identity))

    def cluster(self, *, threshold: float | None = None, rebuild: bool = False) -> ClusterResult:
        """Cluster the faces into identities. What the user has confirmed or corrected stays.

        An identity begins with two similar faces. A face without a similar one stays unassigned; `split` with a name
        makes an identity of it.

        Args:
            threshold: similarity in [-1, 1] from which two faces are clustered together; by default the calibrated one.
            rebuild: cluster all faces again, not only the new ones.

        Returns:
            The numbers of identities, of their faces and of unassigned faces.
        """
        return clusters.cluster(self.store, threshold=threshold, rebuild=rebuild)

    def needs_clustering(self) -> bool:
        """Whether faces wait to be clustered; not if the user has undone the only clustering."""
        with self.store.read() as repository:
            return repository.settings.is_clustering_pending()

    def is_uncorrected(self) -> bool:
        """Whether nobody has named, placed or distinguished any face."""
        with self.store.read() as repository:
            return not (
                repository.identities.names()
                or repository.assignments.confirmed_counts()
                or repository.constraints.pairs(same=False)
                or repository.constraints.pairs(same=True)
                or repository.constraints.rejections()
            )

    def last_identity(self) -> int:
        """Return the highest number that an identity ever had."""
        with self.store.read() as repository:
            return repository.identities.last_number()

    def count_identities_after(self, number: int) -> int:
        """Count the identities with a higher number.

        Args:
            number: of an identity that may be gone.
        """
        with self.store.read() as repository:
            return repository.identities.count_after(number)

    # --- what is in the gallery ---------------------------------------------------------------------------------------

    def counts(self, *, species: str | None = None) -> Counts:
        """Count photos, faces and identities.

        Args:
            species: only faces of this species, photos with such a face, and identities of which most faces are.
        """
        return listing.counts(self.store, species=species)

    def photo(self, number: int) -> GalleryPhoto:
        """Return a photo; raise NotInGallery if it does not exist.

        Args:
            number: of the photo.
        """
        return listing.photo(self.store, number)

    def photos(
        self, *, after: int = 0, before: int | None = None, species: str | None = None, limit: int = 100
    ) -> list[GalleryPhoto]:
        """List photos by rising number, or with `before` by falling number.

        Args:
            after: only photos with a higher number.
            before: only photos with a lower number.
            species: only photos with a face of this species.
            limit: maximum number of photos.
        """
        return listing.photos(self.store, after=after, before=before, species=species, limit=limit)

    def photo_paths(self) -> list[str]:
        """List where the files of all photos were when they were enrolled."""
        with self.store.read() as repository:
            return list(repository.photos.paths())

    def paths_by_sha256(self) -> dict[str, str]:
        """Return the path of each photo by the SHA-256 of its content, in upper-case hex."""
        with self.store.read() as repository:
            return {row.sha256.hex().upper(): row.path for row in repository.photos.rows()}

    def photos_with_content(self, files: Iterable[Path]) -> list[int]:
        """Return the numbers of the photos that have the content of some files; one that cannot be read is left out.

        Args:
            files: to compare with, wherever they are.
        """
        numbers: list[int] = []
        with self.store.read() as repository:
            for file in files:
                with contextlib.suppress(OSError):
                    row = repository.photos.with_hash(content_sha256(file))
                    numbers += [] if row is None else [row.photo]
        return numbers

    @staticmethod
    def uploaded_sha256(path: Path) -> str | None:
        """Return the SHA-256, in hex, that the path of an uploaded photo says; None for the path of any other file.

        Args:
            path: of any file.
        """
        return uploaded_files.uploaded_sha256(path)

    @staticmethod
    def has_uploaded_content(path: Path) -> bool:
        """Tell whether a file is an uploaded photo that can be read, with exactly the content that was uploaded.

        Args:
            path: of any file.
        """
        return uploaded_files.has_uploaded_content(path)

    def face(self, number: int) -> GalleryFace:
        """Return a face; raise NotInGallery if it does not exist.

        Args:
            number: of the face.
        """
        return listing.face(self.store, number)

    def faces(self, *, photos: Iterable[int] | None = None, identity: int | None = None) -> list[GalleryFace]:
        """List the faces of some photos, of an identity, or else all faces, by photo, then number.

        Args:
            photos: numbers of photos; others than those of the gallery have no faces.
            identity: number of the identity.
        """
        with self.store.read() as repository:
            if photos is not None:
                return repository.faces.rows_in_photos(photos)
            return repository.faces.rows() if identity is None else repository.faces.rows_of_identity(identity)

    def face_embedding(self, number: int) -> Float32[np.ndarray, " d"]:
        """Return the embedding of a face as a query; raise NotInGallery if it does not exist.

        Args:
            number: of the face.
        """
        assignments.check_faces(self.store, [number])
        faces = self.store.stored_faces()
        return faces.unit_rows(faces.rows_of(np.array([number])))[0]

    def similarities(self, embeddings: Float32[np.ndarray, "n d"], faces: Sequence[int]) -> Float32[np.ndarray, "n m"]:
        """Compute the similarity in [-1, 1] of each of some embeddings to each of some faces, as `search` does.

        Args:
            embeddings: unit rows by the gallery's model.
            faces: numbers of m faces that exist.
        """
        with self.store.read():
            table = self.store.faces_at(embeddings.shape[1])
        queries = np.stack([table.center_query(row) for row in embeddings])
        return np.clip(queries @ table.unit_rows(table.rows_of(np.array(faces, np.int64))).T, -1.0, 1.0)

    def identity(self, number: int) -> IdentitySummary:
        """Return the summary of an identity; raise NotInGallery if it does not exist.

        Args:
            number: of the identity.
        """
        return listing.identity_summary(self.store, number)

    def identities(
        self,
        *,
        named: bool | None = None,
        species: str | None = None,
        after: tuple[int, int] | None = None,
        limit: int = 2**31 - 1,
    ) -> list[IdentitySummary]:
        """List the identities, those with most faces first, then by number.

        Args:
            named: only those with a name, or without; None: all.
            species: only those of which most faces are of this species.
            after: only those that follow the one with this number of faces and this number.
            limit: maximum number of identities.
        """
        return listing.identity_summaries(self.store, named=named, species=species, after=after, limit=limit)

    def identity_faces(self, identity: int) -> list[AssignmentConfidence]:
        """List the faces of an identity with how sure each is, those that fit best first.

        Args:
            identity: its number.
        """
        return listing.face_confidences(self.store, identity)

    def count_faces(self, identity: int) -> int:
        """Count the faces of an identity; 0 if it does not exist.

        Args:
            identity: its number.
        """
        return len(load_assignments(self.store).rows_of_identity(identity))

    def unassigned_faces(self, *, species: str | None = None, after: int = 0, limit: int = 100) -> list[GalleryFace]:
        """List the faces without an identity by rising number, beginning after the number `after`.

        Args:
            species: only faces of this species.
            after: only faces with a higher number.
            limit: maximum number of faces.
        """
        return listing.unassigned_faces(self.store, species=species, after=after, limit=limit)

    def events(self, since: int = 0, limit: int = 1_000) -> list[GalleryEvent]:
        """List what was enrolled, named, merged and undone, in order.

        Args:
            since: only events with a higher number: that of the last one that is known already.
            limit: maximum number of events.
        """
        return list_events(self.store, since, limit)

    def attributes(self, identity: int) -> list[Attributes]:
        """Return what other programs have noted about an identity, such as where a pet was lost.

        Args:
            identity: its number.

        Returns:
            A record of it, if there is one, and of each identity that was merged into it. That of an identity of which
            only the name was known is empty.

        Raises:
            NotInGallery: there is no such identity.
        """
        with self.store.read() as repository:
            assignments.check_identities(self.store, [identity])
            return repository.identities.attributes(identity)

    def all_attributes(self) -> dict[int, list[Attributes]]:
        """Return the records of each identity that has any, as `attributes`."""
        with self.store.read() as repository:
            return repository.identities.all_attributes()

    def set_attributes(self, identity: int, record: Attributes, *, kind: str = "note") -> None:
        """Note something about an identity, in place of all its records. It is one change, which `undo` reverts.

        Args:
            identity: its number.
            record: texts by their names; empty: nothing is noted any more.
            kind: what the change is, as `decisions` lists it.

        Raises:
            NotInGallery: there is no such identity.
        """
        with decisions.decision(self.store, kind) as repository:
            assignments.check_identities(self.store, [identity])
            repository.identities.set_attributes(identity, [record] if record else [])

    def notes(self, topic: str, *, after: int = 0, limit: int = 2**31 - 1, without_faces: bool = False) -> list[Note]:
        """List what another program keeps with the gallery, by rising number.

        Args:
            topic: of the notes, which begins with the program's name.
            after: only notes with a higher number.
            limit: maximum number of notes.
            without_faces: only notes that do not tell of faces yet, or any more.
        """
        with self.store.read() as repository:
            return repository.notes.rows(topic, after, limit, without_faces=without_faces)

    def add_note(
        self,
        topic: str,
        body: Mapping[str, Any],
        *,
        photo: int | None = None,
        faces: Sequence[Mapping[str, Any]] | None = None,
    ) -> int:
        """Keep a note of another program, which is erased with the photo that it is about; return its number.

        Args:
            topic: as for `notes`.
            body: a JSON object, as for `Note`.
            photo: number of the photo that it is about.
            faces: what it tells of faces, as for `Note`.
        """
        with self.store.write() as repository:
            return repository.notes.add(topic, body, photo, faces)

    def change_note(
        self, number: int, *, body: Mapping[str, Any] | None = None, faces: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Change a note, if it is still there.

        Args:
            number: of the note.
            body: its new body; None: as before.
            faces: what it tells of faces, as for `Note`; None: as before.
        """
        with self.store.write() as repository:
            if body is not None:
                repository.notes.set_body(number, body)
            if faces is not None:
                repository.notes.set_faces(number, faces)

    def move_notes(self, photo: int, to: int) -> None:
        """Let the notes on a photo be about another one, which has replaced it.

        Args:
            photo: number of the photo that is gone.
            to: number of the other one.
        """
        with self.store.write() as repository:
            repository.notes.replace_photo(photo, to)

    def delete_notes(self, numbers: Iterable[int]) -> None:
        """Delete notes.

        Args:
            numbers: of the notes.
        """
        with self.store.write() as repository:
            repository.notes.delete(numbers)

    def names(self) -> dict[int, str]:
        """Return the names of the identities that have one, by number."""
        return load_assignments(self.store).names

    def names_beginning(self, beginning: str, limit: int = 10) -> list[str]:
        """List the names that begin with a text, ignoring case, in alphabetical order.

        Args:
            beginning: of the names.
            limit: maximum number of names.
        """
        return listing.names(self.store, beginning, limit)

    def resolve_identity(self, reference: int | str) -> int:
        """Return the number of the identity that a number, a name or a text such as "#12" means.

        Args:
            reference: a number, a name, or a text such as "#12".

        Raises:
            NotInGallery: there is no such identity.
        """
        return resolve_identity(self.store, f"#{reference}" if isinstance(reference, int) else reference)

    def resolve_faces(self, references: Iterable[int | str]) -> list[int]:
        """Return the numbers of faces that are given by number, or by the path of a photo with one face; each once.

        Args:
            references: numbers, and paths of photos with one face.

        Raises:
            NotInGallery: there is no such face or photo, or the photo does not show exactly one face.
            UnreadablePhoto, Contradiction: a photo's file cannot be read, or has other content than when it was
                enrolled.
        """
        return list(dict.fromkeys(resolve_face(self.store, str(each)) for each in references))

    def require(self, *, faces: Sequence[int] = (), identities: Sequence[int] = ()) -> None:
        """Raise NotInGallery unless all these faces and identities exist.

        Args:
            faces: numbers of faces.
            identities: numbers of identities.
        """
        assignments.check_faces(self.store, faces)
        assignments.check_identities(self.store, identities)

    def statistics(self) -> GalleryStatistics:
        """Count photos, faces and identities, and describe the model and the thresholds."""
        return gallery_statistics(self.store)

    # --- tables and notebooks -----------------------------------------------------------------------------------------

    def table(self, embedding_dtype: EmbeddingDtype | None = None) -> DataTable:
        """Return a table with a row for each face: its photo, box, identity, name and embedding, among others.

        `to_pandas` and `to_arrow` convert it. All embeddings have the same length. With several bundles it is that of
        all together, and all components but those of one bundle, which the column `space` names, are 0.

        Args:
            embedding_dtype: "float16" or "float32", for programs that cannot read float16; None: as they are in memory,
                uncopied; those that are stored in 8 bits are float16.
        """
        return face_table(self.store, embedding_dtype)

    def embeddings(self, *, centered: bool = False) -> Float[np.ndarray, "n d"]:
        """Return the embeddings of all faces, one in each row, in the order of `table`, as a read-only view.

        It shows the faces as they are now, also after changes, and when the gallery is closed.

        Args:
            centered: as the gallery compares them: less the means of its photos, if its model has means of species. A
                query must not be centered.
        """
        return embedding_matrix(self.store, centered=centered)

    def show(self, items: Iterable[Item]) -> NotebookHtml:
        """Return the faces of search hits, matches, identities or questions, for a notebook to display.

        Args:
            items: what `search`, `identify`, `identities` or `questions` returned, or numbers of faces. The first 24
                are shown.
        """
        return NotebookHtml(items_html(self.store, items))

    # --- corrections --------------------------------------------------------------------------------------------------

    def name(self, identity: int | str, name: str, *, confirm: bool = False) -> CorrectionResult:
        """Name an identity, which also keeps it from being clustered again.

        Args:
            identity: the identity.
            name: without control characters, and not beginning with #. The gallery keeps one spelling of it: composed
                accents, plain spaces, no invisible marks.
            confirm: also mark all its faces as confirmed.

        Raises:
            NotInGallery: there is no such identity.
            Contradiction: another identity has that name, or the name is not valid.
        """
        with self.store.write():
            return corrections.name_identity(self.store, self.resolve_identity(identity), name, confirm=confirm)

    def confirm(self, faces: Sequence[int | str]) -> None:
        """Mark faces as assigned correctly, so that clustering never moves them.

        Args:
            faces: numbers of faces, or paths of photos with one face. Nothing changes for faces without an identity.

        Raises:
            NotInGallery: there is no such face.
            ValueError: no face is given.
        """
        with self.store.write():
            corrections.confirm(self.store, self._faces(faces))

    def merge(self, into: int | str, others: Sequence[int | str], *, same_photo: bool = False) -> CorrectionResult:
        """Merge identities into one.

        The faces are not confirmed. While the identity has no name, `cluster` with `rebuild` may separate them again,
        but for the two central ones, which stay together.

        Args:
            into: the identity that stays, by number or name. If it has no name, it gets the first name of the others.
            others: the identities that become part of it.
            same_photo: accept that a photo shows two of them, as a collage or a mirror does. Their faces in it are
                then confirmed.

        Returns:
            The identity, and how many further, similar faces changed.

        Raises:
            NotInGallery: there is no such identity.
            SharedPhoto: a photo does, and `same_photo` is False.
        """
        with self.store.write():
            numbers = [self.resolve_identity(other) for other in others]
            return corrections.merge(self.store, self.resolve_identity(into), numbers, same_photo=same_photo)

    def split(
        self,
        faces: Sequence[int | str],
        name: str | None = None,
        *,
        same_photo: bool = False,
        propagate: bool = True,
    ) -> CorrectionResult:
        """Move faces to a new identity. Unconfirmed faces that are more similar to them move along.

        Args:
            faces: the faces.
            name: of the new identity.
            same_photo: accept that two of them are in one photo.
            propagate: as for `move`.

        Raises:
            NotInGallery: there is no such face.
            SharedPhoto: two are, and `same_photo` is False.
            Contradiction: the name is taken.
            ValueError: no face is given.
        """
        with self.store.write():
            return corrections.split(self.store, self._faces(faces), name, same_photo=same_photo, propagate=propagate)

    def move(
        self, faces: Sequence[int | str], to: int | str, *, same_photo: bool = False, propagate: bool = True
    ) -> CorrectionResult:
        """Move faces to an identity. Unconfirmed faces that are more similar to them move along.

        Args:
            faces: numbers of faces, or paths of photos with one face.
            to: the identity, by number or name.
            same_photo: accept that a photo has two faces in it, as a collage or a mirror does. They are then confirmed.
            propagate: False: no similar face moves along; and several faces of a photo are accepted, in place of
                those that only clustering put there.

        Returns:
            The identity, and how many further faces changed.

        Raises:
            NotInGallery: there is no such face or identity.
            SharedPhoto: a photo would show the identity twice, and `same_photo` is False.
            ValueError: no face is given.
        """
        with self.store.write():
            return corrections.move(
                self.store,
                self._faces(faces),
                self.resolve_identity(to),
                same_photo=same_photo,
                propagate=propagate,
            )

    def reject(self, faces: Sequence[int | str], identity: int | str | None = None) -> CorrectionResult:
        """Note that faces do not show an identity, and remove them from it.

        Args:
            faces: numbers of faces, or paths of photos with one face.
            identity: by number or name; None: the one that each face is assigned to.

        Returns:
            The identity (of the first face), and how many further, similar faces changed.

        Raises:
            NotInGallery: there is no such face or identity.
            Contradiction: `identity` is None, and a face is not assigned to one.
            ValueError: no face is given.
        """
        with self.store.write():
            number = None if identity is None else self.resolve_identity(identity)
            return corrections.reject(self.store, self._faces(faces), number)

    def mark_different(self, first: int, second: int) -> None:
        """Note that two faces show different individuals, and so do the identities they are in.

        Args:
            first: number of a face.
            second: number of the other face.
        """
        corrections.mark_different(self.store, first, second)

    def unmark_different(self, first: int, second: int) -> None:
        """Forget that two identities show different individuals, whatever said so.

        Args:
            first: number of an identity.
            second: number of the other one.

        Raises:
            NotInGallery: there is no such identity.
        """
        corrections.unmark_different(self.store, first, second)

    def different_identities(self, identity: int) -> frozenset[int]:
        """Return the identities that are known to show another individual than this one, by corrections of faces.

        Args:
            identity: its number.
        """
        with self.store.read() as repository:
            return frozenset(repository.constraints.different_identities(identity))

    @staticmethod
    def check_name(name: str) -> str:
        """Return a name in the spelling in which it is stored; raise Contradiction if it is not valid.

        Args:
            name: as a user writes it.
        """
        return corrections.check_name(name)

    def similar_faces(self, identity: int, faces: Sequence[int]) -> list[int]:
        """Return the unconfirmed faces of an identity that are nearer to some of its faces than to the others.

        Args:
            identity: its number.
            faces: numbers of some of its faces.
        """
        return similar_faces(self.store, identity, faces)

    def add_face(
        self,
        photo: int,
        box_xyxy_px: tuple[float, float, float, float],
        landmarks_px: Float32[np.ndarray, "p 2"] | None = None,
        *,
        path: Path | None = None,
        species: str | None = None,
    ) -> int:
        """Add a face that the detector missed, and assign it to the identity that it resembles, if any.

        Args:
            photo: its number.
            box_xyxy_px: the face, in pixels of the upright photo.
            landmarks_px: of the face, if known.
            path: the photo's file, if it is at another place now.
            species: of the face.

        Returns:
            The face's number.
        """
        return manual_faces.add_face(
            self.store, self.embedder, photo, box_xyxy_px, landmarks_px, path=path, species=species
        )

    def set_face_box(
        self, face: int, box_xyxy_px: tuple[float, float, float, float], *, path: Path | None = None
    ) -> None:
        """Give a face another box and embed it again. It keeps its number.

        Args:
            face: its number.
            box_xyxy_px: in pixels of the upright photo.
            path: the photo's file, if it is at another place now.
        """
        manual_faces.set_face_box(self.store, self.embedder, face, box_xyxy_px, path=path)

    def delete_face(self, face: int) -> None:
        """Delete a face. Its photo stays, and the face is not detected again.

        Args:
            face: its number.
        """
        manual_faces.delete_face(self.store, face)

    # --- what a user saw when he decided ------------------------------------------------------------------------------

    def states(self, identities: Iterable[int | None]) -> dict[int, IdentityState]:
        """Return the states of identities as they are now, by number; None is for the unassigned faces.

        Args:
            identities: their numbers; None for the unassigned faces.
        """
        return read_states(self.store, identities)

    def check_states(self, states: Iterable[IdentityState], *, faces: bool = True, attributes: bool = False) -> None:
        """Check, within `write`, that identities are as the user saw them.

        Args:
            states: of the identities that a correction is about.
            faces: whether their faces must be the same, or only their names.
            attributes: whether their attributes must be the same.

        Raises:
            Contradiction: one was changed, merged or deleted; the message says how and when.
        """
        identity_state.check_states(self.store, states, faces=faces, attributes=attributes)

    def check_identity_of_faces(self, faces: Sequence[int], state: IdentityState) -> None:
        """Check, within `write`, that faces are still in the identity that the user saw them in.

        Args:
            faces: their numbers.
            state: of the identity that the user saw them in.

        Raises:
            NotInGallery: one of the faces does not exist any more.
            Contradiction: one is in another identity, or the identity was renamed.
        """
        identity_state.check_identity_of_faces(self.store, faces, state)

    # --- questions and undo -------------------------------------------------------------------------------------------

    def batches(self, count: int = 10, *, species: str | None = None) -> list[Batch]:
        """Propose batches of faces that may show one individual, those whose answers settle most first.

        Each is about one identity: one without a name, or with faces that may not belong to it, or that other faces
        and unnamed groups resemble.

        Args:
            count: maximum number of batches.
            species: only identities of this species.
        """
        return batches.propose_batches(self.store, count, species=species)

    def answer_batch(
        self, batch: Batch, same: Collection[int], name: str | None = None, *, same_photo: bool = False
    ) -> None:
        """Apply the answer to a batch. It is one change, which `undo` reverts.

        Args:
            batch: one that `batches` proposed.
            same: the faces of the batch that show the individual; the others do not.
            name: of the identity from now on; None: as it is.
            same_photo: accept that a photo shows the individual twice, as a collage or a mirror does.

        Raises:
            NotInGallery: one of the faces, or the identity, does not exist any more.
            Contradiction: one of the faces is in another identity by now, or the name is taken or not valid.
            SharedPhoto: a photo would show the identity twice, and `same_photo` is False.
        """
        batches.answer_batch(self.store, batch, same, name, same_photo=same_photo)

    def questions(self, count: int = 10, *, species: str | None = None) -> list[Question]:
        """Propose questions about two faces whose answers correct the most assignments, the most useful first.

        Args:
            count: maximum number of questions.
            species: only about faces of this species.
        """
        return reviews.propose_questions(self.store, count, species=species)

    def answer(self, question: Question, same: bool) -> None:
        """Apply the answer to a question. It is one change, which `undo` reverts.

        Args:
            question: one that `questions` proposed.
            same: whether both faces show the same individual.

        Raises:
            NotInGallery: one of its faces or identities does not exist any more.
            Contradiction: the answer contradicts a correction that was made since.
        """
        reviews.answer_question(self.store, question, same)

    def remaining(self, *, species: str | None = None) -> Remaining:
        """Count what is not settled yet: questions that matter, groups without a name and faces in no group.

        Args:
            species: only faces and groups of this species.
        """
        return reviews.count_remaining(self.store, species=species)

    def species(self) -> list[str]:
        """List the species that the user or the detector named, those with most faces first."""
        with self.store.read() as repository:
            return repository.faces.all_species()

    def is_current(self, question: Question) -> bool:
        """Whether both faces are still in the identities that they were in when the question was proposed.

        Args:
            question: one that `questions` proposed.
        """
        return reviews.is_still_valid(self.store, question)

    def doubtful_identities(self) -> frozenset[int]:
        """Return the identities that show two individuals rather than one."""
        return reviews.doubtful_identities(self.store)

    def undo(self, expected: int | None = None) -> Decision:
        """Undo the last change, and return it.

        Args:
            expected: the number that the last change must have, as `decisions` lists it; None: any. Give it where other
                programs change the gallery too.

        Raises:
            NotInGallery: there is nothing to undo.
            Contradiction: the last change is not the expected one; nothing was undone.
        """
        return decisions.undo(self.store, expected)

    def decisions(self, limit: int = 20) -> list[Decision]:
        """List the last decisions that can be undone, newest first.

        Args:
            limit: maximum number of decisions.
        """
        return decisions.decisions(self.store, limit)

    def forget(
        self,
        *,
        identity: int | str | None = None,
        photos: Photos | int | Iterable[Path | str | int] = (),
        state: IdentityState | None = None,
    ) -> ForgetResult:
        """Erase an identity, or photos with all faces in them, for good. The files of the photos stay.

        Args:
            identity: the identity; or
            photos: the photos, by path or number.
            state: of the identity when the user decided, as from `states`; None: as it is now.

        Raises:
            NotInGallery: there is no such identity or photo; nothing is erased.
            Contradiction: another program has changed the identity since, or a photo's file has other content
                than when it was enrolled, so give its number; nothing is erased.
            UnreadablePhoto: a photo's file cannot be read, so give its number; nothing is erased.
            ValueError: both are given, or neither.
        """
        references = [photos] if isinstance(photos, int | str | Path) else list(photos)
        if (identity is None) == (not references):
            raise ValueError("give either an identity or photos to forget")
        if identity is not None:
            with self.store.read():
                number = self.resolve_identity(identity)
                state = state or read_states(self.store, [number])[number]
            return forget_identity(self.store, number, state)
        return forget_photos(self.store, [each if isinstance(each, int) else Path(each) for each in references])

    def update_index(
        self,
        address: str | None = None,
        *,
        build: bool = True,
        on_rows: Callable[[int, int], None] = lambda _done, _all: None,
        on_build: Callable[[], None] = lambda: None,
    ) -> IndexUpdate:
        """Bring the search index up to date, after photos were enrolled or forgotten.

        Args:
            address: search with this index from now on, as what opens it takes it (`open`), such as
                "milvus:http://localhost:19530"; or "local": without one, and it is removed there. None: as before.
            build: whether an index in the folder is built, which may take minutes.
            on_rows: called with the numbers of vectors written and to be written outside the folder.
            on_build: called before an index in the folder is built.

        Returns:
            What was done.

        Raises:
            IndexUnavailable: it cannot be reached. The gallery has everything; the next call writes what is missing
                there.
        """
        if address == "local":
            external_search.drop_external_index(self.store)
        elif address is not None:
            external_search.use_external_index(self.store, address)
        return update_index(self.store, build=build, on_rows=on_rows, on_build=on_build)

    # --- whether two faces show the same individual -------------------------------------------------------------------

    def thresholds(self) -> tuple[SpeciesClustering, ...]:
        """Return from which similarity on the faces of each species are clustered, and how that was decided."""
        return species_clusterings(self.store)

    def threshold_is_guess(self) -> bool:
        """Whether faces are clustered from a fixed number on: neither the album nor a calibration tells another."""
        loaded = load_album(self.store)
        return loaded.comparisons[loaded.main].is_guess

    def main_species(self) -> SpeciesClustering:
        """Return from which similarity on the faces are clustered that there are most of."""
        return self.thresholds()[load_album(self.store).main]

    def calibration(self, part: int | None = None) -> Calibration:
        """Return what the model's similarities mean within a gallery.

        Args:
            part: number of the bundle, from 0; None: the one with most faces.
        """
        return self.space.part_spaces[self._part(part)].gallery_calibration

    def calibration_for(self, query: Float32[np.ndarray, " d"]) -> Calibration:
        """Return the calibration of the similarities of a query's embedding.

        Args:
            query: an embedding by the model.
        """
        query = self.truncate_query(query)
        return self.space.calibration_at(len(query), self.store.faces_at(len(query)).part_of_query(query))

    def compare(self, first: Float32[np.ndarray, " d"], second: Float32[np.ndarray, " d"]) -> VerificationResult:
        """Decide whether two embeddings show the same individual, by the gallery's means and its model's calibration.

        Args:
            first: an embedding.
            second: the other one.
        """
        return searches.verify_pair(self.store, first, second)

    # --- files and folders --------------------------------------------------------------------------------------------

    def migrate(
        self, model: Embedder | Models, *, flip: bool = False, on_batch: Callable[[int], None] = lambda _: None
    ) -> migrate.MigrationResult:
        """Embed the faces again with another model, which the gallery remembers. Names and corrections stay.

        If the new model can use faces of more species, they are looked for in all photos.

        Args:
            model: as for `create`.
            flip: average each face's embedding with that of its mirror image.
            on_batch: called with the number of faces or photos done.
        """
        embedder = as_embedder(model)
        result = migrate.migrate(self.store, embedder, flip=flip, on_batch=on_batch)
        self._model.embedder = embedder
        return result

    def import_labels(self, source: Path | str, exclude: Sequence[str] = ()) -> import_export.ImportResult:
        """Name faces after a CSV table, or after a folder with one subfolder of photos for each identity.

        Args:
            source: a table with the columns "path" and "name" at least, as `export` writes it, or the folder.
            exclude: patterns of files and folders in the folder to leave out, as for `find_photos`.

        Returns:
            The numbers of labeled faces, of their identities and of further faces that changed, and the rows or photos
            that were left out, with the reasons.

        Raises:
            BadDataset: the table or the folder cannot be used; nothing is imported.
        """
        path = Path(source)
        if path.is_dir():
            return import_export.import_folders(self.store, path, exclude)
        return import_export.import_csv(self.store, path)

    def export(
        self, target: Path | str, *, link: bool = False, identity: int | str | None = None
    ) -> import_export.ExportResult | int:
        """Write the identities to a CSV table, or copy the photos to a folder with one subfolder for each identity.

        Of several species, each has a folder of its identities' folders. The photos of a single identity lie in the
        folder itself.

        Args:
            target: a file that ends in .csv, or a folder.
            link: for a folder: link to the photos in place of copying them.
            identity: export only this one.

        Returns:
            The number of faces in the table, or what was written to the folder.

        Raises:
            NotInGallery: there is no such identity.
            CannotWrite: the folder is not empty, or a file cannot be written.
        """
        path, number = Path(target), None if identity is None else self.resolve_identity(identity)
        if path.suffix.lower() == ".csv":
            return import_export.export_csv(self.store, path, number)
        return import_export.export_folders(self.store, path, link=link, identity=number)

    def assign_names(
        self, names: Mapping[int, str], seen: Iterable[GalleryFace], skipped: Sequence[str] = ()
    ) -> import_export.ImportResult:
        """Name faces, as one decision "import".

        Args:
            names: of each face's number, valid as for `name`.
            seen: these faces, among others, as they were when the names were chosen.
            skipped: for the result.

        Returns:
            As for `import_labels`.

        Raises:
            Contradiction: another program has changed or deleted one of the faces since, or the names contradict what
                the gallery contains; nothing is named.
        """
        self.store.make_automatic_copy("before-import")
        return import_export.assign_labels(self.store, names, seen, list(skipped))

    def replace_photo_content(self, photo: int, sha256: bytes, replace: Callable[[], Path]) -> None:
        """Let a photo's file have other bytes which show the same picture, so that it stays known.

        Args:
            photo: its number.
            sha256: of the bytes to be written.
            replace: writes them, and returns the file. Nobody else writes to the gallery meanwhile.

        Raises:
            Contradiction: another photo of the gallery has these bytes; nothing was written.
        """
        with self.store.write() as repository:
            if repository.photos.with_hash(sha256) is not None:
                raise Contradiction(f"{self.folder}: another photo has the content that photo {photo} would get")
            status = replace().stat()
            repository.photos.update_content(photo, sha256, status.st_size, status.st_mtime_ns)

    def check(self) -> CheckResult:
        """Check the database, the index and the photos' files, and list all problems."""
        return check(self.store)

    @staticmethod
    def repair(folder: Path | str, model: Path | str | None = None) -> RepairResult:
        """Accept what another program has written to a gallery, or write what can be read into a new database.

        Args:
            folder: of the gallery, which nobody has open.
            model: the gallery's bundle, needed if the database does not tell any more which one it is.

        Raises:
            CorruptGallery: nothing can be read, or the model is needed.
        """
        space = None if model is None else Space.from_metadata(load_bundle(model).metadata)
        return repair(Path(folder), space)

    def keep_copies(self, days: int, weeks: int) -> None:
        """Keep automatic copies of so many days and weeks from now on.

        Args:
            days: of so many days the newest copy; 0: none.
            weeks: of so many weeks the newest copy; 0: none.
        """
        with self.store.write() as repository:
            repository.settings.set_retention(Retention(days, weeks))

    def damaged_files(self) -> list[Path]:
        """List the files that repairs and restores have moved aside."""
        return automatic_copies.damaged_files(self.folder)

    def backup(self, file: Path | str) -> BackupResult:
        """Write the gallery with its uploaded photos into one file, and verify it; others may go on writing.

        Args:
            file: a new ZIP file.

        Raises:
            BadGallery: the file exists.
            CorruptGallery: the gallery is damaged; repair it first.
            CannotWrite: the file cannot be written.
        """
        return backup(self.store, Path(file))

    @staticmethod
    def restore(folder: Path | str, source: Path | str | None = None, *, fewer_names: bool = False) -> RestoreResult:
        """Restore a gallery from a backup or an automatic copy. What was there is kept as an automatic copy.

        Args:
            folder: of the gallery, created if missing. Others may have it open, and go on with the restored one.
            source: written by `backup`, or a file in the folder's `backups`; None: the newest automatic copy.
            fewer_names: restore it even if it has fewer names than the gallery has now.

        Raises:
            BadGallery, CorruptGallery: the file is no backup, or a damaged one, or names would be lost; nothing was
                changed.
            CannotWrite: the folder cannot be written to.
            GalleryBusy: others are writing to the gallery.
        """
        return restore(Path(folder), None if source is None else Path(source), fewer_names=fewer_names)

    # ------------------------------------------------------------------------------------------------------------------

    def _part(self, part: int | None) -> int:
        if part is not None:
            return part
        loaded = load_album(self.store)
        return loaded.parts[loaded.main]

    def _faces(self, references: Sequence[int | str]) -> list[int]:
        if not references:
            raise ValueError("give at least one face")
        return self.resolve_faces(references)
