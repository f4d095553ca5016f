"""Check of the types of a dataclass's fields, for values that were read from a file that may come from anybody."""

import dataclasses
import types
import typing
from functools import cache
from typing import Any, Literal, cast


def check_fields(record: object) -> None:
    """Check that the fields of a dataclass, and those of dataclasses in it, have the types that are declared.

    Args:
        record: an instance. Its types are numbers, texts, other dataclasses, and tuples, dicts, unions with None and
            literals of those. An integer is a float, too.

    Raises:
        TypeError: a field has another type; names it.

    >>> Point = dataclasses.make_dataclass("Point", [("x", float), ("y", float)])
    >>> check_fields(Point(0.5, "high"))
    Traceback (most recent call last):
    ...
    TypeError: y is 'high', not float
    """
    for name, hint in _type_hints(type(record)).items():
        _check(hint, getattr(record, name), name)


def _check(expected: Any, value: Any, name: str) -> None:
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin in (typing.Union, types.UnionType):
        if value is not None or type(None) not in arguments:
            (other,) = (argument for argument in arguments if argument is not type(None))
            _check(other, value, name)
    elif origin is tuple and isinstance(value, tuple):
        members = cast(tuple[Any, ...], value)
        expected_members = arguments[:1] * len(members) if arguments[-1] is ... else arguments
        if len(members) != len(expected_members):
            raise TypeError(f"{name} has {len(members)} entries, not {len(expected_members)}")
        for hint, member in zip(expected_members, members, strict=True):
            _check(hint, member, name)
    elif origin is dict and isinstance(value, dict):
        for key, member in cast(dict[Any, Any], value).items():
            _check(arguments[0], key, name)
            _check(arguments[1], member, f"{name}.{key}")
    elif _is_dataclass(expected) and isinstance(value, expected):
        check_fields(value)
    elif not _is_scalar(expected, value):
        raise TypeError(f"{name} is {value!r:.40}, not {getattr(expected, '__name__', expected)}")


def _is_dataclass(expected: Any) -> bool:
    return dataclasses.is_dataclass(expected)


def _is_scalar(expected: Any, value: Any) -> bool:
    if expected is Any:
        return True
    if typing.get_origin(expected) is Literal:
        return value in typing.get_args(expected)
    if expected in (int, float):
        return isinstance(value, int if expected is int else int | float) and not isinstance(value, bool)
    return expected in (str, bool) and isinstance(value, expected)


@cache
def _type_hints(expected: type) -> dict[str, Any]:
    return typing.get_type_hints(expected)
