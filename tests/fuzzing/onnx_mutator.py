"""Changes of ONNX networks by the fields of their messages."""

from random import Random

import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper

from fuzzing.mutators import bytes_mutator

OPERATORS = (
    *("Loop", "Scan", "If", "SequenceMap", "ConstantOfShape", "Expand", "Tile", "Resize", "Upsample", "Pad", "Range"),
    *("RandomNormal", "EyeLike", "OneHot", "Reshape", "Gather", "GatherND", "ScatterND", "Concat", "Einsum", "MatMul"),
    *(
        "Conv",
        "ConvTranspose",
        "MaxPool",
        "LSTM",
        "GRU",
        "Identity",
        "Constant",
        "Cast",
        "Slice",
        "Squeeze",
        "Unsqueeze",
    ),
    *("Transpose", "Relu", "Softmax", "TopK", "NonZero", "StringNormalizer", "Unknown", "QLinearConv", "Optional"),
)
INTEGERS = (0, 1, -1, 2, 3, 7, 1000, 65536, 2**31 - 1, 2**40, 2**63 - 1, -(2**63))
LOCATIONS = ("weights.bin", "../../etc/passwd", "/etc/passwd", "/dev/zero", "", ".", "\0", "link")


def onnx_mutator(data: bytes, dice: Random) -> bytes:
    """Change an operator, an attribute, a tensor, a shape, a connection or a version of a network."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        return bytes_mutator(data, dice)
    for _ in range(dice.choice((1, 1, 2, 4))):
        _change(model, dice)
    return model.SerializeToString()


def _change(model: onnx.ModelProto, dice: Random) -> None:
    nodes, tensors = list(model.graph.node), list(model.graph.initializer)
    tensors += [each.t for node in nodes for each in node.attribute if each.HasField("t")]
    values = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    match dice.randrange(10):
        case 0 if nodes:
            dice.choice(nodes).op_type = dice.choice(OPERATORS)
        case 1 if nodes:
            node = dice.choice(nodes)
            names = [name for each in nodes for name in (*each.input, *each.output)] + [each.name for each in tensors]
            if node.input and names:
                node.input[dice.randrange(len(node.input))] = dice.choice(names)
            else:
                node.input.append(dice.choice([*names, "x"]))
        case 2 if nodes and (attributes := [each for node in nodes for each in node.attribute]):
            attribute = dice.choice(attributes)
            attribute.i = dice.choice(INTEGERS)
            if attribute.ints:
                attribute.ints[dice.randrange(len(attribute.ints))] = dice.choice(INTEGERS)
            if dice.random() < 0.2:
                attribute.type = dice.randrange(15)
        case 3 if tensors:
            tensor = dice.choice(tensors)
            if tensor.dims and dice.random() < 0.7:
                tensor.dims[dice.randrange(len(tensor.dims))] = dice.choice(INTEGERS)
            else:
                tensor.data_type = dice.randrange(24)
        case 4 if tensors:
            tensor = dice.choice(tensors)
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", dice.choice(LOCATIONS)), ("offset", str(dice.choice(INTEGERS)))):
                tensor.external_data.add(key=key, value=value)
        case 5 if values:
            shape = dice.choice(values).type.tensor_type.shape
            if shape.dim and dice.random() < 0.8:
                shape.dim[dice.randrange(len(shape.dim))].dim_value = dice.choice(INTEGERS)
            else:
                shape.dim.add(dim_param="n")
        case 6 if nodes:
            inner = helper.make_graph([dice.choice(nodes)], "inner", [], list(model.graph.output))
            for _ in range(dice.choice((1, 3, 12))):
                wrapped = helper.make_node(dice.choice(("Loop", "If", "Scan", "Relu")), ["x"], ["y"], body=inner)
                inner = helper.make_graph([wrapped], "outer", [], list(model.graph.output))
            model.graph.node.extend(inner.node)
        case 7 if nodes:
            node = dice.choice(nodes)
            for number in range(dice.choice((1, 20))):
                copy = model.graph.node.add()
                copy.CopyFrom(node)
                copy.output[:] = [f"{name}_{number}" for name in node.output]
        case 8:
            model.ir_version = dice.choice(INTEGERS)
            if model.opset_import:
                model.opset_import[0].version = dice.choice((1, 8, 9, 13, 18, 25, 2**31))
        case _:
            data = bytes_mutator(model.SerializeToString(), dice)
            try:
                model.ParseFromString(data)
            except DecodeError:
                return
