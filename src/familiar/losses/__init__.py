"""Batch losses, (embeddings, labels) to a scalar, and triplet mining (torch). Independent of photos and networks."""

from familiar.losses.backward_compatible import CompatibleLoss
from familiar.losses.batch_hard import BatchHard, batch_hard_triplet_loss
from familiar.losses.blockwise import unit_prefix
from familiar.losses.center import CenterLoss
from familiar.losses.circle import (
    CirclePairs,
    CircleTriplets,
    circle_from_similarities,
    circle_loss,
    circle_pair_loss,
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
from familiar.losses.contrastive import Contrastive, contrastive_loss
from familiar.losses.distillation import distillation_loss, relation_loss
from familiar.losses.distributed import AcrossRanks, across_ranks, gather_batch
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
    batch_all_triplet_loss,
    hard_negative_triplet_loss,
    semi_hard_triplet_loss,
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
    "across_ranks",
    "active_fraction",
    "arcface_logits",
    "batch_all_triplet_loss",
    "batch_hard_triplet_loss",
    "circle_from_similarities",
    "circle_loss",
    "circle_pair_loss",
    "contrastive_loss",
    "distillation_loss",
    "gather_batch",
    "hard_negative_triplet_loss",
    "mine_batch_all",
    "mine_batch_hard",
    "mine_hard_negative",
    "mine_semi_hard",
    "relation_loss",
    "semi_hard_triplet_loss",
    "triplet_loss",
    "unit_prefix",
]
