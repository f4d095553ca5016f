"""Softmax, NormFace and ArcFace on MNIST in two components (seed 003): trained on 0 to 4, judged on 5 to 9.

For data as `familiar train mnist:FOLDER` reads them.
"""

from familiar.loading.augment.settings import NOTHING
from familiar.training.loss_settings import LossSettings
from familiar.training.recipe import Recipe
from familiar.training.schedule import Schedule
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

TRAINED_ON = ("0", "1", "2", "3", "4")
UNSMOOTHED = Schedule(0.0)


def digits_softmax() -> Recipe:
    """MNIST's 0 to 4 in two components, plain softmax without a bias."""
    return _digits("digits-softmax", LossSettings("softmax", bias=False, label_smoothing=UNSMOOTHED))


def digits_normface() -> Recipe:
    """The same with embeddings and centers at unit length, scale 16 (the essay's was 1)."""
    return _digits("digits-normface", LossSettings("normface", scale=Schedule(16.0), label_smoothing=UNSMOOTHED))


def digits_arcface() -> Recipe:
    """The same with an angular margin of half a radian."""
    loss = LossSettings("arcface", scale=Schedule(16.0), margin_rad=Schedule(0.5), label_smoothing=UNSMOOTHED)
    return _digits("digits-arcface", loss)


def _digits(name: str, loss: LossSettings) -> Recipe:
    return Recipe(
        name=name,
        model=ModelSettings(name="digits", embedding_dim=2, dropout=0.0, initial_weights="none"),
        input=InputSettings(size_px=28, resize_px=28, normalization="symmetric"),
        augmentation=NOTHING,
        split=SplitSettings(train=TRAINED_ON),
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
