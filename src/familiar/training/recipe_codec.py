"""Recipes to and from JSON and `key=value` texts."""

from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin

from familiar.core.errors import BadRecipe
from familiar.core.json_codec import CustomType, JsonCodec, field_types
from familiar.training.loss_catalog import LOSSES
from familiar.training.loss_settings import LossSettings
from familiar.training.schedule import Schedule


def parse_value(text: str, field_type: Any) -> Any:
    """Parse the text of a setting into the value that JSON would hold; return the text if it is none of its type.

    Args:
        text: the right side of `key=value`.
        field_type: the type of the setting.
    """
    if get_origin(field_type) is tuple:
        items = [item.strip() for item in text.strip("()[] ").split(",")]
        return [parse_value(item, get_args(field_type)[0]) for item in items if item]
    if field_type is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    try:
        return field_type(text) if field_type in (int, float) else text
    except ValueError:
        return text


def _schedule_to_json(schedule: Schedule, _: Callable[[Any], Any]) -> str | float:
    return str(schedule) if schedule.varies else schedule.start


def _schedule_from_json(content: Any, _: Callable[[Any, Any], Any]) -> Schedule:
    if not isinstance(content, str | int | float) or isinstance(content, bool):
        raise ValueError(f"{content!r:.40} has the wrong type, expected a number or a schedule")
    return Schedule.parse(str(content))


def _loss_to_json(loss: LossSettings, convert: Callable[[Any], Any]) -> dict[str, Any]:
    return {name: convert(getattr(loss, name)) for name in ("name", *loss.settings())}


def _loss_from_json(content: Any, convert: Callable[[Any, Any], Any]) -> LossSettings:
    """Convert a loss's name and settings; missing ones take the values published for that loss."""
    chosen = convert(content, dict[str, Any])
    named = {"name": chosen.pop("name", "arcface")}
    loss = LOSSES[convert(named, dict[str, _loss_names()])["name"]]
    for name in chosen:
        if name not in loss.settings():
            known_names = ", ".join(("name", *loss.settings()))
            raise BadRecipe(f"{loss.name} has no setting {name}; its settings are {known_names}")
    return convert(chosen, loss)


def _loss_key_types() -> dict[str, Any]:
    """Return the types of a loss's name and of the settings of every loss."""
    types = {"name": _loss_names()}
    for loss in LOSSES.values():
        types |= field_types(loss)
    return types


def _loss_names() -> Any:
    return Literal[*LOSSES]  # pyright: ignore[reportInvalidTypeForm]


RECIPES = JsonCodec(
    defaults=True,
    custom={
        Schedule: CustomType(_schedule_to_json, _schedule_from_json),
        LossSettings: CustomType(_loss_to_json, _loss_from_json, _loss_key_types),
    },
)
"""A recipe may leave out settings; a loss has its name and only the settings that it has."""
