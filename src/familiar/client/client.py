"""Client of the whole API, one method per operation."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Any, Literal

from httpx2 import Response

from familiar.client.connection import Connection
from familiar.client.photos import Source, part
from familiar.client.responses import parse_response
from familiar.core.field_types import Box, Vector
from familiar.core.gallery_types import (
    ClusterResult,
    CorrectionResult,
    Decision,
    FaceConfidence,
    GalleryFace,
    GalleryPhoto,
    GalleryState,
    IdentitySummary,
    ModelMetadata,
    NewFace,
    Page,
    Progress,
    Question,
)
from familiar.core.recognition_types import (
    DetectedFace,
    DetectionResult,
    EmbeddedFace,
    PhotoVerificationResult,
    SearchResult,
    VerificationResult,
)

PAGE = 500  # items per request
ResultKind = Literal["photo", "identity"]


class Client:
    """Client of a server. Use it in a `with`, or `close` it.

    A photo is given as the path of a local file, or as its bytes; numbers of photos, faces and identities are those of
    the server's responses. Every method raises `ServerError` if the server refuses a request, and FamiliarError if it
    does not answer.

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- gallery and model ------------------------------------------------------------------------------------------

    def gallery(self) -> GalleryState:
        """Return the gallery's counts, model and thresholds."""
        return self._read(GalleryState, "gallery")

    def model(self) -> ModelMetadata:
        """Return the metadata of the server's model."""
        return self._read(ModelMetadata, "model")

    # --- photos and faces -------------------------------------------------------------------------------------------

    def photos(self) -> Iterator[GalleryPhoto]:
        """List all photos, in the order in which they were enrolled."""
        return self._iterate(GalleryPhoto, "photos")

    def photo(self, photo: int) -> GalleryPhoto:
        """Return a photo and its faces."""
        return self._read(GalleryPhoto, f"photos/{photo}")

    def photo_image(self, photo: int, side_px: int = 1600) -> bytes:
        """Return the photo as a JPEG, reduced so that its longer side has about `side_px` pixels."""
        return self._image(f"photos/{photo}/image", side_px)

    def face(self, face: int) -> GalleryFace:
        """Return a face."""
        return self._read(GalleryFace, f"faces/{face}")

    def face_image(self, face: int, side_px: int = 160) -> bytes:
        """Return a square JPEG of about `side_px` pixels at most."""
        return self._image(f"faces/{face}/image", side_px)

    def unassigned_faces(self) -> Iterator[GalleryFace]:
        """List faces without an identity."""
        return self._iterate(GalleryFace, "faces/unassigned")

    def add_face(self, photo: int, box_xyxy_px: Box) -> int:
        """Add a face that the detector missed, and return its number."""
        return self._post(NewFace, f"photos/{photo}/faces", box_xyxy_px=box_xyxy_px).face

    def set_face_box(self, face: int, box_xyxy_px: Box) -> None:
        """Give a face another box, in pixels of the photo; it is embedded again."""
        self._server.request("PUT", f"faces/{face}/box", body={"box_xyxy_px": box_xyxy_px})

    def delete_face(self, face: int) -> None:
        """Delete a detection that is not a face. `undo` restores it."""
        self._server.request("DELETE", f"faces/{face}")

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
        """Enroll all photos of a folder on the server."""
        return self._post(Progress, "photos/folder", folder=folder)

    def jobs(self) -> tuple[Progress, ...]:
        """List the running jobs and the last ones that ended."""
        return self._read(tuple[Progress, ...], "jobs")

    def job(self, number: str) -> Progress:
        """Return a job's progress."""
        return self._read(Progress, f"jobs/{number}")

    def watch(self, job: Progress | str) -> Iterator[Progress]:
        """Yield a job's progress at each change until it ends."""
        number = job if isinstance(job, str) else job.number
        for event in self._server.events(f"jobs/{number}/events"):
            yield parse_response(Progress, event)

    # --- identities -------------------------------------------------------------------------------------------------

    def identities(self, *, named: bool | None = None) -> Iterator[IdentitySummary]:
        """List identities, those with most faces first; `named`: only those with a name, or only those without."""
        return self._iterate(IdentitySummary, "identities", named=named)

    def identity(self, identity: int) -> IdentitySummary:
        """Return an identity."""
        return self._read(IdentitySummary, f"identities/{identity}")

    def faces_of(self, identity: int) -> Iterator[FaceConfidence]:
        """List an identity's faces, the most likely first."""
        return self._iterate(FaceConfidence, f"identities/{identity}/faces")

    def names(self, prefix: str = "") -> tuple[str, ...]:
        """List the names that begin with `prefix`."""
        return self._read(tuple[str, ...], "names", prefix=prefix)

    def name(self, identity: int, name: str, *, confirm: bool = False) -> CorrectionResult:
        """Name an identity. `confirm`: also mark all its faces as confirmed."""
        body = {"name": name, "confirm": confirm}
        return _parse(CorrectionResult, self._server.request("PATCH", f"identities/{identity}", body=body))

    def merge(self, into: int, identities: Sequence[int]) -> CorrectionResult:
        """Merge `identities` into the identity `into`, which keeps its number."""
        return self._post(CorrectionResult, f"identities/{into}/merge", identities=list(identities))

    def confirm(self, faces: Sequence[int]) -> None:
        """Mark faces as assigned correctly."""
        self._server.request("POST", "faces/confirm", body={"faces": list(faces)})

    def move(self, faces: Sequence[int], identity: int) -> CorrectionResult:
        """Move faces to an identity."""
        return self._post(CorrectionResult, "faces/move", faces=list(faces), identity=identity)

    def split(self, faces: Sequence[int], name: str | None = None) -> CorrectionResult:
        """Move faces to a new identity."""
        return self._post(CorrectionResult, "faces/split", faces=list(faces), name=name)

    def reject(self, faces: Sequence[int], identity: int | None = None) -> CorrectionResult:
        """Note that faces do not show an identity; by default the one that they are assigned to."""
        return self._post(CorrectionResult, "faces/reject", faces=list(faces), identity=identity)

    def mark_different(self, first_face: int, second_face: int) -> None:
        """Note that two faces show different individuals."""
        self._server.request(
            "POST", "faces/mark-different", body={"first_face": first_face, "second_face": second_face}
        )

    def cluster(self, *, threshold: float | None = None, rebuild: bool = False) -> ClusterResult:
        """Cluster the faces: by default the new ones, at the gallery's threshold."""
        return self._post(ClusterResult, "cluster", threshold=threshold, rebuild=rebuild)

    def questions(self, limit: int = 10) -> tuple[Question, ...]:
        """List the questions whose answers would correct the most assignments."""
        return self._read(tuple[Question, ...], "questions", limit=limit)

    def answer(self, question: Question, same: bool) -> None:
        """Answer a question: whether both faces show the same individual."""
        self._server.request("POST", "questions/answer", body={"question": asdict(question), "same": same})

    def decisions(self, limit: int = 20) -> tuple[Decision, ...]:
        """List the last changes that can be undone, newest first."""
        return self._read(tuple[Decision, ...], "decisions", limit=limit)

    def undo(self) -> Decision:
        """Undo the last change and return it."""
        return self._post(Decision, "undo")

    # --- photos that are in no gallery ------------------------------------------------------------------------------

    def detect(self, photos: Iterable[Source]) -> DetectionResult[DetectedFace]:
        """Find the faces in photos, without storing them."""
        return self._send(DetectionResult[DetectedFace], "detect", [("files", photo) for photo in photos], reads=True)

    def embed(self, photos: Iterable[Source]) -> DetectionResult[EmbeddedFace]:
        """Like `detect`, with each face's embedding."""
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
            embedding: a unit vector of the gallery's space. Give either this or `face`.
            face: the number of a face of the gallery.
            k: maximum number of photos, and of identities.
            by: only photos, or only identities.
            prefix: one of the model's valid prefix lengths: candidates are chosen by these first components.
            identities: only faces of these identities.
            species: only faces of this species.
            since: only photos taken then or later, such as 2024-06 or 2024-06-01T12:00:00.
            until: only photos taken then or earlier.
        """
        search_filter = {
            "identities": None if identities is None else list(identities),
            "species": species,
            "since": since,
            "until": until,
        }
        body = {"face": face, "k": k, "by": by, "prefix": prefix, "filter": search_filter}
        body["embedding"] = None if embedding is None else embedding.tolist()
        return _parse(SearchResult, self._server.request("POST", "search", body=body, reads=True))

    def search_photo(self, photo: Source, k: int = 10, *, by: ResultKind | None = None) -> SearchResult:
        """Search for the best face of a photo."""
        return self._send(SearchResult, "search/photo", [("photo", photo)], reads=True, k=k, by=by)

    def verify(self, first: Source, second: Source) -> PhotoVerificationResult:
        """Decide whether two photos show the same individual."""
        return self._send(PhotoVerificationResult, "verify", [("first", first), ("second", second)], reads=True)

    def verify_identity(self, identity: int, photo: Source) -> VerificationResult:
        """Decide whether a photo shows an identity."""
        return self._send(VerificationResult, f"identities/{identity}/verify", [("photo", photo)], reads=True)

    # --- requests ---------------------------------------------------------------------------------------------------

    def _read(self, kind: Any, path: str, **query: Any) -> Any:
        return _parse(kind, self._server.request("GET", path, query=query, reads=True))

    def _iterate(self, kind: Any, path: str, **query: Any) -> Iterator[Any]:
        cursor: str | None = None
        while True:
            page: Page[Any] = self._read(Page[Any], path, **query, cursor=cursor, limit=PAGE)
            for item in page.items:
                yield parse_response(kind, item)
            cursor = page.next
            if cursor is None:
                return

    def _image(self, path: str, side_px: int) -> bytes:
        return self._server.request("GET", path, query={"side": side_px}, reads=True).content

    def _post(self, kind: Any, path: str, **body: Any) -> Any:
        return _parse(kind, self._server.request("POST", path, body=body or None))

    def _send(
        self, kind: Any, path: str, photos: Sequence[tuple[str, Source]], *, reads: bool = False, **query: Any
    ) -> Any:
        response = self._server.request(
            "POST",
            path,
            query=query,
            photos=lambda: [part(field, photo) for field, photo in photos],
            reads=reads,
        )
        return _parse(kind, response)


def _parse(kind: Any, response: Response) -> Any:
    try:
        content = response.json()
    except ValueError:
        content = None
    return parse_response(kind, content)
