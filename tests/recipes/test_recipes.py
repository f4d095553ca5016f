import pytest

from familiar.core.errors import BadRecipe
from familiar.models.catalog import NETWORKS
from familiar.recipes import RECIPES, recipe_named
from familiar.training.recipe import Recipe


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_whole_and_called_by_its_name(name):
    recipe = recipe_named(name)
    assert recipe.name == name
    assert Recipe.from_json(recipe.to_json()) == recipe
    assert recipe.model.name in NETWORKS
    assert RECIPES[name].__doc__


def test_an_unknown_recipe_is_told_the_known_ones():
    with pytest.raises(BadRecipe, match=r"'pets'; there are pet-mobile, quickstart"):
        recipe_named("pets")
