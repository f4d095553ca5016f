"""Export of a network as one self-contained ONNX model that contains its weights."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from familiar.export.folding import fold_batch_norms

INPUT_NAME, OUTPUT_NAME = "images", "embeddings"
OPSET = 18  # which torch's exporter writes without a conversion


def onnx_bytes(network: nn.Module, size_px: int) -> bytes:
    """Serialize `network` in evaluation mode, as "n 3 s s" -> "n d" for any n of at least 1, in float32.

    Batch norms are folded into the convolutions before them.
    """
    example = torch.zeros(2, 3, size_px, size_px)
    model = to_onnx(network.cpu().eval(), example, {0: torch.export.Dim("n", min=1)}, INPUT_NAME, [OUTPUT_NAME])
    strip_metadata(model)
    onnx.checker.check_model(model)
    return model.SerializeToString(deterministic=True)


def to_onnx(
    network: nn.Module, example: Tensor, free_dims: Mapping[int, Any], input_name: str, output_names: Sequence[str]
) -> onnx.ModelProto:
    """Export a network with one input. Batch norms are folded into the convolutions before them.

    Args:
        network: in evaluation mode, on the CPU.
        example: an input.
        free_dims: the dimensions of the input that may have other lengths, each as a `torch.export.Dim`.
        input_name: of the model.
        output_names: of the model.
    """
    with warnings.catch_warnings():
        # torch's exporter uses deprecated functions of torch; none of the warnings is about the network.
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            network,
            (example,),
            dynamo=True,
            verbose=False,
            opset_version=OPSET,
            external_data=False,
            input_names=[input_name],
            output_names=list(output_names),
            dynamic_shapes=(dict(free_dims),),
        )
    assert program is not None
    model = program.model_proto
    fold_batch_norms(model)
    return model


def strip_metadata(model: onnx.ModelProto) -> None:
    """Remove the exporter's notes on each node, 250 KB that name source files, and shorten names to hex numbers."""
    remove_notes(model)
    graph = model.graph
    unchanged = {INPUT_NAME, OUTPUT_NAME, ""}
    values = [tensor.name for tensor in graph.initializer] + [name for node in graph.node for name in node.output]
    short = {name: f"{number:x}" for number, name in enumerate(dict.fromkeys(values)) if name not in unchanged}
    for tensor in graph.initializer:
        tensor.name = short[tensor.name]
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [short.get(name, name) for name in names]


def remove_notes(model: onnx.ModelProto) -> None:
    """Remove the exporter's notes and the names of nodes."""
    model.doc_string = ""
    del model.metadata_props[:]
    graph = model.graph
    graph.doc_string = ""
    del graph.metadata_props[:]
    del graph.value_info[:]
    for part in (*graph.node, *graph.input, *graph.output, *graph.initializer):
        part.doc_string = ""
        del part.metadata_props[:]
    for node in graph.node:
        node.name = ""
