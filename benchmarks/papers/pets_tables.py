"""Tables and figures of the pet embedder's reproduction, next to the published results where there are any."""

from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.ticker import PercentFormatter

from familiar.evaluation.plots.chart import LIGHT, TEXT_PT
from familiar.metrics.clustering import ami, ari, nmi
from familiar.models.sizes import NetworkSize, measure
from familiar.training.network import build_network
from papers.bench import Bench, Training
from papers.figures import Results, figure, mean_of, number, paired, table
from papers.plots import legend_above, panels, save

PATHS = {
    "cats23: AUC": ("cats", "verification.auc"),
    "cats23: recall@1": ("cats", "retrieval.recall_at_1"),
    "drawn: AUC": ("drawn", "verification.auc"),
    "drawn: recall@1": ("drawn", "retrieval.recall_at_1"),
}
ALL, NONE = "all eleven", "none"
DEGRADATION_OF_OPERATION = {  # the degradation of the robustness suite that an operation prepares for
    "rotate": "rotation",
    "flip": "flip",
    "jitter": "brightness",
    "blur": "blur",
    "noise": "noise",
    "jpeg": "jpeg",
    "downscale": "downscale",
    "dropout": "occlusion",
}
# Drops of similarity: cats before and after blur and holes were added to the training, dogs after.
PUBLISHED_DROPS = {
    "blur": (0.379, 0.226, 0.202),
    "noise": (0.027, 0.024, 0.020),
    "jpeg": (0.045, 0.049, 0.037),
    "brightness": (0.052, 0.052, 0.054),
    "occlusion": (0.530, 0.439, 0.397),
}
# (our metric, published for cats, published for dogs); None: not published.
PUBLISHED_RESULTS: dict[str, tuple[str, float | None, float | None]] = {
    "verification accuracy, best": ("verification.best_accuracy", 0.9212, 0.9458),
    "the same at the bundle's threshold": ("verification.at_bundle_thresholds.balanced.accuracy", None, None),
    "recall@1": ("retrieval.recall_at_1", 0.7357, 0.7859),
    "recall@5": ("retrieval.recall_at_5", 0.8390, 0.8784),
    "recall@10": ("retrieval.recall_at_10", 0.8722, 0.9061),
    "ROC AUC": ("verification.auc", 0.9672, 0.9874),
    "EER": ("verification.eer", 0.0673, 0.0836),
    "NMI of k-means": ("clustering.kmeans.nmi", 0.906, 0.917),
    "AMI": ("clustering.kmeans.ami", None, None),
    "ARI": ("clustering.kmeans.ari", None, None),
    "triplets violated": ("triplets.violation_rate", 0.0354, 0.0198),
    "recall@1 gained by flip": ("tta.flip.recall_at_1_gain", 0.0036, 0.0038),
    **{
        f"similarity drop, {name}": (f"robustness.corruptions.{name}.similarity_drop", cats, dogs)
        for name, (_, cats, dogs) in PUBLISHED_DROPS.items()
    },
}

ON_DRAWN_PETS = ("recall@1", "ROC AUC", "EER", "NMI of k-means", "AMI")


def backbone_table(bench: Bench, backbones: Mapping[str, Training], pretrained: Training) -> str:
    rows: list[list[str]] = []
    for title, run in _backbones(backbones, pretrained).items():
        size = _size(bench, run)
        size_bytes = bench.results(run, "cats").model.size_bytes
        numbers = [f"{size.trainable:,}", f"{size.flops / 1e6:.1f} M", f"{size_bytes / 1e6:.2f} MB"]
        rows.append([title, *numbers, *_figures(bench, run)])
    return "\n\n".join(
        [
            "### Backbones",
            "At 64 px with the GDConv head, trained from random weights with NormFace at the same learning rate; the "
            "last row is the first network initialized with ImageNet's weights, with learning rates for fine-tuning.",
            table(["", "parameters", "multiply-adds", "one file, float32", *PATHS], rows),
        ]
    )


def head_table(bench: Bench, heads: Mapping[str, Training]) -> str:
    rows = [[f"`{head}`", f"{_size(bench, run).trainable:,}", *_figures(bench, run)] for head, run in heads.items()]
    reference, *others = heads
    differences = [
        [
            f"`{head}`",
            *(
                paired([bench.results(heads[reference], label)], [bench.results(heads[head], label)], path)
                for label, path in PATHS.values()
            ),
        ]
        for head in others
    ]
    return "\n\n".join(
        [
            "### Heads",
            "MobileNetV3-Small from random weights at 112 px, where the feature map has 4 x 4 positions.",
            table(["", "parameters", *PATHS], rows),
            f"Difference from `{reference}` (paired bootstrap); bold if the interval excludes zero:",
            table(["", *PATHS], differences),
        ]
    )


def augmentation_table(bench: Bench, augmentations: Mapping[str, Training], size_px: int) -> str:
    results_by_name = {name: bench.results(run, "cats") for name, run in augmentations.items()}
    paths = {name: path for name, (label, path) in PATHS.items() if label == "cats"}
    drops = [*PUBLISHED_DROPS, "rotation", "downscale"]
    whole = [
        [
            name,
            *(figure(results_by_name[name], path) for path in paths.values()),
            *(_drop(results_by_name[name], degradation) for degradation in drops),
        ]
        for name in (ALL, NONE)
    ]
    rows: list[list[str]] = []
    for name, results in results_by_name.items():
        if name != ALL:
            degradation = DEGRADATION_OF_OPERATION.get(name.removeprefix("without "))
            drop = ["-"] * 3
            if degradation:
                drop = [degradation, _drop(results_by_name[ALL], degradation), _drop(results, degradation)]
            rows.append([name, *(paired([results_by_name[ALL]], [results], path) for path in paths.values()), *drop])
    differences = len(paths) * len(rows)
    return "\n\n".join(
        [
            f"### Augmentation at {size_px} px",
            f"MobileNetV3-Small from ImageNet's weights at {size_px} px, tested on cats23: accuracy, and the "
            "similarity drop by corruption:",
            table(["", *paths, *drops], whole),
            "Difference from all eleven (paired bootstrap; bold if the interval excludes zero), and the similarity "
            "drop by the corruption that the operation prepares for, trained with and without it:",
            table(["", *paths, "corruption", "drop with it", "drop without"], rows),
            f"Of these {differences} differences, {0.05 * differences:.1f} are expected to exclude zero by chance, and "
            "with one seed each they include the variation over trainings. The similarity drops are means over all "
            "photos and much more certain.",
        ]
    )


def full_table(bench: Bench, full: Training) -> str:
    """Compare results on "full-cats" and "full-dogs" with the published ones."""
    results_by_species = [bench.results(full, f"full-{species}") for species in ("cats", "dogs")]
    rows: list[list[str]] = []
    for title in ON_DRAWN_PETS:
        path, *printed = PUBLISHED_RESULTS[title]
        cells = [title]
        for published, results in zip(printed, results_by_species, strict=True):
            cells += [number(published, 4), figure(results, path, 4)]
        rows.append(cells)
    identities = " and ".join(
        f"{results.data.identities:,} drawn {species}"
        for results, species in zip(results_by_species, ("cats", "dogs"), strict=True)
    )
    return "\n\n".join(
        [
            "### Comparison with the published evaluation",
            f"Our values are on {identities}, the published ones on photos of a tenth of 19,957 cats and 22,826 dogs, "
            "so the columns are not directly comparable. The published accuracy is on validation pairs.",
            table(["", "cats: published", "cats: ours", "dogs: published", "dogs: ours"], rows),
            "NMI by chance for small clusters: photos assigned at random to as many clusters as there are "
            f"individuals, each of its true size. 1,996 individuals with two photos: {_by_chance(1996, 2)}.",
        ]
    )


def _by_chance(individuals: int, photos: int) -> str:
    labels = np.repeat(np.arange(individuals), photos)
    groups = np.random.default_rng(0).permutation(labels)
    return f"NMI {number(nmi(labels, groups))}, AMI {number(ami(labels, groups))}, ARI {number(ari(labels, groups))}"


def draw_backbones(bench: Bench, backbones: Mapping[str, Training], pretrained: Training) -> None:
    """Draw the AUC over the bundle's size, on real cats and on drawn pets."""
    figure_, panel_axes = panels(2, 4.2)
    for axes, title in zip(panel_axes, ("cats23: AUC", "drawn: AUC"), strict=True):
        label, path = PATHS[title]
        for index, (name, run) in enumerate(_backbones(backbones, pretrained).items()):
            results = bench.results(run, label)
            value, low, high = mean_of([results], path)
            axes.errorbar(
                results.model.size_bytes / 1e6,
                value,
                yerr=[[value - low], [high - value]],
                fmt="*" if run is pretrained else "osD^v"[index],
                color=LIGHT.ink if run is pretrained else LIGHT.series[index],
                markersize=11 if run is pretrained else 7,
                capsize=3,
                label=name.replace("`", "").replace("**", ""),
            )
        axes.set_xscale("log")
        axes.set_xticks([6, 10, 20, 40], ["6", "10", "20", "40"])
        axes.minorticks_off()
        axes.set_title(title, color=LIGHT.ink, fontsize=TEXT_PT)
        axes.set_xlabel("bundle, MB", color=LIGHT.ink, fontsize=TEXT_PT)
    legend_above(figure_, panel_axes[0], 2)
    save(figure_, bench.pictures / "pets-backbones.png")


def draw_robustness(bench: Bench, augmentations: Mapping[str, Training]) -> None:
    """Draw similarity drops without and with the augmentation, published and ours, as bars side by side."""
    figure_, (axes,) = panels(1, 3.9)
    ours = {
        name: [
            bench.results(augmentations[name], "cats").figures[f"robustness.corruptions.{degradation}.similarity_drop"]
            for degradation in PUBLISHED_DROPS
        ]
        for name in (NONE, ALL)
    }
    series = {
        "published cats, before blur and holes": [PUBLISHED_DROPS[degradation][0] for degradation in PUBLISHED_DROPS],
        "published cats, after": [PUBLISHED_DROPS[degradation][1] for degradation in PUBLISHED_DROPS],
        "ours, no augmentation": [drop.value for drop in ours[NONE]],
        "ours, all eleven": [drop.value for drop in ours[ALL]],
    }
    colors = (LIGHT.series[4], LIGHT.series[0], LIGHT.series[1], LIGHT.series[5])
    for index, ((name, values), color) in enumerate(zip(series.items(), colors, strict=True)):
        positions = [group + (index - 1.5) * 0.2 for group in range(len(values))]
        axes.bar(positions, values, width=0.18, color=color, label=name)
        if index >= 2:
            spans = [drop.interval for drop in ours[(NONE, ALL)[index - 2]]]
            axes.vlines(positions, *zip(*spans, strict=True), color=LIGHT.ink, linewidth=1.4)
    axes.set_xticks(range(len(PUBLISHED_DROPS)), list(PUBLISHED_DROPS))
    axes.set_ylabel("similarity drop", color=LIGHT.ink, fontsize=TEXT_PT)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.grid(axis="x", visible=False)
    legend_above(figure_, axes, 2)
    save(figure_, bench.pictures / "pets-robustness.png")


def _backbones(backbones: Mapping[str, Training], pretrained: Training) -> dict[str, Training]:
    named = {f"`{name}`": run for name, run in backbones.items()}
    return named | {f"`{next(iter(backbones))}`, **pretrained**": pretrained}


def _figures(bench: Bench, run: Training) -> list[str]:
    return [figure(bench.results(run, label), path) for label, path in PATHS.values()]


def _drop(results: Results, degradation: str) -> str:
    return figure(results, f"robustness.corruptions.{degradation}.similarity_drop")


def _size(bench: Bench, run: Training) -> NetworkSize:
    """Measure the network as it was trained, on the meta device, which computes nothing."""
    recipe = bench.run(run).recipe()
    with torch.device("meta"):
        return measure(build_network(recipe), recipe.input.size_px)
