"""The network a recipe starts from: built, given its initial weights, and the input they were made for."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from familiar.core.errors import BadRecipe
from familiar.loading.batches import PhotoBatches
from familiar.loading.dataset import FaceDataset, in_order
from familiar.models.catalog import network_spec
from familiar.models.network import EmbeddingNetwork
from familiar.models.weights import (
    has_folded_batch_norm,
    has_fresh_batch_norm,
    holds_whole_network,
    load_network_file,
    load_published_weights,
    load_weights_file,
    reinflate_batch_norm,
    settle_batch_norm,
)
from familiar.training.recipe import Normalization, Recipe
from familiar.training.run import RunFolder

log = logging.getLogger(__name__)

STATISTICS_PHOTOS = 512  # gives each channel's mean and variance to a few per cent


def build_network(recipe: Recipe) -> EmbeddingNetwork:
    """The recipe's network with random weights."""
    model = recipe.model
    return network_spec(model.name).build(recipe.input.size_px, model.embedding_dim, model.dropout, **model.options)


def initial_network(recipe: Recipe) -> tuple[EmbeddingNetwork, Recipe]:
    """The network with its initial weights, and the recipe with the normalization they need settled."""
    network = build_network(recipe)
    weights = recipe.model.initial_weights
    needed: Normalization = "imagenet"
    if weights == "imagenet":
        load_published_weights(network.trunk)
    elif weights != "none":
        file = RunFolder(Path(weights)).embedder if Path(weights).is_dir() else Path(weights)
        if holds_whole_network(file):
            load_network_file(network, file)
            return network, _normalized_as_its_run(recipe, file)
        load_weights_file(network.trunk, file)
        # Only Keras's MobileNetV3 is met with its batch norms folded, and Keras trains on [-1, 1].
        needed = "symmetric" if has_folded_batch_norm(network.trunk) else "imagenet"
    return network, _with_normalization(recipe, needed)


def settled_as(recipe: Recipe, earlier: Recipe) -> Recipe:
    """The recipe with whatever it leaves to the initial weights as a run begun earlier settled it."""
    return _with_normalization(recipe, earlier.input.normalization)


def make_trainable(network: EmbeddingNetwork, photos: FaceDataset) -> None:
    """Give batch norms that need them the statistics of some of the photos: folded ones, and frozen random ones.

    Any other network is left as it is.
    """
    folded = has_folded_batch_norm(network.trunk)
    random = network.frozen_trunk and has_fresh_batch_norm(network.trunk)
    if not folded and not random:
        return
    plain = FaceDataset(photos.table, photos.crops)
    rows = np.random.default_rng(photos.seed).permutation(len(plain))[:STATISTICS_PHOTOS]
    batches = PhotoBatches(plain, in_order(rows.tolist(), 64), torch.device("cpu"))
    images = (batch.images for batch in batches)
    if folded:
        reinflate_batch_norm(network.trunk, images)
    else:
        log.warning("the trunk is frozen with random weights: only the head will learn (model.initial_weights=none)")
        settle_batch_norm(network.trunk, images)


def _normalized_as_its_run(recipe: Recipe, file: Path) -> Recipe:
    """BadRecipe where neither the recipe nor the folder of the file says how the photos were normalized."""
    if recipe.input.normalization != "auto":
        return recipe
    run = RunFolder(file.parent)
    if not run.recipe_json.exists():
        raise BadRecipe(
            f"{file}: no {run.recipe_json.name} beside it says how its photos were normalized; set "
            "input.normalization to imagenet or symmetric, as it was trained"
        )
    return settled_as(recipe, run.recipe())


def _with_normalization(recipe: Recipe, needed: Normalization) -> Recipe:
    if recipe.input.normalization != "auto":
        return recipe
    return replace(recipe, input=replace(recipe.input, normalization=needed))
