"""Recipes: one function per published way of training; each returns a complete `Recipe`."""

from collections.abc import Callable

from familiar.core.errors import BadRecipe
from familiar.recipes.circle import (
    circle_efficientnet,
    circle_efficientnet_pretrained,
    circle_simple,
    circle_simple_v2,
)
from familiar.recipes.digits import digits_arcface, digits_normface, digits_softmax
from familiar.recipes.facenet import facenet_nn1, facenet_nn2, facenet_small
from familiar.recipes.harmonic import compatible, harmonic_256
from familiar.recipes.people import person_mobile, person_nano
from familiar.recipes.pet import pet_lite, pet_lite_nano, pet_mobile, pet_nano, quickstart
from familiar.training.recipe import Recipe

RECIPES: dict[str, Callable[[], Recipe]] = {
    "pet-mobile": pet_mobile,
    "pet-lite": pet_lite,
    "pet-nano": pet_nano,
    "pet-lite-nano": pet_lite_nano,
    "person-mobile": person_mobile,
    "person-nano": person_nano,
    "quickstart": quickstart,
    "facenet-nn1": facenet_nn1,
    "facenet-nn2": facenet_nn2,
    "facenet-small": facenet_small,
    "circle-simple": circle_simple,
    "circle-simple-v2": circle_simple_v2,
    "circle-efficientnet": circle_efficientnet,
    "circle-efficientnet-pretrained": circle_efficientnet_pretrained,
    "digits-softmax": digits_softmax,
    "digits-normface": digits_normface,
    "digits-arcface": digits_arcface,
    "harmonic-256": harmonic_256,
    "compatible": compatible,
}
__all__ = ["RECIPES", "recipe_named", *(make.__name__ for make in RECIPES.values())]


def recipe_named(name: str) -> Recipe:
    """Return a recipe.

    Args:
        name: one of `RECIPES`; `familiar recipes` describes them.

    Raises:
        BadRecipe: there is none of that name; lists all names.

    >>> recipe_named("pet-nano").with_settings(["budget.epochs=40"]).budget.epochs
    40
    """
    if name not in RECIPES:
        raise BadRecipe(f"no recipe is called {name!r}; choose one of {', '.join(RECIPES)}")
    return RECIPES[name]()
