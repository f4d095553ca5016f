"""Reading ONNX networks of others and changing their graphs: one image in, one unit vector out, any batch size."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper

from familiar.core.errors import BadNetwork
from familiar.embedding.network_scan import check_network, scan_network

Layout = Literal["NCHW", "NHWC"]
MAX_BYTES = 2**31 - 1  # of a protobuf message, and so of a bundle, which holds its weights itself
KNOWN_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")  # whose operators ONNX Runtime has
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)
MIN_OPSET = 9
INITIALIZERS_NEED_NO_INPUT = 4  # ONNX's IR version from which on this holds
EMBEDDINGS_NAME = "embeddings"


@dataclass(frozen=True)
class ImageInput:
    """The input of a network that takes images.

    Attributes:
        name: of the input.
        layout: order of the axes; "NCHW" is channels first.
        height_px: None if the network takes images of any size.
        width_px: likewise.
        batch: the only batch size that the network takes; None: it takes any.
    """

    name: str
    layout: Layout
    height_px: int | None
    width_px: int | None
    batch: int | None


def read_network(path: Path) -> onnx.ModelProto:
    """Read an ONNX file with all its weights, also those in files beside it.

    Args:
        path: the file.

    Raises:
        BadNetwork: the file is missing, no ONNX network, damaged, too large or too old, refers to files elsewhere,
            repeats parts of itself, or uses operators that ONNX Runtime does not have.
    """
    check_file_size(path)
    try:
        content = path.read_bytes()
        scan = scan_network(content)  # before anything else looks at it
        check_network(scan)
        _check_external_data(scan.locations, path)
        model = onnx.load_from_string(content)
        onnx.load_external_data_for_model(model, str(path.parent))
    except OSError as error:
        raise BadNetwork(f"{path}: cannot be read ({error.strerror or error})") from error
    except (DecodeError, onnx.checker.ValidationError, ValueError) as error:
        raise BadNetwork(f"{path}: is no complete ONNX network; download it again ({error})") from error
    if not model.graph.node:
        raise BadNetwork(f"{path}: is no ONNX network: it has no operators")
    _check_operators(model, path)
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError) as error:
        raise BadNetwork(f"{path}: is not a valid ONNX network ({str(error).strip().splitlines()[0]})") from error
    return model


def check_file_size(path: Path) -> None:
    """Raise BadNetwork if a file is missing, or larger than an ONNX file can be."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadNetwork(_too_large(path))
    except OSError as error:
        raise BadNetwork(f"{path}: cannot be read ({error.strerror or error})") from error


def make_initializers_constant(model: onnx.ModelProto) -> None:
    """Take initializers off the list of inputs, so that ONNX Runtime can fold them.

    Args:
        model: changed in place.
    """
    initializers = {tensor.name for tensor in model.graph.initializer}
    real_inputs = [value for value in model.graph.input if value.name not in initializers]
    del model.graph.input[:]
    model.graph.input.extend(real_inputs)
    model.ir_version = max(model.ir_version, INITIALIZERS_NEED_NO_INPUT)


def image_input(model: onnx.ModelProto, path: Path, layout: Layout | None = None) -> ImageInput:
    """Find the network's only input, and the order of its axes.

    Args:
        model: without initializers among its inputs.
        path: named in messages.
        layout: order of the axes; None: that in which one axis has three channels.

    Raises:
        BadNetwork: there are several inputs, or the only one is no image, or the layout is not certain.
    """
    inputs = list(model.graph.input)
    if len(inputs) != 1:
        names = ", ".join(value.name for value in inputs) or "none"
        raise BadNetwork(f"{path}: a network of one image has one input, but this one has {len(inputs)}: {names}")
    tensor = inputs[0].type.tensor_type
    sides = [size.dim_value if size.HasField("dim_value") and size.dim_value > 0 else None for size in tensor.shape.dim]
    if tensor.elem_type not in FLOATS or len(sides) != 4:
        kind = helper.tensor_dtype_to_string(tensor.elem_type).removeprefix("TensorProto.").lower()
        raise BadNetwork(
            f"{path}: its input {inputs[0].name} is {kind} with {len(sides)} axes, not float images with four"
        )
    channel_axes: dict[Layout, int] = {"NCHW": 1, "NHWC": 3}
    fitting: list[Layout] = [name for name, axis in channel_axes.items() if sides[axis] == 3]
    if 1 in (sides[1], sides[3]) and not fitting:
        raise BadNetwork(
            f"{path}: its input {inputs[0].name} takes gray images, of one channel, and photos have three; let it "
            "begin with a convolution that takes RGB"
        )
    if layout is None and len(fitting) != 1:
        raise BadNetwork(f"{path}: its input {inputs[0].name} has the shape {sides}; give its --layout, NCHW or NHWC")
    chosen = layout or fitting[0]
    channels, height, width = (sides[1], *sides[2:]) if chosen == "NCHW" else (sides[3], *sides[1:3])
    if channels not in (3, None):
        raise BadNetwork(f"{path}: its input {inputs[0].name} has {channels} channels as {chosen}, not three")
    return ImageInput(inputs[0].name, chosen, height, width, sides[0])


def check_mode(model: onnx.ModelProto, path: Path) -> None:
    """Check that a network was not exported as it is trained: then an embedding is random, or depends on its batch.

    Args:
        model: without initializers among its inputs.
        path: named in messages.

    Raises:
        BadNetwork: it has dropout or batch normalization in training mode.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes = [node for node in model.graph.node if node.op_type == "Constant"]
    constants |= {node.output[0]: each.t for node in nodes for each in node.attribute if each.name == "value"}
    for node in model.graph.node:
        mode = constants.get(node.input[2]) if node.op_type == "Dropout" and len(node.input) > 2 else None
        trains = mode is not None and bool(numpy_helper.to_array(mode))
        if node.op_type == "BatchNormalization":
            trains = any(each.name == "training_mode" and each.i for each in node.attribute)
        if trains:
            raise BadNetwork(
                f"{path}: was exported in training mode: its {node.op_type} {node.name or node.output[0]} gives other "
                "numbers for the same photo; call eval() on the network and export it again"
            )


def keep_output(model: onnx.ModelProto, path: Path, name: str | None = None) -> None:
    """Keep one output, and the operators it needs.

    Args:
        model: changed in place.
        path: named in messages.
        name: of the output; None: the only one, or the only one with a vector per photo.

    Raises:
        BadNetwork: there is no such output, or several could be meant.
    """
    outputs = {output.name: output for output in model.graph.output}
    if name is None:
        vectors = [each for each, output in outputs.items() if len(output.type.tensor_type.shape.dim) == 2]
        candidates = list(outputs) if len(outputs) == 1 else vectors
        if len(candidates) != 1:
            raise BadNetwork(f"{path}: has several outputs ({', '.join(outputs)}); choose one with --output-name")
        name = candidates[0]
    if name not in outputs:
        raise BadNetwork(f"{path}: has no output {name!r}; it has {', '.join(outputs)}")
    output = outputs[name]
    needed, nodes = {name}, []
    for node in reversed(model.graph.node):
        if needed & set(node.output):
            nodes.append(node)
            needed |= set(node.input) | _outer_names(node)
    nodes.reverse()
    tensors = [tensor for tensor in model.graph.initializer if tensor.name in needed]
    for field, values in (("node", nodes), ("initializer", tensors), ("output", [output])):
        copies = [type(value).FromString(value.SerializeToString()) for value in values]
        del getattr(model.graph, field)[:]
        getattr(model.graph, field).extend(copies)


def free_batch_size(model: onnx.ModelProto, *, reshapes: bool) -> None:
    """Let a network of a fixed batch size take any.

    Args:
        model: changed in place.
        reshapes: also change constant shapes whose first number is that batch size; whether this is right, a
            comparison with the original shows.
    """
    batch = model.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    del model.graph.value_info[:]  # they repeat the batch size
    if not reshapes:
        return
    shapes = {node.input[1] for node in model.graph.node if node.op_type == "Reshape"}

    def freed(values: np.ndarray) -> np.ndarray:
        changed = values.copy()
        if changed.ndim == 1 and len(changed) and changed[0] == batch:
            changed[0] = -1 if (changed != -1).all() else 0  # 0: as many as the input has
        return changed

    _change_constants(model, shapes, freed)


def normalize_output(model: onnx.ModelProto, axes: int, token: int | None = None) -> None:
    """Let the network return float32 unit vectors, "n d".

    Args:
        model: with one output; changed in place.
        axes: number of the output's axes: 2; 4 for "n d 1 1"; 3 for several vectors per photo.
        token: which of several vectors per photo.
    """
    (output,) = model.graph.output
    taken = {name for node in model.graph.node for name in (*node.input, *node.output)}
    taken |= {tensor.name for tensor in model.graph.initializer} | {value.name for value in model.graph.input}
    last = output.name

    def add(operator: str, *more: str, **attributes: Any) -> None:
        nonlocal last
        name = free_name(f"{EMBEDDINGS_NAME}_{operator}", taken)
        model.graph.node.append(helper.make_node(operator, [last, *more], [name], **attributes))
        last = name

    if axes == 3:
        index = free_name(f"{EMBEDDINGS_NAME}_token", taken)
        model.graph.initializer.append(numpy_helper.from_array(np.array(token, np.int64), index))
        add("Gather", index, axis=1)
    elif axes == 4:
        add("Flatten")
    if output.type.tensor_type.elem_type != TensorProto.FLOAT:
        add("Cast", to=TensorProto.FLOAT)
    add("LpNormalization", axis=1, p=2)
    final = free_name(EMBEDDINGS_NAME, taken)
    model.graph.node[-1].output[0] = final
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info(final, TensorProto.FLOAT, ["n", "d"]))


def free_name(prefix: str, taken: set[str]) -> str:
    """Return a name that the graph does not use yet, and note it.

    Args:
        prefix: the name, or how it begins.
        taken: the names of the graph; the new one is added.
    """
    name, number = prefix, 1
    while name in taken:
        name, number = f"{prefix}_{number}", number + 1
    taken.add(name)
    return name


def _too_large(path: Path) -> str:
    return (
        f"{path}: with its weights it is larger than 2 GiB, the limit of an ONNX file that holds its weights; "
        "use a smaller network, or one in float16"
    )


def _check_external_data(locations: Collection[str], path: Path) -> None:
    """Raise BadNetwork unless the files with weights are beside the network, and the whole is small enough."""
    folder = path.parent.resolve()
    total_bytes = path.stat().st_size
    for name in sorted(locations):
        parts = re.split(r"[/\\\\]", name)
        # "*" begins the names by which ONNX Runtime means addresses in memory.
        if {"", ".", ".."} & set(parts) or any(set(part) & set("*:\0") for part in parts):
            raise BadNetwork(f"{path}: says that weights are in {name!r}, which is not the name of a file beside it")
        file = folder.joinpath(*parts)
        if not file.is_file():
            raise BadNetwork(f"{path}: its weights are in {file.name}, which is not beside it; copy both files")
        if file.resolve() != file:
            raise BadNetwork(f"{path}: its weights in {name} are a link to another file; copy that file here instead")
        total_bytes += file.stat().st_size
    if total_bytes > MAX_BYTES:
        raise BadNetwork(_too_large(path))


def _check_operators(model: onnx.ModelProto, path: Path) -> None:
    custom = sorted({f"{node.domain}.{node.op_type}" for node in model.graph.node if node.domain not in KNOWN_DOMAINS})
    if custom:
        raise BadNetwork(
            f"{path}: uses operators that ONNX Runtime does not have: {', '.join(custom)}; export the network again "
            "with standard operators"
        )
    opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    if opset < MIN_OPSET:
        raise BadNetwork(
            f"{path}: is of ONNX opset {opset}; from {MIN_OPSET} on they can be imported: export it again, or convert "
            "it with onnx.version_converter"
        )


def _outer_names(node: onnx.NodeProto) -> set[str]:
    """Return the names that the node's subgraphs (of If and Loop) may take from the graph around them."""
    names: set[str] = set()
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            for inner in graph.node:
                names |= set(inner.input) | _outer_names(inner)
    return names


def _change_constants(model: onnx.ModelProto, names: set[str], change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Change the values of initializers and Constant operators."""
    for tensor in model.graph.initializer:
        if tensor.name in names:
            tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor)), tensor.name))
    for node in model.graph.node:
        if node.op_type == "Constant" and node.output[0] in names:
            for attribute in node.attribute:
                if attribute.name == "value":
                    attribute.t.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(attribute.t))))
