import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch

import familiar
from familiar.export.onnx import INPUT_NAME, OPSET, OUTPUT_NAME, onnx_bytes
from familiar.models.catalog import network_spec

pytestmark = pytest.mark.slow

SIZE_PX, DIM = 32, 8


@pytest.fixture(scope="module")
def network():
    """A network with statistics such that embeddings of noise differ, and with everything a run's network may have."""
    torch.manual_seed(0)
    made = network_spec("mobilenetv3_small_050").build(SIZE_PX, DIM, 0.3)
    made.trunk.batch_norm_eps = 1e-2
    with torch.no_grad():
        for _ in range(20):
            made.train()(torch.randn(16, 3, SIZE_PX, SIZE_PX))
    return made.to(memory_format=torch.channels_last).train()


@pytest.fixture(scope="module")
def model(network):
    return onnx_bytes(network, SIZE_PX)


def run(model, images):
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    (embeddings,) = session.run(None, {INPUT_NAME: images.numpy()})
    return embeddings


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_matches_torch_for_any_batch_size(model, network, batch):
    images = torch.randn(batch, 3, SIZE_PX, SIZE_PX)
    with torch.no_grad():
        expected = network(images).numpy()
    embeddings = run(model, images)
    assert embeddings.shape == (batch, DIM)
    assert not network.training, "dropout and batch statistics would have been exported"
    assert batch == 1 or np.abs(expected[0] - expected[1]).max() > 0.1
    np.testing.assert_allclose(embeddings, expected, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1.0, atol=1e-5)


def test_model_has_expected_names_shapes_and_opset(model):
    proto = onnx.load_from_string(model)
    (images,), (embeddings,) = proto.graph.input, proto.graph.output
    assert (images.name, embeddings.name) == (INPUT_NAME, OUTPUT_NAME) == ("images", "embeddings")
    for value, sizes in ((images, [3, SIZE_PX, SIZE_PX]), (embeddings, [DIM])):
        batch, *rest = value.type.tensor_type.shape.dim
        assert batch.dim_param, "the batch is free"
        assert [dimension.dim_value for dimension in rest] == sizes
        assert value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert [entry.version for entry in proto.opset_import if not entry.domain] == [OPSET]
    assert not proto.functions


def test_weights_are_stored_inside_model(network, model):
    proto = onnx.load_from_string(model)
    assert not any(tensor.external_data for tensor in proto.graph.initializer)
    assert all(tensor.data_location == onnx.TensorProto.DEFAULT for tensor in proto.graph.initializer)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    assert 3.8 * parameters < len(model) < 4.4 * parameters + 100_000


def test_model_contains_no_paths_or_metadata(model):
    """Neither the folder where it was exported, nor source files."""
    package = Path(familiar.__file__).parent
    home_dir = str(Path.home())
    for trace in (str(package), str(package.parents[1]), sys.prefix, "site-packages", ".py", "torch.nn"):
        assert trace.encode() not in model, trace
    assert home_dir == "/" or home_dir.encode() not in model
    proto = onnx.load_from_string(model)
    assert not proto.metadata_props
    assert not proto.doc_string
    assert not any(node.doc_string or node.metadata_props for node in proto.graph.node)


def test_model_runs_without_torch_and_familiar(model, network, tmp_path):
    (tmp_path / "alone.onnx").write_bytes(model)
    images = torch.randn(2, 3, SIZE_PX, SIZE_PX)
    np.save(tmp_path / "images.npy", images.numpy())
    program = (
        "import sys, numpy as np, onnxruntime as ort\n"
        "session = ort.InferenceSession('alone.onnx', providers=['CPUExecutionProvider'])\n"
        f"np.save('found.npy', session.run(None, {{{INPUT_NAME!r}: np.load('images.npy')}})[0])\n"
        "assert 'torch' not in sys.modules and 'familiar' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-I", "-c", program], cwd=tmp_path, check=True, timeout=120)
    assert {path.name for path in tmp_path.iterdir()} == {"alone.onnx", "images.npy", "found.npy"}
    with torch.no_grad():
        np.testing.assert_allclose(np.load(tmp_path / "found.npy"), network(images).numpy(), atol=1e-5)
