"""Circle loss on hard triplets (arXiv 2002.10857), as a student project in face verification trained it.

Margin and gamma grow with the epochs, and recall@1 decides which epoch is kept; see docs/reproductions/circle.md.
"""

from familiar.loading.augment.settings import CIRCLE_AUGMENTATION
from familiar.training.loss_catalog import loss_named
from familiar.training.recipe import Recipe
from familiar.training.schedule import Schedule
from familiar.training.settings import (
    NO_CLIPPING,
    BudgetSettings,
    InputSettings,
    ModelSettings,
    OptimizerSettings,
    SamplerSettings,
    ValidationSettings,
)


def circle_simple() -> Recipe:
    """Circle loss on SimpleEmbeddingNet, 5 blocks: the project's network with published LFW results."""
    return _circle("circle-simple", ModelSettings(name="simple", dropout=0.0, initial_weights="none"))


def circle_simple_v2() -> Recipe:
    """Circle loss on SimpleEmbeddingNetV2, 6 blocks: the project's network with a published training log."""
    model = ModelSettings(name="simple_v2", dropout=0.0, initial_weights="none", blocks=6)
    return _circle("circle-simple-v2", model)


def circle_efficientnet() -> Recipe:
    """Circle loss on EfficientNet-B0 as the project rebuilt it, from random weights."""
    model = ModelSettings(name="efficientnet_b0_rebuilt", dropout=0.2, initial_weights="none")
    return _circle("circle-efficientnet", model)


def circle_efficientnet_pretrained() -> Recipe:
    """Circle loss on EfficientNet-B0 with timm's ImageNet weights, frozen, and a flatten head."""
    model = ModelSettings(name="efficientnet_b0_frozen", dropout=0.2, initial_weights="imagenet")
    return _circle("circle-efficientnet-pretrained", model)


def _circle(name: str, model: ModelSettings) -> Recipe:
    return Recipe(
        name=name,
        model=model,
        input=InputSettings(size_px=112, resize="center_crop", resize_px=128, train_on_whole=True),
        augmentation=CIRCLE_AUGMENTATION,
        sampler=SamplerSettings(identities=32, photos=5),
        loss=loss_named(
            "circle_triplets",
            margin=Schedule(0.2, 1.0, step=0.02, every=5),
            gamma=Schedule(64.0, step=32.0, every=5),
            mining="batch_hard",
            detach_weights=False,
        ),
        optimizer=OptimizerSettings(
            name="adam",
            lr=1e-3,
            backbone_lr=1e-3,
            weight_decay=0.0,
            embedding_l2=1e-4,
            warmup_epochs=0,
            schedule="exponential",
            decay_from=0.1,
            decay_to=0.3,
            final_lr=1e-6,
            gradient_norm=NO_CLIPPING,
        ),
        budget=BudgetSettings(epochs=100, patience=10, seconds=5400),
        validation=ValidationSettings(every_epochs=1, best_by="recall_at_1"),
    )
