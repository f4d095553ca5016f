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

OPTIMIZERS: dict[str, Callable[[list[dict[str, Any]], OptimizerSettings], torch.optim.Optimizer]] = {
    "adamw": lambda groups, _: torch.optim.AdamW(groups),
    "adam": lambda groups, _: torch.optim.Adam(groups),
    "adagrad": lambda groups, settings: torch.optim.Adagrad(groups, initial_accumulator_value=settings.accumulator),
}


@dataclass(frozen=True)
class Optimizer:
    """A torch optimizer together with the learning rate schedules of its groups.

    Attributes:
        dense: has two parameter groups, the trunk and everything else.
        sparse: updates parameters with sparse gradients, if there are any.
        projection: the weight of the layer that makes the embedding, if there is one.
        settings: rates, schedule and clipping.
        epochs: length of the run.
    """

    dense: torch.optim.Optimizer
    sparse: torch.optim.SparseAdam | None
    projection: Tensor | None
    settings: OptimizerSettings
    epochs: int

    def zero_grad(self) -> None:
        """Reset the gradients."""
        self.dense.zero_grad()
        if self.sparse is not None:
            self.sparse.zero_grad()

    def step(self) -> float:
        """Clip the gradient and update the parameters.

        Sparse gradients are not clipped: Adam's steps do not depend on their norm.

        Returns:
            The norm of the gradient before clipping.
        """
        if self.settings.embedding_l2 and self.projection is not None and self.projection.grad is not None:
            self.projection.grad.add_(self.projection.detach(), alpha=2 * self.settings.embedding_l2)
        norm = nn.utils.clip_grad_norm_(self.dense_parameters, self.settings.gradient_norm)
        self.dense.step()
        if self.sparse is not None:
            self.sparse.step()
        return norm.item()

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"dense": self.dense.state_dict()} | (
            {} if self.sparse is None else {"sparse": self.sparse.state_dict()}
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.dense.load_state_dict(state["dense"])
        if self.sparse is not None:
            self.sparse.load_state_dict(state["sparse"])

    def set_rates(self, at_epoch: float) -> None:
        """Set the learning rates for the step at `at_epoch`, in epochs from 0, with fractions."""
        settings = self.settings
        for group in [*self.dense.param_groups, *(self.sparse.param_groups if self.sparse else [])]:
            peak = group["peak_lr"]
            # A trunk frozen by a rate of 0 must stay frozen: its rate must not rise from there to the final one.
            final = min(settings.final_lr, peak)
            if settings.schedule == "cosine":
                rate = learning_rate(peak, final, settings.warmup_epochs, self.epochs, at_epoch)
            else:
                decay = settings.decay_from * self.epochs, settings.decay_to * self.epochs
                rate = decaying_rate(peak, final, settings.warmup_epochs, decay, at_epoch)
            group["lr"] = rate

    @property
    def dense_parameters(self) -> list[Tensor]:
        """All parameters without sparse gradients."""
        return [parameter for group in self.dense.param_groups for parameter in group["params"]]

    @property
    def current_rates(self) -> tuple[float, float]:
        """Learning rates of (head and classifier, trunk)."""
        trunk, rest = self.dense.param_groups
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
    sparse = [
        getattr(module, name) for module in objective.modules() for name in getattr(module, "sparse_parameters", ())
    ]
    dense = [parameter for parameter in objective.parameters() if all(parameter is not other for other in sparse)]
    trunk = [parameter for parameter in network.trunk.parameters() if parameter.requires_grad]
    projection = getattr(network.head, "project", None)
    decay = settings.weight_decay
    groups = [
        {"params": trunk, "peak_lr": settings.backbone_lr, "weight_decay": decay},
        {"params": [*network.head.parameters(), *dense], "peak_lr": settings.lr, "weight_decay": decay},
    ]
    return Optimizer(
        OPTIMIZERS[settings.name](groups, settings),
        torch.optim.SparseAdam([{"params": sparse, "peak_lr": settings.lr}]) if sparse else None,
        None if projection is None else projection.weight,
        settings,
        epochs,
    )
