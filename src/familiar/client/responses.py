"""Convert the server's responses to the values of `familiar.core` that the gallery has too."""

import dataclasses
import functools
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from familiar.core.errors import FamiliarError
from familiar.core.field_types import Landmarks, Vector, is_in_api
from familiar.core.types import Box


def parse_response(target: Any, content: Any) -> Any:
    """Convert JSON to a value of a type; unknown keys are ignored.

    Raises:
        FamiliarError: the JSON does not fit the type.

    >>> from familiar.core.gallery_types import CorrectionResult
    >>> parse_response(CorrectionResult, {"identity": 3, "propagated_faces": 2, "news": True})
    CorrectionResult(identity=3, propagated_faces=2)
    """
    try:
        return _convert(target, content, {})
    except (LookupError, TypeError, ValueError) as error:
        raise FamiliarError("unexpected response; the versions of client and server differ, update familiar") from error


def _convert(target: Any, content: Any, arguments: dict[Any, Any]) -> Any:
    """Convert JSON to a value of a type. `arguments`: the type for each type variable."""
    origin, inner = get_origin(target), get_args(target)
    if isinstance(target, TypeVar):
        return _convert(arguments[target], content, arguments)
    if origin in (Union, UnionType):
        return None if content is None else _convert(inner[0], content, arguments)
    if target in (Vector, Landmarks):
        return np.array(content, np.float32)
    if target is Box:
        return Box(*content)
    if origin is tuple:
        types = inner[:1] * len(content) if inner[-1] is Ellipsis else inner
        return tuple(_convert(item_type, value, arguments) for item_type, value in zip(types, content, strict=True))
    if dataclasses.is_dataclass(origin or target):
        cls = origin or target
        if inner:
            inner_types = (arguments.get(argument, argument) for argument in inner)
            arguments = dict(zip(cls.__parameters__, inner_types, strict=True))
        return cls(**{name: _convert(hint, content[name], arguments) for name, hint in _field_types(cls).items()})
    return content


@functools.cache
def _field_types(target: type) -> dict[str, Any]:
    """Return the types of the fields that the server sends."""
    sent = [name for name, hint in get_type_hints(target, include_extras=True).items() if is_in_api(hint)]
    hints = get_type_hints(target)
    return {name: hints[name] for name in sent}
