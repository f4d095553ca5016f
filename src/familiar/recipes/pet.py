"""The mobile pet embedder: MobileNetV3-Small, GDConv head, ArcFace; see docs/reproductions/pets.md."""

from dataclasses import replace

from familiar.loading.augment.settings import NO_AUGMENTATION
from familiar.training.loss_catalog import loss_named
from familiar.training.recipe import Recipe
from familiar.training.schedule import Schedule
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

PET_MARGIN = 0.3  # around the head that the detector finds, in sides of its box: benchmarks/heads_and_identities.py


def pet_mobile() -> Recipe:
    """MobileNetV3-Small pretrained on ImageNet, 224 px, 128-d, ArcFace: the pet embedder as published."""
    return Recipe(name="pet-mobile", loss=loss_named("arcface", label_smoothing=0.1))


def pet_nano() -> Recipe:
    """The first half of MobileNetV3-Small, 112 px, 128-d, ArcFace: a bundle of 308,000 bytes in int8-weights."""
    return Recipe(
        name="pet-nano",
        model=ModelSettings(name="nano_mobile", embedding_dim=128, dropout=0.0),
        input=InputSettings(size_px=112, resize_px=112),
        # A network this small underfits rather than overfits, so faces are only moved and relit.
        augmentation=replace(
            NO_AUGMENTATION,
            rotate_p=0.3,
            rotate_deg=10.0,
            flip_p=0.5,
            affine_p=0.6,
            translate=0.07,
            scale=0.1,
            jitter_p=0.5,
            hue=0.03,
        ),
        split=SplitSettings(min_photos=2),
        sampler=SamplerSettings(batch_size=96),
        loss=loss_named("arcface", margin_rad=Schedule(0.0, 0.3, over=1 / 3)),
        optimizer=OptimizerSettings(lr=1e-3, backbone_lr=2e-4, warmup_epochs=1),
        budget=BudgetSettings(epochs=40),
    )


def pet_lite() -> Recipe:
    """EfficientNet-Lite0, 224 px, 640-d, its last stages trained briefly: for animals it has not seen."""
    return Recipe(
        name="pet-lite",
        model=ModelSettings(
            name="efficientnet_lite0",
            embedding_dim=640,
            dropout=0.0,
            head="average_groups_root",
            frozen_stages=5,
            frozen_statistics=True,
            initial_share=0.5,
            centered=True,
        ),
        input=InputSettings(views=("1@224", "1@160m", "0.8@224"), detector="pets", margin=PET_MARGIN),
        augmentation=replace(
            NO_AUGMENTATION,
            crop_p=1.0,
            crop_scale_min=0.5,
            crop_ratio_min=0.8,
            crop_ratio_max=1.25,
            rotate_p=0.8,
            rotate_deg=12.0,
            flip_p=0.5,
            jitter_p=0.8,
            brightness=0.35,
            contrast=0.35,
            saturation=0.3,
            hue=0.04,
            gray_p=0.05,
            downscale_p=0.25,
        ),
        split=SplitSettings(validation=0.02, test=0.0, min_photos=2),
        sampler=SamplerSettings(batch_size=64),
        loss=loss_named("arcface", scale=24, margin_rad=0.2, start="means"),
        optimizer=OptimizerSettings(lr=3e-3, backbone_lr=3e-4, weight_decay=1e-4, warmup_epochs=0.4, gradient_norm=5.0),
        budget=BudgetSettings(epochs=4),
        validation=ValidationSettings(every_epochs=4, best_by="auc"),
    )


def pet_lite_nano() -> Recipe:
    """MobileNetV3-Small with narrow gates, taught by larger networks on photos without labels, for int4-weights."""
    return Recipe(
        name="pet-lite-nano",
        model=ModelSettings(
            name="nano_deep",
            embedding_dim=288,
            dropout=0.0,
            head="average_groups_root",
            initial_share=0.25,  # for what no photo shows
            centered=True,
        ),
        # The teachers embed photos as they are, so they may not be changed much.
        augmentation=replace(
            NO_AUGMENTATION,
            rotate_p=0.5,
            rotate_deg=8.0,
            flip_p=0.5,
            affine_p=0.7,
            translate=0.06,
            scale=0.1,
            jitter_p=0.7,
            brightness=0.2,
            contrast=0.2,
            saturation=0.15,
            hue=0.02,
            downscale_p=0.15,
        ),
        # Normalized as the weights of `narrow_gates.py` expect.
        input=InputSettings(normalization="symmetric", detector="pets", margin=PET_MARGIN),
        split=SplitSettings(validation=0.02, test=0.0, min_photos=1),
        sampler=SamplerSettings(batch_size=64),
        loss=loss_named("arcface"),  # of no effect: its weight is 0
        distill=DistillSettings(weight=0.0, relation_weight=100.0, label_weight=0.0, mirrored=False),
        optimizer=OptimizerSettings(lr=3e-3, backbone_lr=5e-4, weight_decay=0.02, warmup_epochs=1),
        budget=BudgetSettings(epochs=10),
        validation=ValidationSettings(every_epochs=10, best_by="auc"),
    )


def quickstart() -> Recipe:
    """A half-width MobileNetV3-Small from random weights at 64 px: learns synthetic pets in minutes on two cores."""
    return Recipe(
        name="quickstart",
        model=ModelSettings(name="mobilenetv3_small_050", embedding_dim=64, dropout=0.0, initial_weights="none"),
        input=InputSettings(size_px=64, resize_px=64),
        split=SplitSettings(test=0.0),
        augmentation=replace(NO_AUGMENTATION, rotate_p=0.5, rotate_deg=10.0, flip_p=0.5, jitter_p=0.3, hue=0.0),
        sampler=SamplerSettings(batch_size=64),
        loss=loss_named("arcface", scale=24, margin_rad=Schedule(0.0, 0.2, over=1 / 3)),
        optimizer=OptimizerSettings(lr=3e-3, backbone_lr=3e-3, weight_decay=1e-3, warmup_epochs=1),
        budget=BudgetSettings(epochs=14),
        validation=ValidationSettings(every_epochs=2),
    )
