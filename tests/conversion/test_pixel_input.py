"""A network that takes pixels computes what the network of standardized images did."""

from typing import Literal

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from familiar.conversion.pixel_input import PIXELS_NAME, take_pixels
from familiar.photos.preprocessing import Preprocessing, standardize

SIZE_PX = 16
Layout = Literal["NCHW", "NHWC"]


def identity_network(layout: Layout = "NCHW", element_type: int = TensorProto.FLOAT, name: str = "images"):
    """Build a network that returns its input."""
    shape = ["n", 3, SIZE_PX, SIZE_PX] if layout == "NCHW" else ["n", SIZE_PX, SIZE_PX, 3]
    graph = helper.make_graph(
        [helper.make_node("Identity", [name], ["y"])],
        "g",
        [helper.make_tensor_value_info(name, element_type, shape)],
        [helper.make_tensor_value_info("y", element_type, shape)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def compute(model: onnx.ModelProto, pixels: np.ndarray) -> np.ndarray:
    onnx.checker.check_model(model)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (taken,) = session.get_inputs()
    assert (taken.type, taken.shape[1:]) == ("tensor(uint8)", [SIZE_PX, SIZE_PX, 3])
    return np.asarray(session.run(None, {taken.name: pixels})[0])


def noise(photos: int = 2) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (photos, SIZE_PX, SIZE_PX, 3), dtype=np.uint8)


numbers = st.floats(0, 1, width=32)


@given(
    mean=st.tuples(numbers, numbers, numbers),
    std=st.tuples(*[st.floats(0.00390625, 2, width=32)] * 3),
    color_order=st.sampled_from(["RGB", "BGR"]),
    layout=st.sampled_from(["NCHW", "NHWC"]),
)
def test_equals_standardize(mean, std, color_order, layout: Layout) -> None:
    preprocessing = Preprocessing(size_px=SIZE_PX, mean=mean, std=std, color_order=color_order)
    model, pixels = identity_network(layout), noise()
    take_pixels(model, preprocessing, layout)
    expected = standardize(pixels, preprocessing)
    if layout == "NHWC":
        expected = expected.transpose(0, 2, 3, 1)
    np.testing.assert_allclose(compute(model, pixels), expected, rtol=1e-5, atol=1e-5 / min(std))


def test_closed_form_of_black_and_white() -> None:
    model = identity_network()
    take_pixels(model, Preprocessing(size_px=SIZE_PX, mean=(0.5, 0.5, 0.5), std=(0.25, 0.5, 1.0)))
    white = np.full((1, SIZE_PX, SIZE_PX, 3), 255, np.uint8)
    np.testing.assert_allclose(compute(model, white)[0, :, 3, 5], [2, 1, 0.5], atol=1e-6)
    np.testing.assert_allclose(compute(model, 0 * white)[0, :, 3, 5], [-2, -1, -0.5], atol=1e-6)


def test_raw_pixels_need_neither_product_nor_sum() -> None:
    model, pixels = identity_network(), noise()
    take_pixels(model, Preprocessing(size_px=SIZE_PX, mean=(0.0, 0.0, 0.0), std=(1 / 255, 1 / 255, 1 / 255)))
    assert [node.op_type for node in model.graph.node] == ["Transpose", "Cast", "Identity"]
    np.testing.assert_array_equal(compute(model, pixels), pixels.transpose(0, 3, 1, 2))


def test_float16_network_gets_float16() -> None:
    model, pixels = identity_network(element_type=TensorProto.FLOAT16), noise()
    preprocessing = Preprocessing(size_px=SIZE_PX)
    take_pixels(model, preprocessing)
    assert compute(model, pixels).dtype == np.float16
    np.testing.assert_allclose(compute(model, pixels), standardize(pixels, preprocessing), rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("name", [PIXELS_NAME, f"{PIXELS_NAME}_Cast"])
def test_names_of_the_network_are_not_taken_twice(name: str) -> None:
    model = identity_network(name=name)
    take_pixels(model, Preprocessing(size_px=SIZE_PX))
    assert compute(model, noise(3)).shape == (3, 3, SIZE_PX, SIZE_PX)
