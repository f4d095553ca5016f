"""The network a recipe starts from: its layers, its initial weights, and the normalization these weights need."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from timm.data.constants import IMAGENET_INCEPTION_MEAN
from torch import Tensor, nn
from torch.nn.functional import normalize

from familiar.core.errors import BadRecipe, BadWeights
from familiar.loading.batches import PhotoBatches
from familiar.loading.dataset import FaceDataset, sequential_batches
from familiar.models.backbones import BackboneTrunk, JoinedTimmTrunk
from familiar.models.catalog import network_spec
from familiar.models.network import EmbeddingNetwork, eval_mode
from familiar.models.views import View
from familiar.models.weights import (
    has_folded_batch_norm,
    has_untrained_batch_norm,
    initialize_batch_norm,
    is_network_file,
    load_network_file,
    load_published_weights,
    load_weights_file,
    reinflate_batch_norm,
)
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder
from familiar.training.settings import Normalization

log = logging.getLogger(__name__)

PROJECTION_PHOTOS = 4096
STATISTICS_PHOTOS = 512  # enough for each channel's mean and variance to within a few per cent


def build_network(recipe: Recipe) -> EmbeddingNetwork:
    """Build the recipe's network with random weights."""
    model = recipe.model
    network = network_spec(model.name).build(recipe.input.size_px, model.embedding_dim, model.dropout, **model.options)
    network.views = _views(recipe, network)
    if model.frozen_stages:
        network.freeze_stages(model.frozen_stages)
    if model.frozen_statistics:
        network.freeze_statistics()
    return network


def _views(recipe: Recipe, network: EmbeddingNetwork) -> tuple[View, ...]:
    views = tuple(map(View.parse, recipe.input.views))
    if not getattr(network.head, "takes_any_map", False) and any(
        view.size_px != recipe.input.size_px for view in views
    ):
        raise BadRecipe(
            f"input.views: this head takes the map of one size of photos only; use views of {recipe.input.size_px} px, "
            "such as 0.8@" + f"{recipe.input.size_px}, or a head that averages over positions, such as average"
        )
    return views


def initial_network(recipe: Recipe) -> tuple[EmbeddingNetwork, Recipe]:
    """Build the network with its initial weights.

    Returns:
        The network, and the recipe with the normalization that these weights need in place of "auto".

    Raises:
        BadWeights: the weights are missing, damaged or of another network.
        BadRecipe: the normalization that a weights file needs is unknown.
    """
    network = build_network(recipe)
    weights = recipe.model.initial_weights
    if weights == "imagenet":
        load_published_weights(network.trunk)
    elif weights != "none":
        file = _weights_file(weights)
        if is_network_file(file):
            load_network_file(network, file)
            return network, _with_normalization_of_run(recipe, file)
        _load_trunk(network.trunk, file)
    return network, with_normalization(recipe, _published_normalization(network.trunk))


def _weights_file(weights: str) -> Path:
    """Return the file of initial weights that a file or a run's folder stands for."""
    return RunFolder(Path(weights)).embedder if Path(weights).is_dir() else Path(weights)


def _load_trunk(trunk: nn.Module, file: Path) -> None:
    """Load a trunk from a file; one that joins several networks, from a file for each, separated by commas."""
    if not isinstance(trunk, JoinedTimmTrunk):
        load_weights_file(trunk, file)
        return
    files = str(file).split(",")
    if len(files) != len(trunk.names):
        raise BadWeights(
            f"model.initial_weights={file}: name the files of {trunk.name}, in this order, with a comma between them"
        )
    for backbone, name in zip(trunk.backbone, files, strict=True):
        load_weights_file(backbone, Path(name))


def initial_run(recipe: Recipe) -> RunFolder | None:
    """Return the run that the initial weights are from; None if they are published ones, or random."""
    weights = recipe.model.initial_weights
    if weights in ("none", "imagenet"):
        return None
    run = RunFolder(_weights_file(weights).parent)
    return run if run.data_json.exists() and run.recipe_json.exists() else None


def estimate_batch_norm_statistics(network: EmbeddingNetwork, photos: FaceDataset) -> None:
    """Give batch norms without useful statistics those of some of the photos.

    These are batch norms that were folded into their convolutions, and random ones in a frozen trunk. Any other
    network is left unchanged.
    """
    folded = has_folded_batch_norm(network.trunk)
    random = network.frozen_trunk and has_untrained_batch_norm(network.trunk)
    if not folded and not random:
        return
    images = _sample_images(photos, STATISTICS_PHOTOS)
    if folded:
        reinflate_batch_norm(network.trunk, images)
    else:
        log.warning("the trunk is frozen with random weights: only the head will learn (model.initial_weights=none)")
        initialize_batch_norm(network.trunk, images)


@torch.no_grad()
def initialize_projection(network: EmbeddingNetwork, photos: FaceDataset) -> None:
    """Give the layer that makes the embedding the principal directions of its inputs on some of the photos.

    The inputs are scaled to unit length and not centered, so that the embedding's cosines are those of the inputs as
    nearly as its length allows.

    Raises:
        BadRecipe: the embedding is longer than the layer's inputs, or there are fewer photos than its components.
    """
    projection = getattr(network.head, "project", None)
    if projection is None:
        raise BadRecipe("model.projection=pca: this head has no layer to initialize; set model.projection=random")
    weight = projection.get_parameter("weight")
    inputs: list[Tensor] = []
    hook = projection.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0].flatten(1)))
    with eval_mode(network):
        for images in _sample_images(photos, PROJECTION_PHOTOS):
            network(images)
    hook.remove()
    directions = torch.linalg.svd(normalize(torch.cat(inputs)).double(), full_matrices=False).Vh
    if len(directions) < len(weight):
        raise BadRecipe(
            f"model.projection=pca: these photos and this network allow {len(directions)} components at most; "
            f"lower model.embedding_dim from {len(weight)}, or set model.projection=random"
        )
    weight.copy_(directions[: len(weight)].reshape(weight.shape))
    if getattr(projection, "bias", None) is not None:
        nn.init.zeros_(projection.get_parameter("bias"))


def _sample_images(photos: FaceDataset, count: int) -> Iterator[Float[Tensor, "_ 3 s s"]]:
    """Yield batches of some of the photos, without augmentation."""
    unaugmented = FaceDataset(photos.table, photos.crops)
    rows = np.random.default_rng(photos.seed).permutation(len(unaugmented))[:count]
    batches = PhotoBatches(unaugmented, sequential_batches(rows.tolist(), 64), torch.device("cpu"))
    return (batch.images for batch in batches)


def _published_normalization(trunk: nn.Module) -> Normalization:
    """Return how photos are normalized for a trunk's ImageNet weights; "imagenet" if there are none."""
    # The only published weights with folded batch norms are Keras's MobileNetV3, and Keras trains on [-1, 1].
    folded = has_folded_batch_norm(trunk)
    centered = isinstance(trunk, BackboneTrunk) and trunk.pixel_mean == IMAGENET_INCEPTION_MEAN
    return "symmetric" if folded or centered else "imagenet"


def _with_normalization_of_run(recipe: Recipe, file: Path) -> Recipe:
    """Return the recipe with the normalization of the run that a weights file belongs to, in place of "auto".

    Raises:
        BadRecipe: the recipe says "auto" and the file's folder has no recipe.
    """
    if recipe.input.normalization != "auto":
        return recipe
    run = RunFolder(file.parent)
    if not run.recipe_json.exists():
        raise BadRecipe(
            f"{file}: there is no {run.recipe_json.name} in its folder to say how its photos were normalized; set "
            "input.normalization to imagenet or symmetric, as it was trained"
        )
    return with_normalization(recipe, run.recipe().input.normalization)


def with_normalization(recipe: Recipe, needed: Normalization) -> Recipe:
    """Return the recipe with a normalization in place of "auto"."""
    if recipe.input.normalization != "auto":
        return recipe
    return replace(recipe, input=replace(recipe.input, normalization=needed))
