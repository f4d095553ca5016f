"""Make `pet-mobile` and `pet-nano` of weights that were trained on a GPU, and judge them on collections they never saw.

    pet_bundles.py PHOTOS WEIGHTS OUTPUT [--only pet-mobile pet-nano] [--before BUNDLES]

PHOTOS contains the collections, WEIGHTS what `gpu_training` trained: `pet-mobile SEED.safetensors`, and
`pet-nano.safetensors`. Everything is kept in OUTPUT, and what is finished is not done again.

All weights are rounded, with photos without labels, before they are judged (`left_out.py`): each seed's, and their
mean, which gets thresholds and means of species (`calibrate_left_out.py`) and is what the package has. No photo that
judges them was trained on: of `dogfacenet900`, those of the kept dogs (`shipped/kept_dogs.txt`).
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from gpu_training.runs import write_run
from gpu_training.steps import mean_state
from left_out import DOGS, trained_dogs
from safetensors.torch import load_file, save_file

from familiar.datasets import DataSpec
from familiar.export import export_bundle
from familiar.export.precision import Precision
from familiar.recipes import recipe_named
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder

PEOPLE = "orl_faces"
DRAWN = ("synthetic:cats:40x8", "synthetic:dogs:40x8")
UNLABELED = ("cat_heads", "dog_heads", "head_photos", "pet_photos")
OTHERS = "other_animals"
MEANS = {"cat": "cat_heads", "dog": "dog_heads"}  # the folders whose mean is that of the species
SCRIPTS = Path(__file__).parent
CREDIT = (
    "Apache-2.0. ImageNet weights of {} (Apache-2.0). Photos: DogFaceNet, G. Mougeot et al. (CC BY 4.0), ORL faces "
    "(free with credit to AT&T Laboratories Cambridge), synthetic pets of this project, and without labels "
    "Oxford-IIIT Pet (CC BY-SA 4.0) and animals of public repositories without stated terms"
)


class Made(NamedTuple):
    """How a bundle is made: the files of its seeds, if any; recipe and precision; and the networks that it began as."""

    seeds: tuple[str, ...]
    recipe: Recipe
    precision: Precision
    networks: str


BUNDLES = {
    "pet-mobile": Made(
        tuple(f"pet-mobile {seed}.safetensors" for seed in range(3)),
        recipe_named("pet-lite").with_settings(["model.initial_share=0", "model.frozen_stages=0"]),
        "int8-weights",
        "EfficientNet-Lite0",
    ),
    "pet-nano": Made(
        (),
        recipe_named("pet-lite-nano").with_settings(["model.initial_share=0", "input.views=1@224,1@224m"]),
        "int4-weights",
        "MobileNetV3-Small and EfficientNet-Lite0",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("weights_folder", type=Path, metavar="WEIGHTS")
    parser.add_argument("output", type=Path)
    parser.add_argument("--before", type=Path, help="folder of earlier bundles of these names, to compare with")
    parser.add_argument("--only", nargs="+", choices=list(BUNDLES), default=list(BUNDLES))
    options = parser.parse_args()
    pets = options.output / "unlabeled"
    if not pets.exists():
        call("unlabeled_pets.py", options.photos_folder, pets)
    for name in options.only:
        made, folder = BUNDLES[name], options.output / name

        def bundle(part: str, weights: Path, made: Made = made, folder: Path = folder) -> Path:
            return bundle_of(weights, made, options.photos_folder, pets, folder / part)

        seeds = [bundle(f"seed-{seed}", options.weights_folder / file) for seed, file in enumerate(made.seeds)]
        if seeds:
            call("left_out.py", options.photos_folder, folder / "left-out-seeds", *seeds)
        mean = folder / "mean.safetensors"
        files = made.seeds or (f"{name}.safetensors",)
        mean.parent.mkdir(parents=True, exist_ok=True)
        save_file(mean_state([load_file(options.weights_folder / file) for file in files]), mean)
        shipped = bundle("mean", mean)
        before = ("--baseline", options.before / f"{name}.onnx") if options.before else ()
        call("left_out.py", options.photos_folder, folder / "left-out", shipped, *before)
        means = [f"{species}={pets / part}" for species, part in MEANS.items()]
        call(
            "calibrate_left_out.py", options.photos_folder, folder / "left-out", shipped, "--means", *means,
            "--license", CREDIT.format(made.networks), "--output", options.output / f"{name}.onnx",
        )  # fmt: skip


def bundle_of(weights: Path, made: Made, photos_folder: Path, pets: Path, folder: Path) -> Path:
    """Make a run of weights, and its bundle, unless they are there."""
    bundle = folder / f"{made.precision}.onnx"
    if not bundle.exists():
        folders = (str(photos_folder / name) for name in (DOGS, PEOPLE))
        spec = DataSpec((*folders, *DRAWN), trained_dogs(photos_folder))
        unlabeled = {name: len(DataSpec((str(pets / name),)).read()) for name in (*UNLABELED, OTHERS)}
        write_run(RunFolder(folder), made.recipe, weights, spec, unlabeled)
        rounding_photos = DataSpec(tuple(str(pets / part) for part in UNLABELED))
        export_bundle(folder, bundle, precisions=(made.precision,), rounding_photos=rounding_photos)
    return bundle


def call(script: str, *arguments: object) -> None:
    """Run another of the benchmarks."""
    subprocess.run([sys.executable, SCRIPTS / script, *map(str, arguments)], check=True)


if __name__ == "__main__":
    main()
