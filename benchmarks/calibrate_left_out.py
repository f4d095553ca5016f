"""Give a bundle the thresholds that collections left out of training support, and the means of species.

    calibrate_left_out.py PHOTOS LEFT_OUT BUNDLE --means cat=FOLDER dog=FOLDER ... [--license TEXT] --output FILE

LEFT_OUT is the folder that `leave_one_out.py` wrote: its networks are those that the bundle would be without one
collection. Each collection counts alike, as if it were the next one that the bundle meets. The folders of `--means`
have one subfolder per individual; several folders of one species are pooled.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from leave_one_out import COLLECTIONS, LeftOut, embedded, read_row

from familiar import Embedder
from familiar.core.calibration import Calibration
from familiar.core.files import write_atomically
from familiar.core.species_means import SpeciesMeans
from familiar.datasets import DataSpec
from familiar.datasets.folders import open_photo
from familiar.embedding.bundle import load_bundle, network_bytes, serialize_bundle
from familiar.embedding.embedder import embed_photos
from familiar.export.run_export import MEAN_DECIMALS
from familiar.metrics.calibration import calibrate_collections

MAX_PHOTOS = 800  # of a folder, for its species' mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("left_out", type=Path)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--means", nargs="+", required=True, metavar="SPECIES=FOLDER")
    parser.add_argument("--license")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    bundle = load_bundle(options.bundle)
    rows = read_rows(options.photos_folder, options.left_out)
    as_it_is = calibrate_collections([(row.embeddings, row.labels) for row in rows])
    less_the_means = calibrate_collections([(row.centered.embeddings, row.labels) for row in rows])
    metadata = replace(
        bundle.metadata,
        calibration=as_it_is,
        species_means=SpeciesMeans(species_means(Embedder(bundle), options.means), less_the_means),
        license=options.license or bundle.metadata.license,
    )
    write_atomically(options.output, serialize_bundle(network_bytes(bundle), metadata))
    print(f"{options.output}: {options.output.stat().st_size:,} bytes, from {len(rows)} collections left out")
    for name, calibration in (("as it is", as_it_is), ("less the means", less_the_means)):
        print(f"{name}: {describe(calibration)}")


def read_rows(photos_folder: Path, left_out: Path) -> list[LeftOut]:
    """Read the embeddings of all collections that were left out, of all seeds."""
    rows: list[LeftOut] = []
    for name in COLLECTIONS:
        table = read_row(photos_folder, name)
        files = sorted(left_out.glob(f"{name}-*/left_out.npy"))
        rows += [embedded(photos_folder, name, table, file.parent, file) for file in files]
    return rows


def species_means(embedder: Embedder, folders: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Return the mean embedding of each species."""
    vectors: dict[str, list[np.ndarray]] = {}
    for text in folders:
        species, _, folder = text.partition("=")
        photos = DataSpec((folder,)).read().photos
        sampled = [photos[row] for row in np.random.default_rng(0).permutation(len(photos))[:MAX_PHOTOS]]
        vectors.setdefault(species, []).append(
            embed_photos(embedder, sampled, "none", open_photo=open_photo).embeddings
        )
    means = {species: np.concatenate(parts).mean(axis=0, dtype=np.float64) for species, parts in vectors.items()}
    return {species: tuple(np.round(mean, MEAN_DECIMALS).tolist()) for species, mean in means.items()}


def describe(calibration: Calibration) -> str:
    """Write the thresholds and their rates."""
    points = {
        "high precision": calibration.high_precision,
        "balanced": calibration.balanced,
        "high recall": calibration.high_recall,
    }
    return ", ".join(
        f"{name} {point.similarity:.3f} (false accepts {point.far:.3%}, true accepts {point.tar:.1%})"
        for name, point in points.items()
    )


if __name__ == "__main__":
    main()
