"""Client of the whole API, one method per operation."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Literal

from familiar.client.connection import Connection
from familiar.client.photos import Source
from familiar.client.responses import parse_response
from familiar.core.field_types import Vector
from familiar.core.gallery_types import (
    AdditionResult,
    AssignmentConfidence,
    Batch,
    ClusterResult,
    CorrectionResult,
    Decision,
    GalleryFace,
    GalleryPhoto,
    GalleryState,
    IdentitySummary,
    ModelMetadata,
    Page,
    Progress,
    Question,
)
from familiar.core.recognition_types import (
    DetectionResult,
    EmbeddedFace,
    PhotoVerificationResult,
    SearchResult,
    VerificationResult,
)
from familiar.core.types import Face

PAGE = 500  # items per request
ResultKind = Literal["photo", "identity"]


class Client:
    """Client of a server. Use it in a `with`, or `close` it.

    A photo is given as the path of a local file, or as its bytes; numbers of photos, faces and identities are those of
    the server's responses. Every method raises `ServerError` if the server refuses a request, with `status` 404 if
    there is no such photo, face, identity or job. It raises UnreadablePhoto if a local file cannot be read, and
    FamiliarError if the server does not answer.

    Args:
        url: such as "http://127.0.0.1:8000".
        token: the server's, if it has one.
        timeout: in seconds.
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 60.0) -> None:
        self._server = Connection(url, token, timeout)

    def close(self) -> None:
        """Close the connection."""
        self._server.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- gallery and model ------------------------------------------------------------------------------------------

    def gallery(self) -> GalleryState:
        """Return the gallery's counts, model and thresholds."""
        return self._read(GalleryState, "gallery")

    def model(self, species: str | None = None) -> ModelMetadata:
        """Return the metadata of the server's model.

        Args:
            species: of several bundles, that for this species; None: the first.
        """
        return self._read(ModelMetadata, "model", species=species)

    # --- photos and faces -------------------------------------------------------------------------------------------

    def photos(self) -> Iterator[GalleryPhoto]:
        """List all photos, in the order in which they were enrolled."""
        return self._iterate(GalleryPhoto, "photos")

    def photo(self, photo: int) -> GalleryPhoto:
        """Return a photo and its faces.

        Args:
            photo: the photo's number.
        """
        return self._read(GalleryPhoto, f"photos/{photo}")

    def photo_image(self, photo: int, side_px: int = 1600) -> bytes:
        """Return the upright photo as a JPEG, reduced in size and without its metadata.

        Args:
            photo: the photo's number.
            side_px: length of the longer side, in [16, 4096]. The server rounds it up to 64, 128, 256, 512, 1024 or
                2048, the largest, and enlarges nothing.
        """
        return self._read(bytes, f"photos/{photo}/image", side=side_px)

    def face(self, face: int) -> GalleryFace:
        """Return a face.

        Args:
            face: the face's number.
        """
        return self._read(GalleryFace, f"faces/{face}")

    def face_image(self, face: int, side_px: int = 160) -> bytes:
        """Return a square JPEG of a face with some margin.

        Args:
            face: the face's number.
            side_px: length of a side, rounded up as in `photo_image`.
        """
        return self._read(bytes, f"faces/{face}/image", side=side_px)

    def unassigned_faces(self, *, species: str | None = None) -> Iterator[GalleryFace]:
        """List faces without an identity.

        Args:
            species: only those of this species.
        """
        return self._iterate(GalleryFace, "faces/unassigned", species=species)

    def add_face(
        self, photo: int, box_xyxy_px: tuple[float, float, float, float], *, species: str | None = None
    ) -> int:
        """Add a face that the detector missed. It joins the identity that it resembles, if any.

        Args:
            photo: number of the photo that shows the face.
            box_xyxy_px: left, top, right, bottom in pixels of the upright photo.
            species: of the face; None: that of all other faces in the photo, if they are of one.

        Returns:
            The number of the new face.

        Raises:
            ServerError: 409, the box overlaps the photo by less than 8 px in width or height, another face is in the
                same place, the photo's file has changed, or the server has no model.
        """
        return self._post(AdditionResult, f"photos/{photo}/faces", box_xyxy_px=box_xyxy_px, species=species).face

    def set_face_box(self, face: int, box_xyxy_px: tuple[float, float, float, float]) -> None:
        """Give a face another box. It is embedded again.

        It keeps its identity if a user confirmed it, or if it is the identity's only face; otherwise it is assigned
        again.

        Args:
            face: the face's number.
            box_xyxy_px: left, top, right, bottom in pixels of the upright photo.

        Raises:
            ServerError: 409, as in `add_face`.
        """
        self._server.request(None, "PUT", f"faces/{face}/box", body={"box_xyxy_px": box_xyxy_px})

    def delete_face(self, face: int) -> None:
        """Delete a detection that is not a face. `undo` restores it.

        Args:
            face: the detection's number.
        """
        self._server.request(None, "DELETE", f"faces/{face}")

    # --- new photos -------------------------------------------------------------------------------------------------

    def enroll(self, photos: Iterable[Source], previous_job: Progress | None = None) -> Progress:
        """Send photos. They are on the server's disk when this returns; `watch` reports the progress of their job.

        Args:
            photos: paths or contents of photos.
            previous_job: if one set is sent in parts, the job of the previous part. The new job then reports the
                progress of both.
        """
        number = None if previous_job is None else previous_job.number
        return self._send(Progress, "photos", [("files", photo) for photo in photos], previous_job=number)

    def enroll_folder(self, folder: str) -> Progress:
        """Enroll all photos of a folder on the server. They stay there; `watch` reports the progress.

        Args:
            folder: absolute path on the server, or relative to a folder that it may read.

        Returns:
            The job that has been started.

        Raises:
            ServerError: 403, the server may not read this folder; 404, it does not exist.
        """
        return self._post(Progress, "photos/folder", folder=folder)

    def redetect(self, detector: str | None = None) -> Progress:
        """Look again at the photos in which no face was found; with another detector at all photos.

        Args:
            detector: name of a detector, which the gallery remembers: "pets" for cats and dogs, "auto" also for people;
                None: the one that it has.

        Returns:
            The job that has been started.
        """
        return self._post(Progress, "photos/redetect", detector=detector)

    def jobs(self) -> tuple[Progress, ...]:
        """List the running jobs and the last ones that ended."""
        return self._read(tuple[Progress, ...], "jobs")

    def job(self, number: str) -> Progress:
        """Return a job's progress.

        Args:
            number: as in `Progress.number`; of the jobs that ended, the server knows only the last ones.
        """
        return self._read(Progress, f"jobs/{number}")

    def watch(self, job: Progress | str) -> Iterator[Progress]:
        """Yield a job's progress at each change until it ends.

        Args:
            job: what `enroll` or `enroll_folder` returned, or the job's number.
        """
        number = job if isinstance(job, str) else job.number
        for event in self._server.events(f"jobs/{number}/events"):
            yield parse_response(Progress, event)

    # --- identities -------------------------------------------------------------------------------------------------

    def identities(self, *, named: bool | None = None, species: str | None = None) -> Iterator[IdentitySummary]:
        """List identities, those with most faces first.

        Args:
            named: True: only those with a name; False: only those without one; None: all.
            species: only those of which most faces are of this species.
        """
        return self._iterate(IdentitySummary, "identities", named=named, species=species)

    def identity(self, identity: int) -> IdentitySummary:
        """Return an identity.

        Args:
            identity: the identity's number.
        """
        return self._read(IdentitySummary, f"identities/{identity}")

    def faces_of(self, identity: int) -> Iterator[AssignmentConfidence]:
        """List an identity's faces, the most likely first.

        Args:
            identity: the identity's number.
        """
        return self._iterate(AssignmentConfidence, f"identities/{identity}/faces")

    def names(self, prefix: str = "", limit: int = 10) -> tuple[str, ...]:
        """List the names that begin with a text, in alphabetical order.

        Args:
            prefix: the text, at most 200 characters; upper and lower case are the same. Empty: every name.
            limit: maximum number of names, 1 to 500.
        """
        return self._read(tuple[str, ...], "names", prefix=prefix, limit=limit)

    def name(self, identity: int, name: str, *, confirm: bool = False) -> CorrectionResult:
        """Name an identity, which also keeps it from being clustered again.

        Args:
            identity: the identity's number.
            name: 1 to 200 characters, without control characters, and not beginning with #. The server keeps one
                spelling of it: composed accents, plain spaces, no invisible marks.
            confirm: also mark all its faces as confirmed.

        Returns:
            The identity; no other face changes.

        Raises:
            ServerError: 409, another identity has that name, or the name is not valid.
        """
        body = {"name": name, "confirm": confirm}
        return self._server.request(CorrectionResult, "PATCH", f"identities/{identity}", body=body)

    def merge(self, into: int, identities: Sequence[int], *, same_photo: bool = False) -> CorrectionResult:
        """Merge identities into one, which keeps its number and, if it has one, its name.

        Args:
            into: number of the identity that remains. If it has no name, it gets the first name of the others.
            identities: numbers of the others, 1 to 1,000; they no longer exist afterwards.
            same_photo: accept that a photo shows two of them, as a collage or a mirror does.

        Returns:
            The identity that remains, and the number of further faces that changed: similar ones that joined it.

        Raises:
            ServerError: 409, a photo shows two of them, and `same_photo` is False.
        """
        return self._post(
            CorrectionResult, f"identities/{into}/merge", identities=list(identities), same_photo=same_photo
        )

    def confirm(self, faces: Sequence[int]) -> None:
        """Mark faces as assigned correctly, so that clustering never moves them. Unassigned faces stay unassigned.

        Args:
            faces: numbers of 1 to 10,000 faces.
        """
        self._post(None, "faces/confirm", faces=list(faces))

    def move(self, faces: Sequence[int], identity: int, *, same_photo: bool = False) -> CorrectionResult:
        """Move faces to an identity. Unconfirmed faces that are more similar to them than to the rest move along.

        Args:
            faces: numbers of 1 to 10,000 faces, which are then confirmed.
            identity: number of the identity that they show.
            same_photo: accept that a photo has two faces in that identity, as a collage or a mirror does.

        Returns:
            The identity, and the number of further faces that changed.

        Raises:
            ServerError: 409, a photo would have two faces in that identity, and `same_photo` is False.
        """
        return self._post(CorrectionResult, "faces/move", faces=list(faces), identity=identity, same_photo=same_photo)

    def split(self, faces: Sequence[int], name: str | None = None, *, same_photo: bool = False) -> CorrectionResult:
        """Move faces to a new identity. Unconfirmed faces that are more similar to them than to the rest move along.

        Args:
            faces: numbers of 1 to 10,000 faces, which are then confirmed.
            name: name of the new identity, as in `name`; None: it has none.
            same_photo: accept that two of the faces are in one photo.

        Returns:
            The new identity, and the number of further faces that changed.

        Raises:
            ServerError: 409, two of the faces are in one photo and `same_photo` is False, or the name is taken or not
                valid.
        """
        return self._post(CorrectionResult, "faces/split", faces=list(faces), name=name, same_photo=same_photo)

    def reject(self, faces: Sequence[int], identity: int | None = None) -> CorrectionResult:
        """Note that faces do not show an identity. Those that are in it are taken out and clustered again.

        Args:
            faces: numbers of 1 to 10,000 faces.
            identity: number of the identity that they do not show; None: the one that each is assigned to.

        Returns:
            The identity (of the first face, if none was given), and the number of faces that clustering then changed.

        Raises:
            ServerError: 409, no identity is given, and one of the faces is unassigned.
        """
        return self._post(CorrectionResult, "faces/reject", faces=list(faces), identity=identity)

    def mark_different(self, first_face: int, second_face: int) -> None:
        """Note that two faces show different individuals, and so do their identities.

        Of two faces of one identity, the one that no user confirmed is taken out (the second if neither is).

        Args:
            first_face: number of one face.
            second_face: number of the other face.

        Raises:
            ServerError: 409, both faces were confirmed in one identity, or they are the same face.
        """
        self._post(None, "faces/mark-different", first_face=first_face, second_face=second_face)

    def cluster(self, *, threshold: float | None = None, rebuild: bool = False) -> ClusterResult:
        """Cluster the faces into identities. What users have confirmed or corrected stays.

        Args:
            threshold: similarity in [-1, 1] from which two faces are clustered together; None: the gallery's.
            rebuild: cluster all faces again that are neither named nor confirmed, not only the unassigned ones.

        Returns:
            The numbers of identities, of their faces, of unassigned faces and of faces that changed.
        """
        return self._post(ClusterResult, "cluster", threshold=threshold, rebuild=rebuild)

    def batches(self, limit: int = 10, *, species: str | None = None) -> tuple[Batch, ...]:
        """List batches of faces that may show one individual, those whose answers settle most first.

        Args:
            limit: maximum number of batches, in [1, 100].
            species: only individuals of this species.
        """
        return self._read(tuple[Batch, ...], "batches", limit=limit, species=species)

    def answer_batch(
        self, batch: Batch, same: Sequence[int], name: str | None = None, *, same_photo: bool = False
    ) -> None:
        """Name the individual of a batch, add what shows it and take out what does not, as one change.

        Args:
            batch: one of those that `batches` returned.
            same: those of its faces that show the individual; the others do not.
            name: of the individual from now on, as in `name`; None: as it is.
            same_photo: accept that a photo shows the individual twice, as a collage or a mirror does.

        Raises:
            ServerError: 409, one of the faces has been assigned differently since the batch was listed, the name is
                taken or not valid, or a photo would show the individual twice and `same_photo` is False.
        """
        self._post(None, "batches/answer", batch=asdict(batch), same=list(same), name=name, same_photo=same_photo)

    def questions(self, limit: int = 10, *, species: str | None = None) -> tuple[Question, ...]:
        """List the questions whose answers would correct the most assignments, the most useful first.

        Args:
            limit: maximum number of questions, in [1, 100].
            species: only about faces of this species.
        """
        return self._read(tuple[Question, ...], "questions", limit=limit, species=species)

    def answer(self, question: Question, same: bool) -> None:
        """Answer a question. The assignments change accordingly, as one change that `undo` reverts.

        Args:
            question: one of those that `questions` returned.
            same: whether both faces show the same individual.

        Raises:
            ServerError: 409, one of the faces has been assigned differently since the question was listed, or the
                answer contradicts a correction.
        """
        self._post(None, "questions/answer", question=asdict(question), same=same)

    def decisions(self, limit: int = 20) -> tuple[Decision, ...]:
        """List the last changes that can be undone, newest first.

        Args:
            limit: maximum number of changes, in [1, 500].
        """
        return self._read(tuple[Decision, ...], "decisions", limit=limit)

    def undo(self, expected: int | None = None) -> Decision:
        """Undo the last change and return it.

        Args:
            expected: the number that the last change must have, as `decisions` lists it; None: any. Give it where
                others change the gallery too.

        Raises:
            ServerError: 409, the last change is not the expected one; nothing was undone.
        """
        return self._server.request(Decision, "POST", "undo", query={"decision": expected})

    # --- photos that are in no gallery ------------------------------------------------------------------------------

    def detect(self, photos: Iterable[Source]) -> DetectionResult[Face]:
        """Find the faces in photos, without storing them.

        Args:
            photos: paths or contents of photos.

        Returns:
            The faces of each photo in the order of `photos`, and the reasons for photos that could not be read.

        Raises:
            ServerError: 413, these are too many photos or bytes for one request.
        """
        return self._send(DetectionResult[Face], "detect", [("files", photo) for photo in photos], reads=True)

    def embed(self, photos: Iterable[Source]) -> DetectionResult[EmbeddedFace]:
        """Find and embed the faces in photos, without storing them.

        Args:
            photos: paths or contents of photos.

        Returns:
            As `detect`, with each face's embedding: a float32 unit vector, "d".

        Raises:
            ServerError: 409, the server has no model; 413, as in `detect`.
        """
        return self._send(DetectionResult[EmbeddedFace], "embed", [("files", photo) for photo in photos], reads=True)

    def search(
        self,
        *,
        embedding: Vector | None = None,
        face: int | None = None,
        k: int = 10,
        by: ResultKind | None = None,
        prefix: int | None = None,
        identities: Sequence[int] | None = None,
        species: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> SearchResult:
        """Search for an embedding, or for a face of the gallery.

        Args:
            embedding: a unit vector of the gallery's space; also one of the model's shorter prefixes, such as of a
                bundle for phones (`export --components`). Give either this or `face`.
            face: the number of a face of the gallery.
            k: maximum number of faces, and of identities.
            by: only photos, or only identities.
            prefix: one of the model's valid prefix lengths: candidates are chosen by these first components.
            identities: only faces of these identities.
            species: only faces of this species.
            since: only photos taken then or later, such as 2024-06 or 2024-06-01T12:00:00.
            until: only photos taken then or earlier.
        """
        chosen = None if identities is None else list(identities)
        only = {"identities": chosen, "species": species, "since": since, "until": until}
        body = {"face": face, "k": k, "by": by, "prefix": prefix, "filter": only}
        body["embedding"] = None if embedding is None else embedding.tolist()
        return self._server.request(SearchResult, "POST", "search", body=body, reads=True)

    def search_photo(
        self, photo: Source, k: int = 10, *, by: ResultKind | None = None, species: str | None = None
    ) -> SearchResult:
        """Search for the best face of a photo.

        Args:
            photo: path or content of the photo; it is not stored.
            k: maximum number of similar faces, and of identities, in [1, 1000].
            by: what to return: "photo" (similar faces and their photos), "identity" (identities), or None (both).
            species: only faces of this species.

        Returns:
            The recognized identity, if any, and the most similar identities and photos, most similar first.

        Raises:
            ServerError: 409, the server has no model; 413 or 415, the file is too large or no photo; 422, the photo
                cannot be decoded or shows no face.
        """
        return self._send(SearchResult, "search/photo", [("photo", photo)], reads=True, k=k, by=by, species=species)

    def verify(self, first: Source, second: Source) -> PhotoVerificationResult:
        """Decide whether two photos show the same individual, by the best face of each.

        Args:
            first: path or content of one photo; it is not stored.
            second: path or content of the other photo; likewise.

        Returns:
            The similarity in [-1, 1], the probability, the decision at the threshold given with it, and both faces.
            Probability, decision and threshold are None if neither the model nor the gallery is calibrated.

        Raises:
            ServerError: as in `search_photo`.
        """
        return self._send(PhotoVerificationResult, "verify", [("first", first), ("second", second)], reads=True)

    def verify_identity(self, identity: int, photo: Source) -> VerificationResult:
        """Decide whether the best face of a photo shows an identity, by the mean of the identity's faces.

        Args:
            identity: the identity's number.
            photo: path or content of the photo; it is not stored.

        Returns:
            The similarity in [-1, 1], the probability, and the decision at the threshold given with it; all but the
            similarity are None if neither the model nor the gallery is calibrated.

        Raises:
            ServerError: as in `search_photo`; 400, the identity has no face.
        """
        return self._send(VerificationResult, f"identities/{identity}/verify", [("photo", photo)], reads=True)

    # --- requests ---------------------------------------------------------------------------------------------------

    def _read(self, kind: Any, path: str, **query: Any) -> Any:
        return self._server.request(kind, "GET", path, query=query, reads=True)

    def _iterate(self, kind: Any, path: str, **query: Any) -> Iterator[Any]:
        page: Page[Any] | None = None
        while page is None or page.next is not None:
            page = self._read(Page[Any], path, **query, cursor=page and page.next, limit=PAGE)
            assert page is not None
            yield from (parse_response(kind, item) for item in page.items)

    def _post(self, kind: Any, path: str, **body: Any) -> Any:
        return self._server.request(kind, "POST", path, body=body or None)

    def _send(
        self, kind: Any, path: str, photos: Sequence[tuple[str, Source]], *, reads: bool = False, **query: Any
    ) -> Any:
        return self._server.request(kind, "POST", path, query=query, photos=photos, reads=reads)
