"""The mobile pet embedder: backbones, heads, augmentation, drawn pets."""

from papers.bench import Bench, Evaluation, Training
from papers.pets_tables import (
    augmentation_table,
    backbone_table,
    draw_backbones,
    draw_robustness,
    full_table,
    head_table,
)
from papers.shared import ANIMALS, CATS, GENTLE, HEADLINES, NO_LEAKS, PRETRAINED, at_px, for_epochs

TITLE = "The mobile pet embedder"
DRAWN = ("synthetic:cats:200x5", "synthetic:dogs:200x5")
PETS = (*ANIMALS, *DRAWN)
FEW = ("--max-photos", "25")
BUDGET = (
    "split.test=0",
    "split.min_photos=2",
    "optimizer.warmup_epochs=1",
    "loss.label_smoothing=0",
    *for_epochs(4),
)
# In so few epochs ArcFace learns next to nothing from random weights; NormFace with a low scale does.
FROM_RANDOM = (
    "model.initial_weights=none",
    "model.dropout=0",
    "loss.name=normface",
    "loss.scale=16",
    "optimizer.lr=3e-3",
    "optimizer.backbone_lr=3e-3",
)
FINE_TUNED = ("optimizer.lr=1e-3", "optimizer.backbone_lr=2e-4")
FROM_IMAGENET = (
    *PRETRAINED,
    *FINE_TUNED,
    "model.dropout=0.2",
    "loss.margin_rad=0 to 0.3 over 0.334",
)
AT_64, AT_112, AT_224 = at_px(64), at_px(112), at_px(224)


def pets(name: str, *settings: str, data: tuple[str, ...] = PETS) -> Training:
    return Training(f"pets/{name}", "pet-mobile", data, (*BUDGET, *settings), FEW)


BACKBONES = {
    name: pets(f"backbone-{name}", *FROM_RANDOM, *GENTLE, *AT_64, f"model.name={name}")
    for name in (
        "mobilenetv3_small_100",
        "mobilenetv3_large_100",
        "efficientnet_b0",
        "resnet18",
        "shufflenet_v2",
    )
}
PRETRAINED_BACKBONE = pets("backbone-pretrained", *FROM_RANDOM, *PRETRAINED, *FINE_TUNED, *GENTLE, *AT_64)
HEADS = {
    head: pets(f"head-{head}", *FROM_RANDOM, *GENTLE, *AT_112, f"model.head={head}")
    for head in ("gdconv", "average", "average_mlp", "flatten")
}
OPERATIONS = (
    "rotate",
    "flip",
    "affine",
    "jitter",
    "gray",
    "blur",
    "noise",
    "jpeg",
    "downscale",
    "shadow",
    "dropout",
)


def augmented(name: str, *settings: str, size: tuple[str, str] = AT_64) -> Training:
    return pets(f"augmentation-{name}", *FROM_IMAGENET, *size, *for_epochs(5), *settings, data=ANIMALS)


AUGMENTATIONS = {
    "all eleven": augmented("all", "augmentation=pet"),
    "none": augmented("none", "augmentation=none"),
    **{
        f"without {operation}": augmented(f"without-{operation}", "augmentation=pet", f"augmentation.{operation}_p=0")
        for operation in OPERATIONS
    },
}
# At the published size only the operations with a published effect: five minutes each on one core.
AUGMENTATIONS_AT_224 = {
    "all eleven": augmented("224-all", "augmentation=pet", size=AT_224),
    "none": augmented("224-none", "augmentation=none", size=AT_224),
    **{
        f"without {operation}": augmented(
            f"224-without-{operation}", "augmentation=pet", f"augmentation.{operation}_p=0", size=AT_224
        )
        for operation in ("blur", "dropout")
    },
}
DRAWN_TEST = Evaluation(
    "drawn",
    ("synthetic:cats:200x5:seed=99",),
    (*HEADLINES, *NO_LEAKS),
)
DRAWN_EACH = {"cats": "synthetic:cats:600x6", "dogs": "synthetic:dogs:600x6"}
FULL = pets(
    "full",
    *FROM_IMAGENET,
    *AT_112,
    "augmentation=pet",
    *for_epochs(3),
    data=(*ANIMALS, *DRAWN_EACH.values()),
)
FULL_DRAWN = [
    Evaluation(f"full-{species}", (f"synthetic:{species}:5000x2:seed=98",), ("--leaks", "skip"))
    for species in DRAWN_EACH
]
ROBUST_CATS = Evaluation(
    "cats",
    CATS.data,
    (*CATS.options, "--suite", "robustness"),
)


def measure(bench: Bench) -> str:
    bench.train([*BACKBONES.values(), PRETRAINED_BACKBONE, *HEADS.values()], (CATS, DRAWN_TEST))
    bench.train([*AUGMENTATIONS.values(), *AUGMENTATIONS_AT_224.values()], (ROBUST_CATS,))
    bench.train([FULL], [*FULL_DRAWN, CATS])
    draw_backbones(bench, BACKBONES, PRETRAINED_BACKBONE)
    draw_robustness(bench, AUGMENTATIONS)
    return "\n\n".join(
        [
            "One seed each; 95 % intervals over the test identities: the cats of cats23 and drawn pets, none of "
            "which was trained on.",
            backbone_table(bench, BACKBONES, PRETRAINED_BACKBONE),
            head_table(bench, HEADS),
            augmentation_table(bench, AUGMENTATIONS, 64),
            augmentation_table(bench, AUGMENTATIONS_AT_224, 224),
            full_table(bench, FULL),
        ]
    )
