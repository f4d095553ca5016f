import pytest

from familiar.recipes.facenet import facenet_nn1, facenet_nn2, facenet_small
from familiar.recipes.harmonic import compatible, harmonic_256
from familiar.recipes.pet import pet_mobile
from familiar.training.schedule import Schedule
from familiar.training.settings import NO_CLIPPING


@pytest.mark.parametrize(
    ("make", "network", "size_px"),
    [
        (facenet_nn1, "facenet_nn1", 220),
        (facenet_nn2, "facenet_nn2", 224),
        (facenet_small, "facenet_nns2", 128),
    ],
)
def test_settings_match_published_facenet(make, network, size_px):
    """FACTS 1."""
    recipe = make()
    assert (recipe.model.name, recipe.model.embedding_dim, recipe.model.batch_norm) == (network, 128, "auto")
    assert (recipe.input.size_px, recipe.model.initial_weights) == (size_px, "none")
    loss = recipe.loss
    assert (loss.name, loss.margin, loss.select) == ("semi_hard", Schedule(0.2), "all")
    assert (recipe.mining.mode, recipe.batches_by_identity) == ("online", True)
    assert recipe.sampler.photos == 40
    assert recipe.sampler.identities * recipe.sampler.photos == recipe.sampler.batch_size == 1800
    assert 0 < recipe.sampler.chunk_size < 1800
    optimizer = recipe.optimizer
    assert (optimizer.name, optimizer.lr, optimizer.backbone_lr) == ("adagrad", 0.05, 0.05)
    assert (optimizer.gradient_norm, optimizer.accumulator) == (NO_CLIPPING, 0.1)
    assert optimizer.schedule == "exponential"
    assert (optimizer.decay_from, optimizer.decay_to) == (0.75, 1.0), "lowered at the end"
    assert optimizer.final_lr < 0.05 == optimizer.lr
    assert recipe.with_settings(["mining.mode=offline"]).mining.mode == "offline"


def test_harmonic_256_uses_facenet_small_sampler_and_prefixes():
    """FACTS 2."""
    recipe = harmonic_256()
    assert recipe.model.embedding_dim == 256
    assert recipe.loss.prefixes == (64, 128, 256)
    assert recipe.loss.prefix_weights == (0.2, 0.3, 0.5)
    assert recipe.loss.name == "semi_hard"
    assert recipe.sampler == facenet_small().sampler


def test_compatible_recipe_adds_only_compatible_with_to_pet_loss():
    recipe = compatible()
    assert recipe.loss.compatible_with
    assert recipe.with_settings(["loss.compatible_with="]).loss == pet_mobile().loss
