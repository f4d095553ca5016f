"""The API's models are made from the types that gallery, API and client share."""

import dataclasses
import inspect
import json
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from itertools import combinations
from typing import Annotated, Any, get_type_hints

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

import familiar.client
import familiar.core
import familiar.gallery
import familiar.web
from familiar.client.responses import parse_response
from familiar.core import gallery_types, recognition_types
from familiar.core.errors import FamiliarError
from familiar.core.field_types import FieldSpec, Number, Text, is_in_api
from familiar.core.gallery_types import GalleryFace, GalleryPhoto, Page, Progress, Question, SkippedPhoto
from familiar.core.recognition_types import DetectedPhoto, DetectionResult, EmbeddedFace
from familiar.core.types import Box, Face
from familiar.web.api.openapi import Problem
from familiar.web.api.schemas import RequestBody, pydantic_type

FACE = GalleryFace(
    box_xyxy_px=Box(1.0, 2.0, 3.0, 4.5),
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
    adapter = TypeAdapter(pydantic_type(shared_type))
    return json.loads(adapter.dump_json(adapter.validate_python(value, from_attributes=True)))


def declared_types() -> Iterator[tuple[type, frozenset[str]]]:
    """List the dataclasses and pydantic models of core, gallery, web and client with their fields.

    Without requests: two that do different things may have the same parameters.
    """
    for package in (familiar.core, familiar.gallery, familiar.web, familiar.client):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for item in vars(import_module(module.name)).values():
                if inspect.isclass(item) and item.__module__ == module.name and not issubclass(item, RequestBody):
                    if dataclasses.is_dataclass(item):
                        yield item, frozenset(field.name for field in dataclasses.fields(item))
                    elif issubclass(item, BaseModel):
                        yield item, frozenset(item.model_fields)


def test_every_type_is_declared_once():
    types = {item: fields for item, fields in declared_types() if fields}
    assert {GalleryFace, Problem} <= types.keys()
    twice = [
        (first.__name__, second.__name__)
        for first, second in combinations(types, 2)
        if types[first] == types[second] and not (issubclass(first, second) or issubclass(second, first))
    ]
    assert twice == []


@pytest.mark.parametrize("module", [gallery_types, recognition_types])
def test_every_shared_type_has_a_docstring_and_a_model(module: Any):
    types = [item for item in vars(module).values() if inspect.isclass(item) and item.__module__ == module.__name__]
    assert len(types) > 7
    for shared_type in types:
        assert shared_type.__doc__
        assert not shared_type.__doc__.startswith(f"{shared_type.__name__}(")  # as a dataclass without one has
        if not getattr(shared_type, "__parameters__", ()):
            fields = set(pydantic_type(shared_type).model_fields)
            hints = get_type_hints(shared_type, include_extras=True)
            assert fields == {name for name, hint in hints.items() if is_in_api(hint)}


@dataclasses.dataclass(frozen=True)
class Sample:
    """A sample, or None.

    Its second paragraph.

    Attributes:
        label: A label that needs
            two lines; None: no label.
    """

    number: Number
    label: Annotated[Text | None, FieldSpec("Is replaced.", ("a",))]
    size_px: tuple[int, int]
    names: tuple[str, ...]


def test_schema_has_descriptions_examples_and_constraints():
    schema = pydantic_type(Sample).model_json_schema()
    assert schema["description"] == "A sample, or null.\n\nIts second paragraph."
    label = schema["properties"]["label"]
    assert (label["description"], label["examples"]) == ("A label that needs two lines; null: no label.", ["a"])
    number = schema["properties"]["number"]
    assert (number["minimum"], number["maximum"], number["examples"]) == (1, 2**53 - 1, [17])
    size = schema["properties"]["size_px"]
    assert (size["minItems"], size["maxItems"], size["items"]) == (2, 2, {"type": "integer"})
    assert "minItems" not in schema["properties"]["names"]


def test_rejects_docstring_of_unknown_attribute():
    @dataclasses.dataclass
    class Wrong:
        """Wrong.

        Attributes:
            number: Misspelled.
        """

        numbers: int

    with pytest.raises(AssertionError, match="does not exist"):
        pydantic_type(Wrong)


def test_json_is_parsed_to_the_same_value():
    progress = Progress("3", "failed", 2, 1, skipped=(SkippedPhoto("a", "b"),), skipped_count=1, error="c")
    for shared_type, value in ((Page[GalleryPhoto], Page((PHOTO,), "x")), (Progress, progress), (Question, QUESTION)):
        assert parse_response(shared_type, to_json(shared_type, value)) == value


def test_detected_face_is_sent_without_and_embedded_face_with_embedding():
    body = {
        "box_xyxy_px": (0, 0, 1, 1),
        "landmarks_px": None,
        "score": 1,
        "quality": 1,
        "label": None,
        "embedding": [0.6, 0.8],
        "species": "cat",
    }
    for face_type, sent in ((Face, False), (EmbeddedFace, True)):
        photos = {"photos": [{"name": "a", "size_px": (8, 9), "faces": [body]}], "skipped": []}
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
    model = pydantic_type(Question, RequestBody)
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
