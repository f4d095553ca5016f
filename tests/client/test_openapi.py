"""Each method of the client sends a request that the OpenAPI document describes, and reads what it answers."""

import re
from collections.abc import Iterator
from inspect import signature
from typing import Any, get_args, get_origin

import numpy as np
import pytest

from familiar.client import Client
from familiar.core.gallery_types import Batch, Page, Progress, Question
from familiar.web.api.shared_types import api_type
from familiar.web.server import _application
from familiar.web.service import Service
from familiar.web.settings import Settings
from support.mean_color_bundle import CALIBRATED, write_mean_color_bundle

METHODS = [name for name in vars(Client) if not name.startswith("_") and name != "close"]
ARGUMENTS: dict[str, Any] = {
    "embedding": np.array([0.6, 0.8], np.float32),
    "box_xyxy_px": (0.0, 0.0, 9.0, 9.0),
    "photos": [b"a photo"],
    "first": b"a photo",
    "second": b"a photo",
    "faces": [1, 2],
    "identities": [1, 2],
    "same": [1],
    "question": Question("merge", 1, 2, None, None, 0.5, 0.5, 1.0),
    "batch": Batch(1, (1,), (2,), 0.5),
    "previous_job": Progress("3"),
    "job": "3",
    "number": "3",
    "by": "photo",
    "threshold": 0.5,
}
TEXTS = ("folder", "name", "prefix", "species", "since", "until", "detector")


class Sent(Exception):
    """Ends a call once its request is known."""


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("openapi")
    settings = Settings(gallery=root / "album", models=(write_mean_color_bundle(root / "bundle.onnx", CALIBRATED),))
    return _application(Service(settings)).openapi()


def request_of(name: str) -> dict[str, Any]:
    """Return the request that a method sends."""
    sent: dict[str, Any] = {}

    def note(kind: Any, method: str, path: str, **more: Any) -> None:
        sent.update({"kind": kind, "method": method, "path": path, **more})
        raise Sent

    def note_events(path: str) -> Iterator[Any]:
        sent.update({"kind": None, "method": "GET", "path": path})
        raise Sent

    with Client("http://127.0.0.1:9") as client:
        client._server.request, client._server.events = note, note_events  # pyright: ignore[reportAttributeAccessIssue]
        with pytest.raises(Sent):
            list(getattr(client, name)(**arguments_of(name)))
    return sent


def arguments_of(name: str) -> dict[str, Any]:
    """Return an argument for each parameter of a method."""
    parameters = [each for each in signature(getattr(Client, name)).parameters if each != "self"]
    arguments = {each: ARGUMENTS.get(each, "a" if each in TEXTS else 1) for each in parameters}
    if name == "answer":
        arguments["same"] = True
    if name in ("search_photo", "verify_identity"):
        arguments["photo"] = b"a photo"
    return arguments


def operation_of(document: dict[str, Any], sent: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the path of a request's operation, and its description; one without parameters before others."""
    paths = sorted(document["paths"], key=lambda path: path.count("{"))
    path = next(path for path in paths if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), f"/api/v1/{sent['path']}"))
    return path, document["paths"][path][sent["method"].lower()]


def schema_at(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    return document["components"]["schemas"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


@pytest.mark.parametrize("name", METHODS)
def test_request_and_response_are_those_of_the_document(document: dict[str, Any], name: str):
    sent = request_of(name)
    _, operation = operation_of(document, sent)
    queries = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
    assert {key for key, value in (sent.get("query") or {}).items() if value is not None} <= queries
    content = operation.get("requestBody", {}).get("content", {})
    if sent.get("photos"):
        form = schema_at(document, content["multipart/form-data"]["schema"])
        assert {field for field, _ in sent["photos"]} == set(form["properties"])
    if content.keys() == {"application/json"}:
        body, schema = sent.get("body") or {}, schema_at(document, content["application/json"]["schema"])
        assert set(schema.get("required", ())) <= body.keys() <= schema["properties"].keys()
    kind, items = sent["kind"], get_origin(sent["kind"]) is tuple
    if kind not in (None, bytes, Page[Any], tuple[str, ...]):
        (answer,) = (each for status, each in operation["responses"].items() if status in ("200", "201", "202"))
        schema = answer["content"]["application/json"]["schema"]
        named = api_type(get_args(kind)[0] if items else kind).__name__
        assert (schema["items"] if items else schema) == {"$ref": f"#/components/schemas/{named}"}


def test_each_operation_has_a_method(document: dict[str, Any]):
    described = {(path, method) for path, methods in document["paths"].items() for method in methods}
    sent = [request_of(name) for name in METHODS]
    assert {(operation_of(document, each)[0], each["method"].lower()) for each in sent} == described
