"""Robustness: corrupted photos searched for among the clean ones."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Float64, Int64

from familiar.core.blockwise import unit_rows
from familiar.core.types import Crop
from familiar.evaluation.context import MIN_IDENTITIES, REPLICATES, SEED, EvaluationContext, SuiteResult
from familiar.evaluation.corruptions import CORRUPTIONS
from familiar.evaluation.perturbation import PerturbationResult, make_setup, map_photos, metric_deltas, run_setup
from familiar.evaluation.results.figures import Figures, make_figures
from familiar.metrics.bootstrap import Replicates, mean_replicates

MAX_PHOTOS = 500  # each of them goes through the network 36 times

Variant = tuple[str, float | None]
"""A corruption's name and a severity."""


def robustness(context: EvaluationContext) -> SuiteResult:
    """Measure each corruption at its default severity, with intervals over identities, and a sweep of severities.

    `similarity_drop`: mean of 1 - cosine between a photo and its corrupted self. `recall_at_1_drop`: how much less
    often the nearest of all other clean photos is of the same identity. `auc_drop`: of the ROC, over pairs of one
    corrupted and one clean photo. Recall and AUC are None if no identity has two photos, AUC also if there is only one
    identity. If there are more than 500 photos, they are sampled.

    A router decides about each corrupted photo again. One that it sends to another bundle, or to a species without a
    bundle, is not found: its similarity to the clean photos of its identity is 0.
    """
    rows = context.sample_rows(MAX_PHOTOS)
    setup = make_setup(context.labels, rows)
    searched = _with_absence(context.embeddings)
    originals = searched[rows]
    clean = run_setup(setup, originals, searched)

    by_corruption: dict[str, Figures] = {}
    sweeps: dict[str, list[dict[str, float | None]]] = {}
    corrupted = _embed_corrupted(context, rows)
    for name, corruption in CORRUPTIONS.items():
        steps: dict[float | None, tuple[Float64[np.ndarray, " k"], PerturbationResult]] = {
            severity: (
                _similarity_drop(originals, embeddings),
                run_setup(setup, embeddings, searched),
            )
            for (variant_name, severity), embeddings in corrupted.items()
            if variant_name == name
        }
        similarity_drop, result = steps[corruption.severity]
        deltas, replicates = _drops(clean, similarity_drop, result)
        values = {
            "severity": corruption.severity,
            "unit": corruption.unit,
            "similarity_drop": float(similarity_drop.mean()),
            "recall_at_1_drop": deltas["recall_at_1"],
            "auc_drop": deltas["auc"],
        }
        by_corruption[name] = make_figures(values, replicates)
        sweeps[name] = [
            {
                "severity": severity,
                "similarity_drop": float(steps[severity][0].mean()),
                "recall_at_1": steps[severity][1].recall_at_1,
                "auc": steps[severity][1].auc,
            }
            for severity in corruption.sweep
        ]

    values = {
        "photos": len(rows),
        "identities": len(np.unique(context.labels[rows])),
        "seed": SEED,
        "clean": {"recall_at_1": clean.recall_at_1, "auc": clean.auc},
        "corruptions": by_corruption,
        "sweeps": sweeps,
    }
    return SuiteResult(make_figures(values))


def _embed_corrupted(
    context: EvaluationContext, rows: Int64[np.ndarray, " k"]
) -> dict[Variant, Float32[np.ndarray, "k d"]]:
    """Read each photo once, corrupt it in every way and embed it, with a last component as of `_with_absence`."""
    variants: list[Variant] = [
        (name, severity)
        for name, corruption in CORRUPTIONS.items()
        for severity in dict.fromkeys([corruption.severity, *corruption.sweep])
    ]

    def embed_batch(batch: Int64[np.ndarray, " b"]) -> list[Float32[np.ndarray, "b d"]]:
        crops = [context.crop(row) for row in batch.tolist()]
        embeddings: list[Float32[np.ndarray, "b d"]] = []
        for name, severity in variants:
            embeddings.append(_embed_all(context, [_corrupt(crop, name, severity) for crop in crops]))
        return embeddings

    batches = map_photos(context, rows, embed_batch)
    return dict(zip(variants, (np.concatenate(parts) for parts in zip(*batches, strict=True)), strict=True))


def _corrupt(crop: Crop, name: str, severity: float | None) -> Crop:
    apply = CORRUPTIONS[name].apply
    return crop.map_pixels(lambda rgb_u8: apply(rgb_u8, severity))


def _embed_all(context: EvaluationContext, crops: Sequence[Crop]) -> Float32[np.ndarray, "b d"]:
    """Embed all crops: the row of one of a species without a bundle is that of an absent photo."""
    embedded = context.model.embed_faces(crops, flip=context.flip)
    rows = np.zeros((len(crops), embedded.embeddings.shape[1] + 1), np.float32)
    rows[:, -1] = 1
    rows[embedded.rows] = _with_absence(embedded.embeddings)
    return rows


def _with_absence(embeddings: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n d2"]:
    """Append a component that is 0: an absent photo has a 1 there, so that its similarity to all others is 0."""
    return np.pad(embeddings, ((0, 0), (0, 1)))


def _similarity_drop(
    clean: Float32[np.ndarray, "k d"], corrupted: Float32[np.ndarray, "k d"]
) -> Float64[np.ndarray, " k"]:
    cosine = np.einsum("kd,kd->k", unit_rows(clean), unit_rows(corrupted))
    return 1 - np.clip(cosine, -1.0, 1.0)


def _drops(
    clean: PerturbationResult, similarity_drop: Float64[np.ndarray, " k"], corrupted: PerturbationResult
) -> tuple[dict[str, float | None], Replicates]:
    """Compute how much lower recall@1 and AUC are, and the replicates of these and of the similarity drop."""
    deltas, delta_replicates = metric_deltas(clean, corrupted)
    replicates: Replicates = {}
    identity = clean.setup.identity
    if len(np.unique(identity)) >= MIN_IDENTITIES:
        replicates = mean_replicates({"similarity_drop": similarity_drop}, identity, replicates=REPLICATES, seed=SEED)
    return deltas, replicates | {f"{name}_drop": values for name, values in delta_replicates.items()}
