"""One function per published way of training; each returns a complete Recipe."""

from collections.abc import Callable

from familiar.core.errors import BadRecipe
from familiar.recipes.pet import pet_mobile, quickstart
from familiar.training.recipe import Recipe

RECIPES: dict[str, Callable[[], Recipe]] = {
    "pet-mobile": pet_mobile,
    "quickstart": quickstart,
}


def recipe_named(name: str) -> Recipe:
    """A recipe of the list. BadRecipe names them all."""
    if name not in RECIPES:
        raise BadRecipe(f"no recipe is called {name!r}; there are {', '.join(RECIPES)}")
    return RECIPES[name]()
