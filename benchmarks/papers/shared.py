"""What several rows train and judge on, and the settings they share."""

from papers.bench import Judged

SEEDS = (0, 1, 2)
WEIGHTS = "PHOTOS/weights/mobilenet_v3_small_imagenet_dequant_torchvision_keys.npz"
PRETRAINED = (f"model.initial_weights={WEIGHTS}",)
PEOPLE = ("lfw_112",)
ANIMALS = ("holstein2025_cows", "dogs29_stdove", "pandas31_faces")
DEV_TRAIN = ("--identities", "PHOTOS/lfw_112/peopleDevTrain.txt")

HEADLINES = ("--suite", "verification", "--suite", "retrieval")
# Looked for once, with all suites: these sets share no individual with what is trained on.
NO_LEAKS = ("--leaks", "skip")

# People outside DevTrain; the 1,000 pairs of LFW's View 1.
DEV_TEST = Judged(
    "devtest",
    PEOPLE,
    ("--pairs", "PHOTOS/lfw_112/pairsDevTest.txt", "--suite", "verification", *NO_LEAKS),
)
CATS = Judged("cats", ("cats23_gpriamo",), (*HEADLINES, *NO_LEAKS))


def at_px(size: int) -> tuple[str, str]:
    return f"input.size_px={size}", f"input.resize_px={size}"


def for_epochs(count: int, validations: int = 1) -> tuple[str, str]:
    return f"budget.epochs={count}", f"validation.every_epochs={count // validations}"


# Moved, mirrored and relit, as end_to_end.sh does it: aligned crops need no more, and their colors tell little.
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
# A network from ImageNet's weights at 64 px: some two minutes on a core.
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
