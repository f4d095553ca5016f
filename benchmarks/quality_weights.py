"""Clusters whose means weigh each face by how far its embedding can be trusted, compared with equal weights.

    quality_weights.py PHOTOS --model person-mobile --album lfw_photos_devtest [--degraded] [--cache FOLDER]

Rank correlation of each weight with the similarity of a face to the mean of its individual's other faces (individuals
of four photos and more), then pairwise and B-cubed F of `cluster_measured` with and without, as a gallery compares.
`quality` is that of a face in a gallery, `low quality` only lowers weights below a quality of .2, `length` is that of
the embedding before it is normalized, and `true` is what no weight can know: w = s / (1 - s^2) for that similarity s,
which weighs directions best whose noise is equal in all directions. `--degraded`: every second photo, drawn at random,
is made smaller (to .2 to 1 of its side) and blurred. The gain is also given over ten random halves of the individuals,
with its standard deviation.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
import onnx
import onnxruntime as ort
from familiar.neighbors.album import cluster_measured, measure_album
from left_out import COLLECTIONS, read_row
from scipy.stats import spearmanr

from familiar import Embedder, Photo, build_detector, load_photo, metrics
from familiar.datasets import IdentityTable, scan_folders
from familiar.gallery.store.space import Space
from familiar.neighbors import Centering, clustering

HALVES = 10
LOW_QUALITY = 0.2
MIN_PHOTOS = 4
SAME_ROW = 0.99999  # similarity


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("--model", default="person-mobile")
    parser.add_argument("--album", default="lfw_photos_devtest")
    parser.add_argument("--degraded", action="store_true")
    parser.add_argument("--cache", type=Path)
    options = parser.parse_args()
    embedder = Embedder(options.model)
    is_pet = options.album in COLLECTIONS
    table = (
        read_row(options.photos_folder, options.album)
        if is_pet
        else scan_folders(options.photos_folder / options.album)
    )
    name = f"{Path(options.model).stem}-{options.album}{'-degraded' * options.degraded}.npz"
    file = options.cache and options.cache / name
    if file and file.exists():
        faces = dict(np.load(file))
    else:
        faces = embed(embedder, table, "pets" if is_pet else "auto", degraded=options.degraded)
        if file:
            np.savez(file, **faces)
    embeddings, labels = faces["embeddings"], faces["labels"]
    means = embedder.metadata.species_means
    if means is not None:
        embeddings = Centering.fit(embeddings, means.rows()).apply(embeddings)
    threshold = Space.from_metadata(embedder.metadata).gallery_calibration.high_precision.similarity
    compare(embeddings, labels, weights_of(faces, embeddings), threshold)


def embed(embedder: Embedder, table: IdentityTable, detector_name: str, *, degraded: bool) -> dict[str, np.ndarray]:
    """Embed the best face of each photo; return embeddings, labels, quality, and lengths before normalization."""
    network = onnx.load_from_string(embedder.bundle.onnx)
    network.graph.output.append(onnx.helper.make_empty_tensor_value_info(network.graph.node[-1].input[0]))
    session = ort.InferenceSession(network.SerializeToString(), providers=["CPUExecutionProvider"])
    detector, draw, faces = build_detector(detector_name), np.random.default_rng(0), []
    for source, label in zip(table.photos, table.labels.tolist(), strict=True):
        photo = load_photo(Path(str(source)))
        if degraded and draw.random() < 0.5:
            rgb_u8 = cv2.resize(photo.rgb_u8, None, None, *[draw.uniform(0.2, 1.0)] * 2, interpolation=cv2.INTER_AREA)
            rgb_u8 = cv2.GaussianBlur(rgb_u8, (0, 0), draw.uniform(0.1, 1.5))
            photo = Photo(rgb_u8, photo.source, rgb_u8.shape[1::-1])
        detected = embedder.detect_faces(photo, detector, open_photo=lambda each, **_: each).faces
        if detected:
            assert detected[0].crop is not None
            outputs = session.run(None, {session.get_inputs()[0].name: detected[0].crop.rgb_u8[None]})
            vectors, raw = map(np.asarray, outputs)
            faces.append((vectors[0], label, detected[0].quality, np.linalg.norm(raw)))
    return dict(
        zip(("embeddings", "labels", "quality", "length"), map(np.array, zip(*faces, strict=True)), strict=True)
    )


def weights_of(faces: dict[str, np.ndarray], embeddings: np.ndarray) -> dict[str, np.ndarray]:
    """Return each kind of weight, one for each face."""
    quality, labels = np.maximum(faces["quality"], 1e-3), faces["labels"]
    sums = np.zeros((labels.max() + 1, embeddings.shape[1]))
    np.add.at(sums, labels, embeddings)
    others = sums[labels] - embeddings
    true = (embeddings * others).sum(axis=1) / np.maximum(np.linalg.norm(others, axis=1), 1e-9)
    true = np.clip(true, 0.15, 0.95)
    return {
        "quality": quality,
        "low quality": np.minimum(1.0, quality / LOW_QUALITY),
        "length": faces["length"],
        "true": true / (1 - true**2),
    }


def compare(embeddings: np.ndarray, labels: np.ndarray, weights: dict[str, np.ndarray], threshold: float) -> None:
    """Print a row for each kind of weight."""
    draw, names = np.random.default_rng(0), np.unique(labels)
    parts = [np.arange(len(labels))]
    parts += [np.flatnonzero(np.isin(labels, draw.permutation(names)[: len(names) // 2])) for _ in range(HALVES)]
    often = np.bincount(labels)[labels] >= MIN_PHOTOS
    print("| weights | rank correlation | pairwise / B-cubed F | gain in halves |\n|---|---|---|---|")
    equal = np.zeros((len(parts), 2))
    for name, each in {"equal": np.ones(len(labels)), **weights}.items():
        scores = np.array([f_scores(embeddings[part], labels[part], each[part], threshold) for part in parts])
        equal = scores if name == "equal" else equal
        gains = (scores - equal)[1:]
        correlation = "-" if name == "equal" else f"{spearmanr(each[often], weights['true'][often])[0]:.2f}"
        spread = " / ".join(f"{m:+.3f} ± {s:.3f}" for m, s in zip(gains.mean(0), gains.std(0), strict=True))
        print(f"| {name} | {correlation} | {scores[0, 0]:.3f} / {scores[0, 1]:.3f} | {spread} |", flush=True)


def f_scores(embeddings: np.ndarray, labels: np.ndarray, weights: np.ndarray, threshold: float) -> tuple[float, float]:
    album = measure_album(embeddings, threshold)
    rows = embeddings if album is None else album[0].apply(embeddings)
    with weighted_means(rows, weights / weights.mean()):
        clusters = cluster_measured(embeddings, album, threshold)
    labels = np.unique(labels, return_inverse=True)[1]
    return metrics.pairwise(labels, clusters).f, metrics.bcubed(labels, clusters).f


@contextmanager
def weighted_means(weighted: np.ndarray, weights: np.ndarray) -> Iterator[None]:
    """Let the means of clusters weigh these rows; others, as of domains, count one each."""
    clusters_class = clustering._Clusters
    original = clusters_class.__init__

    def init(self: clustering._Clusters, rows: np.ndarray, initial_cluster: np.ndarray) -> None:
        similarity = rows.astype(np.float32) @ weighted.T
        nearest = similarity.argmax(axis=1)
        known = similarity[np.arange(len(rows)), nearest] > SAME_ROW
        scale = np.where(known, weights[nearest], 1.0)
        original(self, rows * scale[:, None], initial_cluster)
        single = self.sizes == 1
        self._norms[single] = scale[single]

    clusters_class.__init__ = init
    try:
        yield
    finally:
        clusters_class.__init__ = original


if __name__ == "__main__":
    main()
