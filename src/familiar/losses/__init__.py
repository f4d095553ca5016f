"""Batch losses, (embeddings, labels) to a scalar, and triplet mining (torch). Independent of photos and networks."""

from familiar.losses.backward_compatible import CompatibleLoss
from familiar.losses.batch_hard import BatchHard
from familiar.losses.blockwise import unit_prefix
from familiar.losses.center import CenterLoss
from familiar.losses.circle import (
    CirclePairs,
    CircleTriplets,
    circle_from_similarities,
    circle_loss,
)
from familiar.losses.classifiers import (
    ArcFace,
    CombinedMargin,
    CosFace,
    CosineClassifier,
    NormFace,
    Softmax,
    SubCenterArcFace,
)
from familiar.losses.contrastive import Contrastive
from familiar.losses.distillation import distillation_loss, relation_loss
from familiar.losses.distributed import AcrossRanks, gather_batch
from familiar.losses.harmonic import HarmonicLoss
from familiar.losses.margin import arcface_logits
from familiar.losses.mining import (
    Triplets,
    mine_batch_all,
    mine_batch_hard,
    mine_hard_negative,
    mine_semi_hard,
)
from familiar.losses.partial_fc import PartialFC
from familiar.losses.triplet import (
    BatchAll,
    HardNegative,
    SemiHard,
    TripletLoss,
    active_fraction,
    triplet_loss,
)

__all__ = [
    "AcrossRanks",
    "ArcFace",
    "BatchAll",
    "BatchHard",
    "CenterLoss",
    "CirclePairs",
    "CircleTriplets",
    "CombinedMargin",
    "CompatibleLoss",
    "Contrastive",
    "CosFace",
    "CosineClassifier",
    "HardNegative",
    "HarmonicLoss",
    "NormFace",
    "PartialFC",
    "SemiHard",
    "Softmax",
    "SubCenterArcFace",
    "TripletLoss",
    "Triplets",
    "active_fraction",
    "arcface_logits",
    "circle_from_similarities",
    "circle_loss",
    "distillation_loss",
    "gather_batch",
    "mine_batch_all",
    "mine_batch_hard",
    "mine_hard_negative",
    "mine_semi_hard",
    "relation_loss",
    "triplet_loss",
    "unit_prefix",
]
