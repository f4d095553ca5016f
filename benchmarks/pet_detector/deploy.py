"""The trained network as the file that the package has: ONNX, with weights in 4 and 8 bits and scaled scores."""

import copy
from collections.abc import Mapping

import numpy as np
import onnx
import torch
from jaxtyping import Float32

from familiar.detection.heads import LABELS, MULTIPLE_PX
from familiar.export.bias_correction import round_weights
from familiar.export.onnx import INPUT_NAME, remove_notes, to_onnx
from familiar.export.precision import store_weights_as_int4
from pet_detector.network import Deployed, DetectorNetwork, Plain

OUTPUTS = ["boxes", "scores", "points"]
MOST_MULTIPLES = 64
MIN_SIZE_OF_4_BITS = 3_000  # weights; smaller matrices are few, and each of their weights counts more


def deploy(network: DetectorNetwork, thresholds: Mapping[str, float], images: Float32[np.ndarray, "n 3 s s"]) -> bytes:
    """Export the network.

    Args:
        network: is not changed.
        thresholds: a probability for each label; the file's score is .5 where the network says this.
        images: standardized scenes, on which the rounding of the weights is made up for.

    Returns:
        An ONNX file that takes "1 s t 3" pixels, s and t multiples of 32, and gives "c 4" boxes, "c l" scores and
        "c p 2" landmarks.
    """
    network = copy.deepcopy(network).eval()
    assert network.top.bias is not None
    with torch.no_grad():
        network.top.bias[: len(LABELS)] -= torch.tensor([thresholds[label] for label in LABELS]).logit()
    height, width = (torch.export.Dim(name, min=2, max=MOST_MULTIPLES) for name in ("height", "width"))
    photo = torch.zeros(1, 8 * MULTIPLE_PX, 10 * MULTIPLE_PX, 3, dtype=torch.uint8)
    model = to_onnx(Deployed(network), photo, {1: MULTIPLE_PX * height, 2: MULTIPLE_PX * width}, "photo", OUTPUTS)
    remove_notes(model)
    # Weights have the same names in both; only this one takes several images at once.
    few = torch.zeros(2, *images.shape[1:])
    plain = to_onnx(Plain(network), few, {0: torch.export.Dim("n")}, INPUT_NAME, ["values"])
    matrices = round_weights(plain, images, four_bits=True, min_size=MIN_SIZE_OF_4_BITS)
    rounded = {tensor.name: tensor for tensor in plain.graph.initializer}
    for tensor in model.graph.initializer:
        if tensor.name in rounded:
            tensor.CopyFrom(rounded[tensor.name])
    store_weights_as_int4(model, matrices)
    onnx.checker.check_model(model)
    return model.SerializeToString(deterministic=True)
