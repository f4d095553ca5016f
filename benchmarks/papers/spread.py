"""How a network's embeddings lie: how long they are before they are unit vectors, and over how many directions."""

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
from familiar.embedding.embedder import crop_photo
from familiar.photos.preprocessing import Preprocessing, to_tensor
from familiar.training.checkpoint import load_weights
from familiar.training.network import build_network
from papers.bench import Bench, Training
from papers.shared import PEOPLE

KEPT = "spread.json"  # in the run
_BATCH = 128


@dataclass(frozen=True)
class Spread:
    """Of photos of many identities.

    `norm_mean`, `norm_std`: of the embeddings' lengths before they are brought to 1. The rest is of unit rows:
    `stranger_similarity`, the mean cosine over pairs of two identities; `variances`, the eigenvalues of their
    covariance as shares of its trace, the largest first.
    """

    norm_mean: float
    norm_std: float
    stranger_similarity: float
    variances: tuple[float, ...]

    @property
    def effective_dimension(self) -> float:
        """Participation ratio: n where n directions vary alike and no other does."""
        shares = np.array(self.variances)
        return float(shares.sum() ** 2 / (shares**2).sum())


def spread_of(bench: Bench, training: Training) -> Spread | None:
    """By the newest epoch's weights, over the photos of LFW's `pairsDevTest`; kept in the run.

    None where there are no weights, or none that give finite embeddings.
    """
    run = bench.run(training)
    kept = run.path / KEPT
    if kept.exists():
        stored = json.loads(kept.read_text())
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
    found = spread(raw, labels)
    write_atomically(kept, json.dumps(asdict(found), indent=1).encode())
    return found


def spread(raw: Float32[np.ndarray, "n d"], labels: Int64[np.ndarray, " n"]) -> Spread:
    norms = np.linalg.norm(raw.astype(np.float64), axis=1)
    rows = normalize(raw).astype(np.float64)
    strangers = labels[:, None] != labels
    eigenvalues = np.linalg.eigvalsh(np.cov(rows, rowvar=False))[::-1].clip(min=0)
    return Spread(
        norm_mean=float(norms.mean()),
        norm_std=float(norms.std()),
        stranger_similarity=float((rows @ rows.T)[strangers].mean()),
        variances=tuple((eigenvalues / eigenvalues.sum()).tolist()),
    )


def devtest_photos(
    bench: Bench, preprocessing: Preprocessing
) -> tuple[Int64[np.ndarray, " n"], Iterator[Float32[np.ndarray, "b 3 s s"]]]:
    """Whose photos the pairs of `pairsDevTest` are made of, and the photos as a network takes them."""
    people = DataSpec(tuple(str(bench.photos / name) for name in PEOPLE)).read()
    pairs = read_lfw_pairs(bench.photos / "lfw_112" / "pairsDevTest.txt", people)
    photos = people.rows(np.unique(np.concatenate([pairs.left, pairs.right])))

    def batches() -> Iterator[Float32[np.ndarray, "b 3 s s"]]:
        for start in range(0, len(photos), _BATCH):
            some = photos.photos[start : start + _BATCH]
            crops = [crop_photo(photo, preprocessing, open_photo=open_photo) for photo in some]
            yield to_tensor(crops, preprocessing)

    return photos.labels, batches()
