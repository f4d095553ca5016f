import pytest
import torch

from familiar.core.errors import BadRecipe
from familiar.export.bias_correction import MIN_KERNEL_TAPS, MIN_MATRIX_COLUMNS
from familiar.models.catalog import network_spec
from familiar.recipes.pet import pet_lite_nano, pet_mobile, pet_nano, quickstart
from familiar.training.distillation import check_teachers
from familiar.training.schedule import Schedule


def test_pet_mobile_settings_match_published_values():
    """FACTS 5."""
    recipe = pet_mobile()
    model, optimizer, loss = recipe.model, recipe.optimizer, recipe.loss
    assert (model.name, model.embedding_dim, model.dropout) == ("mobilenetv3_small_100", 128, 0.4)
    assert model.initial_weights == "imagenet"
    assert (loss.name, loss.branch, recipe.batches_by_identity) == ("arcface", "penalty", False)
    assert (loss.scale, loss.label_smoothing) == (Schedule(32.0), Schedule(0.1))
    margins = [loss.margin_rad.value_at(epoch, recipe.budget.epochs) for epoch in range(40)]
    assert margins[0] == 0.0
    assert margins[13] == pytest.approx(0.39)
    assert margins[14:] == [0.4] * 26
    assert (optimizer.lr, optimizer.backbone_lr, optimizer.weight_decay) == (5e-4, 5e-5, 5e-4)
    assert (optimizer.warmup_epochs, optimizer.final_lr, optimizer.gradient_norm) == (5, 1e-6, 1.0)
    assert (recipe.budget.epochs, recipe.sampler.batch_size) == (40, 96)
    assert (recipe.input.size_px, recipe.input.normalization) == (224, "auto")
    assert (recipe.validation.every_epochs, recipe.validation.pairs) == (3, 5000)
    changes = recipe.augmentation
    assert (changes.rotate_p, changes.rotate_deg, changes.flip_p) == (0.5, 25.0, 0.5)
    assert (changes.affine_p, changes.translate, changes.scale) == (0.3, 0.1, 0.15)
    assert (changes.jitter_p, changes.brightness, changes.contrast) == (0.5, 0.3, 0.3)
    assert (changes.saturation, changes.hue) == (0.3, 0.1)


def test_quickstart_is_small_and_needs_no_initial_weights():
    recipe = quickstart()
    assert recipe.model.initial_weights == "none"
    assert recipe.model.name == "mobilenetv3_small_050"
    assert recipe.input.size_px <= 96


def test_pet_nano_starts_from_imagenet_at_112_px():
    recipe = pet_nano()
    assert (recipe.model.name, recipe.model.embedding_dim, recipe.input.size_px) == ("nano_mobile", 128, 112)
    assert recipe.model.initial_weights == "imagenet"
    assert recipe.loss.name == "arcface"


def test_pet_lite_nano_learns_from_teachers_only():
    recipe = pet_lite_nano()
    assert recipe.split.min_photos == 1, "photos without labels are one per folder"
    assert (recipe.distill.label_weight, recipe.distill.weight) == (0, 0)
    assert recipe.distill.relation_weight > 0
    with pytest.raises(BadRecipe, match="pet-lite-nano learns from another network: name its bundle with --teacher"):
        check_teachers(recipe)


def test_pet_lite_nano_fits_in_4_bits():
    model = pet_lite_nano().model
    with torch.device("meta"):
        network = network_spec(model.name).build(224, model.embedding_dim, 0.0, head=model.head)
    weights = list(network.parameters())
    halved = sum(weight.numel() for weight in weights if weight.ndim == 4 and has_4_bits(weight.shape))
    assert sum(weight.numel() for weight in weights) - halved / 2 < 270_000


def has_4_bits(shape):
    """Tell whether `int4-weights` stores weights of this shape in 4 bits."""
    _, inputs, height, width = shape
    return inputs >= MIN_MATRIX_COLUMNS if height == width == 1 else height * width >= MIN_KERNEL_TAPS
