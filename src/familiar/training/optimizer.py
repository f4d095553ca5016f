"""AdamW with a low rate for the pretrained trunk and a higher one for what starts from nothing."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from familiar.models.mobile import EmbeddingNetwork
from familiar.training.recipe import OptimizerSettings
from familiar.training.schedule import learning_rate


@dataclass(frozen=True)
class Optimizer:
    """torch's AdamW and the rates its groups follow; `sparse` updates the rows of what has sparse gradients."""

    adamw: torch.optim.AdamW
    sparse: torch.optim.SparseAdam | None
    settings: OptimizerSettings
    epochs: int

    def step(self, loss: Tensor) -> float:
        """Backward, clip, update; the norm the gradient had.

        Sparse gradients are not clipped: Adam's steps do not depend on their length.
        """
        self.adamw.zero_grad()
        if self.sparse is not None:
            self.sparse.zero_grad()
        loss.backward()
        dense = [parameter for group in self.adamw.param_groups for parameter in group["params"]]
        norm = nn.utils.clip_grad_norm_(dense, self.settings.gradient_norm)
        self.adamw.step()
        if self.sparse is not None:
            self.sparse.step()
        return norm.item()

    def state_dict(self) -> dict[str, Any]:
        return {"adamw": self.adamw.state_dict()} | (
            {} if self.sparse is None else {"sparse": self.sparse.state_dict()}
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.adamw.load_state_dict(state["adamw"])
        if self.sparse is not None:
            self.sparse.load_state_dict(state["sparse"])

    def set_rates(self, at_epoch: float) -> None:
        """Rates for the step at `at_epoch`, a fraction of epochs counted from 0."""
        for group in [*self.adamw.param_groups, *(self.sparse.param_groups if self.sparse else [])]:
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
    sparse = [
        getattr(module, name)
        for module in objective.modules()
        for name in getattr(module, "sparse_parameters", ())
    ]
    dense = [each for each in objective.parameters() if all(each is not other for other in sparse)]
    groups = [
        {"params": list(network.trunk.parameters()), "peak_lr": settings.backbone_lr},
        {"params": [*network.head.parameters(), *dense], "peak_lr": settings.lr},
    ]
    return Optimizer(
        torch.optim.AdamW(groups, weight_decay=settings.weight_decay),
        torch.optim.SparseAdam([{"params": sparse, "peak_lr": settings.lr}]) if sparse else None,
        settings,
        epochs,
    )
