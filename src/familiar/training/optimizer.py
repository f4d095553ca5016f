"""The optimizers of the published recipes, with separate learning rates for a pretrained trunk and the rest."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from familiar.models.network import EmbeddingNetwork
from familiar.training.schedule import decaying_rate, learning_rate
from familiar.training.settings import OptimizerSettings

log = logging.getLogger(__name__)

OPTIMIZERS: dict[str, Callable[[list[dict[str, Any]], OptimizerSettings, bool], torch.optim.Optimizer]] = {
    "adamw": lambda groups, _, on_gpu: torch.optim.AdamW(groups, fused=on_gpu),
    "adam": lambda groups, _, on_gpu: torch.optim.Adam(groups, fused=on_gpu),
    "adagrad": lambda groups, settings, _: torch.optim.Adagrad(groups, initial_accumulator_value=settings.accumulator),
}


@dataclass(frozen=True)
class Optimizer:
    """A torch optimizer together with the learning rate schedules of its groups.

    Attributes:
        parts: the optimizer of two parameter groups, the trunk and everything else; then one of the parameters with
            sparse gradients, if there are any.
        projection: the weight of the layer that makes the embedding, if there is one.
        settings: rates, schedule and clipping.
        epochs: length of the run.
    """

    parts: tuple[torch.optim.Optimizer, ...]
    projection: Tensor | None
    settings: OptimizerSettings
    epochs: int

    def zero_grad(self) -> None:
        """Reset the gradients."""
        for part in self.parts:
            part.zero_grad()

    def step(self) -> Tensor:
        """Clip the gradient and update the parameters.

        Sparse gradients are not clipped: Adam's steps do not depend on their norm.

        Returns:
            The norm of the gradient before clipping, on the device, which need not have computed it yet.
        """
        if self.settings.embedding_l2 and self.projection is not None and self.projection.grad is not None:
            self.projection.grad.add_(self.projection.detach(), alpha=2 * self.settings.embedding_l2)
        parameters = [parameter for group in self.parts[0].param_groups for parameter in group["params"]]
        norm = nn.utils.clip_grad_norm_(parameters, self.settings.gradient_norm)
        for part in self.parts:
            part.step()
        return norm

    def state_dict(self) -> list[dict[str, Any]]:
        """Return the state of each part for a checkpoint."""
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, state: list[dict[str, Any]]) -> None:
        """Restore what `state_dict` returned."""
        for part, saved in zip(self.parts, state, strict=True):
            part.load_state_dict(saved)

    def set_rates(self, at_epoch: float) -> None:
        """Set the learning rates for the step at `at_epoch`, in epochs from 0, with fractions."""
        settings = self.settings
        decay = settings.decay_from * self.epochs, settings.decay_to * self.epochs
        for group in [group for part in self.parts for group in part.param_groups]:
            # A trunk frozen by a rate of 0 must stay frozen: its rate must not rise from there to the final one.
            ends = group["peak_lr"], min(settings.final_lr, group["peak_lr"])
            if settings.schedule == "cosine":
                group["lr"] = learning_rate(*ends, settings.warmup_epochs, self.epochs, at_epoch)
            else:
                group["lr"] = decaying_rate(*ends, settings.warmup_epochs, decay, at_epoch)

    @property
    def current_rates(self) -> tuple[float, float]:
        """Learning rates of (head and classifier, trunk)."""
        trunk, rest = self.parts[0].param_groups
        return rest["lr"], trunk["lr"]


def build_optimizer(
    network: EmbeddingNetwork, objective: nn.Module, settings: OptimizerSettings, epochs: int
) -> Optimizer:
    """Build the optimizer for a network and its objective.

    Args:
        network: its parameters without gradient are left out.
        objective: parameters named in a module's `sparse_parameters` get a `SparseAdam`.
        settings: the optimizer and its rates.
        epochs: length of the run, for the schedules.
    """
    if settings.lr == 0:
        rest = "only the trunk" if settings.backbone_lr else "nothing"
        log.warning("%s will learn (optimizer.lr=0)", rest)
    dense, sparse = split_parameters(objective)
    trunk = [parameter for parameter in network.trunk.parameters() if parameter.requires_grad]
    projection = getattr(network.head, "project", None)
    decay = settings.weight_decay
    groups = [
        {"params": trunk, "peak_lr": settings.backbone_lr, "weight_decay": decay},
        {"params": [*network.head.parameters(), *dense], "peak_lr": settings.lr, "weight_decay": decay},
    ]
    parts = [OPTIMIZERS[settings.name](groups, settings, next(network.parameters()).is_cuda)]
    if sparse:
        parts.append(torch.optim.SparseAdam([{"params": sparse, "peak_lr": settings.lr}]))
    return Optimizer(tuple(parts), None if projection is None else projection.weight, settings, epochs)


def split_parameters(objective: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """Return the parameters with dense gradients, and those named in a module's `sparse_parameters`."""
    sparse = [
        getattr(module, name) for module in objective.modules() for name in getattr(module, "sparse_parameters", ())
    ]
    return [each for each in objective.parameters() if all(each is not other for other in sparse)], sparse
