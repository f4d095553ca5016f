"""How large a network is, and its layers one by one. On the meta device nothing is computed, so it takes no time."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from familiar.models.network import evaluating


@dataclass(frozen=True)
class NetworkSize:
    """`trainable` parameters; `total` with running means and variances; `flops` as multiply-adds of one crop."""

    trainable: int
    total: int
    flops: int


@dataclass(frozen=True)
class Layer:
    """`output` is its shape without the batch.

    `parameters` are its own, and as in Keras's summaries a batch norm's have its running mean and variance with them.
    """

    name: str
    kind: str
    output: tuple[int, ...]
    parameters: int


def measure(network: nn.Module, size_px: int) -> NetworkSize:
    """Sizes of a network at an input of `size_px`, counted on one black crop."""
    trainable = sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
    total = sum(_own_count(module) for module in network.modules())
    with FlopCounterMode(display=False) as counter:
        look_at(network, size_px)
    # The counter takes a multiply-add for two operations.
    return NetworkSize(trainable, total, counter.get_total_flops() // 2)


def layers(network: nn.Module, size_px: int) -> list[Layer]:
    """Every layer in running order: whatever has parameters of its own, or no parts and something to do.

    One that runs twice stands where it ran first.
    """
    rows: dict[str, Layer | None] = {}
    hooks = []
    for name, module in network.named_modules():
        has_parts = next(module.children(), None) is not None
        if not _own_count(module) and (has_parts or isinstance(module, nn.Identity)):
            continue

        # Its place is kept before it runs, since timm's batch norms run their activation inside them.
        def keep_place(_module: nn.Module, _inputs: object, name: str = name) -> None:
            rows.setdefault(name, None)

        def note(module: nn.Module, _inputs: object, output: Tensor, name: str = name) -> None:
            rows[name] = Layer(name, type(module).__name__, tuple(output.shape[1:]), _own_count(module))

        hooks += [module.register_forward_pre_hook(keep_place), module.register_forward_hook(note)]
    try:
        look_at(network, size_px)
    finally:
        for hook in hooks:
            hook.remove()
    return [row for row in rows.values() if row is not None]


@torch.no_grad()
def look_at(network: nn.Module, size_px: int) -> Tensor:
    """The output for one black crop, in evaluation mode; every module's mode stays."""
    with evaluating(network):
        return network(torch.zeros(1, 3, size_px, size_px, device=next(network.parameters()).device))


def _own_count(module: nn.Module) -> int:
    """Parameters and statistics of the module itself, those of its parts aside."""
    statistics = [buffer for name, buffer in module.named_buffers(recurse=False) if name != "num_batches_tracked"]
    return sum(tensor.numel() for tensor in (*module.parameters(recurse=False), *statistics))
