"""Losses on a GPU: the values and gradients of the CPU."""

import copy
import math

import pytest
import torch
from torch.nn.functional import normalize

from familiar.losses import (
    ArcFace,
    BatchAll,
    BatchHard,
    CenterLoss,
    CirclePairs,
    CircleTriplets,
    CombinedMargin,
    CompatibleLoss,
    Contrastive,
    CosFace,
    HardNegative,
    HarmonicLoss,
    NormFace,
    PartialFC,
    SemiHard,
    Softmax,
    SubCenterArcFace,
    distillation_loss,
    relation_loss,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

DIM, IDENTITIES, ROWS = 32, 25, 300
BATCH_LOSSES = [
    *(BatchAll(), SemiHard(), BatchHard(), HardNegative(), Contrastive(), CirclePairs(), CircleTriplets()),
    HarmonicLoss(BatchAll(), (8, 16, 32)),
    HarmonicLoss(SemiHard(), (8, 16, 32), mined_on="full"),
]
CLASSIFIERS = [Softmax, NormFace, ArcFace, CosFace, CombinedMargin, SubCenterArcFace, CenterLoss]


def batch(dtype=torch.float32):
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(ROWS) % IDENTITIES
    centers = torch.randn(IDENTITIES, DIM, generator=generator)
    noise = torch.randn(ROWS, DIM, generator=generator)
    return normalize(centers[labels] + 1.2 * noise).to(dtype), labels


def value_and_gradient(loss, embeddings, *rest):
    leaf = embeddings.clone().requires_grad_()
    value = loss(leaf, *rest)
    value.backward()
    return value.detach().cpu(), leaf.grad.cpu()


def assert_same_on_gpu(loss_cpu, loss_gpu, *batch_cpu):
    value, gradient = value_and_gradient(loss_cpu, *batch_cpu)
    gpu_value, gpu_gradient = value_and_gradient(loss_gpu, *(tensor.cuda() for tensor in batch_cpu))
    assert value > 0
    torch.testing.assert_close(gpu_value, value, rtol=1e-5, atol=0)
    assert (gpu_gradient - gradient).norm() < 1e-4 * gradient.norm()


@pytest.mark.parametrize("loss", BATCH_LOSSES, ids=str)
def test_batch_loss_is_that_of_the_cpu(loss):
    assert_same_on_gpu(loss, loss, *batch())


@pytest.mark.parametrize("loss", BATCH_LOSSES, ids=str)
def test_batch_loss_of_half_precision_is_computed_in_float32(loss):
    """As in training: the network computes in bfloat16 under autocast."""
    embeddings, labels = (tensor.cuda() for tensor in batch(torch.bfloat16))
    with torch.autocast("cuda", torch.bfloat16):
        value, gradient = value_and_gradient(loss, embeddings, labels)
    expected, expected_gradient = value_and_gradient(loss, embeddings.float(), labels)
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=0)
    assert (gradient.float() - expected_gradient).norm() < 1e-2 * expected_gradient.norm()


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_classifier_is_that_of_the_cpu(kind):
    torch.manual_seed(5)
    classifier = kind(DIM, IDENTITIES)
    on_gpu = copy.deepcopy(classifier).cuda()
    assert_same_on_gpu(classifier, on_gpu, *batch())
    for name, parameter in classifier.named_parameters():
        gradient = on_gpu.get_parameter(name).grad.cpu()
        assert (gradient - parameter.grad).norm() < 1e-4 * parameter.grad.norm(), name
    for name, buffer in classifier.named_buffers():
        torch.testing.assert_close(on_gpu.get_buffer(name).cpu(), buffer)


def test_partial_fc_of_all_classes_is_that_of_the_cpu():
    torch.manual_seed(5)
    classifier = PartialFC(DIM, IDENTITIES, rate=1.0)
    on_gpu = copy.deepcopy(classifier).cuda()
    assert_same_on_gpu(classifier, on_gpu, *batch())
    torch.testing.assert_close(on_gpu.centers.grad.to_dense().cpu(), classifier.centers.grad.to_dense())


def test_partial_fc_draws_classes_on_the_gpu():
    """Those of the batch, and a share of the others."""
    classes, rate = 1000, 0.1
    classifier = PartialFC(DIM, classes, rate=rate).cuda()
    embeddings, labels = (tensor.cuda() for tensor in batch())
    value_and_gradient(classifier, embeddings, labels)
    drawn = classifier.centers.grad.coalesce().indices().flatten()
    assert len(drawn) == math.ceil(rate * classes)
    assert set(range(IDENTITIES)) < set(drawn.tolist())


def test_distillation_is_that_of_the_cpu():
    embeddings, _ = batch()
    teacher = normalize(embeddings + 0.1 * torch.randn(ROWS, DIM, generator=torch.Generator().manual_seed(4)))
    for loss in (distillation_loss, relation_loss):
        assert_same_on_gpu(loss, loss, embeddings, teacher)


def test_compatible_loss_is_that_of_the_cpu():
    embeddings, labels = batch()
    old = normalize(embeddings[:, :16])
    loss = CompatibleLoss(SemiHard())
    assert_same_on_gpu(loss, loss, embeddings, labels, old)
