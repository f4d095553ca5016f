"""AdamW with a low rate for the pretrained trunk and a higher one for what starts from nothing."""

from dataclasses import dataclass

import torch
from torch import nn

from familiar.models.mobile import EmbeddingNetwork
from familiar.training.recipe import OptimizerSettings
from familiar.training.schedule import learning_rate


@dataclass(frozen=True)
class Optimizer:
    """torch's AdamW and the rates its groups follow."""

    adamw: torch.optim.AdamW
    settings: OptimizerSettings
    epochs: int

    def set_rates(self, at_epoch: float) -> None:
        """Rates for the step at `at_epoch`, a fraction of epochs counted from 0."""
        for group in self.adamw.param_groups:
            peak = group["peak_lr"]
            # A trunk frozen by a rate of 0 stays so: the cosine must not rise from it to the final rate.
            final = min(self.settings.final_lr, peak)
            group["lr"] = learning_rate(peak, final, self.settings.warmup_epochs, self.epochs, at_epoch)

    @property
    def rates(self) -> tuple[float, float]:
        """(head and classifier, trunk) as they stand."""
        trunk, rest = self.adamw.param_groups
        return rest["lr"], trunk["lr"]


def build_optimizer(
    network: EmbeddingNetwork, objective: nn.Module, settings: OptimizerSettings, epochs: int
) -> Optimizer:
    rest = [*network.head.parameters(), *objective.parameters()]
    groups = [
        {"params": list(network.trunk.parameters()), "peak_lr": settings.backbone_lr},
        {"params": rest, "peak_lr": settings.lr},
    ]
    return Optimizer(torch.optim.AdamW(groups, weight_decay=settings.weight_decay), settings, epochs)
