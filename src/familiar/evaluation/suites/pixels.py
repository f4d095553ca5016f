"""Pixels: what the same crops give without a network. A network that gives less has learned nothing of use here."""

import cv2
import numpy as np
from jaxtyping import Float32, Int64

from familiar.core.vectors import normalize
from familiar.evaluation.context import SEED, EvaluationContext, SuiteResult
from familiar.evaluation.perturbation import make_setup, map_photos, measure_results, run_setup
from familiar.evaluation.results.document import EvaluationResults
from familiar.evaluation.results.figures import make_figures
from familiar.evaluation.results.labels import format_figure

MAX_PHOTOS = 2000  # each of them is read again
SIZE_PX = (23, 28)  # width and height: the photos of the ORL faces (92 x 112), a quarter as large


def has_one_species(context: EvaluationContext) -> bool:
    """Tell whether all photos are embedded by one bundle: others differ by their species already."""
    return not context.species


def pixels(context: EvaluationContext) -> SuiteResult:
    """Measure recall@1 and ROC AUC of gray pixels, and how much more the network has on the same photos.

    Each crop that the network takes is made gray and resized to 23 x 28 pixels, which are compared by their cosine. If
    there are more than 2000 photos, they are sampled. `network_is_worse`: whether it has less of either figure.
    """
    rows = context.sample_rows(MAX_PHOTOS)
    labels = context.labels[rows]
    setup = make_setup(labels, np.arange(len(rows)))
    gray = np.concatenate(map_photos(context, rows, lambda batch: _gray_pixels(context, batch)))
    baseline, network = (run_setup(setup, vectors, vectors) for vectors in (gray, context.embeddings[rows]))
    gains, gain_replicates = measure_results(network, baseline, "_gain")
    figures = make_figures(*measure_results(baseline)) | make_figures(gains, gain_replicates)
    counts = {"photos": len(rows), "identities": len(np.unique(labels)), "seed": SEED}
    is_worse = any(gain is not None and gain < 0 for gain in gains.values())
    return SuiteResult(figures | make_figures({**counts, "network_is_worse": is_worse}))


def pixels_warning(results: EvaluationResults) -> str:
    """Say by which figures the network loses against the pixels; empty if it does not, or was not compared."""
    losses: list[str] = []
    for figure, name in (("recall_at_1", "recall@1"), ("auc", "ROC AUC")):
        baseline, gain = results.number(f"pixels.{figure}"), results.number(f"pixels.{figure}_gain")
        if baseline is not None and gain is not None and gain < 0:
            losses.append(f"{name} {format_figure(figure, baseline + gain)} against {format_figure(figure, baseline)}")
    if not losses:
        return ""
    return f"the network loses against the gray pixels of the same photos, which no training made: {', '.join(losses)}"


def _gray_pixels(context: EvaluationContext, batch: Int64[np.ndarray, " b"]) -> Float32[np.ndarray, "b d"]:
    gray = [cv2.cvtColor(context.crop(row).rgb_u8, cv2.COLOR_RGB2GRAY) for row in batch.tolist()]
    small = [cv2.resize(each, SIZE_PX, interpolation=cv2.INTER_AREA).ravel() for each in gray]
    return normalize(np.stack(small).astype(np.float32) + 1)  # + 1: a black photo has a direction too
