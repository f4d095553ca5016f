import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from familiar.core.errors import ParityFailed
from familiar.core.vectors import normalize
from familiar.export.onnx import onnx_bytes
from familiar.export.parity import TOLERANCES, embed_with_export, embed_with_source, require_parity
from familiar.export.precision import PRECISIONS

MAX_DIFFERENCE, MIN_COSINE = TOLERANCES["float32"]


def unit_rows(n=5, d=8, seed=0):
    return normalize(np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32))


def turned(rows, angle_rad):
    """Rotate each row by an angle in a random plane."""
    other = np.random.default_rng(1000).normal(size=rows.shape)
    other -= (other * rows).sum(1, keepdims=True) * rows
    other /= np.linalg.norm(other, axis=1, keepdims=True)
    return (np.cos(angle_rad) * rows + np.sin(angle_rad) * other).astype(np.float32)


def test_equal_embeddings_pass():
    parity = require_parity(unit_rows(), unit_rows())
    assert parity.crops == 5
    assert parity.max_difference == 0.0
    assert parity.min_cosine == pytest.approx(1.0, abs=1e-6)


@given(st.floats(0, 2e-4), st.integers(0, 99))
def test_figures_match_reference(angle_rad, seed):
    source = unit_rows(seed=seed)
    exported = turned(source, angle_rad)
    differences = [abs(float(a) - float(b)) for a, b in zip(source.flat, exported.flat, strict=True)]
    cosines = [float(a.astype(float) @ b.astype(float)) for a, b in zip(source, exported, strict=True)]
    if max(differences) > MAX_DIFFERENCE:
        with pytest.raises(ParityFailed):
            require_parity(source, exported)
        return
    parity = require_parity(source, exported)
    assert parity.max_difference == pytest.approx(max(differences), abs=1e-7)
    assert parity.min_cosine == pytest.approx(min(cosines), abs=1e-9)
    assert parity.mean_cosine == pytest.approx(sum(cosines) / 5, abs=1e-9)


def test_rejects_one_component_beyond_limit():
    exported = unit_rows()
    exported[3, 2] += 2 * MAX_DIFFERENCE
    with pytest.raises(ParityFailed, match=r"by 2\.00e-04 .* on 5 crops; nothing was written"):
        require_parity(unit_rows(), exported)


@pytest.mark.parametrize(("beyond", "passes"), [(0, True), (2, True), (3, False)])
def test_one_crop_in_a_thousand_may_exceed_limit(beyond, passes):
    """Like an embedding with a norm near 0 before scaling; the bound of its cosine is that of the others."""
    exported = unit_rows(2000, 2)
    exported[:beyond] = turned(exported[:beyond], 2e-4)
    if passes:
        assert require_parity(unit_rows(2000, 2), exported).crops == 2000
    else:
        with pytest.raises(ParityFailed, match=r"by [12]\.\d\de-04"):
            require_parity(unit_rows(2000, 2), exported)
    exported[0] = turned(exported[:1], 0.1)[0]
    with pytest.raises(ParityFailed):
        require_parity(unit_rows(2000, 2), exported)


def test_rejects_many_small_differences():
    """Each component is within the allowed difference, but together they change the direction."""
    rows = np.full((2, 10_000), 0.01, np.float32)
    signs = np.where(np.arange(10_000) % 2, 1, -1) * 0.9 * MAX_DIFFERENCE
    exported = (rows + signs).astype(np.float32)
    exported /= np.linalg.norm(exported, axis=1, keepdims=True)
    assert np.abs(rows - exported).max() <= MAX_DIFFERENCE
    assert (rows[0] @ exported[0]) < MIN_COSINE
    with pytest.raises(ParityFailed):
        require_parity(rows, exported)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rejects_non_finite_embeddings(bad, precision):
    exported = unit_rows()
    exported[0, 0] = bad
    with pytest.raises(ParityFailed):
        require_parity(unit_rows(), exported, precision)
    with pytest.raises(ParityFailed):
        require_parity(exported, exported, precision)


@pytest.mark.parametrize("precision", ["int8-weights", "mixed", "int8"])
def test_8_bit_parity_requires_only_unit_length(precision):
    """The gate checks the loss; but no embedding may be all zeros, as a small one can be in coarse steps."""
    for factor in (0, 0.99, 1.01):
        exported = unit_rows()
        exported[2] *= factor
        with pytest.raises(ParityFailed, match="nothing was written"):
            require_parity(unit_rows(), exported, precision)
    parity = require_parity(unit_rows(), -unit_rows(), precision)
    assert [parity.min_cosine, parity.mean_cosine] == pytest.approx([-1, -1])
    assert require_parity(np.eye(4, dtype=np.float32), -np.eye(4, dtype=np.float32), precision).max_difference == 2


class Flat(nn.Module):
    """A linear layer that returns wrong results in training mode."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3 * 4 * 4, 5)

    def forward(self, images):
        return nn.functional.normalize(self.linear(images.flatten(1))) + 9.0 * self.training


@pytest.mark.exhaustive
def test_source_and_export_embed_same_crops_in_order():
    network = Flat()
    model = onnx_bytes(network, 4)
    batches = [torch.randn(n, 3, 4, 4) for n in (3, 1, 2)]
    source, exported = embed_with_source(network.train(), batches), embed_with_export(model, batches)
    with torch.no_grad():
        expected = network.eval()(torch.cat(batches)).numpy()
    np.testing.assert_allclose(source, expected, atol=1e-6)
    np.testing.assert_allclose(exported, expected, atol=1e-5)
    assert require_parity(source, exported).crops == 6
    with torch.no_grad():
        network.linear.weight[0, 0] += 0.5
    source = embed_with_source(network, batches)
    with pytest.raises(ParityFailed):
        require_parity(source, exported)
