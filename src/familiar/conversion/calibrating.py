"""Calibration of a bundle on labeled photos: thresholds and the probability curve."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64

from familiar.core.errors import BadDataset, FamiliarError
from familiar.core.files import write_atomically
from familiar.core.types import Crop
from familiar.datasets.folders import DataSpec, open_photo
from familiar.detection.detector import Detector
from familiar.embedding.bundle import Bundle, load_bundle, network_bytes, serialize_bundle
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import stack_embeddings
from familiar.metrics.bootstrap import verification_replicates
from familiar.metrics.calibration import calibrate
from familiar.metrics.pairs import pair_similarities, sample_pairs

CHANNEL_PHOTOS, CHANNEL_PAIRS = 1_000, 50_000  # enough to see whether swapped channels are better
CHANNEL_CERTAINTY = 0.99  # share of bootstrap replicates


def calibrate_bundle(
    bundle: Bundle,
    data: DataSpec | Path | str,
    detector: Detector | None = None,
    *,
    on_photo: Callable[[int, int], None] = lambda _done, _total: None,
    on_warning: Callable[[str], None] = lambda _: None,
) -> Bundle:
    """Fit the thresholds and the probability of a bundle's file to labeled photos.

    Args:
        bundle: the bundle, whose file is replaced.
        data: a folder with one subfolder of photos per identity, or another source as for `train`. None of them should
            be individuals that the network was trained on.
        detector: finds the face in each photo; None: the photos are crops already.
        on_photo: called with the numbers of photos read and of all photos.
        on_warning: called with a line of text for each photo that is skipped, and for what may be wrong.

    Returns:
        The bundle as it is read back from the file.

    Raises:
        BadDataset: there are too few photos, or of too few identities.
    """
    table = DataSpec.from_source(data).read()
    embedder = Embedder(bundle)
    crops: list[Crop] = []
    vectors = [embedder.embed([])]
    labels: list[int] = []
    photos = embedder.faces(table.photos, detector or "none", open_photo=open_photo, choice="best", rate=False)
    for number, (photo, label) in enumerate(zip(photos, table.labels.tolist(), strict=True), 1):
        if isinstance(photo, FamiliarError):
            on_warning(f"skipped: {photo}")
        else:
            crops += [face.crop for face in photo.faces if face.crop is not None]
            vectors.append(stack_embeddings(photo.faces))
            labels.append(label)
        on_photo(number, len(table))
    identities, embeddings = np.array(labels, np.int64), np.concatenate(vectors)
    calibration = calibrate(embeddings, identities)
    if not calibration.fitted:
        raise BadDataset(
            f"{', '.join(DataSpec.from_source(data).sources)}: has too few photos to calibrate: {len(crops)} of "
            f"{len(set(labels))} identities; ten pairs of photos of the same identity are needed, and ten of different"
        )
    if gain := _gain_of_swapped_channels(embedder, crops, embeddings, identities):
        on_warning(
            f"{bundle.path}: with red and blue swapped its ROC AUC would be higher by {gain:.3f}: the color order is "
            "probably wrong; import it again with the other --color"
        )
    metadata = replace(bundle.metadata, calibration=calibration)
    write_atomically(bundle.path, serialize_bundle(network_bytes(bundle), metadata))
    return load_bundle(bundle.path)


def _gain_of_swapped_channels(
    embedder: Embedder,
    crops: Sequence[Crop],
    embeddings: Float32[np.ndarray, "n d"],
    labels: Int64[np.ndarray, " n"],
) -> float | None:
    """Return by how much ROC AUC is higher with swapped channels; None if it is not, or if that may be chance.

    Networks take faces in either order almost as well, so the difference is small: it is certain if nearly all
    resamplings of the identities agree.
    """
    photos = np.bincount(labels)
    rows = np.flatnonzero(photos[labels] > 1)[:CHANNEL_PHOTOS]
    if len(np.unique(labels[rows])) < 2:
        return None
    swapped = embedder.embed(
        [Crop(np.ascontiguousarray(crops[row].rgb_u8[..., ::-1]), crops[row].source) for row in rows]
    )
    pairs = sample_pairs(labels[rows], CHANNEL_PAIRS)
    left, right = labels[rows][pairs.left], labels[rows][pairs.right]
    before, after = (
        verification_replicates(pair_similarities(vectors, pairs), left, right, only=["auc"])["auc"]
        for vectors in (embeddings[rows], swapped)
    )
    return float((after - before).mean()) if (after > before).mean() >= CHANNEL_CERTAINTY else None
