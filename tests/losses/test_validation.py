"""Every public loss refuses wrong shapes, dtypes and values, instead of computing something."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from familiar import losses
from familiar.losses.validation import NotFiniteError

# Users do not have the checker of shapes that other tests run with.
pytestmark = pytest.mark.usefixtures("unchecked_signatures")

DIM, CLASSES = 4, 3
LABELS = torch.tensor([0, 0, 1, 1, 2, 2])


def rows(count: int = 6, width: int = DIM) -> Tensor:
    return normalize(torch.randn(count, width, generator=torch.Generator().manual_seed(0)), dim=1)


BATCH_LOSSES: dict[str, Callable[[], Callable[..., Any]]] = {
    "ArcFace": lambda: losses.ArcFace(DIM, CLASSES),
    "CosFace": lambda: losses.CosFace(DIM, CLASSES),
    "NormFace": lambda: losses.NormFace(DIM, CLASSES),
    "CombinedMargin": lambda: losses.CombinedMargin(DIM, CLASSES),
    "SubCenterArcFace": lambda: losses.SubCenterArcFace(DIM, CLASSES),
    "Softmax": lambda: losses.Softmax(DIM, CLASSES),
    "PartialFC": lambda: losses.PartialFC(DIM, CLASSES, rate=0.5),
    "CenterLoss": lambda: losses.CenterLoss(DIM, CLASSES),
    "BatchAll": losses.BatchAll,
    "BatchHard": losses.BatchHard,
    "HardNegative": losses.HardNegative,
    "SemiHard": losses.SemiHard,
    "SemiHard hardest": lambda: losses.SemiHard(select="hardest"),
    "Contrastive": losses.Contrastive,
    "CirclePairs": losses.CirclePairs,
    **{
        f"CircleTriplets {name}": lambda name=name: losses.CircleTriplets(mining=name)
        for name in ("batch_all", "semi_hard", "batch_hard", "hard_negative")
    },
    "HarmonicLoss": lambda: losses.HarmonicLoss(losses.BatchAll(), (2, 4), (0.5, 0.5)),
    "HarmonicLoss of a classifier": lambda: losses.HarmonicLoss(losses.ArcFace(DIM, CLASSES), (2, 4), (0.5, 0.5)),
    "CompatibleLoss": lambda: lambda x, y: losses.CompatibleLoss(losses.BatchAll())(x, y, rows(), LABELS),
    "CompatibleLoss of old": lambda: lambda x, y: losses.CompatibleLoss(losses.BatchAll())(rows(), LABELS, x, y),
    "AcrossRanks": lambda: losses.AcrossRanks(losses.BatchAll()),
    "arcface_logits": lambda: lambda x, y: losses.arcface_logits(x, y, 0.4, 32.0),
    **{
        name: lambda name=name: getattr(losses, name)
        for name in (
            *("active_fraction", "gather_batch"),
            *("mine_batch_all", "mine_batch_hard", "mine_hard_negative", "mine_semi_hard"),
        )
    },
}
# Their margins are distances between unit vectors.
UNIT_LOSSES = {
    *("BatchAll", "BatchHard", "HardNegative", "SemiHard", "SemiHard hardest", "Contrastive", "CirclePairs"),
    *(name for name in BATCH_LOSSES if name.startswith("CircleTriplets")),
    *("AcrossRanks", "active_fraction", "CompatibleLoss", "CompatibleLoss of old"),
}
ROW_LOSSES = {"triplet_loss": 3, "circle_loss": 3, "distillation_loss": 2, "relation_loss": 2, "unit_prefix": 1}
OTHERS = {"Triplets", "TripletLoss", "CosineClassifier", "circle_from_similarities"}


def test_every_public_loss_is_checked():
    assert {name.split()[0] for name in BATCH_LOSSES} | ROW_LOSSES.keys() | OTHERS == set(losses.__all__)


@pytest.mark.parametrize("name", BATCH_LOSSES)
@pytest.mark.parametrize(
    ("embeddings", "labels", "message"),
    [
        (rows(), LABELS[:5], r"5 labels for 6 \w+; pass one label per embedding"),
        (rows(), LABELS[:1], r"1 labels for 6 \w+; pass one label per embedding"),
        (rows(), LABELS[:0], r"0 labels for 6 \w+; pass one label per embedding"),
        (rows(5), LABELS, r"6 labels for 5 \w+; pass one label per embedding"),
        (rows(), LABELS[:, None], r"labels must be int64 of one axis, one per row, got int64 \(6, 1\)"),
        (rows(), torch.tensor(1), r"labels must be int64 of one axis, one per row, got int64 \(\)"),
        (rows(), LABELS.float(), r"labels must be int64 of one axis, one per row, got float32 \(6,\)"),
        (rows(), LABELS.tolist(), r"labels must be int64 of one axis, one per row, got a list; pass a tensor"),
        (rows(), LABELS.numpy(), r"labels must be int64 of one axis, one per row, got a ndarray; pass a tensor"),
        (rows().tolist(), LABELS, r"rows of floats are needed, one per photo; got \w+ of a list; pass a tensor"),
        (rows(), LABELS > 0, r"labels must be int64 of one axis, one per row, got bool \(6,\)"),
        (rows()[:, 0], LABELS, r"rows of floats are needed, one per photo; got \w+ of float32 \(6,\)"),
        (rows()[None], LABELS[:1], r"rows of floats are needed, one per photo; got \w+ of float32 \(1, 6, 4\)"),
        (rows().long(), LABELS, r"rows of floats are needed, one per photo; got \w+ of int64 \(6, 4\)"),
    ],
    ids=str,
)
def test_rejects_wrong_shapes_and_dtypes(name: str, embeddings: Tensor, labels: Tensor, message: str):
    with pytest.raises(ValueError, match=message):
        BATCH_LOSSES[name]()(embeddings, labels)


@pytest.mark.parametrize("name", BATCH_LOSSES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_rejects_values_that_are_not_finite(name: str, value: float, dtype: torch.dtype):
    embeddings = rows().to(dtype)
    embeddings[3, 1] = value
    with pytest.raises(NotFiniteError, match=r"\w+ have 1 values that are NaN or infinite; the first is in row 3"):
        BATCH_LOSSES[name]()(embeddings, LABELS)


@pytest.mark.parametrize("name", BATCH_LOSSES)
def test_takes_finite_batches_whatever_their_sum(name: str):
    loss = BATCH_LOSSES[name]()
    loss(rows(), LABELS)
    if name not in UNIT_LOSSES and not name.startswith(("Center", "Softmax", "arcface")):
        loss(torch.full((6, DIM), 3e38), LABELS)  # whose sum is infinite


@pytest.mark.parametrize("name", BATCH_LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_losses_of_distances_refuse_rows_that_are_not_of_unit_length(name: str, dtype: torch.dtype):
    loss, embeddings = BATCH_LOSSES[name](), rows().to(dtype)
    loss(embeddings, LABELS)
    loss(torch.cat([embeddings[:5], embeddings[5:] * 0]), LABELS)  # a row without a direction stays as it is
    embeddings[4] *= 2
    if name in UNIT_LOSSES:
        with pytest.raises(ValueError, match=r"embeddings must be rows of unit length, but row 4 has length [12]"):
            loss(embeddings, LABELS)
    else:
        loss(embeddings, LABELS)


@pytest.mark.parametrize(("name", "count"), ROW_LOSSES.items())
def test_rejects_rows_that_do_not_belong_together(name: str, count: int):
    call = getattr(losses, name) if name != "unit_prefix" else lambda each: losses.unit_prefix(each, 2)
    call(*[rows()] * count)
    for wrong in (rows()[:, 0], rows().long()):
        with pytest.raises(ValueError, match="rows of floats are needed"):
            call(*[rows()] * (count - 1), wrong)
    if count > 1:
        with pytest.raises(ValueError, match=r"the same number of them, one per photo; got .* \(6, 4\).* \(1, 4\)"):
            call(*[rows()] * (count - 1), rows(1))
    for index in range(count):
        arguments = [rows() for _ in range(count)]
        arguments[index][2, 0] = float("nan")
        with pytest.raises(NotFiniteError, match="the first is in row 2"):
            call(*arguments)


@pytest.mark.parametrize("loss", [losses.circle_loss, losses.triplet_loss])
@pytest.mark.parametrize("index", range(3))
def test_losses_of_listed_triplets_refuse_rows_that_are_not_unit(loss: Callable[..., Tensor], index: int):
    arguments = [rows() for _ in range(3)]
    loss(*[each.bfloat16() for each in arguments])
    arguments[index][4] *= 2
    with pytest.raises(ValueError, match=r"s must be rows of unit length, but row 4 has length 2; pass torch\.nn\."):
        loss(*arguments)


def test_circle_from_similarities_rejects_other_shapes_and_nan():
    settings = (1.0, 1.0, 0.75, 0.25, 64.0)
    losses.circle_from_similarities(torch.zeros(3), torch.zeros(3), *settings)
    for wrong in (torch.zeros(2), torch.zeros(3, 1), torch.zeros(3, dtype=torch.int64)):
        with pytest.raises(ValueError, match="one of each for each triplet"):
            losses.circle_from_similarities(torch.zeros(3), wrong, *settings)
    with pytest.raises(NotFiniteError, match="s_n have 1 values"):
        losses.circle_from_similarities(torch.zeros(3), torch.tensor([0.0, float("nan"), 0.0]), *settings)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_center_loss_never_takes_what_is_not_finite(value: float):
    loss = losses.CenterLoss(DIM, CLASSES)
    embeddings = rows()
    embeddings[3] = value
    with pytest.raises(NotFiniteError):
        loss(embeddings, LABELS)
    loss._move(embeddings - loss.centers[LABELS], LABELS)  # as on a GPU
    assert loss.centers.isfinite().all()
    with pytest.raises(ValueError, match="embeddings have 3 components, but the centers 4"):
        loss(rows(width=3), LABELS)


def test_rejects_more_anchors_than_rows():
    for name, make in BATCH_LOSSES.items():
        if "anchors" in inspect.signature(make().__call__).parameters:
            with pytest.raises(ValueError, match="anchors is 7"):
                make()(rows(), LABELS, anchors=7)
            assert name in UNIT_LOSSES
