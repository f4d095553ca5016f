"""The whole API, one method for each thing that can be asked."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Any, Literal

from httpx2 import Response

from familiar.client.connection import Connection
from familiar.client.photos import Source, part
from familiar.client.responses import (
    Answers,
    Box,
    Corrected,
    Decision,
    Face,
    GalleryState,
    Grouped,
    Identity,
    LikelyFace,
    LookedAt,
    Model,
    NewFace,
    Page,
    Photo,
    Progress,
    Question,
    Vector,
    Verdict,
    understood,
)

PAGE = 500  # items that are asked for at once
By = Literal["photo", "identity"]


class Client:
    """Speaks to the server at `url`, as "http://127.0.0.1:8000". Use it in a `with`, or `close` it.

    `timeout` in seconds. A photo is given as the path of a file here, or as its bytes; numbers of photos, faces and
    identities are those that the server answers with. Every method raises `ServerError` where the server refuses, and
    FamiliarError where it does not answer.
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 60.0) -> None:
        self._server = Connection(url, token, timeout)

    def close(self) -> None:
        self._server.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- what is served ---------------------------------------------------------------------------------------------

    def gallery(self) -> GalleryState:
        return self._read(GalleryState, "gallery")

    def model(self) -> Model:
        return self._read(Model, "model")

    # --- photos and faces -------------------------------------------------------------------------------------------

    def photos(self) -> Iterator[Photo]:
        return self._all(Photo, "photos")

    def photo(self, photo: int) -> Photo:
        return self._read(Photo, f"photos/{photo}")

    def photo_image(self, photo: int, side_px: int = 1600) -> bytes:
        """A JPEG whose longer side has about so many pixels at most."""
        return self._image(f"photos/{photo}/image", side_px)

    def face(self, face: int) -> Face:
        return self._read(Face, f"faces/{face}")

    def face_image(self, face: int, side_px: int = 160) -> bytes:
        """A square JPEG of about so many pixels at most."""
        return self._image(f"faces/{face}/image", side_px)

    def unknown_faces(self) -> Iterator[Face]:
        """Those of nobody."""
        return self._all(Face, "faces/unassigned")

    def add_face(self, photo: int, box_xyxy_px: Box) -> int:
        """By hand; the new face's number."""
        return self._change(NewFace, f"photos/{photo}/faces", box_xyxy_px=box_xyxy_px).face

    def move_face(self, face: int, box_xyxy_px: Box) -> None:
        self._server.ask("PUT", f"faces/{face}/box", body={"box_xyxy_px": box_xyxy_px})

    def delete_face(self, face: int) -> None:
        self._server.ask("DELETE", f"faces/{face}")

    # --- new photos -------------------------------------------------------------------------------------------------

    def enroll(self, photos: Iterable[Source], continues: Progress | None = None) -> Progress:
        """Sends photos, which are on the server's disk when this returns; `watch` what becomes of them.

        `continues`: what this returned for the part before, where one set comes in parts: what is told then holds for
        all of it.
        """
        number = None if continues is None else continues.number
        return self._send(Progress, "photos", [("files", photo) for photo in photos], continues=number)

    def enroll_folder(self, folder: str) -> Progress:
        """Takes in every photo of a folder on the server."""
        return self._change(Progress, "photos/folder", folder=folder)

    def jobs(self) -> tuple[Progress, ...]:
        return self._read(tuple[Progress, ...], "jobs")

    def job(self, number: str) -> Progress:
        return self._read(Progress, f"jobs/{number}")

    def watch(self, job: Progress | str) -> Iterator[Progress]:
        """How far a job is, at each change, to its end."""
        number = job if isinstance(job, str) else job.number
        for event in self._server.events(f"jobs/{number}/events"):
            yield understood(Progress, event)

    # --- identities -------------------------------------------------------------------------------------------------

    def identities(self, *, named: bool | None = None) -> Iterator[Identity]:
        """Those with most faces first; `named`: only those that have a name, or have none."""
        return self._all(Identity, "identities", named=named)

    def identity(self, identity: int) -> Identity:
        return self._read(Identity, f"identities/{identity}")

    def faces_of(self, identity: int) -> Iterator[LikelyFace]:
        """The likeliest first."""
        return self._all(LikelyFace, f"identities/{identity}/faces")

    def names(self, beginning: str = "") -> tuple[str, ...]:
        return self._read(tuple[str, ...], "names", beginning=beginning)

    def name(self, identity: int, called: str, *, confirm: bool = False) -> Corrected:
        """`confirm`: all its faces are rightly there."""
        body = {"name": called, "confirm": confirm}
        return _made(Corrected, self._server.ask("PATCH", f"identities/{identity}", body=body))

    def merge(self, into: int, others: Sequence[int]) -> Corrected:
        return self._change(Corrected, f"identities/{into}/merge", others=list(others))

    def confirm(self, faces: Sequence[int]) -> None:
        self._server.ask("POST", "faces/confirm", body={"faces": list(faces)})

    def move(self, faces: Sequence[int], to: int) -> Corrected:
        return self._change(Corrected, "faces/move", faces=list(faces), to=to)

    def split(self, faces: Sequence[int], called: str | None = None) -> Corrected:
        return self._change(Corrected, "faces/split", faces=list(faces), name=called)

    def reject(self, faces: Sequence[int], identity: int | None = None) -> Corrected:
        return self._change(Corrected, "faces/reject", faces=list(faces), identity=identity)

    def tell_apart(self, first: int, second: int) -> None:
        self._server.ask("POST", "faces/tell-apart", body={"first": first, "second": second})

    def group(self, *, threshold: float | None = None, rebuild: bool = False) -> Grouped:
        return self._change(Grouped, "group", threshold=threshold, rebuild=rebuild)

    def questions(self, limit: int = 10) -> tuple[Question, ...]:
        return self._read(tuple[Question, ...], "questions", limit=limit)

    def answer(self, question: Question, same: bool) -> None:
        self._server.ask("POST", "questions/answer", body={"question": asdict(question), "same": same})

    def decisions(self, limit: int = 20) -> tuple[Decision, ...]:
        """The last that can be taken back, newest first."""
        return self._read(tuple[Decision, ...], "decisions", limit=limit)

    def undo(self) -> Decision:
        """Takes the last one back."""
        return self._change(Decision, "undo")

    # --- photos that are in no gallery ------------------------------------------------------------------------------

    def detect(self, photos: Iterable[Source]) -> LookedAt:
        return self._send(LookedAt, "detect", [("files", photo) for photo in photos], reads=True)

    def embed(self, photos: Iterable[Source]) -> LookedAt:
        """As `detect`, and each face's embedding."""
        return self._send(LookedAt, "embed", [("files", photo) for photo in photos], reads=True)

    def search(
        self,
        *,
        embedding: Vector | None = None,
        face: int | None = None,
        k: int = 10,
        by: By | None = None,
        prefix: int | None = None,
        identities: Sequence[int] | None = None,
        species: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> Answers:
        """Who is like exactly one of `embedding`, a unit vector of the gallery's space, and `face`, one of its faces.

        `by`: only photos, or only identities. The others as in `familiar.gallery.search.search`.
        """
        only = {
            "identities": None if identities is None else list(identities),
            "species": species,
            "since": since,
            "until": until,
        }
        asked = {"face": face, "k": k, "by": by, "prefix": prefix, "only": only}
        asked["embedding"] = None if embedding is None else embedding.tolist()
        return _made(Answers, self._server.ask("POST", "search", body=asked, reads=True))

    def search_photo(self, photo: Source, k: int = 10, *, by: By | None = None) -> Answers:
        """Who is on a photo, by its best face."""
        return self._send(Answers, "search/photo", [("photo", photo)], reads=True, k=k, by=by)

    def verify(self, first: Source, second: Source) -> Verdict:
        """Do two photos show one individual?"""
        return self._send(Verdict, "verify", [("first", first), ("second", second)], reads=True)

    def verify_identity(self, identity: int, photo: Source) -> Verdict:
        """Does a photo show that identity?"""
        return self._send(Verdict, f"identities/{identity}/verify", [("photo", photo)], reads=True)

    # --- how --------------------------------------------------------------------------------------------------------

    def _read(self, kind: Any, path: str, **query: Any) -> Any:
        return _made(kind, self._server.ask("GET", path, query=query, reads=True))

    def _all(self, kind: Any, path: str, **query: Any) -> Iterator[Any]:
        cursor: str | None = None
        while True:
            page: Page = self._read(Page, path, **query, cursor=cursor, limit=PAGE)
            for item in page.items:
                yield understood(kind, item)
            cursor = page.next
            if cursor is None:
                return

    def _image(self, path: str, side_px: int) -> bytes:
        return self._server.ask("GET", path, query={"side": side_px}, reads=True).content

    def _change(self, kind: Any, path: str, **body: Any) -> Any:
        return _made(kind, self._server.ask("POST", path, body=body or None))

    def _send(
        self, kind: Any, path: str, photos: Sequence[tuple[str, Source]], *, reads: bool = False, **query: Any
    ) -> Any:
        answer = self._server.ask(
            "POST",
            path,
            query=query,
            photos=lambda: [part(field, photo) for field, photo in photos],
            reads=reads,
        )
        return _made(kind, answer)


def _made(kind: Any, answer: Response) -> Any:
    try:
        said = answer.json()
    except ValueError:
        said = None
    return understood(kind, said)
