import pytest

from familiar.loading.augment.settings import CIRCLE_AUGMENTATION
from familiar.models.catalog import network_spec
from familiar.models.sizes import measure
from familiar.recipes.circle import (
    circle_efficientnet,
    circle_efficientnet_pretrained,
    circle_simple,
    circle_simple_v2,
)
from familiar.training.network import build_network
from familiar.training.schedule import decaying_rate


@pytest.mark.parametrize("make", [circle_simple, circle_simple_v2, circle_efficientnet, circle_efficientnet_pretrained])
def test_settings_match_published_coursework(make):
    """FACTS 3."""
    recipe = make()
    loss, optimizer = recipe.loss, recipe.optimizer
    assert (loss.name, loss.mining, loss.detach_weights) == ("circle_triplets", "batch_hard", False)
    epochs = range(0, 60, 5)
    assert [loss.margin.value_at(epoch, 100) for epoch in epochs] == pytest.approx(
        [min(1, 0.2 + 0.02 * (epoch // 5)) for epoch in epochs]
    )
    assert [loss.gamma.value_at(epoch, 100) for epoch in epochs] == [64 * (1 + 0.5 * (epoch // 5)) for epoch in epochs]
    assert (recipe.sampler.identities, recipe.sampler.photos, recipe.batches_by_identity) == (32, 5, True)
    assert (optimizer.name, optimizer.lr, optimizer.embedding_l2) == ("adam", 1e-3, 1e-4)
    decay = optimizer.decay_from * recipe.budget.epochs, optimizer.decay_to * recipe.budget.epochs
    assert decay == pytest.approx((10, 30))
    assert decaying_rate(optimizer.lr, optimizer.final_lr, 0, decay, 20) == pytest.approx(1e-3 * 0.001**0.5)
    assert (recipe.budget.patience, recipe.budget.seconds) == (10, 5400)
    assert (recipe.validation.every_epochs, recipe.validation.best_by) == (1, "recall_at_1")
    assert recipe.augmentation == CIRCLE_AUGMENTATION
    assert (recipe.input.size_px, recipe.input.resize, recipe.input.resize_px) == (112, "center_crop", 128)
    assert recipe.input.crops_whole_in_training
    assert recipe.model.embedding_dim == 128


@pytest.mark.slow
def test_networks_match_published_coursework():
    assert measure(build_network(circle_simple()), 112).trainable == 2_193_952
    trunk = build_network(circle_simple_v2()).trunk
    assert trunk.channels == 32 * 2**5, "six blocks"
    assert circle_efficientnet().model.name == "efficientnet_b0_rebuilt"
    pretrained = circle_efficientnet_pretrained().model
    assert pretrained.initial_weights == "imagenet"
    assert network_spec(pretrained.name).frozen_trunk
