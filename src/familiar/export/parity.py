"""Proof that an exported network computes what its source computes."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort
import torch
from jaxtyping import Float32
from torch import Tensor, nn

from familiar.core.errors import ParityFailed
from familiar.core.vectors import UNIT_NORM_TOLERANCE
from familiar.export.onnx import INPUT_NAME
from familiar.export.precision import Precision

# Largest difference of a component and smallest cosine. In float16 a weight is off by 2^-12 of itself on average, and
# some networks' first layers amplify that: .998 was met, where most keep .9999.
# Where more is given up on purpose, what it cost is for the gate to judge.
BOUNDS: dict[Precision, tuple[float, float]] = {"float32": (1e-4, 0.99999), "float16": (5e-2, 0.995)}
# Scaling to unit length magnifies the rounding of an embedding that has almost none: one crop in a thousand may be
# off by more, as far as its cosine allows.
EXCEPTIONS = 1e-3


@dataclass(frozen=True)
class Parity:
    """Largest difference of a component, smallest and mean cosine over `crops` real crops."""

    crops: int
    max_difference: float
    min_cosine: float
    mean_cosine: float


@torch.no_grad()
def embed_with_source(network: nn.Module, batches: Iterable[Tensor]) -> Float32[np.ndarray, "n d"]:
    """Embeddings by `network`, in evaluation mode, of standardized crops."""
    network = network.cpu().eval()
    return np.concatenate([network(images).numpy() for images in batches])


def embed_with_export(model: bytes, batches: Iterable[Tensor]) -> Float32[np.ndarray, "n d"]:
    """Embeddings by the ONNX `model` of standardized crops."""
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    found = [session.run(None, {INPUT_NAME: images.numpy()})[0] for images in batches]
    return np.concatenate([np.asarray(embeddings) for embeddings in found])


def require_parity(
    source: Float32[np.ndarray, "n d"],
    exported: Float32[np.ndarray, "n d"],
    precision: Precision = "float32",
) -> Parity:
    """ParityFailed unless the two agree as closely as the precision of the weights lets them.

    That is, in every component of all crops but one in a thousand, and in the cosine of every crop. In 8 bits it is
    enough that every embedding has unit length: one that was rounded to zeros has none.
    """
    cosines = np.einsum("ij,ij->i", source.astype(np.float64), exported.astype(np.float64))
    with np.errstate(invalid="ignore"):  # inf - inf is NaN
        differences = np.abs(source - exported)
    off_unit = np.abs(np.linalg.norm(exported.astype(np.float64), axis=1) - 1)
    parity = Parity(len(source), float(differences.max()), float(cosines.min()), float(cosines.mean()))
    # Asked this way round, NaN fails too.
    max_difference, min_cosine = BOUNDS.get(precision, (2.0, -1.0 - 1e-6))
    agree = np.count_nonzero(differences.max(axis=1) <= max_difference)
    if not (
        len(source) - agree <= EXCEPTIONS * len(source)
        and parity.min_cosine >= min_cosine
        and off_unit.max() <= UNIT_NORM_TOLERANCE
    ):
        raise ParityFailed(
            f"the exported network differs from its source by {parity.max_difference:.2e} "
            f"(cosine {parity.min_cosine:.6f}) on {parity.crops} crops; nothing was written"
        )
    return parity
