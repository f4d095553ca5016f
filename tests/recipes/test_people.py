import pytest
import torch

from familiar.core.errors import BadRecipe
from familiar.detection.detectors import DETECTORS
from familiar.export.precision import PRECISIONS
from familiar.models.catalog import network_spec
from familiar.recipes.people import person_mobile, person_nano
from familiar.training.distillation import check_teachers


@pytest.mark.parametrize("make", [person_nano, person_mobile])
def test_learns_from_a_teacher_at_112_px(make):
    recipe = make()
    assert (recipe.input.size_px, recipe.model.embedding_dim) == (112, 128)
    assert recipe.distill.weight > 0
    assert recipe.distill.relation_weight > 0
    assert recipe.distill.blends >= 1
    assert not recipe.batches_by_identity
    with pytest.raises(BadRecipe, match=r"person-\w+ learns from another network: name its bundle with --teacher"):
        check_teachers(recipe)


@pytest.mark.parametrize("make", [person_nano, person_mobile])
def test_finds_faces_with_the_plain_installation(make):
    detector = make().input.detector
    assert not DETECTORS[detector].needs_model_file
    with pytest.raises(BadRecipe, match="detector: 'yolo' is none of"):
        make().with_settings(["input.detector=yolo"])


@pytest.mark.parametrize(("make", "most_bytes"), [(person_nano, 308_000), (person_mobile, 4_000_000)])
def test_one_byte_per_weight_fits(make, most_bytes):
    recipe = make()
    assert "int8-weights" in PRECISIONS
    with torch.device("meta"):
        network = network_spec(recipe.model.name).build(112, 128, 0.0)
    assert sum(weight.numel() for weight in network.parameters()) < most_bytes
