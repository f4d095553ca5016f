"""Convert dataclasses to JSON and back, by the types of their fields. Unknown and missing keys are errors."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeVar

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """Convert a value, which may be or hold dataclasses, to dicts, lists and scalars."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: to_json(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(child) for child in value]
    return value


def from_json(expected: type[T], value: Any, path: str = "") -> T:
    """Convert parsed JSON to a value of type `expected`.

    Args:
        expected: a dataclass, a scalar, or a dict, tuple, literal or union of such.
        value: the parsed JSON.
        path: of `value` in its document, for error messages.

    Raises:
        ValueError: a key is unknown or missing, or a value is of another type.
    """
    return _convert(expected, value, path)


def _convert(expected: Any, value: Any, path: str) -> Any:
    if dataclasses.is_dataclass(expected):
        return _to_dataclass(expected, value, path)
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        others = [argument for argument in arguments if argument is not type(None)]
        if len(others) == 1:
            return _convert(others[0], value, path)
        if not isinstance(value, (*others, int)):
            raise ValueError(f"{path} is {value!r:.40}, but should be a number, a string, or true or false")
        return value
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"{path} is {value!r}, but should be one of {', '.join(map(repr, arguments))}")
        return value
    if origin is dict:
        _check_type(value, Mapping, "an object", path)
        return {key: _convert(arguments[1], child, f"{path}.{key}") for key, child in value.items()}
    if origin is tuple:
        return _to_tuple(arguments, value, path)
    return _to_scalar(expected, value, path)


def _to_dataclass(expected: Any, value: Any, path: str) -> Any:
    _check_type(value, Mapping, "an object", path or "the document")
    fields, hints = dataclasses.fields(expected), _type_hints(expected)
    parent = f"{path}." if path else ""
    for key in value:
        if key not in hints:
            raise ValueError(f"the key {parent}{key} is unknown")
    for field in fields:
        if field.name not in value:
            raise ValueError(f"the key {parent}{field.name} is missing")
    return expected(**{key: _convert(hints[key], child, f"{parent}{key}") for key, child in value.items()})


def _to_tuple(arguments: tuple[Any, ...], value: Any, path: str) -> tuple[Any, ...]:
    _check_type(value, list | tuple, "a list", path)
    if arguments[-1] is ...:
        arguments = (arguments[0],) * len(value)
    if len(arguments) != len(value):
        raise ValueError(f"{path} has {len(value)} entries, but should have {len(arguments)}")
    return tuple(
        _convert(argument, child, f"{path}.{index}")
        for index, (argument, child) in enumerate(zip(arguments, value, strict=True))
    )


def _to_scalar(expected: type, value: Any, path: str) -> Any:
    name = {float: "a number", int: "an integer", str: "a string", bool: "true or false"}[expected]
    # JSON writes 1.0 of other programs as 1; the number stays as it is, so that it is written back the same.
    accepted = float | int if expected is float else expected
    if isinstance(value, bool) and expected is not bool:
        raise ValueError(f"{path} is {value!r}, but should be {name}")
    _check_type(value, accepted, name, path)
    return value


def _check_type(value: Any, expected: Any, name: str, path: str) -> None:
    if not isinstance(value, expected):
        raise ValueError(f"{path} is {value!r:.40}, but should be {name}")


@cache
def _type_hints(expected: type) -> dict[str, Any]:
    return typing.get_type_hints(expected)
