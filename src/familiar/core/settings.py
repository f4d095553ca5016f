"""Settings: fields of dataclasses that are declared with their range and meaning, once."""

from dataclasses import Field, field, fields
from functools import cache
from typing import Any, Literal, get_args, get_origin


def setting(default: Any, low: float | None = None, high: float | None = None, meaning: str = "", **more: Any) -> Any:
    """Declare a field of a dataclass.

    Args:
        default: its value where none is given.
        low: the smallest value of a number.
        high: the largest value of a number.
        meaning: what it is, with its unit, for documentation that is made from the declaration.
        more: further metadata.
    """
    return field(default=default, metadata={"range": None if low is None else (low, high), "meaning": meaning, **more})


class Checked:
    """Base of dataclasses whose values are checked as `check_settings` does."""

    def __post_init__(self) -> None:
        check_settings(self)


def check_settings(settings: Any) -> None:
    """Check the fields of a dataclass that were declared with `setting`, and those with options.

    Raises:
        ValueError: a number is outside its range, or a value is none of its `Literal`; the message names the field.

    >>> from dataclasses import make_dataclass
    >>> crop = make_dataclass("Crop", [("size_px", int, setting(112, 16, 1024))])
    >>> check_settings(crop(size_px=8))
    Traceback (most recent call last):
    ...
    ValueError: size_px must be in [16, 1024], not 8
    """
    for declared in fields(settings):
        check_setting(declared, getattr(settings, declared.name, None))  # what is not set yet has no range


def check_setting(declared: "Field[Any]", value: Any) -> None:
    """Check a value of one field, as `check_settings` does."""
    if (bounds := declared.metadata.get("range")) is not None and not bounds[0] <= value <= bounds[1]:
        raise ValueError(f"{declared.name} must be in [{bounds[0]:g}, {bounds[1]:g}], not {value}")
    if (options := _options(declared.type)) and value not in options:
        raise ValueError(f"{declared.name} must be one of {', '.join(options)}, not {value!r}")


@cache  # a loss that is a function makes an object in every step
def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) is Literal else ()
