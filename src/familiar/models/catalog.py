"""Catalog of all networks by name, from which help texts and documentation are made."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import timm
import torch
from torch import nn

from familiar.core.errors import BadRecipe
from familiar.models.backbones import (
    FineEfficientNetTrunk,
    JoinedTimmTrunk,
    MobileNetV3Trunk,
    NarrowGateMobileNetV3Trunk,
    ShortMobileNetV3Trunk,
    ShuffleNetV2Trunk,
    TimmTrunk,
)
from familiar.models.efficientnet import EfficientNetTrunk
from familiar.models.heads import HEADS
from familiar.models.inception import NN2, NN4, NNS1, NNS2, InceptionTrunk
from familiar.models.initialization import variance_scaling_
from familiar.models.nano import NANO, NANO_WIDE, NanoTrunk
from familiar.models.network import EmbeddingNetwork
from familiar.models.simple import (
    SIMPLE_V2_VARIANCE_SCALE,
    SIMPLE_VARIANCE_SCALE,
    DigitsTrunk,
    SimpleTrunk,
    SimpleV2Trunk,
)
from familiar.models.sizes import Layer, NetworkSize, forward_dummy, layers, measure
from familiar.models.zeiler_fergus import ZeilerFergusTrunk

TIMM = "timm:"
DEFAULT_TIMM_PX = 224
INPUT_NORMALIZATION = 7  # mean and variance of three colors and a count, which Keras counts as weights


@dataclass(frozen=True)
class NetworkSpec:
    """One network of the catalog.

    Attributes:
        summary: one line for help texts.
        input_px: side of its crops, as published.
        embedding_dim: length of its embeddings, as published.
        dropout: in front of the embedding layer.
        trunk: builds the trunk; called with `options`.
        head: name in `HEADS`.
        options: the trunk's options that can be set, with their defaults.
        head_options: options of `head`; not used with another head.
        frozen_trunk: whether only the head is trained.
        projection_scale: of the initial variance of the embedding layer; None is torch's initialization.
        constants: count of numbers that the published network stores as weights, and familiar in the bundle's
            preprocessing.
    """

    summary: str
    input_px: int
    embedding_dim: int
    dropout: float
    trunk: Callable[..., nn.Module]
    head: str
    options: Mapping[str, Any] = field(default_factory=dict)
    head_options: Mapping[str, Any] = field(default_factory=dict)
    frozen_trunk: bool = False
    projection_scale: float | None = None
    constants: int = 0

    def build(
        self,
        size_px: int | None = None,
        embedding_dim: int | None = None,
        dropout: float | None = None,
        *,
        head: str | None = None,
        frozen_trunk: bool | None = None,
        **options: Any,
    ) -> EmbeddingNetwork:
        """Build the network with random weights; what is not given is as in the catalog.

        Args:
            size_px: side of the crops.
            embedding_dim: length of the embeddings.
            dropout: in front of the embedding layer.
            head: name in `HEADS`.
            frozen_trunk: whether only the head is trained.
            **options: of the trunk.

        Raises:
            BadRecipe: crops of `size_px` are too small for the network, or there is no such option or head.
        """
        head = self.head if head is None else head
        if head not in HEADS:
            raise BadRecipe(f"unknown head {head!r}; choose one of {', '.join(HEADS)}")
        if unknown := options.keys() - self.options.keys():
            raise BadRecipe(
                f"this network does not have the option(s) {', '.join(sorted(unknown))}; "
                + (f"it has {', '.join(self.options)}" if self.options else "it has none")
            )
        options = {**self.options, **options}
        size_px = self.input_px if size_px is None else size_px
        channels, map_px = _feature_map_shape(partial(self.trunk, **options), size_px)
        # A maxout head has batch norm if its trunk has.
        head_options = {key: options.get(key, value) for key, value in self.head_options.items()}
        trunk = self.trunk(**options)
        top = HEADS[head](
            channels,
            map_px,
            self.embedding_dim if embedding_dim is None else embedding_dim,
            self.dropout if dropout is None else dropout,
            **(head_options if head == self.head else {}),
        )
        if self.projection_scale is not None and hasattr(top, "project"):
            variance_scaling_(top.project.weight, self.projection_scale)
        network = EmbeddingNetwork(trunk, top)
        if self.frozen_trunk if frozen_trunk is None else frozen_trunk:
            network.freeze_trunk()
        return network

    def size(self) -> NetworkSize:
        """Measure the network with its defaults, from shapes alone: nothing is computed."""
        with torch.device("meta"):
            size = measure(self.build(), self.input_px)
        return replace(size, total=size.total + self.constants)

    def layers(self) -> list[Layer]:
        """List the layers of the network with its defaults, from shapes alone; parameters sum to `size().total`."""
        with torch.device("meta"):
            rows = layers(self.build(), self.input_px)
        before = (
            [Layer("", "input normalization", (3, self.input_px, self.input_px), self.constants)]
            if self.constants
            else []
        )
        return [*before, *rows, Layer("", "unit length", (self.embedding_dim,), 0)]


def _backbone(name: str) -> Callable[..., nn.Module]:
    return partial(TimmTrunk, name)


BATCH_NORM = {"batch_norm": True}
FLATTEN_112PX = {  # the EfficientNets of the circle-loss project
    "input_px": 112,
    "embedding_dim": 128,
    "dropout": 0.2,
    "head": "flatten_bias",
    "constants": INPUT_NORMALIZATION,
}
PET_EMBEDDER = {"input_px": 224, "embedding_dim": 128, "dropout": 0.4, "head": "gdconv"}

NETWORKS: dict[str, NetworkSpec] = {
    "mobilenetv3_small_100": NetworkSpec(
        summary="MobileNetV3-Small, conv_head on the map, GDConv head: the pet embedder's network",
        trunk=partial(MobileNetV3Trunk, "mobilenetv3_small_100"),
        **PET_EMBEDDER,
    ),
    "mobilenetv3_large_100": NetworkSpec(
        summary="MobileNetV3-Large, GDConv head",
        trunk=partial(MobileNetV3Trunk, "mobilenetv3_large_100"),
        **PET_EMBEDDER,
    ),
    "efficientnet_b0": NetworkSpec(
        summary="EfficientNet-B0 (timm), GDConv head", trunk=_backbone("efficientnet_b0"), **PET_EMBEDDER
    ),
    **{
        f"efficientnet_lite{number}": NetworkSpec(
            summary=f"EfficientNet-Lite{number}, GDConv head: what ImageNet taught it about animals carries farthest",
            trunk=_backbone(f"tf_efficientnet_lite{number}"),
            **{**PET_EMBEDDER, "input_px": input_px},
        )
        for number, input_px in enumerate((224, 240, 260))
    },
    "efficientnet_lite_pair": NetworkSpec(
        summary="EfficientNet-Lite0 and Lite1 side by side, GDConv head: they make different mistakes",
        trunk=partial(JoinedTimmTrunk, "tf_efficientnet_lite0", "tf_efficientnet_lite1"),
        **PET_EMBEDDER,
    ),
    "resnet18": NetworkSpec(summary="ResNet-18, GDConv head", trunk=_backbone("resnet18"), **PET_EMBEDDER),
    "shufflenet_v2": NetworkSpec(summary="ShuffleNetV2 x1.0, GDConv head", trunk=ShuffleNetV2Trunk, **PET_EMBEDDER),
    "mobilenetv3_small_050": NetworkSpec(
        summary="MobileNetV3-Small at half the width, for the quickstart: no initial weights needed",
        input_px=96,
        embedding_dim=64,
        dropout=0.0,
        trunk=partial(MobileNetV3Trunk, "mobilenetv3_small_050"),
        head="gdconv",
    ),
    "nano": NetworkSpec(
        summary="familiar's small network: its bundle is at most 308,000 bytes with float16 weights",
        input_px=112,
        embedding_dim=128,
        dropout=0.0,
        trunk=partial(NanoTrunk, NANO, "hardswish"),
        head="gdconv",
    ),
    "nano_wide": NetworkSpec(
        summary="a wider nano, for as many bytes with int8 weights",
        input_px=112,
        embedding_dim=128,
        dropout=0.0,
        trunk=partial(NanoTrunk, NANO_WIDE),
        head="gdconv",
    ),
    "nano_mobile": NetworkSpec(
        summary="half of MobileNetV3-Small, with its ImageNet weights, for as many bytes with int8 weights",
        input_px=112,
        embedding_dim=128,
        dropout=0.0,
        trunk=partial(ShortMobileNetV3Trunk, "mobilenetv3_small_100"),
        head="gdconv",
        head_options={"width": 384},
    ),
    "nano_deep": NetworkSpec(
        summary="MobileNetV3-Small with narrow gates, for at most 308,000 bytes with int4 weights",
        input_px=224,
        embedding_dim=288,
        dropout=0.0,
        trunk=partial(NarrowGateMobileNetV3Trunk, "mobilenetv3_small_100"),
        head="average_groups_root",
    ),
    "efficientnet_lite0_fine": NetworkSpec(
        summary="EfficientNet-Lite0 without its last stride, GDConv head: for faces at 112 px",
        input_px=112,
        embedding_dim=128,
        dropout=0.0,
        trunk=partial(FineEfficientNetTrunk, "tf_efficientnet_lite0"),
        head="gdconv",
    ),
    "facenet_nn1": NetworkSpec(
        summary="FaceNet NN1: Zeiler & Fergus with 1x1 convolutions and maxout layers",
        input_px=220,
        embedding_dim=128,
        dropout=0.0,
        trunk=ZeilerFergusTrunk,
        head="maxout",
        options=BATCH_NORM,
        head_options=BATCH_NORM,
    ),
    **{
        name: NetworkSpec(
            summary=summary,
            input_px=input_px,
            embedding_dim=128,
            dropout=0.0,
            trunk=partial(InceptionTrunk, table),
            head="average_bias",
            options=BATCH_NORM,
        )
        for name, summary, input_px, table in (
            ("facenet_nn2", "FaceNet NN2: Inception with L2 pooling", 224, NN2),
            ("facenet_nn3", "FaceNet NN3: NN2 for crops of 160 px", 160, NN2),
            ("facenet_nn4", "FaceNet NN4: NN2 for 96 px, no 5x5 in the last blocks", 96, NN4),
        )
    },
    "facenet_nns1": NetworkSpec(
        summary="FaceNet NNS1, mini: an Inception of ours within the published budget",
        input_px=165,
        embedding_dim=128,
        dropout=0.0,
        trunk=partial(InceptionTrunk, NNS1),
        head="maxout",
        options=BATCH_NORM,
        head_options={"widths": (640,), "batch_norm": True},
    ),
    "facenet_nns2": NetworkSpec(
        summary="FaceNet NNS2, tiny: an Inception of ours within the published budget",
        input_px=128,
        embedding_dim=128,
        dropout=0.0,
        trunk=partial(InceptionTrunk, NNS2),
        head="maxout",
        options=BATCH_NORM,
        head_options={"widths": (496,), "batch_norm": True},
    ),
    "simple": NetworkSpec(
        summary="SimpleEmbeddingNet, circle-loss project: convolutions, each followed by a pooling",
        input_px=112,
        embedding_dim=128,
        dropout=0.0,
        trunk=SimpleTrunk,
        head="flatten",
        projection_scale=SIMPLE_VARIANCE_SCALE,
        options={"blocks": 5, "pooling": "max"},
    ),
    "simple_v2": NetworkSpec(
        summary="SimpleEmbeddingNetV2, circle-loss project: strided convolutions, no pooling",
        input_px=112,
        embedding_dim=128,
        dropout=0.0,
        trunk=SimpleV2Trunk,
        head="flatten",
        projection_scale=SIMPLE_V2_VARIANCE_SCALE,
        options={"blocks": 5},
    ),
    "efficientnet_b0_rebuilt": NetworkSpec(
        summary="EfficientNet-B0 as the circle-loss project rebuilt it for 112 px",
        trunk=EfficientNetTrunk,
        **FLATTEN_112PX,
    ),
    "efficientnet_b0_flatten": NetworkSpec(
        summary="EfficientNet-B0 (timm) under a flatten head at 112 px, all of it trained",
        trunk=_backbone("efficientnet_b0"),
        **FLATTEN_112PX,
    ),
    "efficientnet_b0_frozen": NetworkSpec(
        summary="EfficientNet-B0 (timm) under a flatten head at 112 px, only the head trained",
        trunk=_backbone("efficientnet_b0"),
        frozen_trunk=True,
        **FLATTEN_112PX,
    ),
    "digits": NetworkSpec(
        summary="two convolutions and a 2-d embedding, to visualize margins on MNIST",
        input_px=28,
        embedding_dim=2,
        dropout=0.0,
        trunk=DigitsTrunk,
        head="hidden",
    ),
}


def network_spec(name: str) -> NetworkSpec:
    """Look up a network.

    Args:
        name: key in `NETWORKS`, such as "nano"; or "timm:NAME" for a network of timm that ends in a feature map, under
            a GDConv head.

    Raises:
        BadRecipe: there is no such network; the message lists the names.
    """
    if name.startswith(TIMM):
        return _timm_spec(name.removeprefix(TIMM))
    if name not in NETWORKS:
        raise BadRecipe(
            f"unknown network {name!r}; choose one of {', '.join(NETWORKS)}, or {TIMM}NAME for a network of timm"
        )
    return NETWORKS[name]


def _timm_spec(name: str) -> NetworkSpec:
    if not timm.is_model(name):
        similar = difflib.get_close_matches(name, timm.list_models(), 5, cutoff=0.5)
        raise BadRecipe(f"timm has no network {name!r}" + (f"; similar: {', '.join(similar)}" if similar else ""))
    published = timm.get_pretrained_cfg(name)
    input_px = DEFAULT_TIMM_PX if published is None else published.input_size[-1]
    return NetworkSpec(
        summary=f"{name} of timm, GDConv head", trunk=_backbone(name), **{**PET_EMBEDDER, "input_px": input_px}
    )


def _feature_map_shape(trunk: Callable[[], nn.Module], size_px: int) -> tuple[int, int]:
    """Return channels and side of a trunk's map, from shapes alone; BadRecipe if the crop is too small for a map."""
    with torch.device("meta"):
        meta_trunk = trunk()
        try:
            _, channels, side, _ = forward_dummy(meta_trunk, size_px).shape
        except RuntimeError as error:
            raise BadRecipe(f"input.size_px={size_px} is too small for this network; set a larger one") from error
        except AssertionError as error:  # by which timm checks the size
            raise BadRecipe(f"input.size_px={size_px} is no size for this network: {error}") from error
    return channels, side
