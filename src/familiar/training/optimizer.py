"""The optimizers of the published recipes, with a low rate for a pretrained trunk and a higher one for the rest."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from familiar.models.network import EmbeddingNetwork
from familiar.training.recipe import OptimizerSettings
from familiar.training.schedule import decaying_rate, learning_rate

OPTIMIZERS: dict[str, Callable[[list[dict[str, Any]], OptimizerSettings], torch.optim.Optimizer]] = {
    "adamw": lambda groups, _: torch.optim.AdamW(groups),
    "adam": lambda groups, _: torch.optim.Adam(groups),
    "adagrad": lambda groups, s: torch.optim.Adagrad(groups, initial_accumulator_value=s.accumulator),
}


@dataclass(frozen=True)
class Optimizer:
    """torch's optimizer and the rates its groups follow; `sparse` updates the rows of what has sparse gradients.

    `projection` is the weight of the layer that makes the embedding.
    """

    dense: torch.optim.Optimizer
    sparse: torch.optim.SparseAdam | None
    projection: Tensor
    settings: OptimizerSettings
    epochs: int

    def zero_grad(self) -> None:
        self.dense.zero_grad()
        if self.sparse is not None:
            self.sparse.zero_grad()

    def step(self) -> float:
        """Clip, update; the norm the gradient had.

        Sparse gradients are not clipped: Adam's steps do not depend on their length.
        """
        if self.settings.embedding_l2 and self.projection.grad is not None:
            self.projection.grad.add_(self.projection.detach(), alpha=2 * self.settings.embedding_l2)
        dense = [parameter for group in self.dense.param_groups for parameter in group["params"]]
        norm = nn.utils.clip_grad_norm_(dense, self.settings.gradient_norm)
        self.dense.step()
        if self.sparse is not None:
            self.sparse.step()
        return norm.item()

    def state_dict(self) -> dict[str, Any]:
        return {"dense": self.dense.state_dict()} | (
            {} if self.sparse is None else {"sparse": self.sparse.state_dict()}
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.dense.load_state_dict(state["dense"])
        if self.sparse is not None:
            self.sparse.load_state_dict(state["sparse"])

    def set_rates(self, at_epoch: float) -> None:
        """Rates for the step at `at_epoch`, a fraction of epochs counted from 0."""
        settings = self.settings
        for group in [*self.dense.param_groups, *(self.sparse.param_groups if self.sparse else [])]:
            peak = group["peak_lr"]
            # A trunk frozen by a rate of 0 stays so: the rate must not rise from it to the final one.
            final = min(settings.final_lr, peak)
            if settings.schedule == "cosine":
                rate = learning_rate(peak, final, settings.warmup_epochs, self.epochs, at_epoch)
            else:
                decay = settings.decay_from * self.epochs, settings.decay_to * self.epochs
                rate = decaying_rate(peak, final, settings.warmup_epochs, decay, at_epoch)
            group["lr"] = rate

    @property
    def rates(self) -> tuple[float, float]:
        """(head and classifier, trunk) as they stand."""
        trunk, rest = self.dense.param_groups
        return rest["lr"], trunk["lr"]


def build_optimizer(
    network: EmbeddingNetwork, objective: nn.Module, settings: OptimizerSettings, epochs: int
) -> Optimizer:
    sparse = [
        getattr(module, name) for module in objective.modules() for name in getattr(module, "sparse_parameters", ())
    ]
    dense = [each for each in objective.parameters() if all(each is not other for other in sparse)]
    trunk = [parameter for parameter in network.trunk.parameters() if parameter.requires_grad]
    decay = settings.weight_decay
    groups = [
        {"params": trunk, "peak_lr": settings.backbone_lr, "weight_decay": decay},
        {"params": [*network.head.parameters(), *dense], "peak_lr": settings.lr, "weight_decay": decay},
    ]
    return Optimizer(
        OPTIMIZERS[settings.name](groups, settings),
        torch.optim.SparseAdam([{"params": sparse, "peak_lr": settings.lr}]) if sparse else None,
        network.head.get_submodule("project").get_parameter("weight"),
        settings,
        epochs,
    )
