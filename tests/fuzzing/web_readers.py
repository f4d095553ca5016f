"""What comes to the server: cursors, the requests of Immich, and any body on any path."""

import json
from pathlib import Path
from random import Random

from fuzzing.mutators import bytes_mutator, json_mutator
from fuzzing.reader import Read, Reader

BOUNDARY = b"--x--\r\n"
PHOTO_PART = (
    b'--x\r\nContent-Disposition: form-data; name="%s"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n%s\r\n'
)
FIELD_PART = b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
MULTIPART = b"multipart/form-data; boundary=x"
ENTRIES = (
    b'{"facial-recognition": {"detection": {"modelName": "a", "options": {"minScore": 0.5}}, '
    b'"recognition": {"modelName": "a"}}}'
)
EXPECTED_SERVER_ERRORS = (501, 503)  # not implemented; busy


def _prepare_cursor(_: Path) -> Read:
    from familiar.web.api.pagination import parse_cursor

    return lambda data: parse_cursor(data.decode("latin1"), "faces", 2)


def _cursors() -> list[bytes]:
    from familiar.web.api.pagination import page

    cursors = [page([1, 2], 1, "faces", lambda _: (3, 4)).next, page([1, 2], 1, "other", lambda _: (1,)).next]
    return [str(cursor).encode() for cursor in cursors]


def _prepare_entries(_: Path) -> Read:
    from familiar.integrations.immich.entries import parse_entries

    return lambda data: parse_entries(data.decode("utf-8", "replace"))


def _prepare_requests(folder: Path) -> Read:
    """A request is a line with the path, a line with the content type, and the body."""
    from starlette.testclient import TestClient

    from familiar.gallery.cluster.cluster import cluster
    from familiar.web.immich import ImmichSettings, make_immich_app
    from familiar.web.server import make_app
    from familiar.web.service import Service
    from familiar.web.settings import Settings
    from support import color_album
    from support.mean_color_bundle import CALIBRATED, write_mean_color_bundle

    bundle = write_mean_color_bundle(folder / "bundle.onnx", CALIBRATED)
    photos = color_album.draw_album(folder / "photos", red=2, green=2)
    with color_album.create_gallery(folder / "album", bundle, photos) as gallery:
        cluster(gallery)
    settings = Settings(gallery=folder / "album", models=(bundle,))
    clients = {
        "immich": TestClient(make_immich_app(ImmichSettings(models={"": [bundle]})), base_url="http://127.0.0.1:3003"),
        "familiar": TestClient(
            make_app(Service(settings)), base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5000)
        ),
    }
    for client in clients.values():
        client.__enter__()

    def read(data: bytes) -> None:
        path, _, rest = data.partition(b"\n")
        kind, _, body = rest.partition(b"\n")
        name = "immich" if path == b"/predict" else "familiar"
        url = "/" + "".join(chr(byte) for byte in path if 32 < byte < 127).lstrip("/")
        header = "".join(chr(byte) for byte in kind if 31 < byte < 127)
        response = clients[name].post(url, content=body, headers={"Content-Type": header})
        if response.status_code >= 500 and response.status_code not in EXPECTED_SERVER_ERRORS:
            raise AssertionError(f"{url} answered {response.status_code}: {response.text[:300]}")

    return read


def _requests() -> list[bytes]:
    from support.valid_photos import valid_photos

    png = valid_photos()["png"]
    files, photo = (MULTIPART + b"\n" + PHOTO_PART % (name, png) + BOUNDARY for name in (b"files", b"photo"))
    bodies = {
        b"/api/v1/search": {"face": 1},
        b"/api/v1/search?k=3": {"embedding": [0.6, 0.8, 0.0]},
        b"/api/v1/faces/move": {"faces": [1], "identity": 2},
        b"/api/v1/faces/split": {"faces": [1], "name": "Mia"},
        b"/api/v1/identities/1/merge": {"identities": [2]},
        b"/api/v1/cluster": {"threshold": 0.5, "rebuild": False},
        b"/api/v1/photos/1/faces": {"box_xyxy_px": [1, 1, 20, 20]},
        b"/api/v1/photos/folder": {"folder": "photos"},
        b"/api/v1/undo": {},
    }
    predict = FIELD_PART % (b"entries", ENTRIES) + PHOTO_PART % (b"image", png) + BOUNDARY
    return [
        *(path + b"\n" + files for path in (b"/api/v1/detect", b"/api/v1/embed", b"/api/v1/photos")),
        *(path + b"\n" + photo for path in (b"/api/v1/search/photo", b"/search")),
        *(path + b"\napplication/json\n" + json.dumps(body).encode() for path, body in bodies.items()),
        b"/predict\n" + MULTIPART + b"\n" + predict,
    ]


def _mutate_request(data: bytes, dice: Random) -> bytes:
    head, separator, body = data.rpartition(b"\napplication/json\n")
    if separator:
        return head + separator + json_mutator(body, dice)
    return bytes_mutator(data, dice)


READERS = {
    "cursor": Reader(_prepare_cursor, _cursors, bytes_mutator),
    "immich-entries": Reader(
        _prepare_entries, lambda: [ENTRIES, b'{"clip": {"textual": {"modelName": "b"}}}'], json_mutator
    ),
    "request": Reader(_prepare_requests, _requests, _mutate_request),
}
