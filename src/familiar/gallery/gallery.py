"""The class for users of the library: a photo collection and what one does with it."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Float32

from familiar.core.calibration import Calibration
from familiar.core.data_table import DataTable, TableSource
from familiar.core.notebook import NotebookHtml
from familiar.detection.detector import Detector
from familiar.embedding.embedder import Embedder, as_embedder
from familiar.embedding.species import Models
from familiar.embedding.verification import VerificationResult
from familiar.gallery.clustering import calibration as calibrations
from familiar.gallery.clustering import cluster as clusters
from familiar.gallery.clustering import review_queue
from familiar.gallery.clustering.album import load_album
from familiar.gallery.clustering.assignments import resolve_face, resolve_identity
from familiar.gallery.editing import corrections, undo_log
from familiar.gallery.editing.forget import ForgetResult, forget_identity, forget_photos
from familiar.gallery.editing.identity_state import read_states
from familiar.gallery.enrollment.enroll import EnrollResult, enroll_embeddings
from familiar.gallery.gallery_model import create_gallery, enroll_in_album, open_gallery_model
from familiar.gallery.integrity.backup import BackupResult, RestoreResult, backup, restore
from familiar.gallery.integrity.check import CheckResult, check
from familiar.gallery.search import external_search, listing
from familiar.gallery.search import search as searches
from familiar.gallery.search.filters import NO_FILTER, Filter
from familiar.gallery.search.html_view import Item, gallery_html, gallery_text, items_html
from familiar.gallery.search.query import Query, query_embedding
from familiar.gallery.search.statistics import GalleryStatistics, gallery_statistics
from familiar.gallery.search.table import EmbeddingDtype, as_unit_rows, embedding_matrix, face_table
from familiar.gallery.store.retention import Retention
from familiar.gallery.store.store import Store
from familiar.gallery.transfer import import_export, migrate
from familiar.gallery.transfer.xmp_export import XmpExportResult, export_xmp
from familiar.gallery.transfer.xmp_import import import_xmp
from familiar.photos.decoding import find_photos

Photos = Path | str | Iterable[Path | str]


class Gallery(TableSource):
    """A photo collection: the faces in its photos, clustered into identities, with the user's corrections.

    Open it with `create` or `open`, use it in a `with` statement or `close` it, and use each object in one thread at a
    time. Every change is on the disk when its method returns, as a whole or, after an error or a crash, not at all.

    An identity is given by its number, by its name, or by a text such as "#12". A face is given by its number, or by
    the path of a photo with one face.

    Attributes:
        database: the open database, which the functions of this package take.
        embedder: the model for new photos and queries: the one that the gallery remembers, opened when it is first
            needed, or another object of it that the gallery was opened with.

    >>> with Gallery.create("album", "pet-nano") as gallery:
    ...     enrolled = gallery.enroll("photos")
    ...     clusters = gallery.cluster()
    ...     change = gallery.split(["photos/mia-1.png", "photos/mia-2.png"], "Mia")
    ...     (match,) = gallery.identify("photos/mia-2.png", k=1)
    >>> enrolled.faces, match.name
    (4, 'Mia')
    """

    def __init__(self, database: Store, embedder: Embedder | None = None) -> None:
        self.database = database
        self._embedder = embedder

    @property
    def embedder(self) -> Embedder:
        """The model, as `open_gallery_model` opens it."""
        if self._embedder is None:
            self._embedder = open_gallery_model(self.database)
        return self._embedder

    @staticmethod
    def create(
        folder: Path | str,
        model: Embedder | Models,
        *,
        detector: str | None = None,
        embedding_dtype: Literal["float16", "float32"] = "float16",
    ) -> "Gallery":
        """Create an empty gallery and open it. It remembers where its model is, and its detector.

        Args:
            folder: created if missing.
            model: an embedder, or what one is made of: a bundle (.onnx), a run folder, the name of a shipped bundle, or
                several bundles, each for its species.
                With several bundles each species has embeddings of its own, and all have one list of identities.
            detector: name of the detector that finds the faces, as for `build_detector`, such as "none" if each photo
                is one crop already. None: the one that the model names. Until the first photo is enrolled, `enroll` may
                name another one.
            embedding_dtype: how embeddings are stored.

        Raises:
            BadBundle, BadDetector: there is no such model or detector.
            BadGallery: the folder contains a gallery already.
            CannotWrite: the folder cannot be written to.
        """
        embedder = as_embedder(model)
        return Gallery(create_gallery(Path(folder), embedder, detector, None, embedding_dtype), embedder)

    @staticmethod
    def open(
        folder: Path | str, model: Embedder | Models | None = None, *, backups: tuple[int, int] | None = None
    ) -> "Gallery":
        """Open the gallery of a folder.

        Args:
            folder: the gallery's folder.
            model: needed only if the gallery's model is at another place now, which is remembered then, or is an object
                that was opened with other settings; as for `create`.
            backups: keep automatic copies of so many days and so many weeks from now on; (0, 0): make none. None: as
                before, at first 3 and 3.

        Raises:
            BadBundle: there is no such model.
            BadGallery: the folder contains no gallery.
            CorruptGallery: the gallery is damaged.
            SpaceMismatch: the model is not the gallery's.
        """
        database = Store.open(Path(folder))
        try:
            embedder = None if model is None else open_gallery_model(database, model)
            if backups is not None:
                with database.write() as repository:
                    repository.settings.set_retention(Retention(*backups))
        except BaseException:
            database.close()
            raise
        return Gallery(database, embedder)

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def __enter__(self) -> "Gallery":
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Gallery({gallery_text(self.database)})"

    def _repr_html_(self) -> str:
        return gallery_html(self.database)

    # --- photos in, results out ---------------------------------------------------------------------------------------

    def enroll(
        self,
        photos: Photos = (),
        detector: Detector | str | None = None,
        *,
        redetect: bool = False,
        flip: bool = False,
        species: str | None = None,
        on_batch: Callable[[int, EnrollResult], None] = lambda _, __: None,
    ) -> EnrollResult:
        """Find and embed the faces of photos, and store them. Photos that were enrolled before are skipped.

        Args:
            photos: files and folders; folders are searched for photos.
            detector: finds the faces. None: the gallery's. A name, as for `build_detector`, is remembered with the
                first photos; later ones must be searched with the same, unless `redetect` is set. A detector object is
                used for this call, and not remembered.
            redetect: look again at photos that are in the gallery: with another detector at all of them, and the
                gallery remembers it; otherwise at those of `photos`, or without `photos` of the gallery, that have no
                face. All faces that are there stay; those that were deleted do not come back.
            flip: average each face's embedding with that of its mirror image.
            species: stored with each new face; None: what the detector says it is, if it does.
            on_batch: called after each batch with the number of photos done and the result so far.

        Returns:
            The numbers of new, known and edited photos and of new faces, and the photos that could not be read.

        Raises:
            Contradiction: the gallery's detector is another one.
            SpaceMismatch: another process has moved the gallery to another model.
        """
        paths = [photos] if isinstance(photos, str | Path) else list(photos)
        return enroll_in_album(
            self.database,
            self.embedder,
            find_photos(paths) if paths or not redetect else [],
            detector,
            look_again=redetect,
            flip=flip,
            species=species,
            on_batch=on_batch,
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
        return enroll_embeddings(self.database, rows, listed, self.database.space.space_id)

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
    ) -> list[searches.Hit]:
        """Find the faces that are most similar to a query.

        Args:
            query: a photo's path, a crop, or an embedding of the gallery's model, "d".
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
        return searches.search_photos(
            self.database, self._embedding(query, detector, face, flip=flip), k, only=only, prefix=prefix
        )

    def identify(
        self,
        query: Query,
        k: int = 5,
        *,
        only: Filter = NO_FILTER,
        detector: Detector | str | None = None,
        face: int | None = None,
        flip: bool = False,
    ) -> list[searches.Match]:
        """Find the identities that are most similar to a query.

        Args:
            query: a photo's path, a crop, or an embedding.
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
        return searches.search_identities(
            self.database, self._embedding(query, detector, face, flip=flip), k, only=only
        )

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
            query: a photo's path, a crop, or an embedding.
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
        embedding = self._embedding(query, detector, face, flip=flip)
        return searches.verify(self.database, embedding, self._identity(identity))

    def cluster(self, *, threshold: float | None = None, rebuild: bool = False) -> clusters.ClusterResult:
        """Cluster the faces into identities. What the user has confirmed or corrected stays.

        Args:
            threshold: similarity in [-1, 1] from which two faces are clustered together; by default the calibrated one.
            rebuild: cluster all faces again, not only the new ones.

        Returns:
            The numbers of identities, of their faces and of unassigned faces.
        """
        return clusters.cluster(self.database, threshold=threshold, rebuild=rebuild)

    def identities(self) -> list[listing.IdentitySummary]:
        """List the identities, those with most faces first."""
        return listing.identity_summaries(self.database, limit=2**31 - 1)

    def statistics(self) -> GalleryStatistics:
        """Count photos, faces and identities, and describe the model and the thresholds."""
        return gallery_statistics(self.database)

    # --- tables and notebooks -----------------------------------------------------------------------------------------

    def table(self, embedding_dtype: EmbeddingDtype | None = None) -> DataTable:
        """Return a table with a row for each face: its photo, box, identity, name and embedding, among others.

        `to_pandas` and `to_arrow` convert it. All embeddings have the same length. With several bundles it is that of
        all together, and all components but those of one bundle, which the column `space` names, are 0.

        Args:
            embedding_dtype: "float16" or "float32", for programs that cannot read float16; None: as stored, uncopied.
        """
        return face_table(self.database, embedding_dtype)

    def embeddings(self, *, centered: bool = False) -> Float[np.ndarray, "n d"]:
        """Return the embeddings of all faces, one in each row, in the order of `table`, as a read-only view.

        It shows the faces as they are now, also after changes, and when the gallery is closed.

        Args:
            centered: as the gallery compares them: less the means of its photos, if its model has means of species. A
                query must not be centered.
        """
        return embedding_matrix(self.database, centered=centered)

    def show(self, items: Iterable[Item]) -> NotebookHtml:
        """Return the faces of search hits, matches, identities or questions, for a notebook to display.

        Args:
            items: what `search`, `identify`, `identities` or `questions` returned, or numbers of faces. The first 24
                are shown.
        """
        return NotebookHtml(items_html(self.database, items))

    # --- corrections --------------------------------------------------------------------------------------------------

    def name(self, identity: int | str, name: str, *, confirm: bool = False) -> corrections.CorrectionResult:
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
        with self.database.write():
            return corrections.name_identity(self.database, self._identity(identity), name, confirm=confirm)

    def confirm(self, faces: Sequence[int | str]) -> None:
        """Mark faces as assigned correctly, so that clustering never moves them.

        Args:
            faces: numbers of faces, or paths of photos with one face. Nothing changes for faces without an identity.

        Raises:
            NotInGallery: there is no such face.
            ValueError: no face is given.
        """
        with self.database.write():
            corrections.confirm(self.database, self._faces(faces))

    def merge(
        self, into: int | str, others: Sequence[int | str], *, same_photo: bool = False
    ) -> corrections.CorrectionResult:
        """Merge identities into one.

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
        with self.database.write():
            numbers = [self._identity(other) for other in others]
            return corrections.merge(self.database, self._identity(into), numbers, same_photo=same_photo)

    def split(
        self, faces: Sequence[int | str], name: str | None = None, *, same_photo: bool = False
    ) -> corrections.CorrectionResult:
        """Move faces to a new identity. Unconfirmed faces that are more similar to them move along.

        Args:
            faces: the faces.
            name: of the new identity.
            same_photo: accept that two of them are in one photo.

        Raises:
            NotInGallery: there is no such face.
            SharedPhoto: two are, and `same_photo` is False.
            Contradiction: the name is taken.
            ValueError: no face is given.
        """
        with self.database.write():
            return corrections.split(self.database, self._faces(faces), name, same_photo=same_photo)

    def move(
        self, faces: Sequence[int | str], to: int | str, *, same_photo: bool = False
    ) -> corrections.CorrectionResult:
        """Move faces to an identity. Unconfirmed faces that are more similar to them move along.

        Args:
            faces: numbers of faces, or paths of photos with one face.
            to: the identity, by number or name.
            same_photo: accept that a photo has two faces in it, as a collage or a mirror does. They are then confirmed.

        Returns:
            The identity, and how many further faces changed.

        Raises:
            NotInGallery: there is no such face or identity.
            SharedPhoto: a photo would show the identity twice, and `same_photo` is False.
            ValueError: no face is given.
        """
        with self.database.write():
            return corrections.move(self.database, self._faces(faces), self._identity(to), same_photo=same_photo)

    def reject(self, faces: Sequence[int | str], identity: int | str | None = None) -> corrections.CorrectionResult:
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
        with self.database.write():
            number = None if identity is None else self._identity(identity)
            return corrections.reject(self.database, self._faces(faces), number)

    def questions(self, count: int = 10) -> list[review_queue.Question]:
        """Propose questions about two faces whose answers correct the most assignments, the most useful first.

        Args:
            count: maximum number of questions.
        """
        return review_queue.propose_questions(self.database, count)

    def answer(self, question: review_queue.Question, same: bool) -> None:
        """Apply the answer to a question. It is one change, which `undo` reverts.

        Args:
            question: one that `questions` proposed.
            same: whether both faces show the same individual.

        Raises:
            NotInGallery: one of its faces or identities does not exist any more.
            Contradiction: the answer contradicts a correction that was made since.
        """
        review_queue.answer_question(self.database, question, same)

    def undo(self, expected: int | None = None) -> undo_log.Decision:
        """Undo the last change, and return it.

        Args:
            expected: the number that the last change must have, as `changes` lists it; None: any. Give it where other
                programs change the gallery too.

        Raises:
            NotInGallery: there is nothing to undo.
            Contradiction: the last change is not the expected one; nothing was undone.
        """
        return undo_log.undo(self.database, expected)

    def changes(self, limit: int = 20) -> list[undo_log.Decision]:
        """List the last changes that can be undone, newest first.

        Args:
            limit: maximum number of changes.
        """
        return undo_log.decisions(self.database, limit)

    def forget(
        self, *, identity: int | str | None = None, photos: Photos | int | Iterable[Path | str | int] = ()
    ) -> ForgetResult:
        """Erase an identity, or photos with all faces in them, for good. The files of the photos stay.

        Args:
            identity: the identity; or
            photos: the photos, by path or number.

        Raises:
            NotInGallery: there is no such identity or photo; nothing is erased.
            Contradiction: another program changed the identity at the same time, or a photo's file has other content
                than when it was enrolled, so give its number; nothing is erased.
            UnreadablePhoto: a photo's file cannot be read, so give its number; nothing is erased.
            ValueError: both are given, or neither.
        """
        references = [photos] if isinstance(photos, int | str | Path) else list(photos)
        if (identity is None) == (not references):
            raise ValueError("give either an identity or photos to forget")
        if identity is not None:
            with self.database.read():
                number = self._identity(identity)
                state = read_states(self.database, [number])[number]
            return forget_identity(self.database, number, state)
        return forget_photos(self.database, [each if isinstance(each, int) else Path(each) for each in references])

    def update_index(self, address: str | None = None) -> external_search.SyncResult | None:
        """Write what has changed to the index in Milvus, after photos were enrolled or forgotten.

        Args:
            address: search with this index from now on: "milvus:" and the URI of a server or the path of a file. None:
                the one that the gallery has.

        Returns:
            What was written and removed; None if the gallery is searched without Milvus.

        Raises:
            IndexUnavailable: it cannot be reached. The gallery has everything.
        """
        if address is not None:
            external_search.use_external_index(self.database, address)
        return external_search.sync_external_index(self.database)

    # --- the model, files and folders ---------------------------------------------------------------------------------

    def calibrate(self) -> Calibration:
        """Fit the similarity thresholds and the probability to the confirmed faces.

        Returns:
            The calibration; with several bundles, that of the species with most faces.

        Raises:
            FamiliarError: too few faces are confirmed.
        """
        calibrations.calibrate(self.database)
        return calibrations.calibration(self.database, load_album(self.database).main_part)

    def migrate(self, model: Embedder | Models, *, flip: bool = False) -> migrate.MigrationResult:
        """Embed the faces again with another model, which the gallery remembers. Names and corrections stay.

        If the new model can use faces of more species, they are looked for in all photos.

        Args:
            model: as for `create`.
            flip: average each face's embedding with that of its mirror image.
        """
        embedder = as_embedder(model)
        result = migrate.migrate(self.database, embedder, flip=flip)
        self._embedder = embedder
        return result

    def import_labels(self, source: Path | str) -> import_export.ImportResult:
        """Name faces after a CSV table, or after a folder with one subfolder of photos for each identity.

        Args:
            source: a table with the columns "path" and "name" at least, as `export` writes it, or the folder.

        Returns:
            The numbers of labeled faces, of their identities and of further faces that changed, and the rows or photos
            that were left out, with the reasons.

        Raises:
            BadDataset: the table or the folder cannot be used; nothing is imported.
        """
        path = Path(source)
        if path.is_dir():
            return import_export.import_folders(self.database, path)
        return import_export.import_csv(self.database, path)

    def export(self, target: Path | str, mode: Literal["link", "copy"] = "link") -> import_export.ExportResult | int:
        """Write the identities to a CSV table, or the photos to a folder with one subfolder for each identity.

        Args:
            target: a file that ends in .csv, or a folder.
            mode: for a folder: link to the photos or copy them.

        Returns:
            The number of faces in the table, or what was written to the folder.
        """
        path = Path(target)
        if path.suffix.lower() == ".csv":
            return import_export.export_csv(self.database, path)
        return import_export.export_folders(self.database, path, mode)

    def import_xmp(self, photos: Photos = ()) -> import_export.ImportResult:
        """Name faces as the photos' own metadata do: XMP sidecars, XMP packets in the photos, and `.picasa.ini`.

        Args:
            photos: paths of photos, or of folders of photos; none: all photos of the gallery.

        Returns:
            As for `import_labels`.
        """
        return import_xmp(self.database, [Path(photos)] if isinstance(photos, str | Path) else [*map(Path, photos)])

    def export_xmp(self, *, in_place: bool = False) -> XmpExportResult:
        """Write the names of faces into XMP sidecars, as face regions and keywords. Data of other programs stay.

        Args:
            in_place: write into JPEGs themselves; other formats get sidecars.
        """
        return export_xmp(self.database, in_place=in_place)

    def check(self) -> CheckResult:
        """Check the database, the index and the photos' files, and list all problems."""
        return check(self.database)

    def backup(self, file: Path | str) -> BackupResult:
        """Write the gallery with its uploaded photos into one file, and verify it; others may go on writing.

        Args:
            file: a new ZIP file.

        Raises:
            BadGallery: the file exists.
            CorruptGallery: the gallery is damaged; repair it first.
            CannotWrite: the file cannot be written.
        """
        return backup(self.database, Path(file))

    @staticmethod
    def restore(folder: Path | str, source: Path | str | None = None) -> RestoreResult:
        """Restore a gallery from a backup or an automatic copy. What was there is kept as an automatic copy.

        Args:
            folder: of the gallery, created if missing. Others may have it open, and go on with the restored one.
            source: written by `backup`, or a file in the folder's `backups`; None: the newest automatic copy.

        Raises:
            BadGallery, CorruptGallery: the file is no backup, or a damaged one; nothing was changed.
            CannotWrite: the folder cannot be written to.
            GalleryBusy: others are writing to the gallery.
        """
        return restore(Path(folder), None if source is None else Path(source))

    # ------------------------------------------------------------------------------------------------------------------

    def _identity(self, reference: int | str) -> int:
        return resolve_identity(self.database, f"#{reference}" if isinstance(reference, int) else reference)

    def _faces(self, references: Sequence[int | str]) -> list[int]:
        if not references:
            raise ValueError("give at least one face")
        return [resolve_face(self.database, str(reference)) for reference in references]

    def _embedding(
        self, query: Query, detector: Detector | str | None, face: int | None, *, flip: bool
    ) -> Float32[np.ndarray, " d"]:
        if isinstance(query, np.ndarray):
            return query
        return query_embedding(self.database, self.embedder, query, detector, face, flip=flip)
