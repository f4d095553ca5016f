"""Pydantic models of the values that the gallery, the API and the client share (`familiar.core`).

A model has the dataclass's fields. What the OpenAPI document says about them is in the dataclass's docstring and in the
`FieldSpec`s of its fields.
"""

import dataclasses
import functools
import inspect
import re
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetPydanticSchema, create_model

from familiar.core.field_types import FieldSpec, Landmarks, Vector, is_in_api
from familiar.core.gallery_types import (
    AdditionResult,
    AssignmentConfidence,
    GalleryFace,
    GalleryPhoto,
    IdentitySummary,
    MinSimilarities,
    ModelMetadata,
    Question,
    SpeciesClustering,
)
from familiar.core.recognition_types import DetectedPhoto, EmbeddedFace, PhotoVerificationResult
from familiar.core.terminal_text import printable
from familiar.core.types import Box, Face

# In the OpenAPI document, from which programs are generated.
SCHEMA_NAMES: dict[type, str] = {
    AdditionResult: "NewFace",
    AssignmentConfidence: "FaceConfidence",
    DetectedPhoto: "PhotoFaces",
    Face: "DetectedFace",
    GalleryFace: "Face",
    GalleryPhoto: "Photo",
    MinSimilarities: "Thresholds",
    IdentitySummary: "Identity",
    ModelMetadata: "Model",
    Question: "ReviewQuestion",
    SpeciesClustering: "SpeciesThreshold",
}
# Their schemas have no description in the published OpenAPI document, nor have those of generic types.
UNDESCRIBED = (EmbeddedFace, AdditionResult, PhotoVerificationResult)
_ATTRIBUTE = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)  # of a docstring, with its further lines


class ApiModel(BaseModel):
    """Base class of what the API sends and receives."""

    model_config = ConfigDict(from_attributes=True, allow_inf_nan=False)


class RequestBody(ApiModel):
    """Base class of what the API receives. Unknown keys are rejected, so that typos are not silently ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _float_to_int(value: object) -> object:
    """Convert 3.0 to 3: equal in JSON, but not to a strict int."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE_NUMBER = BeforeValidator(_float_to_int)


def pydantic_type(shared_type: Any, base: type[ApiModel] = ApiModel) -> Any:
    """Return the type by which pydantic checks, writes and documents values of a type.

    Args:
        shared_type: such as `GalleryFace`, `Page[GalleryFace]` or `list[Text]`.
        base: base class of the models of dataclasses.
    """
    return _pydantic_type(shared_type, base, {})


def read_as(shared_type: type, base: type[ApiModel] = ApiModel) -> GetPydanticSchema:
    """Return metadata of `Annotated`: pydantic checks a value of this type by its model."""
    return GetPydanticSchema(lambda _, handler: handler.generate_schema(pydantic_type(shared_type, base)))


@functools.cache
def _model(shared_type: Any, base: type[ApiModel]) -> type[ApiModel]:
    """Make the model of a dataclass, once."""
    origin = get_origin(shared_type) or shared_type
    arguments = dict(zip(getattr(origin, "__parameters__", ()), get_args(shared_type), strict=True))
    description, attributes = _parse_docstrings(origin)
    hints = get_type_hints(origin, include_extras=True)
    assert attributes.keys() <= hints.keys(), "a docstring describes an attribute that does not exist"
    fields: dict[str, Any] = {}
    for name, hint in hints.items():
        if is_in_api(hint):
            value = Field(description=attributes[name]) if name in attributes else ...
            fields[name] = (_pydantic_type(hint, base, arguments), value)
    model = create_model(_schema_name(shared_type), __base__=base, __module__=origin.__module__, **fields)
    model.__doc__ = None if arguments or origin in UNDESCRIBED else description
    return model


def _schema_name(shared_type: Any) -> str:
    origin = get_origin(shared_type) or shared_type
    name: str = SCHEMA_NAMES.get(origin) or origin.__name__
    arguments = ", ".join(map(_schema_name, get_args(shared_type)))
    return f"{name}[{arguments}]" if arguments else name


def _pydantic_type(hint: Any, base: type[ApiModel], arguments: dict[Any, Any]) -> Any:
    """Convert a type. `arguments`: the type for each type variable."""
    convert = functools.partial(_pydantic_type, base=base, arguments=arguments)
    origin, inner = get_origin(hint), get_args(hint)
    if isinstance(hint, TypeVar):
        return convert(arguments[hint])
    if hint is Vector:
        return list[float]
    if hint is Landmarks:
        return list[list[float]]
    if hint is Box:
        return convert(tuple[float, float, float, float])
    if origin is Annotated:
        strict = bool(base.model_config.get("strict"))
        notes = [note for spec in inner[1:] for note in _pydantic_notes(spec, is_whole=strict and inner[0] is int)]
        return Annotated[convert(inner[0]), *notes]
    if origin in (Union, UnionType):
        return Union[*map(convert, inner)]
    if origin in (list, tuple):
        items = list[convert(inner[0])]
        is_fixed = origin is tuple and inner[-1] is not Ellipsis
        return Annotated[items, Field(min_length=len(inner), max_length=len(inner))] if is_fixed else items
    if dataclasses.is_dataclass(origin or hint):
        substituted = hint if origin is None else origin[tuple(arguments.get(item, item) for item in inner)]
        return _model(substituted, base)
    return hint


def _pydantic_notes(spec: FieldSpec, *, is_whole: bool) -> list[Any]:
    examples = [list(example) if isinstance(example, tuple) else example for example in spec.examples]
    description = None if spec.description is None else _in_json(spec.description)
    notes: list[Any] = [Field(description=description, examples=examples or None, ge=spec.minimum, le=spec.maximum)]
    if spec.is_free_text:
        notes.append(BeforeValidator(printable))
    if is_whole:
        notes.append(WHOLE_NUMBER)
    return notes


def _parse_docstrings(shared_type: type) -> tuple[str, dict[str, str]]:
    """Return the description of a dataclass, and those of its fields, inherited ones too."""
    description = ""
    attributes: dict[str, str] = {}
    for parent in filter(dataclasses.is_dataclass, reversed(shared_type.__mro__)):
        description, _, section = inspect.cleandoc(parent.__doc__ or "").partition("\n\nAttributes:\n")
        attributes |= {name: _in_json(" ".join(text.split())) for name, text in _ATTRIBUTE.findall(section)}
    return _in_json(description), attributes


def _in_json(text: str) -> str:
    return re.sub(r"\bNone\b", "null", text)
