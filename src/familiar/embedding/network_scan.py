"""A look at an ONNX network before anything opens it: no other files, no loops, a bounded number of operators.

A network of a stranger is a program. ONNX Runtime keeps it from everything but the processor, the memory and the files
that it names as its weights. This module reads the encoded file itself (onnx.proto), since a plain installation has no
`onnx`, and since what is refused should not have been parsed by anything larger.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from familiar.core.protobuf import iterate_fields

MAX_NODES = 100_000  # the largest published embedders have some ten thousand
MAX_FIELDS = 2_000_000  # looked at, which takes about a second
MAX_DEPTH = 8  # of graphs in operators in graphs; exporters nest two
# Repeat a graph as often as a number in the file, or in the photo, says. A network of one image needs none of them.
REPEATING = frozenset({"Loop", "Scan", "SequenceMap", "BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"})
OPENS_FILES = frozenset({"EPContext"})  # of onnxruntime: a compiled network in another file

# Field numbers of onnx.proto.
_MODEL_GRAPH, _MODEL_FUNCTIONS, _MODEL_TRAINING = 7, 25, 20
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_SPARSE = 1, 5, 15
_NODE_OPERATOR, _NODE_ATTRIBUTE, _NODE_DOMAIN = 4, 5, 7
_ATTRIBUTE_TENSOR, _ATTRIBUTE_GRAPH, _ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS = 5, 6, 10, 11
_ATTRIBUTE_SPARSE, _ATTRIBUTE_SPARSES = 22, 23
_SPARSE_VALUES, _SPARSE_INDICES = 1, 2
_TENSOR_EXTERNAL, _TENSOR_LOCATION = 13, 14
_ENTRY_KEY, _ENTRY_VALUE = 1, 2
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
    return _Scanner().scan(network)


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


class _Scanner:
    """Counts what it sees on its way through the messages."""

    def __init__(self) -> None:
        self._result = NetworkScan()
        self._fields = 0

    def scan(self, network: bytes | memoryview) -> NetworkScan:
        for number, content in self._parts(network):
            if number == _MODEL_GRAPH:
                self._graph(content, 1)
            elif number in (_MODEL_FUNCTIONS, _MODEL_TRAINING):
                self._result.functions = True
        return self._result

    def _parts(self, message: bytes | memoryview) -> Iterator[tuple[int, memoryview]]:
        """Yield the fields that are messages or texts."""
        for number, _, content in iterate_fields(message):
            self._count()
            if isinstance(content, memoryview):
                yield number, content

    def _count(self) -> None:
        self._fields += 1
        if self._fields > MAX_FIELDS:
            raise ValueError(f"it has more than {MAX_FIELDS:,} parts")

    def _graph(self, graph: memoryview, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise ValueError(f"it nests more than {MAX_DEPTH} graphs in each other")
        for number, content in self._parts(graph):
            if number == _GRAPH_NODE:
                self._node(content, depth)
            elif number == _GRAPH_INITIALIZER:
                self._tensor(content)
            elif number == _GRAPH_SPARSE:
                self._sparse_tensor(content)

    def _node(self, node: memoryview, depth: int) -> None:
        self._result.nodes += 1
        operator = domain = ""
        for number, content in self._parts(node):
            if number == _NODE_OPERATOR:
                operator = _text(content)
            elif number == _NODE_DOMAIN:
                domain = _text(content)
            elif number == _NODE_ATTRIBUTE:
                self._attribute(content, depth)
        self._result.operators.add((domain, operator))

    def _attribute(self, attribute: memoryview, depth: int) -> None:
        for number, content in self._parts(attribute):
            if number in (_ATTRIBUTE_TENSOR, _ATTRIBUTE_TENSORS):
                self._tensor(content)
            elif number in (_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS):
                self._graph(content, depth + 1)
            elif number in (_ATTRIBUTE_SPARSE, _ATTRIBUTE_SPARSES):
                self._sparse_tensor(content)

    def _sparse_tensor(self, tensor: memoryview) -> None:
        for number, content in self._parts(tensor):
            if number in (_SPARSE_VALUES, _SPARSE_INDICES):
                self._tensor(content)

    def _tensor(self, tensor: memoryview) -> None:
        for number, _, content in iterate_fields(tensor):
            self._count()
            if number == _TENSOR_LOCATION and isinstance(content, int) and content & 0xFFFFFFFF == _EXTERNAL:
                self._result.external = True
            elif number == _TENSOR_EXTERNAL and isinstance(content, memoryview):
                self._result.external = True
                entry = {key: _text(value) for key, value in self._parts(content)}
                if entry.get(_ENTRY_KEY) == "location":
                    self._result.locations.add(entry.get(_ENTRY_VALUE, ""))


def _text(content: memoryview) -> str:
    return bytes(content).decode("utf-8", "replace")
