"""The API sends the types that gallery, API and client share, and the client reads them."""

import dataclasses
import inspect
import json
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from itertools import combinations
from typing import Any, get_type_hints

import numpy as np
import pytest
from pydantic import ValidationError

import familiar.client
import familiar.core
import familiar.gallery
import familiar.web
from familiar.client.responses import parse_response
from familiar.core import gallery_types, recognition_types
from familiar.core.errors import FamiliarError
from familiar.core.field_types import is_in_api
from familiar.core.gallery_types import Batch, GalleryFace, GalleryPhoto, Page, Progress, Question, SkippedPhoto
from familiar.core.recognition_types import DetectedPhoto, DetectionResult, EmbeddedFace
from familiar.core.types import Box, Face
from familiar.web.api.models import RequestBody
from familiar.web.api.shared_types import api_type
from familiar.web.pages.render import HAS_DESK

FACE = GalleryFace(
    box_xyxy_px=Box(1.0, 2.0, 3.0, 4.5),
    landmarks_px=None,
    score=0.75,
    quality=0.5,
    species="cat",
    face=5,
    photo=1,
    identity=2,
    name="Mizzi",
    by_user=True,
)
PHOTO = GalleryPhoto(1, "a.jpg", "00ff", None, (FACE, dataclasses.replace(FACE, face=6, identity=None, name=None)))
QUESTION = Question("merge", 1, 2, None, 3, 0.5, 0.5, 1.0)


def to_json(shared_type: Any, value: Any) -> Any:
    """Convert a value to JSON as the API does."""
    return json.loads(api_type(shared_type).model_validate(value).model_dump_json())


INTEGRATED = ("familiar.web.immich", "familiar.web.pages.desk", "familiar.web.pages.desk_pet")


def declared_types() -> Iterator[tuple[type, frozenset[str]]]:
    """List the classes of core, gallery, web and client with their fields as dataclasses."""
    for package in (familiar.core, familiar.gallery, familiar.web, familiar.client):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not HAS_DESK and module.name in INTEGRATED:
                continue
            for item in vars(import_module(module.name)).values():
                if inspect.isclass(item) and item.__module__ == module.name:
                    yield item, frozenset(getattr(item, "__dataclass_fields__", ()))


def test_every_type_is_declared_once():
    types = {item: fields for item, fields in declared_types() if fields}
    assert GalleryFace in types
    twice = [
        (first.__name__, second.__name__)
        for first, second in combinations(types, 2)
        if types[first] == types[second] and not (issubclass(first, second) or issubclass(second, first))
    ]
    assert twice == []


@pytest.mark.parametrize("module", [gallery_types, recognition_types])
def test_every_shared_type_has_a_docstring_and_its_fields_a_description(module: Any):
    types: list[type[Any]] = [
        item for item in vars(module).values() if inspect.isclass(item) and item.__module__ == module.__name__
    ]
    assert len(types) > 7
    for shared_type in (*types, Face):
        assert shared_type.__doc__
        assert not shared_type.__doc__.startswith(f"{shared_type.__name__}(")  # as a dataclass without one has
        if not getattr(shared_type, "__parameters__", ()):
            hints = get_type_hints(shared_type, include_extras=True)
            model = api_type(shared_type)
            assert set(model.model_fields) == {name for name, hint in hints.items() if is_in_api(hint)}
            assert model.model_json_schema()["description"] == shared_type.__doc__.partition("\n")[0]


def test_schema_has_descriptions_examples_and_constraints():
    schema = api_type(GalleryPhoto).model_json_schema()
    assert schema["description"] == "A photo of the gallery."
    number, taken_at, sha256 = (schema["properties"][name] for name in ("photo", "taken_at", "sha256"))
    assert (number["minimum"], number["maximum"], number["examples"]) == (1, 2**53 - 1, [17])
    assert number["description"] == "Number of a photo, face or identity.", "that of its type"
    assert (taken_at["description"], sha256["description"]) == ("ISO 8601, local time.", "of its content, as hex.")
    face = schema["$defs"]["GalleryFace"]["properties"]
    assert (face["box_xyxy_px"]["minItems"], face["box_xyxy_px"]["maxItems"]) == (4, 4)
    assert face["identity"]["description"] == "The face's identity; null: unassigned."
    assert "landmarks_px" not in face


def test_json_is_parsed_to_the_same_value():
    progress = Progress("3", "failed", 2, 1, skipped=(SkippedPhoto("a", "b"),), skipped_count=1, error="c")
    for shared_type, value in (
        (Page[GalleryPhoto], Page((PHOTO,), "x")),
        (Progress, progress),
        (Question, QUESTION),
        (Batch, Batch(3, (1, 2), (), 0.5)),
    ):
        assert parse_response(shared_type, to_json(shared_type, value)) == value


def test_detected_face_is_sent_without_and_embedded_face_with_embedding():
    landmarks = np.array([[0, 0], [1, 0], [0.5, 1]], np.float32)
    face = Face(Box(0, 0, 1, 1), landmarks, 1, 1, None, np.array([0.6, 0.8], np.float32), "cat")
    for face_type, sent in ((Face, False), (EmbeddedFace, True)):
        photos = {"photos": [{"name": "a", "size_px": (8, 9), "faces": [face]}], "skipped": []}
        content = to_json(DetectionResult[face_type], photos)
        assert ("embedding" in content["photos"][0]["faces"][0]) == sent
        (photo,) = parse_response(DetectionResult[face_type], content).photos
        assert isinstance(photo, DetectedPhoto)
        assert type(photo.faces[0]) is face_type
        assert (photo.size_px, photo.faces[0].embedding is not None) == ((8, 9), sent)


def test_text_is_printable_and_numbers_are_finite():
    hostile = dataclasses.replace(PHOTO, path="\udcff\n.jpg", faces=())
    assert to_json(GalleryPhoto, hostile)["path"] == r"\xff\n.jpg"
    for wrong in (dataclasses.replace(FACE, score=float("nan")), dataclasses.replace(FACE, face=0)):
        with pytest.raises(ValidationError):
            to_json(GalleryFace, wrong)


def test_request_is_strict_but_takes_whole_floats():
    question = dataclasses.asdict(QUESTION)
    model = api_type(Question, RequestBody)
    assert dict(model.model_validate(question | {"first_face": 1.0, "second": 3.0})) == question
    for wrong in ({"first_face": "1"}, {"first_face": 1.5}, {"second": 0}, {"kind": "other"}, {"more": 1}):
        with pytest.raises(ValidationError):
            model.model_validate(question | wrong)


def test_client_ignores_unknown_and_rejects_missing_fields():
    content = to_json(GalleryPhoto, PHOTO)
    assert parse_response(GalleryPhoto, content | {"new": 1}) == PHOTO
    for name in content:
        with pytest.raises(FamiliarError, match="unexpected response"):
            parse_response(GalleryPhoto, {key: value for key, value in content.items() if key != name})
    with pytest.raises(FamiliarError, match="unexpected response"):
        parse_response(Progress, {"number": "3"})  # what has a default for the server is sent all the same
