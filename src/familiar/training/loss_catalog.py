"""The losses of recipes by their names.

To add a loss, write its class in `familiar.losses`, with its settings, and name it here.
"""

from typing import Any

from familiar import losses
from familiar.training.loss_settings import ClassifierSettings, LossSettings, settings_class

LOSSES: dict[str, type[LossSettings]] = {
    name: settings_class(name, loss_class)
    for name, loss_class in {
        "softmax": losses.Softmax,
        "normface": losses.NormFace,
        "arcface": losses.ArcFace,
        "cosface": losses.CosFace,
        "combined_margin": losses.CombinedMargin,
        "subcenter_arcface": losses.SubCenterArcFace,
        "partial_fc": losses.PartialFC,
        "batch_all": losses.BatchAll,
        "semi_hard": losses.SemiHard,
        "batch_hard": losses.BatchHard,
        "hard_negative": losses.HardNegative,
        "contrastive": losses.Contrastive,
        "circle": losses.CirclePairs,
        "circle_triplets": losses.CircleTriplets,
    }.items()
}
CLASSIFIERS = tuple(name for name, loss in LOSSES.items() if issubclass(loss, ClassifierSettings))
MINING_LOSSES = tuple(name for name, loss in LOSSES.items() if loss.mines_triplets)


def loss_named(name: str = "arcface", **values: Any) -> LossSettings:
    """Return the settings of a loss.

    Args:
        name: one of `LOSSES`.
        values: of settings that differ from what is published for the loss. A number or text stands for a `Schedule`.

    Raises:
        ValueError: a setting is out of range.

    >>> loss_named("cosface", margin=0.3).build(128, 1000).margin
    0.3
    """
    return LOSSES[name](**values)
