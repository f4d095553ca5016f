"""Give a bundle the thresholds that collections left out of training support, and the means of species.

    calibrate_left_out.py PHOTOS LEFT_OUT BUNDLE --means cat=FOLDER dog=FOLDER ... [--license TEXT] --output FILE

`high_precision` keeps its promise on every collection; the other thresholds and the probability are those of the
collections of `--species`, for which the bundle is meant: what tells lions apart would not do for cats.

LEFT_OUT is the folder that `left_out.py` wrote for the bundle. Each collection counts alike, as if
it were the next one that the bundle meets. The folders of `--means`
have one subfolder per individual; several folders of one species are pooled.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from left_out import COLLECTIONS, LeftOut, embedded, read_row

from familiar import Embedder
from familiar.core.calibration import Calibration, Threshold
from familiar.core.files import write_atomically
from familiar.core.species_means import SpeciesMeans
from familiar.datasets import DataSpec
from familiar.datasets.folders import open_photo
from familiar.embedding.bundle import load_bundle, network_bytes, serialize_bundle
from familiar.embedding.photos import embed_photos
from familiar.export.gate import gate_metrics
from familiar.export.run_export import MEAN_DECIMALS
from familiar.metrics.calibration import calibrate_collections

PETS = ["cats23_gpriamo", "dogs29_stdove", "dogfacenet900"]
MAX_PHOTOS = 800  # of a folder, for its species' mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("left_out", type=Path)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--means", nargs="+", required=True, metavar="SPECIES=FOLDER")
    parser.add_argument(
        "--species", nargs="+", default=["cats23_gpriamo", "dogs29_stdove", "dogfacenet900"], choices=COLLECTIONS
    )
    parser.add_argument("--license")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    bundle = load_bundle(options.bundle)
    by_name = read_rows(options.photos_folder, options.left_out)
    rows = [row for parts in by_name.values() for row in parts]
    meant = [row for name in options.species for row in by_name[name]]
    as_it_is = calibrate(meant, rows)
    less_the_means = calibrate([row.centered for row in meant], [row.centered for row in rows])
    metadata = replace(
        bundle.metadata,
        calibration=as_it_is,
        species_means=SpeciesMeans(species_means(Embedder(bundle), options.means), less_the_means),
        results=mean_results(by_name),
        license=options.license or bundle.metadata.license,
    )
    write_atomically(options.output, serialize_bundle(network_bytes(bundle), metadata))
    print(f"{options.output}: {options.output.stat().st_size:,} bytes, from {len(rows)} collections left out")
    for name, calibration in (("as it is", as_it_is), ("less the means", less_the_means)):
        print(f"{name}: {describe(calibration)}")


def read_rows(photos_folder: Path, left_out: Path) -> dict[str, list[LeftOut]]:
    """Read the embeddings of all collections that were left out, of all seeds."""
    rows: dict[str, list[LeftOut]] = {}
    for name in COLLECTIONS:
        table = read_row(photos_folder, name)
        files = sorted(left_out.glob(f"{name}-[0-9].npy"))
        rows[name] = [embedded(photos_folder, name, table, file.parent, file) for file in files]
    return rows


def calibrate(meant: Sequence[LeftOut], rows: Sequence[LeftOut]) -> Calibration:
    """Fit thresholds and probability to the collections that are meant, and `high_precision` to all."""
    calibration, strict = (
        calibrate_collections([(row.embeddings, row.labels) for row in part]) for part in (meant, rows)
    )
    similarity = max(calibration.balanced.similarity, strict.high_precision.similarity)
    accepted = [row.similarities >= similarity for row in meant]
    far, tar = (
        float(np.mean([same[row.same == kind].mean() for row, same in zip(meant, accepted, strict=True)]))
        for kind in (False, True)
    )
    return replace(calibration, high_precision=Threshold(similarity, far, tar), target_far=strict.target_far)


def mean_results(by_name: Mapping[str, Sequence[LeftOut]]) -> dict[str, Any]:
    """Return the mean over collections of each metric that a bundle holds; None where one has too few pairs."""
    labels = [rows[0].labels for rows in by_name.values()]  # the same for all seeds
    rows = [row for parts in by_name.values() for row in parts]
    results = [asdict(metrics) for row in rows if (metrics := gate_metrics(row.embeddings, row.labels))]
    rates = [result.pop("tar_at_far") for result in results]
    return {
        "on": f"{len(by_name)} collections that were left out of training, the mean over them",
        "identities": sum(len(np.unique(each)) for each in labels),
        "photos": sum(map(len, labels)),
        **{name: float(np.mean([result[name] for result in results])) for name in results[0]},
        "tar_at_far": {
            far: None if None in (values := [each[far] for each in rates]) else float(np.mean(values))
            for far in rates[0]
        },
    }


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
