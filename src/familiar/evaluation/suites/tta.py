"""Test-time augmentation: gain and cost of averaging a photo's embedding with those of its variants."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from jaxtyping import Float32, Int64, UInt8

from familiar.core.types import Crop
from familiar.core.vectors import normalize
from familiar.datasets.folders import open_photo
from familiar.detection.faces import crop_photo
from familiar.embedding.embedder import Embedder
from familiar.evaluation.context import SEED, EvaluationContext, SuiteResult
from familiar.evaluation.corruptions import mirror
from familiar.evaluation.perturbation import (
    PerturbationResult,
    PerturbationSetup,
    make_setup,
    map_photos,
    measure_results,
    run_setup,
)
from familiar.evaluation.results.figures import Figures, make_figures
from familiar.photos.preprocessing import Preprocessing, stack_crops

MAX_PHOTOS = 2000
ENLARGEMENT = 132 / 112  # of the photo before five crops are cut from it
MAX_SIZE_PX = 1024  # of `Preprocessing`
PASSES = {"flip": 2, "five_crops": 5}  # through the network
METHODS = ("plain", *PASSES)

T = TypeVar("T")

Batch = tuple[dict[str, Float32[np.ndarray, "b d"]], dict[str, float]]
"""Embeddings of a few photos by each method, and the seconds."""


def tta(context: EvaluationContext) -> SuiteResult:
    """Measure the gains of recall@1 and ROC AUC over the plain photo, overall and per source.

    "flip" averages photo and mirror image, "five_crops" the four corners and the center of the photo enlarged by
    132 / 112. Each method embeds queries and gallery: the same photos, sampled if there are more than 2000, each among
    all others. A source's photos are searched for among all of these; its pairs are of its own photos.
    `ms_per_photo`: time of one core from the file to the vector, the median over batches. Gains are None if no
    identity has two photos, that of AUC also if there is only one identity. The intervals are over identities. With
    several bundles, every view of a photo is embedded by that of the photo's species, and the time is that bundle's.
    """
    rows = context.sample_rows(MAX_PHOTOS)
    labels = context.labels[rows]
    embeddings, ms_per_photo = _embed_each_way(context, rows)

    def measure(method: str, setup: PerturbationSetup) -> PerturbationResult:
        return run_setup(setup, embeddings[method][setup.rows], embeddings[method])

    def gains(setup: PerturbationSetup) -> dict[str, Figures]:
        plain = measure("plain", setup)
        photos = {"photos": len(setup.rows)}
        deltas = {method: measure_results(measure(method, setup), plain, "_gain") for method in PASSES}
        return {method: make_figures(photos | values, replicates) for method, (values, replicates) in deltas.items()}

    overall_setup = make_setup(labels, np.arange(len(rows)))
    plain, overall = measure("plain", overall_setup), gains(overall_setup)
    sources = np.array([context.table.names[label].split("/", 1)[0] for label in labels])
    gains_by_source: dict[str, dict[str, Figures]] = {}
    for source in np.unique(sources).tolist():
        source_rows = np.flatnonzero(sources == source)
        gains_by_source[source] = overall if len(source_rows) == len(rows) else gains(make_setup(labels, source_rows))

    values = {
        "photos": len(rows),
        "identities": len(np.unique(labels)),
        "seed": SEED,
        "plain": {"recall_at_1": plain.recall_at_1, "auc": plain.auc, "ms_per_photo": ms_per_photo["plain"]},
    }
    for method, passes in PASSES.items():
        values[method] = {
            **{path: overall[method][path] for path in ("recall_at_1_gain", "auc_gain")},
            "passes": passes,
            "ms_per_photo": ms_per_photo[method],
            "by_source": {source: source_gains[method] for source, source_gains in gains_by_source.items()},
        }
    return SuiteResult(make_figures(values))


def enlarge(preprocessing: Preprocessing) -> Preprocessing:
    """Enlarge the crop to 132 / 112 of the network's input, showing no less than the plain crop."""
    size_px = min(round(preprocessing.size_px * ENLARGEMENT), MAX_SIZE_PX)
    resize_px = max(size_px, preprocessing.resize_px)
    return dataclasses.replace(preprocessing, size_px=size_px, resize_px=resize_px)


def five_crops(rgb_u8: UInt8[np.ndarray, "l l 3"], size_px: int) -> list[UInt8[np.ndarray, "s s 3"]]:
    """Cut out the four corners and the center."""
    end = len(rgb_u8) - size_px
    corners = [(0, 0), (0, end), (end, 0), (end, end), (end // 2, end // 2)]
    return [rgb_u8[y_px : y_px + size_px, x_px : x_px + size_px] for y_px, x_px in corners]


def _embed_each_way(
    context: EvaluationContext, rows: Int64[np.ndarray, " k"]
) -> tuple[dict[str, Float32[np.ndarray, "k d"]], dict[str, float]]:
    """Embed the photos by each method, including the plain one, since the context's own may be averaged already.

    Returns:
        Embeddings and milliseconds per photo, by method.
    """
    batches = map_photos(context, rows, lambda batch: _embed_batch(context, batch))
    embeddings = {method: np.concatenate([vectors[method] for vectors, _ in batches]) for method in METHODS}
    ms_per_photo = {method: float(np.median([1000 * seconds[method] for _, seconds in batches])) for method in METHODS}
    return embeddings, ms_per_photo


def _embed_batch(context: EvaluationContext, batch: Int64[np.ndarray, " b"]) -> Batch:
    """Embed a batch by each method, the photos of each species by its bundle.

    Returns:
        The embeddings, and the seconds per photo.
    """
    embeddings = {method: np.zeros((len(batch), context.embeddings.shape[1]), np.float32) for method in METHODS}
    seconds = dict.fromkeys(METHODS, 0.0)
    for species, indices in context.rows_by_species(batch).items():
        embedder, columns = context.model.only(species)
        part_embeddings, part_seconds = _embed_part(context, embedder, batch[indices])
        for method in METHODS:
            embeddings[method][indices, columns] = part_embeddings[method]
            seconds[method] += part_seconds[method]
    return embeddings, {method: total / len(batch) for method, total in seconds.items()}


def _embed_part(context: EvaluationContext, embedder: Embedder, part_rows: Int64[np.ndarray, " b"]) -> Batch:
    """Embed photos by each method. The time of a method includes work that the methods share here."""
    preprocessing = embedder.metadata.preprocessing
    photos = [context.table.photos[row] for row in part_rows.tolist()]

    def read(size: Preprocessing) -> list[Crop]:
        return [crop_photo(photo, size, context.detector, open_photo=open_photo) for photo in photos]

    def read_enlarged() -> list[list[Crop]]:
        crops = read(enlarge(preprocessing))
        crops_by_photo = [five_crops(crop.rgb_u8, preprocessing.size_px) for crop in crops]
        return [
            [Crop(pixels, crop.source) for crop, pixels in zip(crops, position, strict=True)]
            for position in zip(*crops_by_photo, strict=True)
        ]

    def embed(crops: Sequence[Crop]) -> Float32[np.ndarray, "b d"]:
        return embedder.run(stack_crops(crops, preprocessing.size_px))

    crops, reading_s = _timed(lambda: read(preprocessing))
    plain, plain_s = _timed(lambda: embed(crops))
    flip, mirrored_s = _timed(
        lambda: normalize(plain + embed([Crop(mirror(crop.rgb_u8), crop.source) for crop in crops]))
    )
    five, five_crops_s = _timed(
        lambda: normalize(np.stack([embed(position) for position in read_enlarged()]).sum(axis=0))
    )
    seconds = {"plain": reading_s + plain_s, "flip": reading_s + plain_s + mirrored_s, "five_crops": five_crops_s}
    return {"plain": plain, "flip": flip, "five_crops": five}, seconds


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return the result of `work` and the CPU seconds of this thread: other threads and programs do not count."""
    start = time.thread_time()
    result = work()
    return result, time.thread_time() - start
