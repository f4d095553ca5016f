"""Softmax, NormFace and ArcFace on MNIST with 2-D embeddings: trained on 0 to 4, validated on 5 to 9.

The settings of an essay on ArcFace; see docs/reproductions/digits.md. The data is `mnist:FOLDER`.
"""

from familiar.loading.augment.settings import NO_AUGMENTATION
from familiar.training.loss_catalog import loss_named
from familiar.training.loss_settings import LossSettings
from familiar.training.recipe import Recipe
from familiar.training.settings import (
    NO_CLIPPING,
    BudgetSettings,
    InputSettings,
    ModelSettings,
    OptimizerSettings,
    SamplerSettings,
    SplitSettings,
    ValidationSettings,
)

TRAINING_DIGITS = ("0", "1", "2", "3", "4")


def digits_softmax() -> Recipe:
    """MNIST's 0 to 4 with 2-D embeddings, plain softmax without a bias."""
    return _digits("digits-softmax", loss_named("softmax", bias=False))


def digits_normface() -> Recipe:
    """NormFace on MNIST's digits: unit-length embeddings and centers, scale 16 (the original essay uses 1)."""
    return _digits("digits-normface", loss_named("normface", scale=16))


def digits_arcface() -> Recipe:
    """ArcFace on the same digits, with an angular margin of 0.5 radians."""
    return _digits("digits-arcface", loss_named("arcface", scale=16, margin_rad=0.5))


def _digits(name: str, loss: LossSettings) -> Recipe:
    return Recipe(
        name=name,
        model=ModelSettings(name="digits", embedding_dim=2, dropout=0.0, initial_weights="none"),
        input=InputSettings(size_px=28, resize_px=28, normalization="symmetric"),
        augmentation=NO_AUGMENTATION,
        split=SplitSettings(train=TRAINING_DIGITS),
        sampler=SamplerSettings(batch_size=128),
        loss=loss,
        optimizer=OptimizerSettings(
            name="adam",
            lr=1e-3,
            backbone_lr=1e-3,
            weight_decay=0.0,
            warmup_epochs=0,
            final_lr=1e-5,
            gradient_norm=NO_CLIPPING,
        ),
        budget=BudgetSettings(epochs=5),
        validation=ValidationSettings(every_epochs=1, best_by="auc"),
    )
