"""Make `person-mobile` of weights that were trained on a GPU, and give it thresholds.

    people_bundle.py PHOTOS WEIGHTS OUTPUT

PHOTOS contains `lfw_112`; WEIGHTS is what `gpu_training/people.py` trained on the people of `peopleDevTrain`. The
thresholds are fitted to those people of `peopleDevTest` whom `pairsDevTest` does not show, and the pairs judge.
"""

import argparse
from pathlib import Path

from gpu_training.runs import write_run
from left_out import PEOPLE, read_row

from familiar.conversion import calibrate_bundle
from familiar.datasets import DataSpec
from familiar.datasets.folders import read_identity_list
from familiar.export import export_bundle
from familiar.recipes import recipe_named
from familiar.training.run import RunFolder

SETTINGS = [
    "distill.blends=0",
    "distill.label_weight=0.03",
]
MAX_BYTES = 4_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("weights", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    folder = options.photos_folder / PEOPLE
    trained_on = tuple(sorted(read_identity_list(folder / "peopleDevTrain.txt")))
    run, bundle = RunFolder(options.output), options.output / "person-mobile.onnx"
    recipe = recipe_named("person-mobile").with_settings(SETTINGS)
    write_run(run, recipe, options.weights, DataSpec((str(folder),), trained_on), {})
    exported = export_bundle(run.path, bundle, license="Apache-2.0", precisions=("int8-weights",), max_bytes=MAX_BYTES)
    judging = {name.split("/")[-1] for name in read_row(options.photos_folder, PEOPLE).names}
    others = set(read_identity_list(folder / "peopleDevTest.txt")) - judging
    calibrated = calibrate_bundle(exported, DataSpec((str(folder),), tuple(sorted(others))))
    print(f"{bundle}: {bundle.stat().st_size:,} bytes, thresholds from {len(others)} people")
    print(calibrated.metadata.calibration)


if __name__ == "__main__":
    main()
