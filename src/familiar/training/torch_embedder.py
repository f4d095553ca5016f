"""Embed with a run's own weights in PyTorch instead of its bundle in ONNX Runtime, for a server with a GPU."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, UInt8

from familiar.core.errors import BadRun, SpaceMismatch
from familiar.embedding.bundle import load_bundle
from familiar.embedding.embedder import Embedder
from familiar.photos.preprocessing import standardize
from familiar.training.checkpoint import load_weights
from familiar.training.network import build_network
from familiar.training.run import RunFolder


def torch_embedder(run_dir: Path | str, device: torch.device | None = None, threads: int | None = None) -> Embedder:
    """Return an embedder that computes with `embedder.safetensors` and takes everything else from `model.onnx`.

    On a GPU its embeddings are those of the bundle up to float32 rounding: cuDNN's TF32, which rounds to 10 bits, is
    switched off for this process.

    Args:
        run_dir: a run with an exported bundle.
        device: by default a GPU if there is one, for which an embedder's own `batch_size` is small.
        threads: how many batches are computed at the same time on a CPU. Set torch's threads to one then: more threads
            for one batch bring nothing.

    Raises:
        BadRun: a file of the run is missing or damaged.
        BadBundle: the run's bundle is damaged.
        SpaceMismatch: the bundle was not made from these weights.
    """
    run = RunFolder(Path(run_dir))
    network = build_network(run.recipe())
    load_weights(run.embedder, network=network)
    if not run.bundle.is_file():
        raise BadRun(
            f"{run.path}: has no {run.bundle.name}, which is needed to interpret similarities; "
            f"create it: familiar export {run.path} --output {run.bundle}"
        )
    bundle = load_bundle(run.bundle)
    if bundle.metadata.space_id != run.space_id:
        raise SpaceMismatch(
            f"{run.bundle}: its embeddings belong to another space than those of {run.embedder.name} in the same run; "
            f"export it again: familiar export {run.path} --output {run.bundle}"
        )
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        torch.backends.cudnn.allow_tf32 = False
    network = network.eval().to(device=device).to(memory_format=torch.channels_last)

    def compute(crops_u8: UInt8[np.ndarray, "n s s 3"]) -> Float32[np.ndarray, "n d"]:
        images = standardize(crops_u8, bundle.metadata.preprocessing)
        with torch.inference_mode():
            return network(torch.from_numpy(images).to(device)).cpu().numpy()

    return Embedder(bundle, threads, network=compute)
