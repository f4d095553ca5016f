"""A look at an ONNX network before anything opens it: no other files, no loops, a bounded number of operators.

A network of a stranger is a program. ONNX Runtime keeps it from everything but the processor, the memory and the files
that it names as its weights. This module reads the encoded file itself (onnx.proto), since a plain installation has no
`onnx`, and since what is refused should not have been parsed by anything larger.
"""

from dataclasses import dataclass, field

from familiar.core.protobuf import iterate_fields

MAX_NODES = 100_000  # the largest published embedders have some ten thousand
MAX_FIELDS = 2_000_000  # looked at, which takes about a second
MAX_DEPTH = 8  # of graphs in operators in graphs; exporters nest two
# Repeat a graph as often as a number in the file, or in the photo, says. A network of one image needs none of them.
REPEATING = frozenset({"Loop", "Scan", "SequenceMap", "BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"})
OPENS_FILES = frozenset({"EPContext"})  # of onnxruntime: a compiled network in another file

# The fields of onnx.proto that matter: for each message, the messages in it by field number.
_MESSAGES = {
    "model": {7: "graph", 20: "functions", 25: "functions"},  # 20: training_info, which has functions too
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse tensor", 23: "sparse tensor"},
    "sparse tensor": {1: "tensor", 2: "tensor"},
    "tensor": {13: "external entry"},
    "functions": {},
    "external entry": {},
}
_NODE_OPERATOR, _NODE_DOMAIN = 4, 7
_TENSOR_LOCATION = 14
_ENTRY_KEY, _ENTRY_VALUE = 1, 2
_TEXTS = {
    ("node", _NODE_OPERATOR),
    ("node", _NODE_DOMAIN),
    ("external entry", _ENTRY_KEY),
    ("external entry", _ENTRY_VALUE),
}
_EXTERNAL = 1  # TensorProto.DataLocation


@dataclass
class NetworkScan:
    """What a network contains.

    Attributes:
        external: whether any tensor is in another file.
        locations: the names of the other files that tensors are in, as they are written.
        operators: names of operators with their domains, such as ("", "Conv").
        nodes: their number, those in the graphs of other operators too.
        functions: whether the file defines operators of its own.
    """

    external: bool = False
    locations: set[str] = field(default_factory=set[str])
    operators: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    nodes: int = 0
    functions: bool = False


def scan_network(network: bytes | memoryview) -> NetworkScan:
    """Look through an encoded network.

    Args:
        network: the content of an ONNX file.

    Raises:
        ValueError: it is malformed, nested too deeply or too large to look through.
    """
    scan = NetworkScan()
    fields = 0

    def look(kind: str, message: bytes | memoryview, depth: int) -> None:
        """Look through a message and those in it. `depth`: the number of graphs that it is in."""
        nonlocal fields
        depth += kind == "graph"
        if depth > MAX_DEPTH:
            raise ValueError(f"it nests more than {MAX_DEPTH} graphs in each other")
        texts: dict[int, str] = {}
        for number, _, content in iterate_fields(message):
            fields += 1
            if fields > MAX_FIELDS:
                raise ValueError(f"it has more than {MAX_FIELDS:,} parts")
            if isinstance(content, int):
                is_location = kind == "tensor" and number == _TENSOR_LOCATION
                scan.external |= is_location and content & 0xFFFFFFFF == _EXTERNAL
            elif number in _MESSAGES[kind]:
                look(_MESSAGES[kind][number], content, depth)
            elif (kind, number) in _TEXTS:
                texts[number] = bytes(content).decode("utf-8", "replace")
        if kind == "functions":
            scan.functions = True
        elif kind == "node":
            scan.nodes += 1
            scan.operators.add((texts.get(_NODE_DOMAIN, ""), texts.get(_NODE_OPERATOR, "")))
        elif kind == "external entry":
            scan.external = True
            if texts.get(_ENTRY_KEY) == "location":
                scan.locations.add(texts.get(_ENTRY_VALUE, ""))

    look("model", network, 0)
    return scan


def check_network(scan: NetworkScan) -> None:
    """Check that a network neither repeats parts of itself nor defines operators nor is far too large.

    Raises:
        ValueError: it does; the message says what.
    """
    names = {name for _, name in scan.operators}
    if repeating := sorted(names & REPEATING):
        raise ValueError(f"it has operators that repeat a part of it without a bound ({', '.join(repeating)})")
    if opening := sorted(names & OPENS_FILES):
        raise ValueError(f"it has operators that open other files ({', '.join(opening)})")
    if scan.functions:
        raise ValueError("it defines operators of its own as functions")
    if scan.nodes > MAX_NODES:
        raise ValueError(f"it has {scan.nodes:,} operators, more than {MAX_NODES:,}")
