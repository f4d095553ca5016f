"""Robustness: corrupted photos searched for among the clean ones."""

from dataclasses import replace

import numpy as np
from jaxtyping import Float32, Float64, Int64

from familiar.core.blockwise import unit_rows
from familiar.core.types import Face
from familiar.embedding.photos import stack_embeddings
from familiar.evaluation.context import SEED, EvaluationContext, SuiteResult, resample_means
from familiar.evaluation.corruptions import CORRUPTIONS
from familiar.evaluation.perturbation import make_setup, map_photos, measure_results, run_setup
from familiar.evaluation.results.figures import Figures, make_figures

MAX_PHOTOS = 500  # each of them goes through the network 36 times

Variant = tuple[str, float | None]
"""A corruption's name and a severity."""


def robustness(context: EvaluationContext) -> SuiteResult:
    """Measure each corruption at its default severity, with intervals over identities, and a sweep of severities.

    `similarity_drop`: mean of 1 - cosine between a photo and its corrupted self. `recall_at_1_drop`: how much less
    often the nearest of all other clean photos is of the same identity. `auc_drop`: of the ROC, over pairs of one
    corrupted and one clean photo. Recall and AUC are None if no identity has two photos, AUC also if there is only one
    identity. If there are more than 500 photos, they are sampled.
    """
    rows = context.sample_rows(MAX_PHOTOS)
    setup = make_setup(context.labels, rows)
    searched = context.embeddings
    originals = searched[rows]
    clean = run_setup(setup, originals, searched)

    by_corruption: dict[str, Figures] = {}
    sweeps: dict[str, list[dict[str, float | None]]] = {}
    corrupted = _embed_corrupted(context, rows)
    for name, corruption in CORRUPTIONS.items():
        steps = {
            severity: (_similarity_drop(originals, embeddings), run_setup(setup, embeddings, searched))
            for (variant_name, severity), embeddings in corrupted.items()
            if variant_name == name
        }
        similarity_drop, result = steps[corruption.severity]
        drops, replicates = measure_results(clean, result, "_drop")
        values = {
            "severity": corruption.severity,
            "unit": corruption.unit,
            "similarity_drop": float(similarity_drop.mean()),
            **drops,
        }
        replicates |= resample_means({"similarity_drop": similarity_drop}, setup.identity)
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
    """Read each photo once, corrupt its crop in every way and embed it."""
    variants: list[Variant] = [
        (name, severity)
        for name, corruption in CORRUPTIONS.items()
        for severity in dict.fromkeys([corruption.severity, *corruption.sweep])
    ]

    def embed_batch(batch: Int64[np.ndarray, " b"]) -> list[Float32[np.ndarray, "b d"]]:
        faces = [context.face(row) for row in batch.tolist()]
        embeddings: list[Float32[np.ndarray, "b d"]] = []
        for name, severity in variants:
            corrupted = [_corrupt(face, name, severity) for face in faces]
            embeddings.append(stack_embeddings(context.model.embed_faces(corrupted, flip=context.flip)))
        return embeddings

    batches = map_photos(context, rows, embed_batch)
    return dict(zip(variants, (np.concatenate(parts) for parts in zip(*batches, strict=True)), strict=True))


def _corrupt(face: Face, name: str, severity: float | None) -> Face:
    assert face.crop is not None
    return replace(face, crop=face.crop.map_pixels(lambda rgb_u8: CORRUPTIONS[name].apply(rgb_u8, severity)))


def _similarity_drop(
    clean: Float32[np.ndarray, "k d"], corrupted: Float32[np.ndarray, "k d"]
) -> Float64[np.ndarray, " k"]:
    cosine = np.einsum("kd,kd->k", unit_rows(clean), unit_rows(corrupted))
    return 1 - np.clip(cosine, -1.0, 1.0)
