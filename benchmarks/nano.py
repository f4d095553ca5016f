"""Ablation of `nano`, summarized in docs/explanation/nano.md: trains every variant alike, from random weights.

    nano.py PHOTOS RUNS [NAME ...]

PHOTOS contains lfw_112, holstein2025_cows, dogs29_stdove, pandas31_faces and cats23_gpriamo. A variant takes about five
minutes on a core; a run that exists is not trained again. Times are for one photo on one thread, all
variants taking turns, as shares of `mobilenetv3_small_100`'s at 112 px.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import onnxruntime as ort

from familiar.datasets.folders import DataSpec, read_identity_list
from familiar.export.onnx import INPUT_NAME, onnx_bytes
from familiar.export.precision import to_float16
from familiar.export.run_export import export_bundle
from familiar.models.catalog import NETWORKS, NetworkSpec
from familiar.models.nano import NanoConfig, NanoStage, NanoTrunk
from familiar.recipes import recipe_named
from familiar.training.checkpoint import load_weights
from familiar.training.fitting import fit
from familiar.training.network import build_network
from familiar.training.run import RunFolder

ANIMALS = ("holstein2025_cows", "dogs29_stdove", "pandas31_faces")
SETTINGS = (
    *("split.test=0", "split.validation=0.05", "budget.epochs=7", "validation.every_epochs=7"),
    *("model.name=variant", "model.initial_weights=none"),
    *("optimizer.lr=3e-3", "optimizer.backbone_lr=3e-3", "optimizer.weight_decay=5e-3"),
)
REFERENCE = "mobilenetv3_small_100"
SIZE_PX = 112


def make_table(*stages: tuple[int, ...], top: int) -> NanoConfig:
    return NanoConfig(16, tuple(NanoStage(*stage) for stage in stages), top)


def variant(
    table: NanoConfig, activation: str = "relu", head: str = "gdconv", dim: int = 64, squeeze: float = 0.0
) -> NetworkSpec:
    return NetworkSpec("a variant", SIZE_PX, dim, 0.0, partial(NanoTrunk, table, activation, squeeze), head)


BASE = make_table((24, 2, 2, 2), (40, 3, 3, 2), (60, 3, 3, 2), top=192)
LARGER = make_table((24, 2, 2, 2), (40, 3, 3, 2), (68, 3, 3, 2), top=208)
VARIANTS = {
    "base": variant(BASE),
    "base_seed1": variant(BASE),
    "hardswish": variant(BASE, "hardswish"),
    "average": variant(replace(BASE, top=256), head="average"),
    "dim128": variant(replace(BASE, top=136), dim=128),
    "squeeze": variant(make_table((24, 2, 2, 2), (40, 3, 2, 2), (48, 3, 3, 2), top=176), squeeze=0.25),
    "kernel5": variant(make_table((24, 2, 2, 2, 3), (40, 3, 3, 2, 5), (56, 3, 3, 2, 5), top=184)),
    "wide": variant(make_table((24, 2, 1, 2), (52, 3, 2, 2), (80, 3, 2, 2), top=208)),
    "stride32": variant(make_table((16, 2, 1, 2), (24, 3, 2, 2), (40, 3, 3, 2), (72, 2, 3, 2), top=256)),
    "larger": variant(LARGER),
    "larger_hardswish": variant(LARGER, "hardswish"),
    "nano": NETWORKS["nano"],
    "mobilenetv3_small_050": replace(NETWORKS["mobilenetv3_small_050"], input_px=SIZE_PX),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photos", type=Path)
    parser.add_argument("runs", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    names = options.names or list(VARIANTS)
    for name in names:
        train(name, options.photos, options.runs / name)
    shares = times(names)
    print("| | parameters | multiply-adds | float16 model | time | cats: AUC | recall@1 | LFW: AUC | accuracy |")
    for name in names:
        run = RunFolder(options.runs / name)
        NETWORKS["variant"] = VARIANTS[name]
        network = build_network(run.recipe())
        load_weights(run.embedder, network=network)
        size, half = VARIANTS[name].size(), len(to_float16(onnx_bytes(network, SIZE_PX)))
        cats, people = (results(run, photos) for photos in ("cats", "people"))
        print(
            f"| {name} | {size.trainable:,} | {size.flops / 1e6:.1f} M | {half:,} | {shares[name]:.2f} "
            f"| {figure(cats, 'verification.auc')} | {cats['retrieval.recall_at_1']['value']:.3f} "
            f"| {figure(people, 'verification.auc')} | {people['verification.best_accuracy']['value']:.3f} |"
        )


def train(name: str, photos: Path, folder: Path) -> None:
    """Train a variant, export and evaluate it, unless that is done already."""
    if (folder / "people").exists():
        return
    spec = NETWORKS["variant"] = VARIANTS[name]
    seed = 1 if name.endswith("seed1") else 0
    recipe = recipe_named("pet-nano").with_settings(
        [*SETTINGS, f"model.embedding_dim={spec.embedding_dim}", f"seed={seed}"]
    )
    people = photos / "lfw_112"
    listed = tuple(sorted(read_identity_list(people / "peopleDevTrain.txt")))
    sources = (str(people), *(str(photos / animal) for animal in ANIMALS))
    fit(recipe, DataSpec(sources, listed, max_photos=12), folder, workers=0)
    model = export_bundle(folder, folder / "model.onnx").path
    evaluate = [sys.executable, "-m", "familiar", "evaluate", str(model)]
    pairs = ["--pairs", str(people / "pairsDevTest.txt")]
    subprocess.run([*evaluate, str(photos / "cats23_gpriamo"), "--output", str(folder / "cats")], check=True)
    subprocess.run([*evaluate, str(people), *pairs, "--output", str(folder / "people")], check=True)


def results(run: RunFolder, photos: str) -> dict:
    return json.loads((run.path / photos / "eval_results.json").read_text())["figures"]


def figure(figures: dict, path: str) -> str:
    return "{value:.3f} [{low:.3f}, {high:.3f}]".format(**figures[path])


def times(names: list[str], rounds: int = 300) -> dict[str, float]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    networks = {name: VARIANTS[name].build() for name in names} | {"": NETWORKS[REFERENCE].build(SIZE_PX)}
    sessions = {name: ort.InferenceSession(onnx_bytes(network, SIZE_PX), options) for name, network in networks.items()}
    seconds: dict[str, list[float]] = {name: [] for name in sessions}
    black = np.zeros((1, 3, SIZE_PX, SIZE_PX), np.float32)
    for _ in range(rounds):
        for name, session in sessions.items():
            began = time.perf_counter()
            session.run(None, {INPUT_NAME: black})
            seconds[name].append(time.perf_counter() - began)
    return {
        name: median(
            variant_time / reference for variant_time, reference in zip(seconds[name], seconds[""], strict=True)
        )
        for name in names
    }


if __name__ == "__main__":
    main()
