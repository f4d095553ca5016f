"""Parity check: an exported network must compute what its source computes."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort
import torch
from jaxtyping import Float32
from torch import Tensor, nn

from familiar.core.errors import ParityFailed
from familiar.core.vectors import UNIT_NORM_TOLERANCE
from familiar.export.precision import Precision

# Largest difference of a component, and smallest cosine. In float16 a weight has a relative error of 2^-12 on average,
# and some networks' first layers amplify it: .998 has been seen, where most keep .9999.
# The other precisions give up more on purpose; the gate decides whether it is too much.
TOLERANCES: dict[Precision, tuple[float, float]] = {"float32": (1e-4, 0.99999), "float16": (5e-2, 0.995)}
# Share of crops that may differ by more, as far as their cosine allows: scaling to unit length magnifies the rounding
# of an embedding whose norm is almost 0.
MAX_OUTLIER_SHARE = 1e-3


@dataclass(frozen=True)
class Parity:
    """Agreement over `crops` real crops: largest difference of a component, smallest and mean cosine."""

    crops: int
    max_difference: float
    min_cosine: float
    mean_cosine: float


@torch.no_grad()
def embed_with_source(network: nn.Module, batches: Iterable[Tensor]) -> Float32[np.ndarray, "n d"]:
    """Embed standardized crops with `network` in evaluation mode."""
    network = network.cpu().eval()
    return np.concatenate([network(images).numpy() for images in batches])


def embed_with_export(model: bytes, batches: Iterable[Tensor | np.ndarray]) -> Float32[np.ndarray, "n d"]:
    """Embed batches of the ONNX `model`'s only input: standardized images, or pixels (`take_pixels`)."""
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    (taken,) = session.get_inputs()
    outputs = [session.run(None, {taken.name: np.asarray(batch)})[0] for batch in batches]
    return np.concatenate([np.asarray(embeddings) for embeddings in outputs])


def require_parity(
    source: Float32[np.ndarray, "n d"],
    exported: Float32[np.ndarray, "n d"],
    precision: Precision = "float32",
) -> Parity:
    """Check that embeddings of the source and of the export agree as closely as the precision of the weights allows.

    In every component of all crops but one in a thousand, and in the cosine of every crop. In 8 bits it is enough that
    every embedding has unit length, which one that was rounded to zeros does not have.

    Args:
        source: unit rows of the crops, by the trained network.
        exported: unit rows of the same crops, by the export.
        precision: of the export.

    Returns:
        How closely they agree.

    Raises:
        ParityFailed: they do not agree.
    """
    cosines = np.einsum("ij,ij->i", source.astype(np.float64), exported.astype(np.float64))
    with np.errstate(invalid="ignore"):  # inf - inf is NaN
        differences = np.abs(source - exported)
    off_unit = np.abs(np.linalg.norm(exported.astype(np.float64), axis=1) - 1)
    parity = Parity(len(source), float(differences.max()), float(cosines.min()), float(cosines.mean()))
    # With the comparisons written as `not (... <= ...)`, NaN fails too.
    max_difference, min_cosine = TOLERANCES.get(precision, (2.0, -1.0 - 1e-6))
    agree = np.count_nonzero(differences.max(axis=1) <= max_difference)
    if not (
        len(source) - agree <= MAX_OUTLIER_SHARE * len(source)
        and parity.min_cosine >= min_cosine
        and off_unit.max() <= UNIT_NORM_TOLERANCE
    ):
        raise ParityFailed(
            f"the exported network differs from its source by {parity.max_difference:.2e} "
            f"(cosine {parity.min_cosine:.6f}) on {parity.crops} crops; nothing was written"
        )
    return parity
