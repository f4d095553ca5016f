"""FaceNet (arXiv 1503.03832): semi-hard triplets mined in large batches, AdaGrad, random initial weights."""

from dataclasses import replace

from familiar.loading.augment.settings import NO_AUGMENTATION
from familiar.training.loss_catalog import loss_named
from familiar.training.recipe import Recipe
from familiar.training.settings import (
    NO_CLIPPING,
    BudgetSettings,
    InputSettings,
    ModelSettings,
    OptimizerSettings,
    SamplerSettings,
    ValidationSettings,
)

# The paper: "The input consists of randomly cropped face images". Mirroring is common since then.
RANDOM_CROPS = replace(NO_AUGMENTATION, crop_p=1.0, crop_scale_min=0.8, flip_p=0.5)
BATCH_OF_1800 = SamplerSettings(identities=45, photos=40, batch_size=1800)


def facenet_nn1() -> Recipe:
    """FaceNet's NN1 as published: 220 px, 140 M parameters. For a large machine."""
    return _facenet("facenet-nn1", "facenet_nn1", 220, chunk_size=60)


def facenet_nn2() -> Recipe:
    """FaceNet's NN2, Inception, as published: 224 px, batches of 1,800 in the memory of 60 photos."""
    return _facenet("facenet-nn2", "facenet_nn2", 224, chunk_size=60)


def facenet_small() -> Recipe:
    """FaceNet's method on NNS2, a network that a CPU can train: 128 px, batches of 1,800."""
    return _facenet("facenet-small", "facenet_nns2", 128, chunk_size=120)


def _facenet(name: str, network: str, size_px: int, chunk_size: int) -> Recipe:
    return Recipe(
        name=name,
        model=ModelSettings(name=network, embedding_dim=128, dropout=0.0, initial_weights="none"),
        input=InputSettings(size_px=size_px, resize_px=size_px, normalization="symmetric"),
        augmentation=RANDOM_CROPS,
        sampler=replace(BATCH_OF_1800, chunk_size=chunk_size),
        loss=loss_named("semi_hard", margin=0.2),
        optimizer=OptimizerSettings(
            name="adagrad",
            lr=0.05,
            backbone_lr=0.05,
            # TensorFlow's default. With torch's initial sums of 0, the first steps would be as long as the learning
            # rate, whatever the gradient.
            accumulator=0.1,
            gradient_norm=NO_CLIPPING,
            weight_decay=0.0,
            warmup_epochs=0,
            schedule="exponential",
            decay_from=0.75,
            final_lr=5e-4,
        ),
        budget=BudgetSettings(epochs=200),
        validation=ValidationSettings(every_epochs=5),
    )
