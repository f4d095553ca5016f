import re

import pytest
import torch
from torch.nn.functional import interpolate, normalize

from familiar.core.errors import BadRecipe
from familiar.export.onnx import onnx_bytes
from familiar.export.parity import embed_with_export, embed_with_source, require_parity
from familiar.models.views import View
from familiar.training.network import build_network
from familiar.training.recipe import Recipe

SMALL = Recipe(name="small").with_settings(
    [
        "model.name=mobilenetv3_small_050",
        "model.embedding_dim=8",
        "input.size_px=64",
        "model.initial_weights=none",
        "model.dropout=0",
    ]
)


@pytest.mark.parametrize(
    ("text", "view"),
    [
        ("1@224", View(1, 224)),
        ("0.8@160m", View(0.8, 160, mirrored=True)),
        (" .75@96 ", View(0.75, 96)),
    ],
)
def test_text_of_a_view(text, view):
    assert View.parse(text) == view


@pytest.mark.parametrize("text", ["224", "1@", "1.5@224", "2@224", "-0.5@224", "0.0@224", "1@8", "1@5000", "1@224x"])
def test_no_view(text):
    with pytest.raises(ValueError, match=r"a view"):
        View.parse(text)
    with pytest.raises(BadRecipe, match=r"a view"):
        SMALL.with_settings([f"input.views={text}"])


def test_view_is_the_middle_of_the_crop():
    image = torch.arange(2 * 3 * 10 * 10.0).reshape(2, 3, 10, 10)
    padded = torch.nn.functional.pad(image, (5, 5, 5, 5), value=-99.0)
    assert torch.equal(View(0.5, 16).apply(padded), interpolate(image, (16, 16), mode="bilinear"))
    assert torch.equal(View(1, 20).apply(padded), padded), "nothing is resampled"
    assert torch.equal(View(1, 20, mirrored=True).apply(padded), padded.flip(3))


@torch.no_grad()
def test_embedding_is_the_mean_of_the_views():
    torch.manual_seed(0)
    recipe = SMALL.with_settings(["model.head=average_bias", "input.views=1@64,1@48m,0.7@64"])
    network, plain = (
        build_network(recipe).eval(),
        build_network(SMALL.with_settings(["model.head=average_bias"])).eval(),
    )
    plain.load_state_dict(network.state_dict())
    images = torch.randn(3, 3, 64, 64)
    smaller = interpolate(images, (48, 48), mode="bilinear").flip(3)
    middle = interpolate(images[..., 9:54, 9:54], (64, 64), mode="bilinear")  # .7 of 64 is 45
    expected = normalize(plain(images) + plain(smaller) + plain(middle))
    torch.testing.assert_close(network(images), expected)
    network.train()
    plain.train()
    torch.testing.assert_close(network(images), plain(images), msg="training looks at whole crops")


def test_head_with_a_weight_per_position_needs_views_of_one_size():
    build_network(SMALL.with_settings(["input.views=1@64,0.8@64m"]))
    message = "input.views: this head takes the map of one size of photos only; use views of 64 px, such as 0.8@64"
    with pytest.raises(BadRecipe, match=re.escape(message)):
        build_network(SMALL.with_settings(["input.views=1@64,1@48"]))


@pytest.mark.slow
@pytest.mark.exhaustive
def test_export_stores_weights_once_for_all_views():
    torch.manual_seed(0)
    settings = ["model.head=average_bias", "input.views=1@64,1@48m,0.7@64"]
    plain, three = (build_network(SMALL.with_settings(settings[:count])).eval() for count in (1, 2))
    batches = [torch.randn(3, 3, 64, 64), torch.ones(1, 3, 64, 64)]
    model = onnx_bytes(three, 64)
    assert require_parity(embed_with_source(three, batches), embed_with_export(model, batches)).crops == 4
    assert len(model) < 1.2 * len(onnx_bytes(plain, 64))
