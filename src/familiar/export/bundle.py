"""A finished run into a bundle: exported, proved equal, calibrated on the run's validation identities."""

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32

from familiar.core.errors import BadDataset, BadRun
from familiar.core.files import write_atomically
from familiar.datasets.folders import DataSpec
from familiar.export.onnx import onnx_bytes
from familiar.export.parity import embed_with_both, require_parity
from familiar.export.precision import Precision
from familiar.faces.bundle import Bundle, BundleMetadata, Calibration, Threshold, load_bundle, seal
from familiar.loading.batches import PhotoBatches
from familiar.loading.crops import read_table
from familiar.loading.dataset import FaceDataset, in_order
from familiar.metrics.calibration import FIXED_THRESHOLDS, calibration_error, fit_probability, thresholds
from familiar.metrics.pairs import pair_similarities, sample_pairs
from familiar.metrics.retrieval import retrieval
from familiar.metrics.roc import MAX_SAME_PAIRS, RocCounts, pair_totals, roc_counts, roc_counts_all_pairs
from familiar.metrics.verification import OperatingPoint, verification
from familiar.training.checkpoint import load_weights
from familiar.training.network import build_network
from familiar.training.run import RunFolder

MIN_CALIBRATION_PAIRS = 10  # of each kind: fewer say nothing of what a similarity means
CURVE_PAIRS = 100_000  # a curve of two numbers needs no more
UNKNOWN_LICENCE = "not stated; the terms of the photos it was trained on may bind it"


def export_run(
    run_dir: Path,
    output: Path,
    data: DataSpec | None = None,
    licence: str = UNKNOWN_LICENCE,
    precision: Precision = "float32",
) -> Bundle:
    """Write the best network of a run to `output` as one bundle, its weights in `precision`.

    The photos are looked for where the run found them, or in `data`. ParityFailed, and nothing written,
    where the exported network does not compute the same; BadRun where the run or its photos are missing.
    """
    run = RunFolder(run_dir)
    recipe = run.recipe()
    preprocessing = recipe.input.preprocessing()
    network = build_network(recipe)
    load_weights(run.embedder, network=network)
    try:
        held_out = (data or run.data_spec()).read().of_identities(run.split().validation)
    except BadDataset as error:
        raise BadRun(
            f"{run_dir}: its photos are not where it found them; say where they moved ({error})"
        ) from error
    if not len(held_out):
        raise BadRun(f"{run_dir}: none of its validation identities is in the data given")
    read = read_table(held_out, preprocessing)
    model = onnx_bytes(network, preprocessing.size_px, precision)
    photos = FaceDataset(read.table, read.crops)
    batches = PhotoBatches(photos, in_order(range(len(photos)), 64), torch.device("cpu"))
    source, exported = embed_with_both(network, model, (batch.images for batch in batches))
    parity = require_parity(source, exported, precision)
    calibration, results = _measure(exported, read.table.labels)
    described = run.data()
    compatible = described.get("compatible")
    prefixes = {
        *recipe.loss.prefixes,
        recipe.model.embedding_dim,
        *([compatible["components"]] if compatible else []),
    }
    metadata = BundleMetadata(
        space_id=compatible["space_id"] if compatible else _own_space_id(run),
        embedding_dim=recipe.model.embedding_dim,
        preprocessing=preprocessing,
        calibration=calibration,
        prefixes=tuple(sorted(prefixes)),
        recipe=recipe.name,
        network=recipe.model.name,
        precision=precision,
        trained_on=described["train"],
        results={"on": "the run's validation identities", **results},
        parity=asdict(parity),
        licence=licence,
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, seal(model, metadata))
    return load_bundle(output)


def _own_space_id(run: RunFolder) -> str:
    """The weights decide the space: the same run exported twice gives the same one."""
    return hashlib.sha256(run.embedder.read_bytes()).hexdigest()[:32]


def _measure(
    embeddings: Float32[np.ndarray, "n d"], labels: np.ndarray
) -> tuple[Calibration, dict[str, Any]]:
    """Thresholds, curve and headline figures on validation identities; figures are None where there are no pairs."""
    results: dict[str, Any] = {"identities": int(labels.max()) + 1, "photos": len(labels)}
    same, different = pair_totals(labels)
    figures = dict.fromkeys(("auc", "eer", "best_accuracy", "recall_at_1"))
    if same and different:
        found = verification(_counts(embeddings, labels))
        figures = {
            "auc": found.auc,
            "eer": found.eer,
            "best_accuracy": found.best_balanced_accuracy,
            "recall_at_1": retrieval(embeddings, labels).recall_at_k[1],
        }
    return calibrate(embeddings, labels), results | figures


def calibrate(embeddings: Float32[np.ndarray, "n d"], labels: np.ndarray) -> Calibration:
    """What similarities mean, fitted to all pairs of these photos; fixed thresholds where those are too few."""
    same, different = pair_totals(labels)
    if min(same, different) < MIN_CALIBRATION_PAIRS:
        return Calibration(
            high_precision=Threshold(FIXED_THRESHOLDS["high_precision"], None, None),
            balanced=Threshold(FIXED_THRESHOLDS["balanced"], None, None),
            high_recall=Threshold(FIXED_THRESHOLDS["high_recall"], None, None),
            slope=None,
            intercept=None,
            calibration_error=None,
            pairs_same=same,
            pairs_different=different,
        )
    points = thresholds(_counts(embeddings, labels))
    pairs = sample_pairs(labels, CURVE_PAIRS, seed=0)
    scores = pair_similarities(embeddings, pairs)
    curve = fit_probability(scores, pairs.same)
    return Calibration(
        high_precision=_threshold(points.high_precision),
        balanced=_threshold(points.balanced),
        high_recall=_threshold(points.high_recall),
        slope=curve.slope,
        intercept=curve.intercept,
        calibration_error=calibration_error(curve.probabilities(scores), pairs.same),
        pairs_same=same,
        pairs_different=different,
        target_far=points.target_far,
    )


def _counts(embeddings: Float32[np.ndarray, "n d"], labels: np.ndarray) -> RocCounts:
    """Of all pairs, or where more than twenty million are of one identity, of as many drawn."""
    if pair_totals(labels)[0] <= MAX_SAME_PAIRS:
        return roc_counts_all_pairs(embeddings, labels)
    pairs = sample_pairs(labels, MAX_SAME_PAIRS, seed=0)
    scores = pair_similarities(embeddings, pairs)
    return roc_counts(scores[pairs.same], scores[~pairs.same])


def _threshold(point: OperatingPoint) -> Threshold:
    return Threshold(point.similarity, point.far, point.tar)
