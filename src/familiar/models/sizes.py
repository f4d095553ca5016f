"""Size of a network and list of its layers. On the meta device nothing is computed, so it takes no time."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from familiar.models.network import eval_mode


@dataclass(frozen=True)
class NetworkSize:
    """Size of a network.

    Attributes:
        trainable: number of trainable parameters.
        total: number of all parameters, running means and variances.
        flops: multiply-adds for one crop.
    """

    trainable: int
    total: int
    flops: int


@dataclass(frozen=True)
class Layer:
    """One row of a network's summary.

    Attributes:
        name: path of the module within the network.
        kind: name of its class.
        output: shape without the batch axis.
        parameters: number of its own parameters; as in Keras's summaries, with a batch norm's running statistics.
    """

    name: str
    kind: str
    output: tuple[int, ...]
    parameters: int


def measure(network: nn.Module, size_px: int) -> NetworkSize:
    """Count parameters and multiply-adds of a network for one black crop of `size_px`."""
    trainable = sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
    total = sum(_stored_value_count(module) for module in network.modules())
    with FlopCounterMode(display=False) as counter:
        forward_dummy(network, size_px)
    # The counter counts a multiply-add as two operations.
    return NetworkSize(trainable, total, counter.get_total_flops() // 2)


def layers(network: nn.Module, size_px: int) -> list[Layer]:
    """List the layers in the order in which they run: modules with parameters of their own, or without submodules.

    Identities are left out. A module that runs twice is listed once, where it ran first.
    """
    rows: dict[str, Layer | None] = {}
    hooks = []
    for name, module in network.named_modules():
        has_submodules = next(module.children(), None) is not None
        if not _stored_value_count(module) and (has_submodules or isinstance(module, nn.Identity)):
            continue

        # The row is reserved before the module runs, since timm's batch norms run their activation inside them.
        def reserve_row(_module: nn.Module, _inputs: object, name: str = name) -> None:
            rows.setdefault(name, None)

        def fill_row(module: nn.Module, _inputs: object, output: Tensor, name: str = name) -> None:
            rows[name] = Layer(name, type(module).__name__, tuple(output.shape[1:]), _stored_value_count(module))

        hooks += [module.register_forward_pre_hook(reserve_row), module.register_forward_hook(fill_row)]
    try:
        forward_dummy(network, size_px)
    finally:
        for hook in hooks:
            hook.remove()
    return [row for row in rows.values() if row is not None]


@torch.no_grad()
def forward_dummy(network: nn.Module, size_px: int) -> Tensor:
    """Compute the output for one black crop in evaluation mode, and restore every module's mode."""
    with eval_mode(network):
        return network(torch.zeros(1, 3, size_px, size_px, device=next(network.parameters()).device))


def _stored_value_count(module: nn.Module) -> int:
    """Count parameters and running statistics of the module itself, without its submodules."""
    statistics = [buffer for name, buffer in module.named_buffers(recurse=False) if name != "num_batches_tracked"]
    return sum(tensor.numel() for tensor in (*module.parameters(recurse=False), *statistics))
