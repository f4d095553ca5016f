"""The settings of a loss in a recipe: those of its class in `familiar.losses`, and those that training adds."""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, make_dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from familiar.core.settings import check_setting, setting
from familiar.losses.harmonic import HarmonicLoss, MinedOn
from familiar.training.schedule import Schedule


@dataclass(frozen=True)
class LossSettings:
    """The settings of a loss. `LOSSES` has a subclass for each loss, whose other fields are the settings of its class.

    A setting that is a `Schedule` may change with the epochs: it is set before every epoch. A number, or the text of a
    schedule, stands for one, too.

    Attributes:
        prefixes: lengths of prefixes, strictly increasing.
        prefix_weights: one for each prefix, 0 or more.
        mined_on: of a loss that mines triplets.
        compatible_with: a file; empty for none.
        compatible_weight: in [0, 1000].

    Raises:
        ValueError: a setting is out of range, or does not fit another one; the message begins with its name.
    """

    name: ClassVar[str]  # in recipes: `loss.name`
    loss_class: ClassVar[Any]  # of `familiar.losses`
    mines_triplets: ClassVar[bool]

    prefixes: tuple[int, ...] = setting((), meaning="lengths of embedding prefixes trained as embeddings too")
    prefix_weights: tuple[float, ...] = setting((), meaning="the weight of each prefix's loss")
    mined_on: MinedOn = setting(
        "own", meaning="whether each prefix mines its own triplets or all take those of the full length"
    )
    compatible_with: str = setting("", meaning="file of a bundle whose embeddings the new ones must be comparable with")
    compatible_weight: Schedule = setting(
        Schedule(20.0), 0, 1000, "weight of the loss against that bundle's embeddings"
    )

    def __post_init__(self) -> None:
        for declared in fields(self):
            value = getattr(self, declared.name)
            if declared.type is Schedule and not isinstance(value, Schedule):
                value = Schedule.parse(str(value))
                object.__setattr__(self, declared.name, value)
        for end in (0, -1):
            self._check({name: schedule.extremes[end] for name, schedule in self.schedules().items()})

    @classmethod
    def settings(cls) -> "dict[str, Field[Any]]":
        """Return all settings by name, the loss's first."""
        by_name = {declared.name: declared for declared in fields(cls)}
        levels = [vars(level).get("__annotations__", {}) for level in cls.__mro__]
        return {name: by_name[name] for level in levels for name in level if name in by_name}

    @classmethod
    def arguments(cls) -> tuple[str, ...]:
        """Return the names of the settings that are arguments and attributes of the loss itself."""
        return tuple(declared.name for declared in fields(cls.loss_class) if "meaning" in declared.metadata)

    def schedules(self) -> dict[str, Schedule]:
        """Return the settings that may change with the epochs."""
        return {name: getattr(self, name) for name in self.settings() if isinstance(getattr(self, name), Schedule)}

    def numbers_at(self, epoch: int, epochs: int) -> dict[str, float]:
        """Return the values of the `schedules` in an epoch.

        Args:
            epoch: counted from 0.
            epochs: of the whole training.
        """
        return {name: schedule.value_at(epoch, epochs) for name, schedule in self.schedules().items()}

    @property
    def compares_photos(self) -> bool:
        """Whether the loss compares the photos of a batch, so that each identity needs several of them in it."""
        return True

    @property
    def uses_raw_embeddings(self) -> bool:
        """Whether the loss takes embeddings that are not normalized."""
        return getattr(self, "raw_embeddings", False) and not self.prefixes and not self.compatible_with

    def check_schedules(self, epochs: int) -> None:
        """Check that no open-ended step schedule leaves its range during a run.

        Args:
            epochs: length of the run, 1 or more.

        Raises:
            ValueError: a schedule does so; the message names the setting.
        """
        self._check(self.numbers_at(epochs - 1, epochs))

    def _check(self, numbers: Mapping[str, float]) -> None:
        """Check the settings at one time of a run, whose numbers are given."""
        for name, declared in self.settings().items():
            check_setting(declared, numbers.get(name, getattr(self, name)))
        with torch.device("meta"):  # the losses check settings that must fit each other
            loss = self.build(1, 1, numbers)
            if self.prefixes or self.prefix_weights:
                HarmonicLoss(loss, self.prefixes, self.prefix_weights, self.mined_on)

    def build(self, embedding_dim: int, classes: int, numbers: Mapping[str, float] | None = None) -> Any:
        """Build the loss, a class of `familiar.losses`.

        Args:
            embedding_dim: length of the embeddings; only a classifier needs it.
            classes: number of training identities; likewise.
            numbers: values of scheduled settings; by default those of epoch 0.
        """
        sizes = (embedding_dim, classes) if issubclass(self.loss_class, nn.Module) else ()
        values = vars(self) | self.numbers_at(0, 1) | dict(numbers or {})
        return self.loss_class(*sizes, **{name: values[name] for name in self.arguments()})


@dataclass(frozen=True)
class ClassifierSettings(LossSettings):
    """The settings of a loss over the centers of the training identities, to which two other losses may be added.

    Attributes:
        center_weight: in [0, 1000].
        start: of the class centers.
        triplet_weight: in [0, 1000].
    """

    center_weight: Schedule = setting(
        Schedule(0.0), 0, 1000, "weight of center loss, added to the classifier; 0 for none"
    )
    start: Literal["random", "means"] = setting(
        "random",
        meaning="where class centers start: in random directions, or at the mean embedding of the identity's photos",
    )
    triplet_weight: Schedule = setting(
        Schedule(0.0), 0, 1000, "weight of the batch's semi-hard triplets, added to it; 0 for none"
    )

    @property
    def compares_photos(self) -> bool:
        """Whether the loss compares the photos of a batch."""
        return self.triplet_weight != Schedule(0.0)


def settings_class(name: str, loss_class: type) -> type[LossSettings]:
    """Make the class of a loss's settings from what the loss declares: each number may change with the epochs.

    Args:
        name: in recipes.
        loss_class: of `familiar.losses`.
    """
    declarations: list[tuple[str, Any, Any]] = []
    for declared in fields(loss_class):
        default: Any = declared.default
        kind: Any = declared.type
        if "meaning" not in declared.metadata:
            continue
        if kind is float:
            ramp = declared.metadata.get("ramp")
            kind, default = Schedule, Schedule(default) if ramp is None else Schedule(0.0, default, over=ramp)
        declarations.append((declared.name, kind, field(default=default, metadata=declared.metadata)))
    return make_dataclass(
        f"{loss_class.__name__}Settings",
        declarations,
        bases=(ClassifierSettings if issubclass(loss_class, nn.Module) else LossSettings,),
        namespace={
            "name": name,
            "loss_class": loss_class,
            "mines_triplets": hasattr(loss_class, "mine_triplets"),
            "__doc__": loss_class.__doc__,
        },
        frozen=True,
    )
