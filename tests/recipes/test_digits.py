import pytest

from familiar.recipes.digits import digits_arcface, digits_normface, digits_softmax
from familiar.training.network import build_network
from familiar.training.schedule import Schedule


@pytest.mark.parametrize("make", [digits_softmax, digits_normface, digits_arcface])
def test_embeds_five_digits_in_2d_with_expected_parameter_count(make):
    """FACTS 4: 2-D embeddings of MNIST's 0 to 4; the network counted by hand from the essay's layers."""
    recipe = make()
    assert recipe.model.embedding_dim == 2
    assert recipe.split.train == ("0", "1", "2", "3", "4")
    layers = 9 * 32 + 2 * 32 + 9 * 32 * 64 + 2 * 64 + 64 * 7 * 7 * 128 + 2 * 128 + 128 * 2 + 2
    assert sum(parameter.numel() for parameter in build_network(recipe).parameters()) == layers


def test_losses_of_the_three_recipes_match_the_essay():
    softmax, normface, arcface = (make().loss for make in (digits_softmax, digits_normface, digits_arcface))
    assert (softmax.name, softmax.bias, softmax.uses_raw_embeddings) == ("softmax", False, True)
    assert (normface.name, normface.scale) == ("normface", Schedule(16.0))
    assert (arcface.name, arcface.scale, arcface.margin_rad) == ("arcface", Schedule(16.0), Schedule(0.5))
    assert {loss.label_smoothing for loss in (softmax, normface, arcface)} == {Schedule(0.0)}
