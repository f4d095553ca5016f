"""Every network by name, in one place: help texts and documentation are made from it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from familiar.core.errors import BadRecipe
from familiar.models.mobile import EmbeddingNetwork, mobilenet_embedder


@dataclass(frozen=True)
class NetworkSpec:
    """One row of the catalogue. `build(size_px, embedding_dim, dropout)` makes it with random weights."""

    summary: str
    input_px: int
    embedding_dim: int
    dropout: float
    timm_name: str
    build: Callable[[int, int, float], EmbeddingNetwork]


@dataclass(frozen=True)
class NetworkSize:
    """`trainable` parameters; `total` with running means and variances; `flops` as multiply-adds of one crop."""

    trainable: int
    total: int
    flops: int


NETWORKS: dict[str, NetworkSpec] = {
    "mobilenetv3_small_100": NetworkSpec(
        summary="MobileNetV3-Small, conv_head on the map, GDConv head: the pet embedder's network",
        input_px=224,
        embedding_dim=128,
        dropout=0.4,
        timm_name="mobilenetv3_small_100",
        build=partial(mobilenet_embedder, "mobilenetv3_small_100"),
    ),
    "mobilenetv3_small_050": NetworkSpec(
        summary="the same at half the width: trains from nothing in minutes, for the quickstart",
        input_px=96,
        embedding_dim=64,
        dropout=0.0,
        timm_name="mobilenetv3_small_050",
        build=partial(mobilenet_embedder, "mobilenetv3_small_050"),
    ),
}


def network_spec(name: str) -> NetworkSpec:
    """A row by name. BadRecipe lists what there is."""
    if name not in NETWORKS:
        raise BadRecipe(f"no network is called {name!r}; there are {', '.join(NETWORKS)}")
    return NETWORKS[name]


def measure(network: nn.Module, size_px: int) -> NetworkSize:
    """Sizes of a network at an input of `size_px`, counted on one black crop."""
    statistics = sum(
        buffer.numel() for name, buffer in network.named_buffers() if not name.endswith("num_batches_tracked")
    )
    parameters = sum(parameter.numel() for parameter in network.parameters())
    trainable = sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
    was_training = network.training
    network.eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(torch.zeros(1, 3, size_px, size_px))
    network.train(was_training)
    # The counter takes a multiply-add for two operations.
    return NetworkSize(trainable, parameters + statistics, counter.get_total_flops() // 2)


def layers(network: nn.Module, size_px: int) -> list[tuple[str, str, tuple[int, ...], int]]:
    """(name, kind, output shape without the batch, parameters of its own) of every layer, in running order."""
    rows: list[tuple[str, str, tuple[int, ...], int]] = []
    hooks = []
    for name, module in network.named_modules():
        own = [parameter.numel() for parameter in module.parameters(recurse=False)]
        has_parts = next(module.children(), None) is not None
        if not own and (has_parts or isinstance(module, nn.Identity)):
            continue

        def note(
            module: nn.Module, _inputs: object, output: torch.Tensor, name: str = name, count: int = sum(own)
        ) -> None:
            rows.append((name, type(module).__name__, tuple(output.shape[1:]), count))

        hooks.append(module.register_forward_hook(note))
    was_training = network.training
    network.eval()
    with torch.no_grad():
        network(torch.zeros(1, 3, size_px, size_px))
    network.train(was_training)
    for hook in hooks:
        hook.remove()
    return rows
