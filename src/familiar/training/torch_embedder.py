"""A run's own weights at work, with PyTorch: what its bundle is with ONNX Runtime, for a server that has a GPU."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32

from familiar.core.errors import BadRun, SpaceMismatch
from familiar.embedding.bundle import load_bundle
from familiar.embedding.embedder import Embedder
from familiar.training.checkpoint import load_weights
from familiar.training.network import build_network
from familiar.training.run import RunFolder


def torch_embedder(run_dir: Path | str, device: torch.device | None = None, threads: int | None = None) -> Embedder:
    """An embedder that computes by `embedder.safetensors`; all else it takes from the run's `model.onnx`.

    `device`: by default a GPU where there is one, and for that an embedder's own `batch_size` is small. On a CPU each
    of `threads` computes a batch of its own, and torch's threads for one batch are of no use: set them to one.

    BadRun where a file of the run is missing or damaged, BadBundle where that is its bundle, SpaceMismatch where
    the bundle was not made of these weights.
    """
    run = RunFolder(Path(run_dir))
    network = build_network(run.recipe())
    load_weights(run.embedder, network=network)
    if not run.bundle.is_file():
        raise BadRun(
            f"{run.path}: has no {run.bundle.name}, which says what its similarities mean; "
            f"make it: familiar export {run.path} --output {run.bundle}"
        )
    bundle = load_bundle(run.bundle)
    if bundle.metadata.space_id != run.space_id:
        raise SpaceMismatch(
            f"{run.bundle}: its embeddings are of another space than those of {run.embedder.name} beside it; "
            f"export it again: familiar export {run.path} --output {run.bundle}"
        )
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = network.eval().to(device=device).to(memory_format=torch.channels_last)

    def compute(images: Float32[np.ndarray, "n 3 s s"]) -> Float32[np.ndarray, "n d"]:
        with torch.inference_mode():
            return network(torch.from_numpy(images).to(device)).cpu().numpy()

    return Embedder(bundle, threads, network=compute)
