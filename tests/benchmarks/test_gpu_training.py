"""What the trainings on a GPU share, compared with the package's own figures and rounding."""

import numpy as np
import pytest
import torch
from gpu_training.images import FACES, STRONG, change, plain
from gpu_training.packs import labels_of, read_pack, write_pack
from gpu_training.steps import (
    draw_batches,
    in_4_bits,
    relation_loss,
    round_while_training,
    rounded,
    scores,
    soup,
)
from torch import nn
from torch.nn.functional import normalize

from familiar.export.gptq import row_scales

IDENTITIES, PHOTOS_EACH = 12, 4


@pytest.fixture
def embeddings() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(IDENTITIES, 1, 8, generator=generator)
    return normalize((centers + torch.randn(IDENTITIES, PHOTOS_EACH, 8, generator=generator)).flatten(0, 1))


def test_figures_are_those_of_all_pairs_and_nearest_photos(embeddings):
    labels = np.arange(IDENTITIES).repeat(PHOTOS_EACH)
    similarities = (embeddings @ embeddings.T).numpy()
    left, right = np.triu_indices(len(labels), 1)
    same, values = labels[left] == labels[right], similarities[left, right]
    auc, recall = scores(embeddings, labels)
    np.fill_diagonal(similarities, -1)
    assert auc == pytest.approx((values[same][:, None] > values[~same]).mean())
    assert recall == pytest.approx((labels[similarities.argmax(1)] == labels).mean())


def test_relation_loss_is_nothing_for_the_teachers_own_vectors_and_has_the_right_gradient(embeddings):
    other = embeddings.roll(1, 0)
    itself = relation_loss(embeddings, embeddings)
    assert itself.item() == pytest.approx(0, abs=1e-5)
    assert relation_loss(embeddings, other) > 0.1
    few = embeddings[:6].double().requires_grad_(requires_grad=True)
    assert torch.autograd.gradcheck(lambda each: relation_loss(normalize(each), other[:6].double()), few)


def test_a_soup_is_the_mean_of_all_weights():
    networks = [nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)) for _ in range(3)]
    mean = soup(networks)
    expected = torch.stack([network[0].weight for network in networks]).mean(0)
    torch.testing.assert_close(mean[0].weight, expected)
    assert soup(networks, [0, 1, 0])[0].weight.equal(networks[1][0].weight)


def test_weights_that_are_rounded_while_training_are_those_that_4_bits_can_hold():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(16, 8, 1), nn.Conv2d(8, 8, 3))
    images = torch.randn(2, 16, 6, 6)
    before = network(images)
    round_while_training(network)
    while_training = network(images)
    assert not torch.allclose(before, while_training)
    while_training.square().sum().backward()
    assert network[0].weight.grad.abs().sum() > 0
    finished = rounded(network)
    torch.testing.assert_close(finished(images), while_training)
    weight = finished[0].weight.detach().flatten(1)
    assert max(len(row.unique()) for row in weight) <= 15
    assert finished[1].weight.equal(network[1].weight)  # a kernel of 3 x 3 has 8 bits
    # The export finds the same 15 multiples, so that nothing is lost when it rounds.
    scales = torch.from_numpy(row_scales(weight.numpy()).astype(np.float32))
    steps = weight / scales
    assert (steps - steps.round()).abs().max() < 0.01
    assert in_4_bits(torch.zeros(2, 4)).equal(torch.zeros(2, 4))


def test_changed_photos_keep_their_size_and_range():
    photos = torch.randint(0, 256, (8, 32, 32, 3), dtype=torch.uint8)
    for changes in (STRONG, FACES):
        changed = change(photos, changes, 24)
        assert changed.shape == (8, 3, 24, 24)
        assert changed.abs().max() <= 1
    assert plain(photos)[0, :, 5, 7].tolist() == pytest.approx((photos[0, 5, 7].float() / 127.5 - 1).tolist())


def test_a_pack_returns_its_photos(tmp_path):
    rng = np.random.default_rng(0)
    photos = [np.full((16, 16, 3), color, np.uint8) for color in rng.integers(0, 256, (5, 3))]
    names = ["a/x/1.jpg", "a/x/2.jpg", "a/y/1.jpg", "b/x/1.jpg", "a/x/3.jpg"]
    assert write_pack(tmp_path / "pack.npz", zip(names, photos, strict=True), 95) == 5
    read, pixels = read_pack(tmp_path / "pack.npz", 16)
    assert read == names
    assert np.abs(pixels.astype(int) - np.stack(photos)).max() <= 6
    assert read_pack(tmp_path / "pack.npz", 8)[1].shape == (5, 8, 8, 3)
    assert labels_of(names).tolist() == [0, 0, 1, 2, 0]


def test_batches_contain_each_row_once_an_epoch():
    batches = draw_batches(np.random.default_rng(0), 10, 5)
    first = np.concatenate([next(batches), next(batches)])
    assert sorted(first) == list(range(10))
    assert len(next(draw_batches(np.random.default_rng(0), 3, 5))) == 5
