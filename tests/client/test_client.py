"""The client with a running server: every method, and all failures of a server."""

import contextlib
import dataclasses
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from inspect import isfunction
from pathlib import Path

import cv2
import numpy as np
import pytest

from familiar.client import Client, ServerError, connection
from familiar.core.errors import FamiliarError, UnreadablePhoto
from familiar.core.gallery_types import IdentitySummary, Progress
from familiar.detection.faces import crop_photo
from familiar.embedding.embedder import Embedder
from familiar.gallery.cluster.cluster import cluster
from familiar.web.settings import Settings
from support import color_album
from support.server import running_server

pytestmark = pytest.mark.slow

TOKEN = "the token of this album"
RED, GREEN, BLUE = 1, 2, 3


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    return color_album.draw_album(tmp_path / "photos", red=4, green=3, blue=2)


@pytest.fixture
def settings(tmp_path: Path, mean_color_bundle: Path, photos: list[Path]) -> Settings:
    with color_album.create_gallery(tmp_path / "album", mean_color_bundle, photos) as gallery:
        cluster(gallery)
    return Settings(gallery=tmp_path / "album", models=(mean_color_bundle,), token=TOKEN)


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    with running_server(settings) as url, Client(url, TOKEN) as client:
        yield client


def identities_of(client: Client, faces: list[int]) -> list[int | None]:
    return [client.face(face).identity for face in faces]


def test_gallery_and_model_match_the_served_bundle(client: Client, mean_color_bundle: Path):
    state = client.gallery()
    assert (state.counts.photos, state.embedding_dim, state.thresholds.balanced) == (9, 3, 0.9)
    assert client.model().calibration == dataclasses.asdict(Embedder(mean_color_bundle).metadata.calibration)


def test_lists_fetch_every_page(client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("familiar.client.client.PAGE", 2)
    assert [photo.photo for photo in client.photos()] == list(range(1, 10))
    assert [item.identity for item in client.identities()] == [RED, GREEN, BLUE]
    assert list(client.identities(named=True)) == []
    client.reject([1, 5, 8])
    assert [face.face for face in client.unassigned_faces()] == [1, 5, 8]


def test_images_are_decodable(client: Client):
    for content in (client.photo_image(1, 64), client.face_image(1)):
        image = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
        assert image is not None
        assert image[..., 2].mean() > 150


def test_corrections_update_the_gallery_and_undo_reverts(client: Client):
    assert client.name(RED, "Mia", confirm=True).identity == RED
    assert client.identity(RED) == IdentitySummary(RED, "Mia", 4, 4, client.identity(RED).best)
    assert client.names("m") == ("Mia",)
    assert client.names("m", limit=1) == ("Mia",)
    assert [item.face.face for item in client.faces_of(BLUE)] in ([8, 9], [9, 8])
    client.confirm([5])
    assert client.face(5).by_user
    assert client.move([9], GREEN, same_photo=True).identity == GREEN
    new = client.split([9], "Ida", same_photo=True).identity
    assert identities_of(client, [8, 9]) == [BLUE, new]
    client.reject([9], new)
    assert identities_of(client, [9]) == [None]
    assert client.merge(RED, [GREEN], same_photo=True).identity == RED
    (last,) = client.decisions(1)
    assert last.kind == "merge"
    assert client.undo() == last
    client.mark_different(1, 5)
    grouped = client.cluster(threshold=0.95, rebuild=True)
    assert (grouped.threshold, grouped.faces + grouped.unassigned) == (0.95, 9)


def test_answer_confirms_face_and_rejects_outdated_question(client: Client):
    question = client.questions(1)[0]
    client.answer(question, same=True)
    assert client.face(question.first_face).by_user
    with pytest.raises(ServerError, match="changed since") as refused:
        client.answer(dataclasses.replace(question, first=GREEN), same=True)
    assert (refused.value.status, refused.value.kind) == (409, "contradiction")


def test_batch_is_answered_by_one_call(client: Client):
    batch = client.batches(1)[0]
    client.answer_batch(batch, batch.members[1:], "Ida")
    assert [client.face(face).name for face in batch.members] == [None, *["Ida"] * (len(batch.members) - 1)]
    assert batch.identity not in [each.identity for each in client.batches(species="dog")]
    with pytest.raises(ServerError, match="changed since"):
        client.answer_batch(batch, batch.members)


def test_face_can_be_deleted_added_and_moved(client: Client):
    client.delete_face(1)
    face = client.add_face(1, (0, 0, 31.5, 32))
    client.set_face_box(face, (1, 1, 31, 31))
    assert client.photo(1).faces[0].box_xyxy_px == (1, 1, 31, 31)


def test_enroll_reports_progress_and_continues_a_job(client: Client, photos: list[Path], tmp_path: Path):
    new = [color_album.draw_photo(tmp_path / f"{shade}.png", "blue", shade=shade) for shade in (12, 14, 16)]
    updates = list(client.watch(client.enroll([*new[:2], new[2].read_bytes()])))
    assert all(isinstance(progress, Progress) for progress in updates)
    assert (updates[-1].state, updates[-1].photos, updates[-1].faces) == ("done", 3, 3)
    assert [job.number for job in client.jobs()] == [updates[-1].number]
    assert client.job(updates[-1].number) == updates[-1]
    last = color_album.draw_photo(tmp_path / "18.png", "blue", shade=18)
    last_update = list(client.watch(client.enroll([last], previous_job=updates[-1])))[-1]
    assert (last_update.photos, client.jobs()) == (4, (last_update,))
    again = client.enroll_folder(str(photos[0].parent))
    assert list(client.watch(again.number))[-1].known == 9
    assert client.identity(BLUE).faces == 6
    searched = list(client.watch(client.redetect()))[-1]
    assert (searched.state, searched.total) == ("done", 0)  # a face was found in every photo


def test_embed_matches_embedder_and_skips_bad_files(client: Client, photos: list[Path], mean_color_bundle: Path):
    embedder = Embedder(mean_color_bundle)
    expected = embedder.embed([crop_photo(path, embedder.metadata.preprocessing) for path in photos])
    seen = client.embed([*photos, b"no photo"])
    assert [photo.name for photo in seen.photos] == [path.name for path in photos]
    assert len(seen.skipped) == 1
    embeddings = np.stack([photo.faces[0].embedding for photo in seen.photos])
    assert embeddings.dtype == np.float32
    np.testing.assert_allclose(embeddings, expected, atol=1e-7)
    result = client.detect(photos[:1]).photos[0]
    assert (result.size_px, result.faces[0].embedding) == ((32, 32), None)


def test_search_and_verify_return_the_known_identity(client: Client, photos: list[Path]):
    embedding = client.embed(photos[4:5]).photos[0].faces[0].embedding
    for answers in (
        client.search(embedding=embedding, k=3),
        client.search(face=5, k=3),
        client.search_photo(photos[4], k=3),
    ):
        assert answers.known is not None
        assert answers.known.identity == GREEN
        assert len(answers.photos) == 3
    only = client.search(face=5, by="photo", identities=[BLUE], prefix=3)
    assert ([hit.identity for hit in only.photos], only.identities) == ([BLUE, BLUE], ())
    assert client.search(face=5, species="cat", since="2024", until="2025-06").photos == ()
    verdict = client.verify(photos[0], photos[1])
    assert verdict.same
    assert verdict.first is not None
    assert verdict.first.box_xyxy_px == (0, 0, 32, 32)
    assert client.verify_identity(RED, photos[0]).same
    assert not client.verify_identity(BLUE, photos[0]).same


def test_every_method_is_tested_here():
    document = Path(__file__).read_text()
    for name, method in vars(Client).items():
        if isfunction(method) and not name.startswith("_"):
            assert f"client.{name}(" in document or name == "close", name


def test_upload_keeps_few_files_open(client: Client, tmp_path: Path):
    photo = color_album.draw_photo(tmp_path / "one.png", "red")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 60
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 20, hard))
        seen = client.detect([photo] * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(seen.photos) == 100


def test_errors_report_status_kind_and_reason(client: Client, settings: Settings, tmp_path: Path):
    with pytest.raises(ServerError, match="has no face 99") as refused:
        client.face(99)
    assert (refused.value.status, refused.value.kind) == (404, "not-in-gallery")
    with pytest.raises(ServerError, match="body/identity: ") as refused:
        client.move([1], 0)
    assert (refused.value.status, refused.value.kind) == (422, "invalid")
    with pytest.raises(ServerError, match="no such job") as refused:
        list(client.watch("1"))
    with pytest.raises(UnreadablePhoto, match=r"missing\.jpg: cannot be read"):
        client.detect([tmp_path / "missing.jpg"])
    with running_server(settings) as url, Client(url, "another token altogether") as stranger:
        with pytest.raises(ServerError) as refused:
            stranger.gallery()
        assert refused.value.status == 401


@contextlib.contextmanager
def answering(
    answer: Callable[[BaseHTTPRequestHandler, int], None],
) -> Iterator[tuple[str, list[str]]]:
    """Run a server that calls `answer(handler, number of previous requests)`; provide its URL and the requests."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            requests.append(f"{self.command} {self.path}")
            answer(self, len(requests) - 1)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def say(handler: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the seconds that the client would sleep."""
    slept: list[float] = []
    monkeypatch.setattr(connection.time, "sleep", slept.append)
    return slept


@pytest.mark.parametrize("status", [429, 503])
def test_reads_are_retried_after_the_requested_delay(status: int, waits: list[float]):
    def busy_twice(handler: BaseHTTPRequestHandler, before: int) -> None:
        if before < 2:
            say(handler, status, b"{}", Retry_After=str(3600 * before + 2))
        else:
            say(handler, 200, b'["Mia"]', Content_Type="application/json")

    with answering(busy_twice) as (url, requests), Client(url) as client:
        assert client.names() == ("Mia",)
        assert (len(requests), waits) == (3, [2, 10])


def test_writes_are_not_retried_and_reads_at_most_twice(waits: list[float], photos: list[Path]):
    with (
        answering(lambda handler, _: say(handler, 503, b"{}")) as (url, requests),
        Client(url) as client,
    ):
        for write in (client.undo, lambda: client.enroll(photos[:1]), lambda: client.confirm([1])):
            with pytest.raises(ServerError):
                write()
        assert (len(requests), waits) == (3, [])
        for read in (client.gallery, lambda: client.embed(photos[:1]), lambda: client.search(face=1)):
            with pytest.raises(ServerError) as refused:
                read()
            assert (refused.value.status, refused.value.kind) == (503, "unknown")
        assert (len(requests), waits) == (12, [1.0] * 6)


def test_rejects_responses_from_another_program():
    bodies = [b"<html>", b"[1, 2", b"null", b"[]", b'{"counts": 3}']
    with (
        answering(lambda handler, before: say(handler, 200, bodies[before])) as (url, _),
        Client(url) as client,
    ):
        for _ in bodies:
            with pytest.raises(FamiliarError, match="unexpected response"):
                client.gallery()


def test_connection_failures_raise_clear_errors():
    with socket.create_server(("127.0.0.1", 0)) as unanswered:
        url = f"http://127.0.0.1:{unanswered.getsockname()[1]}"
        with (
            Client(url, timeout=0.05) as client,
            pytest.raises(FamiliarError, match="did not answer in time"),
        ):
            client.gallery()
    with (
        Client(url) as client,
        pytest.raises(FamiliarError, match=r"no server answers.*familiar serve"),
    ):
        client.gallery()
    with pytest.raises(FamiliarError, match="is not a URL"), Client("127.0.0.1:8000") as client:
        client.gallery()
    with (
        answering(lambda handler, _: handler.connection.shutdown(socket.SHUT_RDWR)) as (url, _),
        Client(url) as client,
        pytest.raises(FamiliarError, match="the connection failed"),
    ):
        client.gallery()


def test_import_loads_neither_server_packages_nor_torch():
    code = (
        "import sys, familiar.client; "
        "print([name for name in ('torch', 'fastapi', 'pydantic', 'starlette', 'cv2', 'onnxruntime') "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
