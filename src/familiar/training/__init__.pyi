from .fitting import FitResult, fit
from .loss_catalog import LOSSES, loss_named
from .loss_settings import LossSettings
from .recipe import Recipe
from .run import RunFolder
from .schedule import Schedule
from .settings import (
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
from .triplets import get_triplets

__all__ = [
    "LOSSES",
    "BudgetSettings",
    "DistillSettings",
    "FitResult",
    "InputSettings",
    "LossSettings",
    "MiningSettings",
    "ModelSettings",
    "OptimizerSettings",
    "QuantizeSettings",
    "Recipe",
    "RunFolder",
    "SamplerSettings",
    "Schedule",
    "SplitSettings",
    "ValidationSettings",
    "fit",
    "get_triplets",
    "loss_named",
]
