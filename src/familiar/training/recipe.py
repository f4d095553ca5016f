"""A recipe: all settings of a training as frozen dataclasses, with JSON conversion and changes by `key=value`."""

import dataclasses
import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from familiar.core.errors import BadRecipe
from familiar.core.format_marks import explain_other_format
from familiar.core.json_codec import suggest_key
from familiar.core.json_text import parse_json
from familiar.core.settings import Checked, setting
from familiar.loading.augment.settings import AUGMENTATIONS, Augmentation
from familiar.training.loss_catalog import MINING_LOSSES, loss_named
from familiar.training.loss_settings import LossSettings
from familiar.training.recipe_codec import RECIPES, parse_value
from familiar.training.settings import (
    BudgetSettings,
    DistillSettings,
    InputSettings,
    MiningSettings,
    ModelSettings,
    OptimizerSettings,
    QuantizeSettings,
    SamplerSettings,
    SplitSettings,
    ValidationSettings,
)

FORMAT = "familiar-run/1"  # of a run folder; its recipe has the mark


@dataclass(frozen=True)
class Recipe(Checked):
    """Everything that determines a training run except the photos.

    Attributes:
        name: recorded in the bundle.
        seed: of all random choices, in [0, 2^63 - 1].
        model: the network.
        input: how photos are turned into its input.
        augmentation: random changes of the training photos.
        split: how identities are divided into training, validation and test.
        sampler: how photos are put into batches.
        loss: its name and settings.
        mining: where losses that mine triplets look for them.
        distill: bundles to learn from in addition to the labels.
        quantize: whether to train for 8-bit weights and activations.
        optimizer: the algorithm and its learning rates.
        budget: when to stop.
        validation: how often and by which figure the network is validated.
    """

    name: str
    seed: int = setting(0, 0, 2**63 - 1)
    model: ModelSettings = field(default_factory=ModelSettings)
    input: InputSettings = field(default_factory=InputSettings)
    augmentation: Augmentation = field(default_factory=Augmentation)
    split: SplitSettings = field(default_factory=SplitSettings)
    sampler: SamplerSettings = field(default_factory=SamplerSettings)
    loss: LossSettings = field(default_factory=loss_named)
    mining: MiningSettings = field(default_factory=MiningSettings)
    distill: DistillSettings = field(default_factory=DistillSettings)
    quantize: QuantizeSettings = field(default_factory=QuantizeSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    validation: ValidationSettings = field(default_factory=ValidationSettings)

    def __post_init__(self) -> None:
        super().__post_init__()
        loss = self.loss
        if loss.prefixes and loss.prefixes[-1] != self.model.embedding_dim:
            raise ValueError(
                f"the last of loss.prefixes must be model.embedding_dim, {self.model.embedding_dim}, "
                f"not {loss.prefixes[-1]}"
            )
        if self.mining.mode == "offline" and (
            not loss.mines_triplets or loss.prefixes or loss.compatible_with or self.distill.teacher
        ):
            raise ValueError(
                f"mining.mode=offline: loss.name must be one of {', '.join(MINING_LOSSES)}; loss.prefixes, "
                "loss.compatible_with and distill.teacher must not be set"
            )
        if self.distill.blends and (self.batches_by_identity or self.mining.mode == "offline"):
            raise ValueError(
                "distill.blends: a blended face belongs to nobody, so batches cannot be made by identity; choose a "
                "loss.name that classifies, or sampler.name=shuffled"
            )
        if self.distill.blends and self.input.crops_whole_in_training:
            raise ValueError("distill.blends are made of crops, not of whole photos; set input.train_on_whole=false")
        try:
            loss.check_schedules(self.budget.epochs)
        except ValueError as error:
            raise ValueError(f"loss.{error}") from None

    @property
    def batches_by_identity(self) -> bool:
        """Whether batches are made of P identities with K photos each."""
        if self.sampler.name == "auto":
            return self.loss.compares_photos and self.mining.mode == "online"
        return self.sampler.name == "identities"

    def to_primitive(self) -> dict[str, Any]:
        """Convert to numbers, strings, lists and dictionaries; a loss gives only the settings that it has."""
        return RECIPES.to_json(self)

    def to_json(self) -> str:
        """Return the recipe as JSON."""
        return json.dumps({"format": FORMAT, **self.to_primitive()}, indent=1, ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> "Recipe":
        """Parse a recipe.

        Args:
            text: JSON as `to_json` returns it. Only format and name are required: other missing settings take their
                defaults, those of the loss the values published for that loss.

        Raises:
            BadRecipe: the text is not JSON, or of another format; the name is missing; a key is unknown (the message
                suggests the most similar one); or a value has another type or is out of range.
        """
        try:
            stored = parse_json(text)
        except ValueError as error:
            raise BadRecipe(f"the recipe is not valid JSON ({error})") from error
        if isinstance(stored, dict) and (mark := stored.pop("format", None)) != FORMAT:
            raise BadRecipe(explain_other_format(mark, FORMAT, "train again in another folder"))
        return _from_primitive(stored)

    def with_settings(self, settings: Iterable[str]) -> "Recipe":
        """Return the recipe with changed settings.

        `augmentation=NAME` sets all settings of a published augmentation, and another `loss.name` all of that loss;
        other texts may change single ones of these. All texts are applied together: their order does not matter, except
        that the last one for a key counts.

        Args:
            settings: texts of the form `key=value`, such as `optimizer.lr=1e-3`; for the keys see `recipe_keys`.

        Raises:
            BadRecipe: a text has another form, a key is unknown (the message suggests the most similar one), or a value
                has another type or is out of range.
        """
        stored, types = self.to_primitive(), RECIPES.key_types(Recipe)
        texts: dict[str, str] = {}
        for change in settings:
            key, equals, text = (part.strip() for part in change.partition("="))
            if not equals:
                raise BadRecipe(f"{change!r}: expected key=value, such as optimizer.lr=1e-3")
            texts[key] = text
        if (name := texts.pop("augmentation", None)) is not None:
            if name not in AUGMENTATIONS:
                raise BadRecipe(f"augmentation must be one of {', '.join(AUGMENTATIONS)}, not {name!r}")
            stored["augmentation"] = dataclasses.asdict(AUGMENTATIONS[name])
        if texts.get("loss.name", self.loss.name) != self.loss.name:
            stored["loss"] = {}
        for key, text in texts.items():
            if key not in types:
                raise BadRecipe(f"unknown setting {key!r}{suggest_key(key, types)}")
            *parents, last = key.split(".")
            functools.reduce(dict.__getitem__, parents, stored)[last] = parse_value(text, types[key])
        return _from_primitive(stored)


def recipe_keys() -> list[str]:
    """Return every key that `with_settings` accepts, except `augmentation`."""
    return list(RECIPES.key_types(Recipe))


def _from_primitive(stored: Any) -> Recipe:
    try:
        return RECIPES.from_json(Recipe, stored, "a recipe")
    except ValueError as error:
        raise BadRecipe(str(error)) from error
