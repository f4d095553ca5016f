import math

import pytest
import torch
from torch.nn.functional import normalize

from familiar.models.heads import GDConvHead


def head(channels=6, map_px=3, embedding_dim=5, dropout=0.0, seed=0):
    torch.manual_seed(seed)
    made = GDConvHead(channels, map_px, embedding_dim, dropout)
    torch.nn.init.normal_(made.pool.weight)
    torch.nn.init.uniform_(made.norm.running_var, 0.5, 2.0)
    torch.nn.init.normal_(made.norm.running_mean)
    return made.eval()


@torch.no_grad()
def test_agrees_with_the_slow_reference():
    made = head()
    features = torch.randn(4, 6, 3, 3)
    expected = []
    for photo in features:
        pooled = torch.stack([(photo[c] * made.pool.weight[c, 0]).sum() for c in range(6)])
        projected = made.project.weight[:, :, 0, 0] @ pooled
        normed = (projected - made.norm.running_mean) / (made.norm.running_var + made.norm.eps).sqrt()
        expected.append(normed / normed.norm())
    torch.testing.assert_close(made(features), torch.stack(expected), rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_starts_as_the_global_average():
    made = GDConvHead(6, 7, 5, 0.4).eval()
    features = torch.randn(2, 6, 7, 7)
    torch.testing.assert_close(made.pool(features)[..., 0, 0], features.mean((2, 3)), rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_every_place_of_the_map_has_a_weight_of_its_own():
    made = head()
    features = torch.randn(1, 6, 3, 3)
    assert not torch.allclose(made(features), made(features.flip(3)), atol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("length", [1e-3, 1.0, 1e4])
def test_embeddings_have_unit_length(batch, length):
    embeddings = head()(length * torch.randn(batch, 6, 3, 3))
    assert embeddings.shape == (batch, 5)
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(batch))


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_cannot_overflow_the_norm(dtype):
    made = head(embedding_dim=128).to(dtype)
    made.norm.weight.fill_(300.0)  # squares that sum to some 1e7, where float16 ends at 65504
    embeddings = made(torch.randn(3, 6, 3, 3, dtype=dtype))
    assert embeddings.dtype == torch.float32
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(3))


@torch.no_grad()
def test_under_autocast_the_norm_is_taken_in_float32():
    made = head()
    features = torch.randn(3, 6, 3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        embeddings = made(features)
    assert embeddings.dtype == torch.float32
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(3))
    assert (embeddings * made(features)).sum(1).min() > 0.99


def test_float64_stays_float64_and_its_gradient_is_right():
    made = head(channels=3, map_px=2, embedding_dim=3).double()
    features = torch.randn(2, 3, 2, 2, dtype=torch.float64, requires_grad=True)
    assert made(features).dtype == torch.float64
    assert torch.autograd.gradcheck(made, (features,))


def test_dropout_only_in_training():
    made = head(channels=64, dropout=0.5)
    features = torch.randn(8, 64, 3, 3)
    assert torch.equal(made(features), made(features))
    made.train()
    assert not torch.equal(made(features), made(features))


def test_projection_keeps_the_scale_of_what_it_is_given():
    torch.manual_seed(0)
    made = GDConvHead(1024, 1, 128, 0.0)
    projected = made.project(torch.randn(256, 1024, 1, 1))
    assert projected.std().item() == pytest.approx(1.0, rel=0.05)
    assert made.project.weight.std().item() == pytest.approx(1 / math.sqrt(1024), rel=0.02)


@torch.no_grad()
def test_a_point_without_direction_gives_no_nan():
    made = head()
    made.norm.running_mean.zero_()
    embeddings = made(torch.zeros(2, 6, 3, 3))
    assert torch.equal(embeddings, normalize(torch.zeros(2, 5)))
