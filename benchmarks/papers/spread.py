"""Measure the distribution of a network's embeddings: norms before normalization, and effective dimension."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import torch
from jaxtyping import Float32, Int64

from familiar.core.files import write_atomically
from familiar.core.vectors import normalize
from familiar.datasets.folders import DataSpec, open_photo
from familiar.datasets.pairs import read_lfw_pairs
from familiar.detection.faces import crop_photo
from familiar.photos.preprocessing import Preprocessing, stack_crops, standardize
from familiar.training.checkpoint import load_weights
from familiar.training.network import build_network
from papers.bench import Bench, Training
from papers.shared import PEOPLE

SPREAD_FILE = "spread.json"  # in the run folder
_BATCH = 128


@dataclass(frozen=True)
class Spread:
    """Distribution of the embeddings of many identities' photos.

    `norm_mean` and `norm_std` are of the norms before normalization. The others are of unit vectors:
    `stranger_similarity` is the mean cosine over pairs of different identities; `variances` are the eigenvalues of the
    covariance as shares of its trace, the largest first.
    """

    norm_mean: float
    norm_std: float
    stranger_similarity: float
    variances: tuple[float, ...]

    @property
    def effective_dimension(self) -> float:
        """Participation ratio: n if n directions vary equally and no other does."""
        shares = np.array(self.variances)
        return float(shares.sum() ** 2 / (shares**2).sum())


def spread_of(bench: Bench, training: Training) -> Spread | None:
    """Measure the last epoch's weights on the photos of LFW's `pairsDevTest`; the result is cached in the run folder.

    Returns:
        None without weights, or if their embeddings are not finite.
    """
    run = bench.run(training)
    file = run.path / SPREAD_FILE
    if file.exists():
        stored = json.loads(file.read_text())
        return Spread(**{**stored, "variances": tuple(stored["variances"])})
    if not run.last.exists():
        return None
    recipe = run.recipe()
    network = build_network(recipe).eval()
    load_weights(run.last, network=network)
    labels, batches = devtest_photos(bench, recipe.input.preprocessing())
    with torch.inference_mode():
        raw = torch.cat([network.raw(torch.from_numpy(images)) for images in batches]).numpy()
    if not np.isfinite(raw).all():
        return None
    result = spread(raw, labels)
    write_atomically(file, json.dumps(asdict(result), indent=1).encode())
    return result


def spread(raw: Float32[np.ndarray, "n d"], labels: Int64[np.ndarray, " n"]) -> Spread:
    norms = np.linalg.norm(raw.astype(np.float64), axis=1)
    rows = normalize(raw).astype(np.float64)
    negatives = labels[:, None] != labels
    eigenvalues = np.linalg.eigvalsh(np.cov(rows, rowvar=False))[::-1].clip(min=0)
    return Spread(
        norm_mean=float(norms.mean()),
        norm_std=float(norms.std()),
        stranger_similarity=float((rows @ rows.T)[negatives].mean()),
        variances=tuple((eigenvalues / eigenvalues.sum()).tolist()),
    )


def devtest_photos(
    bench: Bench, preprocessing: Preprocessing
) -> tuple[Int64[np.ndarray, " n"], Iterator[Float32[np.ndarray, "b 3 s s"]]]:
    """Read the photos of `pairsDevTest`: identity labels, and batches as the network takes them."""
    people = DataSpec(tuple(str(bench.photos / name) for name in PEOPLE)).read()
    pairs = read_lfw_pairs(bench.photos / "lfw_112" / "pairsDevTest.txt", people)
    photos = people.select_rows(np.unique(np.concatenate([pairs.left, pairs.right])))

    def batches() -> Iterator[Float32[np.ndarray, "b 3 s s"]]:
        for start in range(0, len(photos), _BATCH):
            batch = photos.photos[start : start + _BATCH]
            crops = [crop_photo(photo, preprocessing, open_photo=open_photo) for photo in batch]
            yield standardize(stack_crops(crops, preprocessing.size_px), preprocessing)

    return photos.labels, batches()
