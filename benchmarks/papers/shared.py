"""Data sets, evaluations and settings that several reproductions share."""

from papers.bench import Evaluation

SEEDS = (0, 1, 2)
WEIGHTS = "PHOTOS/weights/mobilenet_v3_small_imagenet_dequant_torchvision_keys.npz"
PRETRAINED = (f"model.initial_weights={WEIGHTS}",)
PEOPLE = ("lfw_112",)
ANIMALS = ("holstein2025_cows", "dogs29_stdove", "pandas31_faces")
DEV_TRAIN = ("--identities", "PHOTOS/lfw_112/peopleDevTrain.txt")

HEADLINES = ("--suite", "verification", "--suite", "retrieval")
# Leaks were searched for once, with all suites: these sets share no individual with the training sets.
NO_LEAKS = ("--leaks", "skip")

# People outside DevTrain; the 1,000 pairs of LFW's View 1.
DEV_TEST = Evaluation(
    "devtest",
    PEOPLE,
    ("--pairs", "PHOTOS/lfw_112/pairsDevTest.txt", "--suite", "verification", *NO_LEAKS),
)
CATS = Evaluation("cats", ("cats23_gpriamo",), (*HEADLINES, *NO_LEAKS))


def at_px(size: int) -> tuple[str, str]:
    return f"input.size_px={size}", f"input.resize_px={size}"


def for_epochs(count: int, validations: int = 1) -> tuple[str, str]:
    return f"budget.epochs={count}", f"validation.every_epochs={count // validations}"


# Translation, flip and jitter as in end_to_end.sh: aligned crops need no more, and their colors say little.
GENTLE = (
    "augmentation=none",
    "augmentation.flip_p=0.5",
    "augmentation.rotate_deg=8",
    "augmentation.rotate_p=0.3",
    "augmentation.affine_p=0.7",
    "augmentation.translate=0.06",
    "augmentation.scale=0.08",
    "augmentation.jitter_p=0.5",
    "augmentation.hue=0.03",
)
# A network with ImageNet's weights at 64 px: about two minutes on one core.
SMALL = (
    *PRETRAINED,
    *GENTLE,
    *at_px(64),
    "model.dropout=0.2",
    "split.test=0",
    "split.min_photos=2",
    "optimizer.lr=1e-3",
    "optimizer.backbone_lr=2e-4",
    "optimizer.warmup_epochs=1",
)
