import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from familiar.core.errors import BadRun
from familiar.export.bias_correction import BATCH_SIZE, MIN_PHOTOS, round_weights
from familiar.export.gptq import MAX_INT4, round_matrix, row_scales
from familiar.export.onnx import INPUT_NAME
from familiar.export.rounding import quantize_rows

SIZE_PX = 6
N = 2 * BATCH_SIZE + 7  # so that the last batch is not as large as the others


def model_of(nodes, **tensors):
    """Build a model from "images" to "y" without types of intermediate values."""
    graph = helper.make_graph(
        nodes,
        "few",
        [helper.make_tensor_value_info(INPUT_NAME, TensorProto.FLOAT, ["n", 3, SIZE_PX, SIZE_PX])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(values, name) for name, values in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def run(model, photos):
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {INPUT_NAME: photos})[0])


def tensors_of(model):
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def photos_of_noise(n=N):
    """Draw photos with means far from zero, as after a ReLU."""
    return numbers(n, 3, SIZE_PX, SIZE_PX, seed=1) + np.float32([1, -2, 3]).reshape(3, 1, 1)


def photos_of_one_color(n=N):
    return np.ascontiguousarray(np.broadcast_to(photos_of_noise(n)[:, :, :1, :1], (n, 3, SIZE_PX, SIZE_PX)))


def conv(before="images", **attributes):
    return helper.make_node("Conv", [before, "w", "b"], ["y"], **attributes)


FLAT = helper.make_node("Flatten", [INPUT_NAME], ["flat"])
SIX = helper.make_node("Concat", [INPUT_NAME, INPUT_NAME], ["six"], axis=1)
POSITIONS = 3 * SIZE_PX * SIZE_PX
ONE_LAYER = {
    "of single places": ([conv()], (20, 3, 1, 1), photos_of_noise()),
    "without padding": ([conv()], (20, 3, 3, 3), photos_of_one_color()),
    "with strides": ([conv(strides=[2, 1])], (20, 3, 2, 3), photos_of_one_color()),
    "depthwise": ([conv(group=3)], (6, 1, 3, 3), photos_of_one_color()),
    "in groups": ([SIX, conv("six", group=2)], (8, 3, 2, 2), photos_of_one_color()),
    "product": ([FLAT, helper.make_node("Gemm", ["flat", "w", "b"], ["y"])], (POSITIONS, 9), photos_of_noise()),
    "product, transposed": (
        [FLAT, helper.make_node("Gemm", ["flat", "w", "b"], ["y"], transB=1)],
        (9, POSITIONS),
        photos_of_noise(),
    ),
    "product, square": (
        [
            helper.make_node("GlobalAveragePool", [INPUT_NAME], ["mean"]),
            helper.make_node("Concat", ["mean", "mean"], ["six"], axis=1),
            helper.make_node("Flatten", ["six"], ["flat"]),
            helper.make_node("Gemm", ["flat", "w", "b"], ["y"]),
        ],
        (6, 6),
        photos_of_noise(),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ONE_LAYER)
def test_layer_keeps_mean_output(kind):
    nodes, shape, photos = ONE_LAYER[kind]
    weights = numbers(*shape)
    outputs = shape[1] if kind == "product" else shape[0]
    model = model_of(nodes, w=weights, b=numbers(outputs, seed=2))
    before = run(model, photos)
    round_weights(model, photos)
    after, stored = run(model, photos), tensors_of(model)
    steps, scale = quantize_rows(weights)
    np.testing.assert_array_equal(stored["w"], steps.astype(np.float32) * scale.astype(np.float32))
    axes = (0, *range(2, before.ndim))
    mean_before, mean_after = (values.mean(axis=axes, dtype=np.float64) for values in (before, after))
    np.testing.assert_allclose(mean_after, mean_before, atol=2e-5 * np.abs(before).max())
    stored["b"] = numbers(outputs, seed=2)
    uncorrected = run(model_of(nodes, **stored), photos).mean(axis=axes, dtype=np.float64)
    assert np.abs(uncorrected - mean_before).max() > 100 * np.abs(mean_after - mean_before).max()


def test_later_layer_is_corrected_for_unrounded_input():
    nodes = [
        helper.make_node("Conv", [INPUT_NAME, "v", "a"], ["first"]),
        helper.make_node("Relu", ["first"], ["positive"]),
        conv("positive"),
    ]
    tensors = {
        "v": numbers(8, 3, 1, 1),
        "a": numbers(8),
        "w": numbers(5, 8, 1, 1, seed=3),
        "b": numbers(5, seed=4),
    }
    model, photos = model_of(nodes, **tensors), photos_of_noise()
    round_weights(model, photos)
    after = tensors_of(model)
    x = photos.astype(np.float64)
    hidden = np.maximum(np.einsum("oi,nihw->nohw", tensors["v"][:, :, 0, 0], x) + tensors["a"].reshape(8, 1, 1), 0)
    lost = (tensors["w"].astype(np.float64) - after["w"])[:, :, 0, 0] @ hidden.mean(axis=(0, 2, 3))
    np.testing.assert_allclose(after["b"], tensors["b"] + lost, atol=1e-6)
    first = (tensors["v"].astype(np.float64) - after["v"])[:, :, 0, 0] @ x.mean(axis=(0, 2, 3))
    np.testing.assert_allclose(after["a"], tensors["a"] + first, atol=1e-6)


def test_no_correction_without_bias_or_with_few_weights():
    nodes = [
        helper.make_node("Conv", [INPUT_NAME, "v"], ["first"]),
        helper.make_node("Conv", ["first", "w", "b"], ["second"]),
        helper.make_node("Add", ["second", "c"], ["y"]),
    ]
    few = numbers(2, 6, 1, 1, seed=3)  # stay in float32
    tensors = {"v": numbers(6, 3, 1, 1), "w": few, "b": numbers(2), "c": numbers(1, 2, 1, 1)}
    tensors["counts"] = np.arange(20).reshape(4, 5)
    model = model_of(nodes, **tensors)
    round_weights(model, photos_of_noise())
    after = tensors_of(model)
    after_of_v = after.pop("v")
    assert np.abs(after_of_v - tensors.pop("v")).max() > 1e-4
    for name, values in tensors.items():
        np.testing.assert_array_equal(after[name], values, name)
    model = model_of([helper.make_node("Conv", [INPUT_NAME, "v"], ["y"])], v=numbers(6, 3, 1, 1))
    round_weights(model, photos_of_noise())
    np.testing.assert_array_equal(tensors_of(model)["v"], after_of_v)


def test_correction_is_accurate_for_large_pixel_values():
    """The mean is a sum of many nearly equal numbers."""
    photos = np.full((N, 3, SIZE_PX, SIZE_PX), 1e4, np.float32) + photos_of_noise()
    model = model_of([conv()], w=numbers(20, 3, 1, 1), b=numbers(20))
    source = tensors_of(model)
    round_weights(model, photos)
    after = tensors_of(model)
    moved = (source["w"].astype(np.float64) - after["w"])[:, :, 0, 0]
    lost = moved @ photos.astype(np.float64).mean(axis=(0, 2, 3))
    np.testing.assert_allclose(after["b"] - source["b"].astype(np.float64), lost, atol=1e-5 * np.abs(lost).max())


@pytest.mark.parametrize("count", [0, 1, MIN_PHOTOS - 1])
def test_rejects_too_few_photos(count):
    model = model_of([conv()], w=numbers(20, 3, 1, 1), b=numbers(20))
    before = model.SerializeToString()
    with pytest.raises(BadRun, match=rf"{count} of them can be read, and at least {MIN_PHOTOS} are needed\. .* --data"):
        round_weights(model, photos_of_noise(N)[:count])
    assert model.SerializeToString() == before
    round_weights(model, photos_of_noise(MIN_PHOTOS))
    assert model.SerializeToString() != before


def test_4_bit_matrices_change_the_outputs_less_than_rounding_to_the_nearest():
    mix = numbers(24, 3, seed=3)
    nodes = [
        helper.make_node("Conv", [INPUT_NAME, "mix", "zeros"], ["mixed"]),
        helper.make_node("Relu", ["mixed"], ["before"]),
        conv("before"),
    ]
    tensors = {"mix": mix.reshape(24, 3, 1, 1), "zeros": np.zeros(24, np.float32)}
    tensors |= {"w": numbers(20, 24, 1, 1, seed=4), "b": numbers(20, seed=5)}
    exact, photos = model_of(nodes, **tensors), photos_of_noise()
    rounded = model_of(nodes, **tensors)
    matrices = round_weights(rounded, photos, four_bits=True)
    assert list(matrices) == ["w"], "that of three columns has 8 bits"
    steps, scale = matrices["w"]
    stored = tensors_of(rounded)["w"]
    np.testing.assert_array_equal(steps.astype(np.float32) * scale.astype(np.float32), stored)
    assert np.abs(steps).max() == MAX_INT4
    before, after = run(exact, photos), run(rounded, photos)
    np.testing.assert_allclose(after.mean((0, 2, 3)), before.mean((0, 2, 3)), atol=0.02)
    nearest_scale = row_scales(tensors["w"].reshape(20, 24)).astype(np.float32).reshape(20, 1, 1, 1)
    nearest = np.clip(np.rint(tensors["w"] / nearest_scale), -MAX_INT4, MAX_INT4) * nearest_scale
    to_nearest = run(model_of(nodes, **{**tensors, "mix": tensors_of(rounded)["mix"], "w": nearest}), photos)
    to_nearest += (before - to_nearest).mean((0, 2, 3), keepdims=True)
    assert np.square(after - before).mean() < 0.7 * np.square(to_nearest - before).mean()


@pytest.mark.parametrize(("strides", "pads"), [((1, 1), (2, 2, 2, 2)), ((2, 1), (1, 0, 2, 1))])
def test_large_depthwise_kernels_are_rounded_to_4_bits_each_with_what_it_meets(strides, pads):
    node = conv(group=3, strides=list(strides), pads=list(pads))
    kernels, photos = numbers(3, 1, 5, 5), smooth_photos()
    model = model_of([node], w=kernels, b=numbers(3))
    exact = model_of([node], w=kernels, b=numbers(3))
    steps, scale = round_weights(model, photos, four_bits=True)["w"]
    assert (steps.shape, scale.shape) == ((3, 1, 5, 5), (3, 1, 1, 1))
    top, left, bottom, right = pads
    padded = np.pad(photos, ((0, 0), (0, 0), (top, bottom), (left, right))).astype(np.float64)
    for channel in range(3):
        patches = [
            photo[channel, y : y + 5, x : x + 5].reshape(-1)
            for photo in padded
            for y in range(0, padded.shape[2] - 4, strides[0])
            for x in range(0, padded.shape[3] - 4, strides[1])
        ]
        moments = np.mean([np.outer(patch, patch) for patch in patches], axis=0)
        expected, expected_scale = round_matrix(kernels[channel].reshape(1, 25), moments)
        np.testing.assert_array_equal(steps[channel].reshape(1, 25), expected)
        np.testing.assert_array_equal(scale[channel].reshape(1, 1), expected_scale)
    before, after = run(exact, photos), run(model, photos)
    nearest_scale = row_scales(kernels.reshape(3, 25)).astype(np.float32).reshape(3, 1, 1, 1)
    nearest = np.clip(np.rint(kernels / nearest_scale), -MAX_INT4, MAX_INT4) * nearest_scale
    to_nearest = run(model_of([node], w=nearest, b=numbers(3)), photos)
    to_nearest += (before - to_nearest).mean((0, 2, 3), keepdims=True)
    assert np.square(after - before).mean() < 0.7 * np.square(to_nearest - before).mean()


def smooth_photos():
    """Draw photos whose neighboring pixels are alike."""
    noise = numbers(N, 3, SIZE_PX + 2, SIZE_PX + 2, seed=6)
    return np.mean([noise[:, :, y : y + SIZE_PX, x : x + SIZE_PX] for y in range(3) for x in range(3)], axis=0)


def test_4_bits_leave_small_kernels_and_products_without_bias_in_8_bits():
    for kind in ("without padding", "depthwise", "in groups", "product"):
        nodes, shape, photos = ONE_LAYER[kind]
        model = model_of(nodes, w=numbers(*shape), b=numbers(shape[1] if kind == "product" else shape[0]))
        assert round_weights(model, photos, four_bits=True) == {}
        np.testing.assert_array_equal(tensors_of(model)["w"], in_8_bits(numbers(*shape)))


def test_smaller_matrices_than_asked_for_have_8_bits():
    nodes = [
        helper.make_node("Conv", ["images", "first", "bias"], ["a"], pads=[1, 1, 1, 1], name="a"),
        helper.make_node("Conv", ["a", "small", "bias"], ["b"], name="b"),
        helper.make_node("Conv", ["b", "large", "wide"], ["outputs"], name="c"),
    ]
    weights = {"first": numbers(16, 3, 3, 3), "small": numbers(16, 16, 1, 1), "large": numbers(64, 16, 1, 1)}
    for min_size, four_bits in ((0, {"small", "large"}), (1024, {"large"}), (1025, set())):
        model = model_of(nodes, **weights, bias=numbers(16), wide=numbers(64))
        assert round_weights(model, photos_of_noise(), four_bits=True, min_size=min_size).keys() == four_bits
        if "small" not in four_bits:
            np.testing.assert_allclose(tensors_of(model)["small"], in_8_bits(weights["small"]), rtol=1e-6)


@pytest.mark.parametrize("attributes", [{"auto_pad": "SAME_UPPER"}, {"dilations": [2, 2], "pads": [4, 4, 4, 4]}])
def test_kernels_padded_automatically_or_dilated_have_8_bits(attributes):
    model = model_of([conv(group=3, **attributes)], w=numbers(3, 1, 5, 5), b=numbers(3))
    assert round_weights(model, photos_of_noise(), four_bits=True) == {}


def in_8_bits(weights):
    steps, scale = quantize_rows(weights)
    return steps.astype(np.float32) * scale.astype(np.float32)
