"""Test-time augmentation: what averaging a photo's vector with those of its copies gains, and what it costs."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float32, Int64, UInt8

from familiar.core.types import Crop
from familiar.core.vectors import normalize
from familiar.datasets.folders import open_photo
from familiar.embedding.embedder import crop_photo
from familiar.evaluation.context import SEED, EvaluationContext, Outcome
from familiar.evaluation.corruptions import mirror
from familiar.evaluation.perturbation import (
    PerturbationResult,
    PerturbationSetup,
    answer,
    map_photos,
    metric_deltas,
    probe,
)
from familiar.metrics.bootstrap import intervals
from familiar.photos.preprocessing import Preprocessing, to_tensor

PROBED_PHOTOS = 2000
ENLARGED = 132 / 112  # to this the photo is brought before five crops are cut from it
LARGEST_PX = 1024  # of `Preprocessing`
PASSES = {"flip": 2, "five_crops": 5}  # through the network

T = TypeVar("T")

Batch = tuple[dict[str, Float32[np.ndarray, "b d"]], dict[str, float]]
"""Embeddings of a few photos in each way, and how many seconds a photo took."""


def tta(measured: EvaluationContext) -> Outcome:
    """Gains of recall@1 and ROC AUC over the plain photo, in all and per source, with intervals over identities.

    "flip" averages photo and mirror image, "five_crops" the four corners and the middle of the photo enlarged by
    132 / 112. Each way embeds queries and gallery alike: the same photos, drawn where there are more than 2000, each
    among all others. A source's photos are searched for among all of these; its pairs are of its own photos.
    `ms_a_photo`: one core's time from the file to the vector, the median over batches. Gains are None where no
    identity has two photos, that of AUC also where there is but one.
    """
    rows = measured.sample_of(PROBED_PHOTOS)
    labels = measured.labels[rows]
    embeddings, ms_a_photo = _embed_each_way(measured, rows)

    def ask(way: str, asked: PerturbationSetup) -> PerturbationResult:
        return answer(asked, embeddings[way][asked.rows], embeddings[way])

    def compare(asked: PerturbationSetup) -> dict[str, dict[str, Any]]:
        plain = ask("plain", asked)
        return {way: _gains(ask(way, asked), plain) for way in PASSES}

    everything = probe(labels, np.arange(len(rows)))
    plain, whole = ask("plain", everything), compare(everything)
    sources = np.array([measured.table.names[label].split("/", 1)[0] for label in labels])
    of_source: dict[str, Any] = {}
    for source in np.unique(sources).tolist():
        among = np.flatnonzero(sources == source)
        of_source[source] = whole if len(among) == len(rows) else compare(probe(labels, among))

    figures: dict[str, Any] = {
        "photos": len(rows),
        "identities": len(np.unique(labels)),
        "seed": SEED,
        "plain": {"recall_at_1": plain.recall_at_1, "auc": plain.auc, "ms_a_photo": ms_a_photo["plain"]},
    }
    for way, passes in PASSES.items():
        found = whole[way]
        by_source = {
            source: {"photos": int(np.count_nonzero(sources == source)), **compared[way]}
            for source, compared in of_source.items()
        }
        figures[way] = {**found, "passes": passes, "ms_a_photo": ms_a_photo[way], "by_source": by_source}
    return Outcome(figures)


def enlarged(preprocessing: Preprocessing) -> Preprocessing:
    """The same photo at 132 / 112 of the network's input, no less of it than the network sees of the plain one."""
    size_px = min(round(preprocessing.size_px * ENLARGED), LARGEST_PX)
    resize_px = max(size_px, preprocessing.resize_px)
    return dataclasses.replace(preprocessing, size_px=size_px, resize_px=resize_px)


def five_crops(rgb_u8: UInt8[np.ndarray, "l l 3"], size_px: int) -> list[UInt8[np.ndarray, "s s 3"]]:
    """The four corners and the middle."""
    far = len(rgb_u8) - size_px
    corners = [(0, 0), (0, far), (far, 0), (far, far), (far // 2, far // 2)]
    return [rgb_u8[top : top + size_px, left : left + size_px] for top, left in corners]


def _gains(averaged: PerturbationResult, plain: PerturbationResult) -> dict[str, Any]:
    found, drawn = metric_deltas(averaged, plain)
    replicates = {f"{name}_gain": values for name, values in drawn.items()}
    return {f"{name}_gain": value for name, value in found.items()} | {"interval": intervals(replicates)}


def _embed_each_way(
    measured: EvaluationContext, rows: Int64[np.ndarray, " k"]
) -> tuple[dict[str, Float32[np.ndarray, "k d"]], dict[str, float]]:
    """Embeddings in each way, plain ones too: those measured may be averaged already. And milliseconds a photo."""
    batches = map_photos(measured, rows, lambda batch: _embed_batch(measured, batch))
    embeddings = {way: np.concatenate([found[way] for found, _ in batches]) for way in batches[0][0]}
    ms_a_photo = {way: float(np.median([1000 * seconds[way] for _, seconds in batches])) for way in batches[0][1]}
    return embeddings, ms_a_photo


def _embed_batch(measured: EvaluationContext, batch: Int64[np.ndarray, " b"]) -> Batch:
    """A way's time is its own reading of the photos and its passes, whatever the ways share here."""
    embedder, preprocessing = measured.embedder, measured.embedder.metadata.preprocessing
    rows: list[int] = batch.tolist()

    def read_enlarged() -> list[list[Crop]]:
        larger = enlarged(preprocessing)
        wholes = [
            crop_photo(measured.table.photos[row], larger, measured.detector, open_photo=open_photo) for row in rows
        ]
        cut = [five_crops(whole.rgb_u8, preprocessing.size_px) for whole in wholes]
        return [
            [Crop(pixels, whole.source) for whole, pixels in zip(wholes, place, strict=True)]
            for place in zip(*cut, strict=True)
        ]

    def embed(crops: Sequence[Crop]) -> Float32[np.ndarray, "b d"]:
        return embedder.run(to_tensor(crops, preprocessing))

    crops, reading = _timed(lambda: [measured.crop(row) for row in rows])
    plain, once = _timed(lambda: embed(crops))
    flip, mirrored = _timed(
        lambda: normalize(plain + embed([Crop(mirror(crop.rgb_u8), crop.source) for crop in crops]))
    )
    five, reading_and_five = _timed(
        lambda: normalize(np.stack([embed(place) for place in read_enlarged()]).sum(axis=0))
    )
    seconds = {"plain": reading + once, "flip": reading + once + mirrored, "five_crops": reading_and_five}
    return (
        {"plain": plain, "flip": flip, "five_crops": five},
        {way: value / len(rows) for way, value in seconds.items()},
    )


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """What it gives, and the seconds this thread computed: other threads and programs do not count."""
    start = time.thread_time()
    done = work()
    return done, time.thread_time() - start
