"""Proof that an exported network computes what its source computes."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort
import torch
from jaxtyping import Float32
from torch import Tensor, nn

from familiar.core.errors import ParityFailed
from familiar.export.onnx import INPUT_NAME
from familiar.export.precision import Precision

# Largest difference of a component and smallest cosine. In float16 a weight is off by 2^-12 of itself on average.
BOUNDS: dict[Precision, tuple[float, float]] = {"float32": (1e-4, 0.99999), "float16": (1e-2, 0.9995)}
# Scaling to unit length magnifies the rounding of an embedding that has almost none: one crop in a thousand may be
# off by more, as far as its cosine allows.
EXCEPTIONS = 1e-3


@dataclass(frozen=True)
class Parity:
    """Largest difference of a component and smallest cosine over `crops` real crops."""

    crops: int
    max_difference: float
    min_cosine: float


@torch.no_grad()
def embed_with_both(
    network: nn.Module, model: bytes, batches: Iterable[Tensor]
) -> tuple[Float32[np.ndarray, "n d"], Float32[np.ndarray, "n d"]]:
    """Embeddings by `network` in evaluation mode, and by the ONNX `model`, of standardised crops."""
    network = network.cpu().eval()
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    source: list[np.ndarray] = []
    exported: list[np.ndarray] = []
    for images in batches:
        source.append(network(images).numpy())
        (embeddings,) = session.run(None, {INPUT_NAME: images.numpy()})
        assert isinstance(embeddings, np.ndarray)
        exported.append(embeddings)
    return np.concatenate(source), np.concatenate(exported)


def require_parity(
    source: Float32[np.ndarray, "n d"],
    exported: Float32[np.ndarray, "n d"],
    precision: Precision = "float32",
) -> Parity:
    """ParityFailed unless the two agree as closely as the precision of the weights lets them.

    That is, in every component of all crops but one in a thousand, and in the cosine of every crop.
    """
    cosines = np.einsum("ij,ij->i", source.astype(np.float64), exported.astype(np.float64))
    with np.errstate(invalid="ignore"):  # inf - inf is NaN
        differences = np.abs(source - exported)
    parity = Parity(len(source), float(differences.max()), float(cosines.min()))
    # Asked this way round, NaN fails too.
    max_difference, min_cosine = BOUNDS[precision]
    agree = np.count_nonzero(differences.max(axis=1) <= max_difference)
    if not (len(source) - agree <= EXCEPTIONS * len(source) and parity.min_cosine >= min_cosine):
        raise ParityFailed(
            f"the exported network differs from its source by {parity.max_difference:.2e} "
            f"(cosine {parity.min_cosine:.6f}) on {parity.crops} crops; nothing was written"
        )
    return parity
