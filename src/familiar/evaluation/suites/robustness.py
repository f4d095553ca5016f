"""What bad photos cost: each degradation done to photos that are then searched for among the clean ones."""

from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int64

from familiar.core.blockwise import unit_rows
from familiar.core.types import Crop
from familiar.evaluation.context import MIN_IDENTITIES, REPLICATES, SEED, EvaluationContext, Outcome
from familiar.evaluation.corruptions import CORRUPTIONS
from familiar.evaluation.perturbation import PerturbationResult, answer, map_photos, metric_deltas, probe
from familiar.metrics.bootstrap import Replicates, intervals, mean_replicates
from familiar.photos.preprocessing import to_tensor

PROBED_PHOTOS = 500  # each of them 36 times through the network

Variant = tuple[str, float | None]
"""A degradation's name and a severity."""


def robustness(measured: EvaluationContext) -> Outcome:
    """Each degradation at its severity, with intervals over identities, and a sweep of severities.

    `similarity_drop`: mean of 1 - cosine between a photo and its degraded self. `recall_at_1_drop`: how much less
    often the nearest of all other clean photos is of the same identity. `auc_drop`: of the ROC, over pairs whose one
    photo is degraded. Recall and AUC are None where no identity has two photos, AUC also where there is but one.
    Photos are drawn where there are more than 500.
    """
    rows = measured.sample_of(PROBED_PHOTOS)
    asked = probe(measured.labels, rows)
    originals = measured.embeddings[rows]
    clean = answer(asked, originals, measured.embeddings)

    parts: dict[str, Any] = {}
    sweeps: dict[str, list[dict[str, Any]]] = {}
    degraded = _embed_degraded(measured, rows)
    for name, degradation in CORRUPTIONS.items():
        steps: dict[float | None, tuple[Float64[np.ndarray, " k"], PerturbationResult]] = {
            severity: (
                _similarity_drop(originals, embeddings),
                answer(asked, embeddings, measured.embeddings),
            )
            for (of, severity), embeddings in degraded.items()
            if of == name
        }
        figures, drawn = _drops(clean, *steps[degradation.severity])
        parts[name] = {
            "severity": degradation.severity,
            "unit": degradation.unit,
            **figures,
            "interval": intervals(drawn),
        }
        sweeps[name] = [
            {
                "severity": severity,
                "similarity_drop": float(steps[severity][0].mean()),
                "recall_at_1": steps[severity][1].recall_at_1,
                "auc": steps[severity][1].auc,
            }
            for severity in degradation.sweep
        ]

    return Outcome(
        {
            "photos": len(rows),
            "identities": len(np.unique(measured.labels[rows])),
            "seed": SEED,
            "clean": {"recall_at_1": clean.recall_at_1, "auc": clean.auc},
            "degradations": parts,
            "sweeps": {name: steps for name, steps in sweeps.items() if steps},
        }
    )


def _embed_degraded(
    measured: EvaluationContext, rows: Int64[np.ndarray, " k"]
) -> dict[Variant, Float32[np.ndarray, "k d"]]:
    """Each photo read once, and degraded in every way."""
    embedder, preprocessing = measured.embedder, measured.embedder.metadata.preprocessing
    variants: list[Variant] = [
        (name, severity)
        for name, degradation in CORRUPTIONS.items()
        for severity in dict.fromkeys([degradation.severity, *degradation.sweep])
    ]

    def embed_batch(batch: Int64[np.ndarray, " b"]) -> list[Float32[np.ndarray, "b d"]]:
        crops = [measured.crop(row) for row in batch.tolist()]
        found: list[Float32[np.ndarray, "b d"]] = []
        for name, severity in variants:
            apply = CORRUPTIONS[name].apply
            spoilt = [Crop(apply(crop.rgb_u8, severity), crop.source) for crop in crops]
            found.append(embedder.run(to_tensor(spoilt, preprocessing), flip=measured.flip))
        return found

    batches = map_photos(measured, rows, embed_batch)
    return dict(zip(variants, (np.concatenate(parts) for parts in zip(*batches, strict=True)), strict=True))


def _similarity_drop(
    clean: Float32[np.ndarray, "k d"], degraded: Float32[np.ndarray, "k d"]
) -> Float64[np.ndarray, " k"]:
    cosine = np.einsum("kd,kd->k", unit_rows(clean), unit_rows(degraded))
    return 1 - np.clip(cosine, -1.0, 1.0)


def _drops(
    clean: PerturbationResult, similarity_drop: Float64[np.ndarray, " k"], degraded: PerturbationResult
) -> tuple[dict[str, float | None], Replicates]:
    lost, replicates = metric_deltas(clean, degraded)
    figures: dict[str, float | None] = {"similarity_drop": float(similarity_drop.mean())}
    figures |= {f"{name}_drop": value for name, value in lost.items()}
    drawn: Replicates = {}
    identity = clean.probe.identity
    if len(np.unique(identity)) >= MIN_IDENTITIES:
        drawn = mean_replicates({"similarity_drop": similarity_drop}, identity, replicates=REPLICATES, seed=SEED)
    return figures, drawn | {f"{name}_drop": values for name, values in replicates.items()}
