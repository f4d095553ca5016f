"""Two records of a run's history: without and with validation."""

from familiar.training.history import EpochRecord

FIRST = EpochRecord(
    epoch=1,
    loss=3.5,
    lr=5e-4,
    backbone_lr=5e-5,
    margin=0.1,
    gamma=None,
    active_triplets=None,
    gradient_norm=2.0,
    photos_per_second=120.0,
    seconds=1.5,
)
SECOND = EpochRecord(
    epoch=2,
    loss=0.1 + 0.2,
    lr=4e-4,
    backbone_lr=4e-5,
    margin=0.2,
    gamma=64.0,
    active_triplets=0.5,
    gradient_norm=1.0,
    validation_accuracy=0.75,
    validation_auc=0.8,
    validation_recall_at_1=None,
    validation_loss=0.45,
    stranger_similarity=0.1,
    photos_per_second=130.0,
    seconds=1.4,
)
