"""The trained network as the file that the package has: ONNX, with weights in 8 bits and scaled scores."""

import copy
import warnings
from collections.abc import Mapping

import onnx
import torch

from familiar.export.folding import fold_batch_norms
from familiar.export.onnx import OPSET
from familiar.export.precision import store_weights_as_int8
from pet_detector.network import LABELS, Deployed, DetectorNetwork

OUTPUTS = ["boxes", "scores", "points"]
MULTIPLE_PX, MOST_MULTIPLES = 32, 64


def deploy(network: DetectorNetwork, thresholds: Mapping[str, float]) -> bytes:
    """Export the network.

    Args:
        network: is not changed.
        thresholds: a probability for each label; the file's score is .5 where the network says this.

    Returns:
        An ONNX file that takes "1 s t 3" pixels, s and t multiples of 32, and gives "c 4" boxes, "c l" scores and
        "c p 2" landmarks.
    """
    network = copy.deepcopy(network).eval()
    assert network.top.bias is not None
    with torch.no_grad():
        network.top.bias[: len(LABELS)] -= torch.tensor([thresholds[label] for label in LABELS]).logit()
    height, width = (torch.export.Dim(name, min=2, max=MOST_MULTIPLES) for name in ("height", "width"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's exporter, about torch
        program = torch.onnx.export(
            Deployed(network),
            (torch.zeros(1, 8 * MULTIPLE_PX, 10 * MULTIPLE_PX, 3, dtype=torch.uint8),),
            dynamo=True,
            verbose=False,
            opset_version=OPSET,
            external_data=False,
            input_names=["photo"],
            output_names=OUTPUTS,
            dynamic_shapes=({1: MULTIPLE_PX * height, 2: MULTIPLE_PX * width},),
        )
    assert program is not None
    model = program.model_proto
    fold_batch_norms(model)
    store_weights_as_int8(model)
    without_notes(model)
    onnx.checker.check_model(model)
    return model.SerializeToString(deterministic=True)


def without_notes(model: onnx.ModelProto) -> None:
    """Remove the exporter's notes on each node."""
    model.doc_string = ""
    del model.metadata_props[:]
    del model.graph.metadata_props[:]
    del model.graph.value_info[:]
    for node in model.graph.node:
        node.doc_string = node.name = ""
        del node.metadata_props[:]
