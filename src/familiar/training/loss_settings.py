"""What the settings of all losses have in common. `loss_catalog` declares the losses."""

import dataclasses
import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

from familiar.training.schedule import Schedule


class Documented(NamedTuple):
    """What a setting means, and the range of its values; None where it is not a number."""

    meaning: str
    range: tuple[float, float] | None
    is_argument: bool


def setting(
    default: Any, meaning: str, low: float | None = None, high: float | None = None, *, argument: bool = True
) -> Any:
    """Declare a setting of a loss.

    Args:
        default: its published value.
        meaning: what it is, with its unit, for the documentation.
        low: its smallest value.
        high: its largest value.
        argument: whether the loss's constructor takes it, under the same name.
    """
    allowed = None if low is None or high is None else (low, high)
    return field(default=default, metadata={"documented": Documented(meaning, allowed, argument)})


@dataclass(frozen=True)
class LossSettings:
    """The settings of a loss. Each loss is a subclass, whose fields are its own settings, declared with `setting`.

    A setting that is a `Schedule` may change with the epochs: the loss takes it as an argument and has an attribute of
    the same name, which is set before every epoch.
    """

    name: ClassVar[str]  # in recipes: `loss.name`
    builds: ClassVar[str]  # the loss: a class of `familiar.losses`
    mines_triplets: ClassVar[bool] = False

    prefixes: tuple[int, ...] = setting((), "lengths of embedding prefixes trained as embeddings too", argument=False)
    prefix_weights: tuple[float, ...] = setting((), "the weight of each prefix's loss", argument=False)
    mined_on: Literal["own", "full"] = setting(
        "own", "whether each prefix mines its own triplets or all take those of the full length", argument=False
    )
    compatible_with: str = setting(
        "", "file of a bundle whose embeddings the new ones must be comparable with", argument=False
    )
    compatible_weight: Schedule = setting(
        Schedule(20.0), "weight of the loss against that bundle's embeddings", 0, 1000, argument=False
    )

    def __post_init__(self) -> None:
        for declared in dataclasses.fields(self):
            value = getattr(self, declared.name)
            if declared.type is Schedule and not isinstance(value, Schedule):  # a number is accepted for convenience
                value = Schedule.parse(str(value))
                object.__setattr__(self, declared.name, value)
            if (allowed := _documented(declared).range) is not None:
                for extreme in value.extremes if isinstance(value, Schedule) else (value,):
                    _check_range(declared.name, extreme, allowed)
        _check_prefixes(self.prefixes, self.prefix_weights)
        if self.mined_on == "full" and self.prefixes and not self.mines_triplets:
            raise ValueError(f"mined_on=full needs a loss that mines triplets, not {self.name}")

    @classmethod
    def own_settings(cls) -> dict[str, Documented]:
        """Return the settings that this loss has in addition to those of every loss."""
        common = LossSettings.settings()
        return {name: documented for name, documented in cls.settings().items() if name not in common}

    @classmethod
    def settings(cls) -> dict[str, Documented]:
        """Return all settings by name, the loss's own first."""
        by_name = {declared.name: _documented(declared) for declared in dataclasses.fields(cls)}
        levels = [vars(level).get("__annotations__", {}) for level in cls.__mro__]
        return {name: by_name[name] for level in levels for name in level if name in by_name}

    @classmethod
    def scheduled(cls) -> tuple[str, ...]:
        """Return the names of the settings that may change with the epochs."""
        types = {declared.name: declared.type for declared in dataclasses.fields(cls)}
        return tuple(name for name in cls.settings() if types[name] is Schedule)

    @classmethod
    def attributes(cls) -> tuple[str, ...]:
        """Return the scheduled settings that are arguments and attributes of the loss itself."""
        settings = cls.settings()
        return tuple(name for name in cls.scheduled() if settings[name].is_argument)

    @property
    def compares_photos(self) -> bool:
        """Whether the loss compares the photos of a batch, so that each identity needs several of them in it."""
        return True

    @property
    def uses_raw_embeddings(self) -> bool:
        """Whether the loss takes embeddings that are not normalized."""
        return False

    def check_schedules(self, epochs: int) -> None:
        """Check that no open-ended step schedule leaves its range during a run.

        Args:
            epochs: length of the run, 1 or more.

        Raises:
            ValueError: a schedule does so; the message names the setting.
        """
        settings = self.settings()
        for name in self.scheduled():
            if (allowed := settings[name].range) is not None:
                _check_range(name, getattr(self, name).value_at(epochs - 1, epochs), allowed)

    def build(self, embedding_dim: int, classes: int, values: Mapping[str, float] | None = None) -> Any:
        """Build the loss, a class of `familiar.losses`.

        Args:
            embedding_dim: length of the embeddings; only a classifier needs it.
            classes: number of training identities; likewise.
            values: of scheduled settings; those of epoch 0 for the others.
        """
        arguments = {
            name: getattr(self, name) for name, documented in self.settings().items() if documented.is_argument
        }
        numbers = {name: value.start for name, value in arguments.items() if isinstance(value, Schedule)}
        loss_class = getattr(importlib.import_module("familiar.losses"), self.builds)  # torch is imported only here
        return loss_class(**self._sizes(embedding_dim, classes), **arguments | numbers | dict(values or {}))

    def for_validation(self) -> "LossSettings | None":
        """Return the loss to validate with; None for a loss that knows only the training identities."""
        return self

    def _sizes(self, embedding_dim: int, classes: int) -> dict[str, int]:  # noqa: ARG002 - classifiers use them
        return {}


@dataclass(frozen=True)
class ClassifierSettings(LossSettings):
    """A loss over the centers of the training identities, to which two other losses may be added."""

    center_weight: Schedule = setting(
        Schedule(0.0), "weight of center loss, added to the classifier; 0 for none", 0, 1000, argument=False
    )
    start: Literal["random", "means"] = setting(
        "random",
        "where the class centers start: in random directions, or at the mean embedding of the identity's photos",
        argument=False,
    )
    triplet_weight: Schedule = setting(
        Schedule(0.0), "weight of the batch's semi-hard triplets, added to it; 0 for none", 0, 1000, argument=False
    )

    @property
    def compares_photos(self) -> bool:
        """Whether the loss compares the photos of a batch."""
        return self.triplet_weight != Schedule(0.0)

    def for_validation(self) -> None:
        """Return None: a classifier knows only the training identities."""

    def _sizes(self, embedding_dim: int, classes: int) -> dict[str, int]:
        return {"embedding_dim": embedding_dim, "classes": classes}


def _documented(declared: "dataclasses.Field[Any]") -> Documented:
    return declared.metadata["documented"]


def _check_range(name: str, value: float, allowed: tuple[float, float]) -> None:
    low, high = allowed
    if not low <= value <= high:
        raise ValueError(f"{name} must be in [{low:g}, {high:g}], not {value}")


def _check_prefixes(prefixes: tuple[int, ...], weights: tuple[float, ...]) -> None:
    if not prefixes:
        if weights:
            raise ValueError("prefix_weights given without prefixes; set prefixes too")
        return
    if sorted(set(prefixes)) != list(prefixes) or prefixes[0] < 1:
        raise ValueError(f"prefixes must be strictly increasing, such as 64,128,256, not {_join(prefixes)}")
    if len(weights) != len(prefixes) or not all(0 <= weight < math.inf for weight in weights):
        raise ValueError(
            f"prefix_weights needs one weight, 0 or more, for each of the prefixes {_join(prefixes)}, "
            f"not {_join(weights)}"
        )


def _join(values: tuple[float, ...]) -> str:
    return ",".join(map(str, values)) or "none"
