"""What the pet embedder's row measures, part by part, each beside the seed's (004) own claim where it makes one."""

from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.ticker import PercentFormatter

from familiar.evaluation.plots.chart import LIGHT, TEXT_PT
from familiar.metrics.clustering import ami, ari, nmi
from familiar.models.sizes import NetworkSize, measure
from familiar.training.network import build_network
from papers.bench import Bench, Training
from papers.figures import Estimate, Results, difference_of, figure, mean_of, number, paired, table
from papers.plots import key_above, panels, save, whiskers

PATHS = {
    "cats23: AUC": ("cats", "verification.auc"),
    "cats23: recall@1": ("cats", "retrieval.recall_at_1"),
    "drawn: AUC": ("drawn", "verification.auc"),
    "drawn: recall@1": ("drawn", "retrieval.recall_at_1"),
}
ALL, NONE = "all eleven", "none"
OWN_DEGRADATION = {  # of an operation: what the robustness suite does that it prepares for
    "rotate": "rotation",
    "flip": "flip",
    "jitter": "brightness",
    "blur": "blur",
    "noise": "noise",
    "jpeg": "jpeg",
    "downscale": "downscale",
    "dropout": "occlusion",
}
SEED_DROPS = {  # of similarity; the seed's cats before and after it blurred and covered photos in training, dogs after
    "blur": (0.379, 0.226, 0.202),
    "noise": (0.027, 0.024, 0.020),
    "jpeg": (0.045, 0.049, 0.037),
    "brightness": (0.052, 0.052, 0.054),
    "occlusion": (0.530, 0.439, 0.397),
}
# Its cats and dogs; None where it prints none.
SEED_PRINTED: dict[str, tuple[str, float | None, float | None]] = {
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
        for name, (_, cats, dogs) in SEED_DROPS.items()
    },
}


def backbone_table(bench: Bench, backbones: Mapping[str, Training], pretrained: Training) -> str:
    rows: list[list[str]] = []
    for title, run in _backbones(backbones, pretrained).items():
        size = _size(bench, run)
        size_bytes = bench.results(run, "cats")["model"]["size_bytes"]
        numbers = [f"{size.trainable:,}", f"{size.flops / 1e6:.1f} M", f"{size_bytes / 1e6:.2f} MB"]
        rows.append([title, *numbers, *_figures(bench, run)])
    return "\n\n".join(
        [
            "### Backbones",
            "At 64 px under the GDConv head, from random weights, by NormFace and with one learning rate; the last row "
            "is the first network begun with ImageNet's weights, at rates for those.",
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
            "MobileNetV3-Small from random weights at 112 px, where the map has 4 x 4 places.",
            table(["", "parameters", *PATHS], rows),
            f"Less `{reference}`, on the same draws of identities; bold where the interval leaves out zero:",
            table(["", *PATHS], differences),
        ]
    )


def augmentation_table(bench: Bench, augmentations: Mapping[str, Training]) -> str:
    found = {name: bench.results(run, "cats") for name, run in augmentations.items()}
    paths = {name: path for name, (label, path) in PATHS.items() if label == "cats"}
    drops = [*SEED_DROPS, "rotation", "downscale"]
    whole = [
        [
            name,
            *(figure(found[name], path) for path in paths.values()),
            *(_drop(found[name], one) for one in drops),
        ]
        for name in (ALL, NONE)
    ]
    rows: list[list[str]] = []
    for name, of in found.items():
        if name != ALL:
            own = OWN_DEGRADATION.get(name.removeprefix("without "))
            drop = [own, _drop(found[ALL], own), _drop(of, own)] if own else ["-"] * 3
            rows.append([name, *(paired([found[ALL]], [of], path) for path in paths.values()), *drop])
    differences = len(paths) * len(rows)
    return "\n\n".join(
        [
            "### Augmentation",
            "MobileNetV3-Small from ImageNet's weights at 64 px, judged on cats23; by how much similarity drops:",
            table(["", *paths, *drops], whole),
            "Less all eleven, on the same draws of identities, bold where the interval leaves out zero; and the drop "
            "of similarity by the degradation that the operation prepares for, trained with it and without it:",
            table(["", *paths, "degradation", "drop with it", "drop without"], rows),
            f"Of these {differences} differences {0.05 * differences:.1f} would leave out zero by chance alone, and "
            "with one seed each what the training's own draws do is in them too. The drops are means over all photos "
            "and much surer.",
        ]
    )


def tta_table(bench: Bench, augmentations: Mapping[str, Training]) -> str:
    gains = [f"tta.{way}.{gain}" for way in ("flip", "five_crops") for gain in ("recall_at_1_gain", "auc_gain")]
    rows = [
        [name, *(figure(bench.results(augmentations[name], "cats"), gain) for gain in gains)]
        for name in (ALL, "without flip", NONE)
    ]
    head = ["trained with", "flip: recall@1", "flip: AUC", "five crops: recall@1", "five crops: AUC"]
    return "\n\n".join(
        [
            "### Test-time augmentation",
            "What averaging gains on cats23. The seed's, by flip: .0036 and .0005 (cats), .0038 and .0014 (dogs).",
            table(head, rows),
        ]
    )


def joint_table(bench: Bench, species: Mapping[str, Training]) -> str:
    """`species`: "joint", "cats" and "dogs", judged on "drawn-cats" and "drawn-dogs"."""
    rows: list[list[str]] = []
    for judged in ("cats", "dogs"):
        found = {name: bench.results(run, f"drawn-{judged}") for name, run in species.items()}
        for name, of in found.items():
            cells = [f"drawn {judged}", name]
            for path in ("verification.auc", "retrieval.recall_at_1"):
                cells += [figure(of, path), "-" if name == "joint" else paired([found["joint"]], [of], path)]
            rows.append(cells)
    return "\n\n".join(
        [
            "### One model, or one a species",
            "MobileNetV3-Small from random weights at 64 px on drawn pets, as many photos shown to each network.",
            table(["judged on", "trained on", "AUC", "less joint", "recall@1", "less joint"], rows),
        ]
    )


def full_table(bench: Bench, full: Training) -> str:
    """`full` judged with all suites, on "full-cats" and "full-dogs"."""
    found = [bench.results(full, f"full-{species}") for species in ("cats", "dogs")]
    rows: list[list[str]] = []
    for title, (path, *printed) in SEED_PRINTED.items():
        cells = [title]
        for its, of in zip(printed, found, strict=True):
            cells += [number(its, 4), figure(of, path, 4) if of.get(path.split(".")[0]) else "-"]
        rows.append(cells)
    size = f"{found[0]['model']['size_bytes'] / 1000:,.0f} KB"
    rows.append(["one file that runs", "308 KB: without its weights", size, "308 KB: without its weights", size])
    identities = " and ".join(f"{of['data']['identities']:,}" for of in found)
    return "\n\n".join(
        [
            "### The seed's evaluation",
            f"Ours on {identities} drawn identities, the seed's on photos of a tenth of 19,957 and 22,826: the columns "
            "stand beside each other, not against each other. Its accuracy is of validation pairs.",
            table(["", "cats: seed", "cats: ours", "dogs: seed", "dogs: ours"], rows),
            "What NMI is worth where groups are small: photos dealt at random into as many groups as there are "
            f"individuals, each of its true size. 1,996 individuals of two photos: {_by_chance(1996, 2)}; of four: "
            f"{_by_chance(1996, 4)}; 5,000 of two: {_by_chance(5000, 2)}.",
        ]
    )


def _by_chance(individuals: int, photos: int) -> str:
    labels = np.repeat(np.arange(individuals), photos)
    groups = np.random.default_rng(0).permutation(labels)
    return f"NMI {number(nmi(labels, groups))}, AMI {number(ami(labels, groups))}, ARI {number(ari(labels, groups))}"


def draw_backbones(bench: Bench, backbones: Mapping[str, Training], pretrained: Training) -> None:
    """AUC over the bundle's size, on real cats and on drawn pets."""
    figure_, every = panels(2, 4.2)
    for axes, title in zip(every, ("cats23: AUC", "drawn: AUC"), strict=True):
        label, path = PATHS[title]
        for place, (name, run) in enumerate(_backbones(backbones, pretrained).items()):
            found = bench.results(run, label)
            value, low, high = mean_of([found], path)
            axes.errorbar(
                found["model"]["size_bytes"] / 1e6,
                value,
                yerr=[[value - low], [high - value]],
                fmt="*" if run is pretrained else "osD^v"[place],
                color=LIGHT.ink if run is pretrained else LIGHT.series[place],
                markersize=11 if run is pretrained else 7,
                capsize=3,
                label=name.replace("`", "").replace("**", ""),
            )
        axes.set_xscale("log")
        axes.set_xticks([6, 10, 20, 40], ["6", "10", "20", "40"])
        axes.minorticks_off()
        axes.set_title(title, color=LIGHT.ink, fontsize=TEXT_PT)
        axes.set_xlabel("bundle, MB", color=LIGHT.ink, fontsize=TEXT_PT)
    key_above(figure_, every[0], 2)
    save(figure_, bench.pictures / "pets-backbones.png")


def draw_augmentations(bench: Bench, augmentations: Mapping[str, Training]) -> None:
    found = {name: bench.results(run, "cats") for name, run in augmentations.items()}
    columns: dict[str, dict[str, Estimate]] = {
        f"{name}, less all eleven": {
            one: difference_of([found[ALL]], [of], path) for one, of in found.items() if one != ALL
        }
        for name, (label, path) in PATHS.items()
        if label == "cats"
    }
    whiskers(bench.pictures / "pets-augmentation.png", columns, zero=True)


def draw_robustness(bench: Bench, augmentations: Mapping[str, Training]) -> None:
    """Similarity drops, without the augmentation and with it: the seed's cats (bars side by side) and ours."""
    figure_, (axes,) = panels(1, 3.9)
    ours = {name: bench.results(augmentations[name], "cats")["robustness"]["corruptions"] for name in (NONE, ALL)}
    series = {
        "seed's cats, less augmented": [SEED_DROPS[one][0] for one in SEED_DROPS],
        "seed's cats, more": [SEED_DROPS[one][1] for one in SEED_DROPS],
        "ours, no augmentation": [ours[NONE][one]["similarity_drop"] for one in SEED_DROPS],
        "ours, all eleven": [ours[ALL][one]["similarity_drop"] for one in SEED_DROPS],
    }
    colors = (LIGHT.series[4], LIGHT.series[0], LIGHT.series[1], LIGHT.series[5])
    for place, ((name, values), color) in enumerate(zip(series.items(), colors, strict=True)):
        at = [group + (place - 1.5) * 0.2 for group in range(len(values))]
        axes.bar(at, values, width=0.18, color=color, label=name)
        if place >= 2:
            spans = [ours[(NONE, ALL)[place - 2]][one]["interval"]["similarity_drop"] for one in SEED_DROPS]
            axes.vlines(at, *zip(*spans, strict=True), color=LIGHT.ink, linewidth=1.4)
    axes.set_xticks(range(len(SEED_DROPS)), list(SEED_DROPS))
    axes.set_ylabel("similarity drop", color=LIGHT.ink, fontsize=TEXT_PT)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.grid(axis="x", visible=False)
    key_above(figure_, axes, 2)
    save(figure_, bench.pictures / "pets-robustness.png")


def _backbones(backbones: Mapping[str, Training], pretrained: Training) -> dict[str, Training]:
    named = {f"`{name}`": run for name, run in backbones.items()}
    return named | {f"`{next(iter(backbones))}`, **pretrained**": pretrained}


def _figures(bench: Bench, run: Training) -> list[str]:
    return [figure(bench.results(run, label), path) for label, path in PATHS.values()]


def _drop(found: Results, degradation: str) -> str:
    return figure(found, f"robustness.corruptions.{degradation}.similarity_drop")


def _size(bench: Bench, run: Training) -> NetworkSize:
    """As it was trained. On the meta device nothing is computed."""
    recipe = bench.run(run).recipe()
    with torch.device("meta"):
        return measure(build_network(recipe), recipe.input.size_px)
