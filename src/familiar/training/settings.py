"""The groups of settings of a recipe: frozen dataclasses that check their ranges."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from familiar.core.errors import BadRecipe
from familiar.core.settings import Checked, setting
from familiar.detection.detectors import DETECTORS
from familiar.models.views import View
from familiar.photos.preprocessing import IMAGENET_MEAN_RGB, IMAGENET_STD_RGB, Preprocessing

Normalization = Literal["auto", "imagenet", "symmetric"]
AutoBool = Literal["auto", "true", "false"]

NO_CLIPPING = 1e9  # a gradient_norm that no gradient reaches
NORMALIZATIONS = {  # mean and std over values in [0, 1]
    "imagenet": (IMAGENET_MEAN_RGB, IMAGENET_STD_RGB),
    "symmetric": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),  # x / 127.5 - 1, as Keras trains MobileNetV3
}


@dataclass(frozen=True)
class ModelSettings(Checked):
    """A network of the catalog and changes to it; "auto", and 0 blocks, keep what the catalog says.

    Attributes:
        name: in the catalog (`familiar models`).
        embedding_dim: length of the embedding.
        dropout: probability, before the embedding layer.
        initial_weights: "none", "imagenet" (as the network's library publishes them, downloaded once), a file of
            weights for the trunk (for one that joins several networks a file each, separated by commas), or a run for
            trunk and head.
        head: kind of head.
        frozen_trunk: whether only the head is trained.
        frozen_stages: number of the trunk's first stages that are not trained; 0 for none.
        frozen_statistics: whether the trunk's batch norms keep the means and variances of the initial weights.
        projection: "random" initial weights of the layer that makes the embedding, or the principal components ("pca")
            of what the initial network sees in the training photos, so that the embedding starts as its features.
        initial_share: share of the initial weights in the final ones, in [0, 1]; the rest is what was trained.
        centered: whether galleries subtract the mean of their photos from the embeddings (`neighbors.Centering`), as
            features need that all photos of a species have in common. The bundle has the mean of each of the data's
            collections to start from.
        blocks: number of convolution blocks, for networks with this option.
        pooling: kind of pooling, for networks with this option.
        batch_norm: whether there is batch norm, for networks with this option.
    """

    name: str = "mobilenetv3_small_100"
    embedding_dim: int = setting(128, 2, 4096)
    dropout: float = setting(0.4, 0, 0.95)
    initial_weights: str = "imagenet"
    head: str = "auto"
    frozen_trunk: AutoBool = "auto"
    frozen_stages: int = setting(0, 0, 100)
    frozen_statistics: bool = False
    projection: Literal["random", "pca"] = "random"
    initial_share: float = setting(0.0, 0, 1)
    centered: bool = False
    blocks: int = setting(0, 0, 6)
    pooling: Literal["auto", "max", "average"] = "auto"
    batch_norm: AutoBool = "auto"

    @property
    def options(self) -> dict[str, Any]:
        """The options that differ from the catalog, as `NetworkSpec.build` takes them."""
        options = {name: getattr(self, name) for name in ("head", "frozen_trunk", "blocks", "pooling", "batch_norm")}
        switches = {"true": True, "false": False}
        return {name: switches.get(value, value) for name, value in options.items() if value not in ("auto", 0)}


@dataclass(frozen=True)
class InputSettings:
    """How photos are turned into the network's input.

    Attributes:
        size_px: side of the square input.
        resize: "stretch" the photo to the square, or resize its short side to `resize_px` and crop the center.
        resize_px: for "center_crop".
        margin: share of the face box that is added on each side.
        normalization: "auto" is replaced by what the initial weights need when training starts.
        views: what the trained network looks at when it embeds, each `SHARE@PX` ("0.8@160" is the middle square of .8
            of the side, resized to 160 px), with "m" for the mirror image; the embedding is the mean of theirs. None:
            the whole crop. Training looks at whole crops.
        detector: name of the detector whose faces the network will take; stored in the bundle. Training photos are not
            searched for faces.
        train_on_whole: whether "center_crop" is for validation and use only. Training then takes its random box from
            the whole photo at `resize_px` and resizes it to `size_px`; without a random box, it resizes the whole
            photo. Of a photo that is not square, training sees the central square.
    """

    size_px: int = 224
    resize: Literal["stretch", "center_crop"] = "stretch"
    resize_px: int = 224
    margin: float = 0.0
    normalization: Normalization = "auto"
    views: tuple[str, ...] = ()
    detector: str = "none"
    train_on_whole: bool = False

    def __post_init__(self) -> None:
        for view in self.views:
            View.parse(view)
        if self.detector not in DETECTORS:
            raise ValueError(f"detector: {self.detector!r} is none of {', '.join(DETECTORS)}")
        self._preprocessing_with("imagenet")  # checks the ranges, which are the same for every normalization
        if self.crops_whole_in_training and not 16 <= self.resize_px <= 1024:
            raise ValueError(f"resize_px must be in [16, 1024] with train_on_whole, not {self.resize_px}")

    @property
    def crops_whole_in_training(self) -> bool:
        """Whether training crops differ from those of validation: a stretched photo is whole in both."""
        return self.train_on_whole and self.resize == "center_crop" and self.resize_px != self.size_px

    def preprocessing(self) -> Preprocessing:
        """Return the preprocessing. BadRecipe as long as the normalization is "auto"."""
        if self.normalization == "auto":
            raise BadRecipe(
                "input.normalization is still auto: it depends on the initial weights, which are not loaded yet; "
                "set it to imagenet or symmetric"
            )
        return self._preprocessing_with(self.normalization)

    def training_preprocessing(self) -> Preprocessing:
        """Return the preprocessing of the crops that augmentation starts from; BadRecipe as for `preprocessing`."""
        preprocessing = self.preprocessing()
        return replace(preprocessing, size_px=self.resize_px) if self.crops_whole_in_training else preprocessing

    def _preprocessing_with(self, normalization: Literal["imagenet", "symmetric"]) -> Preprocessing:
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
class SplitSettings(Checked):
    """How identities are divided into training, validation and test.

    Attributes:
        validation: share of the identities, encounters or photos that is held out for validation, in [0.001, 0.5].
        test: likewise for the test, in [0, 0.5].
        min_photos: identities with fewer photos are not trained on.
        by: what stays on one side: an "identity", a "date" (the past is for training, the latest photos for the test),
            an "encounter" (of the data's column, or an identity's photos of a day), or what the data's column "split"
            says; "auto": this column where the data have one, else identities.
        train: folder names of the identities to train on; all others are for validation.
        validate: folder names of the identities to validate on; all others are for training.
    """

    validation: float = setting(0.1, 0.001, 0.5)
    test: float = setting(0.1, 0, 0.5)
    min_photos: int = setting(1, 1, 1000)
    by: Literal["auto", "identity", "date", "encounter", "split"] = "auto"
    train: tuple[str, ...] = ()
    validate: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.train and self.validate:
            raise ValueError("train and validate exclude each other: set only one of them")
        if self.validation + self.test >= 1:
            raise ValueError("validation and test leave no identity to train on; their sum must be less than 1")


@dataclass(frozen=True)
class SamplerSettings(Checked):
    """How photos are put into batches.

    Attributes:
        name: "shuffled": batches of `batch_size`; "identities": `identities` with `photos` each; "auto": by identities
            if the loss compares a batch's photos with each other, else shuffled.
        batch_size: number of photos in a batch, for "shuffled".
        identities: number of identities in a batch, for "identities".
        photos: number of photos of each of them, for "identities".
        chunk_size: how many photos go through the network at once, for batches that do not fit into memory (gradient
            caching); 0 for all.
        shard_buffer: of photos in shards, for "shuffled": read shard by shard, and draw from so many photos; 0 draws
            from all of them, wherever they are.
    """

    name: Literal["auto", "shuffled", "identities"] = "auto"
    batch_size: int = setting(96, 2, 65536)
    identities: int = setting(24, 2, 65536)
    photos: int = setting(4, 1, 65536)
    chunk_size: int = setting(0, 0, 65536)
    shard_buffer: int = setting(0, 0, 100_000_000)

    def __post_init__(self) -> None:
        super().__post_init__()
        # With an odd number of photos a chunk could have only one, and batch norm needs two.
        if 0 < self.chunk_size < 4:
            raise ValueError(f"chunk_size must be 0 or at least 4, not {self.chunk_size}")


@dataclass(frozen=True)
class MiningSettings(Checked):
    """Where losses that mine triplets look for them.

    Attributes:
        mode: "online" in each batch; "offline" across photos embedded with the current weights, among which each
            anchor gets its hardest positive and negative.
        every_steps: steps between two rounds of offline mining.
        subset: number of photos for offline mining; 0 for all.
        skip: share of suspiciously hard positives and negatives that offline mining leaves out.
    """

    mode: Literal["online", "offline"] = "online"
    every_steps: int = setting(100, 1, 1_000_000)
    subset: int = setting(2000, 0, 100_000_000)
    skip: float = setting(0.02, 0, 0.5)


@dataclass(frozen=True)
class DistillSettings(Checked):
    """Bundles to learn from in addition to the labels.

    Attributes:
        teacher: the bundles.
        weight: factor of the mean of 1 - cosine to their vectors, which is added to the loss.
        relation_weight: factor of the mean squared difference between the similarities within a batch and theirs.
        label_weight: factor of the loss itself, which learns the labels.
        blends: blended faces for each photo, which only the teachers know; each epoch has one for each photo.
        mirrored: teachers embed each photo's mirror image, too. Without, they take half the time; those with mirrored
            views (`input.views`) lose nothing.
    """

    teacher: tuple[str, ...] = ()
    weight: float = setting(4.0, 0, 1000)
    relation_weight: float = setting(0.0, 0, 1000)
    label_weight: float = setting(1.0, 0, 1000)
    blends: int = setting(0, 0, 1000)
    mirrored: bool = True


@dataclass(frozen=True)
class QuantizeSettings:
    """Quantization-aware training.

    Attributes:
        aware: train and validate with weights and activations rounded to 8 bits, as an int8 bundle computes.
    """

    aware: bool = False


@dataclass(frozen=True)
class OptimizerSettings(Checked):
    """The optimizer and its learning rates.

    Attributes:
        name: the algorithm.
        lr: highest rate of head and classifier.
        backbone_lr: highest rate of the trunk.
        weight_decay: decoupled in AdamW, part of the gradient in the other two.
        embedding_l2: factor of the squared weights of the layer that makes the embedding; its gradient is added.
        accumulator: initial value of AdaGrad's sums of squared gradients.
        warmup_epochs: in which the rates increase from 0.
        schedule: "cosine": half a cosine to `final_lr`; "exponential": constant until `decay_from`, then exponentially
            down to `final_lr` at `decay_to`.
        decay_from: share of the epochs after which the decay begins, for "exponential"; in [0, `decay_to`].
        decay_to: share of the epochs after which the decay ends, for "exponential"; in [0, 1].
        final_lr: rate at the end.
        gradient_norm: longer gradients are clipped to this norm.
    """

    name: Literal["adamw", "adam", "adagrad"] = "adamw"
    lr: float = setting(5e-4, 0, 10)
    backbone_lr: float = setting(5e-5, 0, 10)
    weight_decay: float = setting(5e-4, 0, 10)
    embedding_l2: float = setting(0.0, 0, 10)
    accumulator: float = setting(0.1, 0, 1e6)
    warmup_epochs: float = setting(5, 0, 10000)
    schedule: Literal["cosine", "exponential"] = "cosine"
    decay_from: float = 0.0
    decay_to: float = setting(1.0, 0, 1)
    final_lr: float = setting(1e-6, 0, 10)
    gradient_norm: float = setting(1.0, 1e-6, 1e9)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.decay_from <= self.decay_to:
            raise ValueError(f"decay_from must be in [0, decay_to], not {self.decay_from}")
        if self.schedule == "exponential" and not self.final_lr:
            raise ValueError("final_lr must be above 0 for schedule=exponential")


@dataclass(frozen=True)
class BudgetSettings(Checked):
    """When to stop.

    Attributes:
        epochs: at most.
        patience: number of validations without improvement; 0 for no limit.
        seconds: of wall-clock time, after which training ends at the next step, or with offline mining at the end of
            the epoch; 0 for no limit.
    """

    epochs: int = setting(40, 1, 100_000)
    patience: int = setting(0, 0, 100_000)
    seconds: float = setting(0.0, 0, 1e9)


@dataclass(frozen=True)
class ValidationSettings(Checked):
    """How the network is validated.

    Attributes:
        every_epochs: epochs between two validations; the last epoch is always validated.
        pairs: number of fixed pairs of held-out photos; all pairs, if there are fewer.
        best_by: the figure that decides which epoch's network is kept, and when patience ends.
    """

    every_epochs: int = setting(3, 1, 100_000)
    pairs: int = setting(5000, 2, 10_000_000)
    best_by: Literal["accuracy", "auc", "recall_at_1"] = "accuracy"
