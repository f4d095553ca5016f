"""Small networks for people's faces that learn from a larger one: --teacher BUNDLE; see docs/explanation/people.md."""

from dataclasses import replace

from familiar.loading.augment.settings import NO_AUGMENTATION
from familiar.training.loss_catalog import loss_named
from familiar.training.recipe import Recipe
from familiar.training.settings import (
    BudgetSettings,
    DistillSettings,
    InputSettings,
    ModelSettings,
    OptimizerSettings,
    SamplerSettings,
    SplitSettings,
    ValidationSettings,
)


def person_nano() -> Recipe:
    """Half of MobileNetV3-Small, 112 px, taught by a larger network: a bundle of 308,000 bytes in int8-weights."""
    return Recipe(
        name="person-nano",
        model=ModelSettings(name="nano_mobile", embedding_dim=128, dropout=0.0),
        input=InputSettings(size_px=112, resize_px=112, detector="people"),
        # Detectors differ in where they see a face, by about this much.
        augmentation=replace(
            NO_AUGMENTATION,
            rotate_p=0.3,
            rotate_deg=8.0,
            flip_p=0.5,
            affine_p=0.7,
            translate=0.06,
            scale=0.1,
            jitter_p=0.5,
            hue=0.02,
            gray_p=0.05,
            downscale_p=0.1,
        ),
        # People with one photo are as good for learning from a teacher as the others.
        split=SplitSettings(validation=0.05, test=0.0, min_photos=1),
        sampler=SamplerSettings(batch_size=64),
        loss=loss_named("arcface", scale=32, margin_rad=0.2),
        distill=DistillSettings(weight=1.0, relation_weight=20.0, label_weight=0.1, blends=1),
        optimizer=OptimizerSettings(lr=3e-3, backbone_lr=1.5e-3, weight_decay=0.02, warmup_epochs=1),
        budget=BudgetSettings(epochs=60),
        validation=ValidationSettings(every_epochs=5, best_by="auc"),
    )


def person_mobile() -> Recipe:
    """EfficientNet-Lite0 without its last stride, 112 px, taught by a larger network; a bundle of 4 MB at most."""
    recipe = person_nano()
    return replace(
        recipe,
        name="person-mobile",
        model=replace(recipe.model, name="efficientnet_lite0_fine"),
    )
