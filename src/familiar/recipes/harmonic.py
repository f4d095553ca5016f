"""Harmonic embeddings in both senses: prefixes usable as embeddings, and compatibility with an older network."""

from dataclasses import replace

from familiar.recipes.facenet import facenet_small
from familiar.recipes.pet import pet_mobile
from familiar.training.recipe import Recipe


def harmonic_256() -> Recipe:
    """256-d embeddings whose first 64 and 128 components are embeddings too: semi-hard triplets on NNS2."""
    recipe = facenet_small()
    return replace(
        recipe,
        name="harmonic-256",
        model=replace(recipe.model, embedding_dim=256),
        loss=replace(recipe.loss, prefixes=(64, 128, 256), prefix_weights=(0.2, 0.3, 0.5)),
    )


def compatible() -> Recipe:
    """pet-mobile, comparable with the embeddings of an older bundle: --set loss.compatible_with=OLD.onnx."""
    recipe = pet_mobile()
    return replace(recipe, name="compatible", loss=replace(recipe.loss, compatible_with="OLD.onnx"))
