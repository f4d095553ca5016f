"""A way of training, complete, as data: frozen dataclasses that go to JSON and back, changed by `key=value`."""

import dataclasses
import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from familiar.core.errors import BadRecipe
from familiar.loading.augment.settings import AUGMENTATIONS, Augmentation
from familiar.photos.preprocessing import IMAGENET_MEAN_RGB, IMAGENET_STD_RGB, Preprocessing
from familiar.training.config_io import field_types, from_primitive, parse, to_primitive, unknown
from familiar.training.loss_settings import MINED, LossSettings

Normalization = Literal["auto", "imagenet", "symmetric"]
Choice = Literal["auto", "true", "false"]

NO_CLIPPING = 1e9  # a gradient_norm that none reaches

_RENAMED_KEYS = {"normalisation": "normalization", "centres_per_class": "centers_per_class"}
NORMALIZATIONS = {  # mean and std over values in [0, 1]
    "imagenet": (IMAGENET_MEAN_RGB, IMAGENET_STD_RGB),
    "symmetric": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),  # x / 127.5 - 1, as Keras trains MobileNetV3
}


@dataclass(frozen=True)
class ModelSettings:
    """A row of the catalog and how it is to differ from it; `auto`, and 0 blocks, are the row's own.

    `initial_weights`: "none", "imagenet" (as its library publishes them, downloaded once), a file of the trunk's
    weights, or a run, of which trunk and head are taken. `frozen_trunk`: only the head is trained. `blocks`, `pooling`
    and `batch_norm` are for networks that leave these open.
    """

    name: str = "mobilenetv3_small_100"
    embedding_dim: int = 128
    dropout: float = 0.4
    initial_weights: str = "imagenet"
    head: str = "auto"
    frozen_trunk: Choice = "auto"
    blocks: int = 0
    pooling: Literal["auto", "max", "average"] = "auto"
    batch_norm: Choice = "auto"

    def __post_init__(self) -> None:
        _within("embedding_dim", self.embedding_dim, 2, 4096)
        _within("dropout", self.dropout, 0, 0.95)
        _within("blocks", self.blocks, 0, 6)

    @property
    def options(self) -> dict[str, Any]:
        """Those that were chosen, as `NetworkSpec.build` takes them."""
        chosen = {name: getattr(self, name) for name in ("head", "frozen_trunk", "blocks", "pooling", "batch_norm")}
        switches = {"true": True, "false": False}
        return {name: switches.get(value, value) for name, value in chosen.items() if value not in ("auto", 0)}


@dataclass(frozen=True)
class InputSettings:
    """What the network is given. `normalization` "auto" is settled by the initial weights when training starts."""

    size_px: int = 224
    resize: Literal["stretch", "center_crop"] = "stretch"
    resize_px: int = 224
    margin: float = 0.0
    normalization: Normalization = "auto"

    def __post_init__(self) -> None:
        self._normalized_as("imagenet")  # which checks the ranges, and they are the same for each

    def preprocessing(self) -> Preprocessing:
        if self.normalization == "auto":
            raise BadRecipe("input.normalization is not settled yet: it depends on the initial weights")
        return self._normalized_as(self.normalization)

    def _normalized_as(self, normalization: Literal["imagenet", "symmetric"]) -> Preprocessing:
        mean, std = NORMALIZATIONS[normalization]
        return Preprocessing(
            size_px=self.size_px,
            resize=self.resize,
            resize_px=self.resize_px,
            margin=self.margin,
            mean=mean,
            std=std,
        )


@dataclass(frozen=True)
class SplitSettings:
    """Shares of the identities held out, or the folder names of those that are not (`train`) or are (`validate`).

    By names, all others are on the other side. `min_photos`: identities with fewer are not trained on.
    """

    validation: float = 0.1
    test: float = 0.1
    min_photos: int = 1
    train: tuple[str, ...] = ()
    validate: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.train and self.validate:
            raise ValueError("name identities to train on or to validate on, not both")
        _within("validation", self.validation, 0.001, 0.5)
        _within("test", self.test, 0, 0.5)
        if self.validation + self.test >= 1:
            raise ValueError("validation and test leave no identity to train on")
        _within("min_photos", self.min_photos, 1, 1000)


@dataclass(frozen=True)
class SamplerSettings:
    """`shuffled`: batches of `batch_size`. `identities`: `identities` x `photos` a batch.

    `auto`: by identities where the loss compares a batch's photos with each other, else shuffled. `chunk_size`: how
    many photos go through the network at once, where a batch would not fit into memory (gradient caching; 0: all).
    """

    name: Literal["auto", "shuffled", "identities"] = "auto"
    batch_size: int = 96
    identities: int = 24
    photos: int = 4
    chunk_size: int = 0

    def __post_init__(self) -> None:
        _within("chunk_size", self.chunk_size, 0, 65536)
        if 0 < self.chunk_size < 4:  # of an odd number of photos a chunk could be one, and batch norm needs two
            raise ValueError(f"chunk_size is 0 or at least 4, not {self.chunk_size}")
        _within("batch_size", self.batch_size, 2, 65536)
        _within("identities", self.identities, 2, 65536)
        _within("photos", self.photos, 1, 65536)


@dataclass(frozen=True)
class MiningSettings:
    """Where losses that mine triplets look for them: `online` in each batch, `offline` across the photos.

    Offline: every `every_steps` steps `subset` photos (0: all) are embedded with the newest weights, and each anchor
    gets its hardest positive and negative among them, but for the share `skip` that is suspiciously hard.
    """

    mode: Literal["online", "offline"] = "online"
    every_steps: int = 100
    subset: int = 2000
    skip: float = 0.02

    def __post_init__(self) -> None:
        _within("every_steps", self.every_steps, 1, 1_000_000)
        _within("subset", self.subset, 0, 100_000_000)
        _within("skip", self.skip, 0, 0.5)


@dataclass(frozen=True)
class DistillSettings:
    """Bundles to learn from besides the labels: `weight` times the mean of 1 - cosine to their vectors is added."""

    teacher: tuple[str, ...] = ()
    weight: float = 4.0

    def __post_init__(self) -> None:
        _within("weight", self.weight, 0, 1000)


@dataclass(frozen=True)
class QuantizeSettings:
    """`aware`: the network is trained and validated as it will compute in 8-bit integers, weights and activations."""

    aware: bool = False


@dataclass(frozen=True)
class OptimizerSettings:
    """`lr` for head and classifier, `backbone_lr` for the trunk, both moving after the warm-up to `final_lr`.

    `schedule`: half a cosine; or constant to the share `decay_from` of the epochs, then exponentially down to
    `final_lr` at the share `decay_to`. `weight_decay` is AdamW's own, for the other two part of the gradient, as is
    `embedding_l2`: that much times the squared weights of the layer that makes the embedding is added to the loss.
    `accumulator`: what AdaGrad's sums of squared gradients begin with.
    """

    name: Literal["adamw", "adam", "adagrad"] = "adamw"
    lr: float = 5e-4
    backbone_lr: float = 5e-5
    weight_decay: float = 5e-4
    embedding_l2: float = 0.0
    accumulator: float = 0.1
    warmup_epochs: float = 5
    schedule: Literal["cosine", "exponential"] = "cosine"
    decay_from: float = 0.0
    decay_to: float = 1.0
    final_lr: float = 1e-6
    gradient_norm: float = 1.0

    def __post_init__(self) -> None:
        _within("embedding_l2", self.embedding_l2, 0, 10)
        _within("accumulator", self.accumulator, 0, 1e6)
        _within("decay_to", self.decay_to, 0, 1)
        if not 0 <= self.decay_from <= self.decay_to:
            raise ValueError(f"decay_from lies in [0, decay_to], not {self.decay_from}")
        if self.schedule == "exponential" and not self.final_lr:
            raise ValueError("final_lr is above 0 where the rate falls exponentially")
        for name in ("lr", "backbone_lr", "final_lr"):
            _within(name, getattr(self, name), 0, 10)
        _within("weight_decay", self.weight_decay, 0, 10)
        _within("warmup_epochs", self.warmup_epochs, 0, 10000)
        _within("gradient_norm", self.gradient_norm, 1e-6, 1e9)


@dataclass(frozen=True)
class BudgetSettings:
    """When to stop. `patience`: validations without a better one; `seconds`: of wall-clock time; 0 is no limit."""

    epochs: int = 40
    patience: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        _within("epochs", self.epochs, 1, 100_000)
        _within("patience", self.patience, 0, 100_000)
        _within("seconds", self.seconds, 0, 1e9)


@dataclass(frozen=True)
class ValidationSettings:
    """Every `every_epochs` epochs, on `pairs` fixed pairs of held-out identities (all, where there are fewer).

    `best_by`: the figure that decides which epoch's network is kept, and when patience ends.
    """

    every_epochs: int = 3
    pairs: int = 5000
    best_by: Literal["accuracy", "auc", "recall_at_1"] = "accuracy"

    def __post_init__(self) -> None:
        _within("every_epochs", self.every_epochs, 1, 100_000)
        _within("pairs", self.pairs, 2, 10_000_000)


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a training run besides the photos."""

    name: str
    seed: int = 0
    model: ModelSettings = field(default_factory=ModelSettings)
    input: InputSettings = field(default_factory=InputSettings)
    augmentation: Augmentation = field(default_factory=Augmentation)
    split: SplitSettings = field(default_factory=SplitSettings)
    sampler: SamplerSettings = field(default_factory=SamplerSettings)
    loss: LossSettings = field(default_factory=LossSettings)
    mining: MiningSettings = field(default_factory=MiningSettings)
    distill: DistillSettings = field(default_factory=DistillSettings)
    quantize: QuantizeSettings = field(default_factory=QuantizeSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    validation: ValidationSettings = field(default_factory=ValidationSettings)

    def __post_init__(self) -> None:
        _within("seed", self.seed, 0, 2**63 - 1)
        loss = self.loss
        if loss.prefixes and loss.prefixes[-1] != self.model.embedding_dim:
            raise ValueError(
                f"the last of loss.prefixes is the whole embedding, {self.model.embedding_dim}, not {loss.prefixes[-1]}"
            )
        if self.mining.mode == "offline" and (
            loss.name not in MINED or loss.prefixes or loss.compatible_with or self.distill.teacher
        ):
            raise ValueError(
                f"mining.mode=offline needs loss.name to be one of {', '.join(MINED)}, "
                "without prefixes, an old bundle or a teacher"
            )
        try:
            loss.check_run_of(self.budget.epochs)
        except ValueError as error:
            raise ValueError(f"loss.{error}") from None

    @property
    def by_identities(self) -> bool:
        """Whether batches are P identities x K photos."""
        if self.sampler.name == "auto":
            return self.loss.compares_photos and self.mining.mode == "online"
        return self.sampler.name == "identities"

    def to_primitive(self) -> dict[str, Any]:
        """Numbers, strings, lists and dictionaries; of the loss's settings those it has."""
        return to_primitive(self)

    def to_json(self) -> str:
        return json.dumps(self.to_primitive(), indent=1, ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> "Recipe":
        """BadRecipe for anything that is no recipe, with the nearest key for an unknown one."""
        try:
            stored = json.loads(text)
        except ValueError as error:
            raise BadRecipe(f"a recipe that is no JSON ({error})") from error
        return from_primitive(Recipe, _with_current_names(stored))

    def with_settings(self, settings: Iterable[str]) -> "Recipe":
        """A recipe changed by `key=value` strings such as `optimizer.lr=1e-3`.

        `augmentation=NAME` stands for all settings of a published one, and another `loss.name` for all of that
        loss's; single ones may differ from them. They are checked together, so that their order does not matter.
        BadRecipe where a key is unknown (naming the nearest) or a value is not of its type or range.
        """
        stored, kinds = self.to_primitive(), field_types(Recipe)
        chosen: dict[str, str] = {}
        for setting in settings:
            key, equals, text = (part.strip() for part in setting.partition("="))
            if not equals:
                raise BadRecipe(f"{setting!r}: wanted key=value, such as optimizer.lr=1e-3")
            chosen[key] = text
        if (name := chosen.pop("augmentation", None)) is not None:
            if name not in AUGMENTATIONS:
                raise BadRecipe(f"augmentation is one of {', '.join(AUGMENTATIONS)}, not {name!r}")
            stored["augmentation"] = dataclasses.asdict(AUGMENTATIONS[name])
        if chosen.get("loss.name", self.loss.name) != self.loss.name:
            stored["loss"] = {}
        for key, text in chosen.items():
            if key not in kinds:
                raise unknown(key, kinds)
            *parents, last = key.split(".")
            functools.reduce(dict.__getitem__, parents, stored)[last] = parse(text, kinds[key], key)
        return from_primitive(Recipe, _with_current_names(stored))


def _with_current_names(stored: Any) -> Any:
    """Rename what recipes written before version 0.2 spelled as British English does."""
    if not isinstance(stored, dict):
        return stored
    renamed = {_RENAMED_KEYS.get(key, key): _with_current_names(value) for key, value in stored.items()}
    if renamed.get("resize") == "centre_crop":
        renamed["resize"] = "center_crop"
    return renamed


def recipe_keys() -> list[str]:
    """Every key that `with_settings` takes."""
    return list(field_types(Recipe))


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} lies in [{low:g}, {high:g}], not {value}")
