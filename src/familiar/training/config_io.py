"""Settings as JSON and as `key=value` texts, and back: from the types of frozen dataclasses, whichever they are."""

import dataclasses
import difflib
from collections.abc import Iterable
from typing import Any, Literal, get_args, get_origin, get_type_hints

from familiar.core.errors import BadRecipe
from familiar.training.loss_settings import LOSSES, LossSettings
from familiar.training.schedule import Schedule


def field_types(part: Any, prefix: str = "") -> dict[str, Any]:
    """The type of every setting, by its key."""
    kinds: dict[str, Any] = {}
    for name, kind in get_type_hints(part).items():
        nested = _is_part(kind)
        kinds |= field_types(kind, f"{prefix}{name}.") if nested else {prefix + name: kind}
    return kinds


def _is_part(kind: Any) -> bool:
    """Whether it has settings of its own; a schedule is one value."""
    return dataclasses.is_dataclass(kind) and kind is not Schedule


def to_primitive(value: Any) -> Any:
    """Numbers, strings, lists and dictionaries; of a loss's settings those it has."""
    if isinstance(value, Schedule):
        return str(value) if value.moves else value.start
    if isinstance(value, tuple):
        return [to_primitive(item) for item in value]
    if not dataclasses.is_dataclass(value):
        return value
    names = value.settings if isinstance(value, LossSettings) else [each.name for each in dataclasses.fields(value)]
    return {name: to_primitive(getattr(value, name)) for name in names}


def unknown(key: str, keys: Iterable[str]) -> BadRecipe:
    """With the nearest of the keys there are."""
    keys = list(keys)
    near = [known for known in keys if known.endswith(f".{key}")]
    initials = "".join(word[:1] for word in key.rpartition(".")[2].split("_"))  # learning_rate: lr
    near += [known for known in keys if known.endswith(f".{initials}")]
    near += difflib.get_close_matches(key, keys, n=1, cutoff=0.4)
    return BadRecipe(f"no setting is called {key!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


def parse(text: str, kind: Any, key: str) -> Any:
    """A setting's value as JSON would hold it. BadRecipe where the text is none of its type."""
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise BadRecipe(f"{key} is one of {', '.join(get_args(kind))}, not {text!r}")
        return text
    if kind is str:
        return text
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise BadRecipe(f"{key} is true or false, not {text!r}")
        return text.lower() == "true"
    if kind is Schedule:
        return text  # as a recipe's JSON may hold it
    if get_origin(kind) is tuple:
        parts = [part.strip() for part in text.strip("()[] ").split(",")]
        return [parse(part, get_args(kind)[0], key) for part in parts if part]
    try:
        return kind(text)
    except ValueError as error:
        raise BadRecipe(f"{key} is {'a whole number' if kind is int else 'a number'}, not {text!r}") from error


def from_primitive(kind: Any, stored: Any) -> Any:
    """What `plain` was made from. BadRecipe for anything else, with the nearest key for an unknown one."""
    return _part(kind, stored, "", list(field_types(kind)))


def _part(kind: Any, stored: Any, prefix: str, keys: list[str]) -> Any:
    if not isinstance(stored, dict):
        raise BadRecipe(f"{prefix.rstrip('.') or 'a recipe'}: wanted an object, got {stored!r}")
    kinds = get_type_hints(kind)
    values: dict[str, Any] = {}
    for name, value in stored.items():
        if name not in kinds:
            raise unknown(prefix + name, keys)
        if _is_part(kinds[name]):
            values[name] = _part(kinds[name], value, f"{prefix}{name}.", keys)
        else:
            values[name] = _checked(value, kinds[name], prefix + name)
    try:
        return _loss(values) if kind is LossSettings else kind(**values)
    except ValueError as error:
        raise BadRecipe(f"{prefix}{error}") from error
    except TypeError as error:
        raise BadRecipe(f"{prefix or 'a recipe'}: incomplete ({error})") from error


def _loss(values: dict[str, Any]) -> LossSettings:
    """What is left out is as published for that loss. BadRecipe for a setting it has not."""
    published, _ = LOSSES[values.get("name", LossSettings.name)]
    for name in values:
        if name not in published.settings:
            own = ", ".join(published.settings)
            raise BadRecipe(f"{published.name} has no setting {name}; it has {own}")
    return dataclasses.replace(published, **values)


def _checked(value: Any, kind: Any, key: str) -> Any:
    """The value as the recipe holds it. BadRecipe where it is not of its type."""
    if kind is Schedule:
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            try:
                return Schedule.parse(str(value))
            except ValueError as error:
                raise BadRecipe(f"{key}: {error}") from error
    elif get_origin(kind) is tuple:
        if isinstance(value, list | tuple):
            return tuple(_checked(item, get_args(kind)[0], key) for item in value)
    elif get_origin(kind) is Literal:
        if value in get_args(kind):
            return value
    elif isinstance(value, (int, float) if kind is float else kind) and isinstance(value, bool) == (kind is bool):
        return value
    raise BadRecipe(f"{key}: {value!r} does not fit")
