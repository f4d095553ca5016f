"""Settings to and from JSON and `key=value` texts, by the field types of frozen dataclasses."""

import dataclasses
import difflib
from collections.abc import Iterable
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from familiar.core.errors import BadRecipe
from familiar.training.loss_catalog import LOSSES, ArcFaceSettings
from familiar.training.loss_settings import LossSettings
from familiar.training.schedule import Schedule


def field_types(settings_type: Any, prefix: str = "") -> dict[str, Any]:
    """Return the type of every setting by its key, such as `optimizer.lr`."""
    types: dict[str, Any] = {}
    for name, field_type in _types_by_name(settings_type).items():
        if _is_settings_group(field_type):
            types |= field_types(field_type, f"{prefix}{name}.")
        else:
            types[prefix + name] = field_type
    return types


def _types_by_name(settings_type: Any) -> dict[str, Any]:
    """Return the types of a group's settings; for the loss, its name and the settings of every loss."""
    if settings_type is not LossSettings:
        return get_type_hints(settings_type)
    types: dict[str, Any] = {"name": Literal[*LOSSES]}  # pyright: ignore[reportInvalidTypeForm]
    for loss in LOSSES.values():
        types |= {name: hint for name, hint in get_type_hints(loss).items() if get_origin(hint) is not ClassVar}
    return types


def _is_settings_group(field_type: Any) -> bool:
    """Whether a field's type has settings of its own; a schedule counts as one value."""
    return dataclasses.is_dataclass(field_type) and field_type is not Schedule


def to_primitive(value: Any) -> Any:
    """Convert settings to numbers, strings, lists and dictionaries; a loss gives only the settings that it has."""
    if isinstance(value, Schedule):
        return str(value) if value.varies else value.start
    if isinstance(value, tuple):
        return [to_primitive(item) for item in value]
    if not dataclasses.is_dataclass(value):
        return value
    if isinstance(value, LossSettings):
        names = ["name", *value.settings()]
    else:
        names = [field.name for field in dataclasses.fields(value)]
    return {name: to_primitive(getattr(value, name)) for name in names}


def unknown_key_error(key: str, known_keys: Iterable[str]) -> BadRecipe:
    """Return the error for an unknown key; its message suggests the most similar known one."""
    known_keys = list(known_keys)
    similar = [known for known in known_keys if known.endswith(f".{key}")]
    initials = "".join(word[:1] for word in key.rpartition(".")[2].split("_"))  # learning_rate: lr
    similar += [known for known in known_keys if known.endswith(f".{initials}")]
    similar += difflib.get_close_matches(key, known_keys, n=1, cutoff=0.4)
    return BadRecipe(f"unknown setting {key!r}" + (f"; did you mean {similar[0]!r}?" if similar else ""))


def parse_value(text: str, field_type: Any, key: str) -> Any:
    """Parse the text of a setting into the value that JSON would hold.

    Args:
        text: the right side of `key=value`.
        field_type: the type of the setting.
        key: the name of the setting, for error messages.

    Raises:
        BadRecipe: the text is not a value of this type.
    """
    if get_origin(field_type) is Literal:
        if text not in get_args(field_type):
            raise BadRecipe(f"{key} must be one of {', '.join(get_args(field_type))}, not {text!r}")
        return text
    if field_type is str:
        return text
    if field_type is bool:
        if text.lower() not in ("true", "false"):
            raise BadRecipe(f"{key} must be true or false, not {text!r}")
        return text.lower() == "true"
    if field_type is Schedule:
        return text  # a recipe's JSON holds schedules as text too
    if get_origin(field_type) is tuple:
        items = [item.strip() for item in text.strip("()[] ").split(",")]
        return [parse_value(item, get_args(field_type)[0], key) for item in items if item]
    try:
        return field_type(text)
    except ValueError as error:
        expected = "a whole number" if field_type is int else "a number"
        raise BadRecipe(f"{key} must be {expected}, not {text!r}") from error


def from_primitive(settings_type: Any, stored: Any) -> Any:
    """Convert the output of `to_primitive` back to settings.

    Raises:
        BadRecipe: anything else; for an unknown key the message suggests the most similar one.
    """
    return _settings_from_primitive(settings_type, stored, "", list(field_types(settings_type)))


def _settings_from_primitive(settings_type: Any, stored: Any, prefix: str, known_keys: list[str]) -> Any:
    if not isinstance(stored, dict):
        raise BadRecipe(f"{prefix.rstrip('.') or 'a recipe'}: expected an object, got {stored!r}")
    types = _types_by_name(settings_type)
    values: dict[str, Any] = {}
    for name, value in stored.items():
        if name not in types:
            raise unknown_key_error(prefix + name, known_keys)
        if _is_settings_group(types[name]):
            values[name] = _settings_from_primitive(types[name], value, f"{prefix}{name}.", known_keys)
        else:
            values[name] = _checked_value(value, types[name], prefix + name)
    try:
        return _loss_settings(values) if settings_type is LossSettings else settings_type(**values)
    except ValueError as error:
        raise BadRecipe(f"{prefix}{error}") from error
    except TypeError as error:
        raise BadRecipe(f"{prefix or 'a recipe'}: a setting is missing ({error})") from error


def _loss_settings(values: dict[str, Any]) -> LossSettings:
    """Return a loss's settings; missing ones take the values published for that loss.

    Raises:
        BadRecipe: the loss has no setting of that name.
    """
    loss = LOSSES[values.get("name", ArcFaceSettings.name)]
    chosen = {name: value for name, value in values.items() if name != "name"}
    for name in chosen:
        if name not in loss.settings():
            known_names = ", ".join(("name", *loss.settings()))
            raise BadRecipe(f"{loss.name} has no setting {name}; its settings are {known_names}")
    return loss(**chosen)


def _checked_value(value: Any, field_type: Any, key: str) -> Any:
    """Convert a JSON value to the value that the settings hold. BadRecipe if it has another type."""
    if field_type is Schedule:
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            try:
                return Schedule.parse(str(value))
            except ValueError as error:
                raise BadRecipe(f"{key}: {error}") from error
    elif get_origin(field_type) is tuple:
        if isinstance(value, list | tuple):
            return tuple(_checked_value(item, get_args(field_type)[0], key) for item in value)
    elif get_origin(field_type) is Literal:
        if value in get_args(field_type):
            return value
    elif _is_instance(value, field_type):
        return value
    raise BadRecipe(f"{key}: {value!r} has the wrong type, or is not one of the allowed values")


def _is_instance(value: Any, field_type: type) -> bool:
    """Whether a value has the type: an integer is a number too, but true and false are not."""
    accepted = (int, float) if field_type is float else field_type
    return isinstance(value, accepted) and isinstance(value, bool) == (field_type is bool)
