from pathlib import Path

import onnx
import onnxruntime as ort
import pytest

from familiar.core.onnx_runtime import session_options
from familiar.detection.heads import NETWORK_FILE
from familiar.embedding.embedder import Embedder
from familiar.embedding.zoo import shipped_bundles

FOUR_BITS = [NETWORK_FILE, *(path for name, path in shipped_bundles().items() if name == "pet-nano")]


def operators(file: Path, options: ort.SessionOptions, optimized: Path) -> set[str]:
    """The kinds of nodes that ONNX Runtime runs in each call."""
    options.optimized_model_filepath = str(optimized)
    ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return {node.op_type for node in onnx.load(optimized).graph.node}


@pytest.mark.parametrize("file", FOUR_BITS, ids=lambda path: path.stem)
def test_weights_of_4_bits_are_converted_at_opening(file: Path, tmp_path: Path) -> None:
    options = session_options(dequantize_at_opening=True)
    assert "DequantizeLinear" not in operators(file, options, tmp_path / "once.onnx")
    options = session_options(dequantize_at_opening=False)
    assert "DequantizeLinear" in operators(file, options, tmp_path / "each.onnx")


@pytest.mark.parametrize(("name", "expected"), [("pet-nano", True), ("pet-mobile", False)])
def test_embedder_asks_for_it_by_precision(name: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a network that computes in integers it would undo that."""
    values: list[bool] = []

    def options(*, dequantize_at_opening: bool) -> ort.SessionOptions:
        values.append(dequantize_at_opening)
        return session_options(dequantize_at_opening=dequantize_at_opening)

    monkeypatch.setattr("familiar.embedding.networks.session_options", options)
    Embedder(name)
    assert values == [expected]
