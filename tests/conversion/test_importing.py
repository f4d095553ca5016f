"""Import of small networks of every kind, and of files that cannot be imported."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from familiar.conversion import PRESETS, calibrate_bundle, import_network
from familiar.conversion.presets import preset_of
from familiar.core.errors import BadDataset, BadNetwork
from familiar.core.types import Crop, Photo
from familiar.embedding.embedder import Embedder
from familiar.photos.decoding import save_photo
from familiar.photos.preprocessing import Preprocessing, standardize
from support.drawn_cats import draw_cats
from support.foreign_network import DIM, SIZE_PX, Network

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
Options = dict[str, Any]


def noise(count: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (count, SIZE_PX, SIZE_PX, 3), dtype=np.uint8)


def expected(path: Path, pixels: np.ndarray, preprocessing: Preprocessing, output: str, layout: str) -> np.ndarray:
    """Embed one by one with the original network."""
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (image,) = [each for each in session.get_inputs() if each.name == "image"]
    batch = image.shape[0] if isinstance(image.shape[0], int) else 1
    images = standardize(pixels, preprocessing)
    images = images if layout == "NCHW" else images.transpose(0, 2, 3, 1)
    images = images.astype(np.float16 if "float16" in image.type else np.float32)
    rows = [session.run([output], {"image": np.repeat(each[None], batch, axis=0)})[0][0] for each in images]
    vectors = np.stack(rows).astype(np.float64)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("network", "options"),
    [
        (Network(), {}),
        (Network(unit=True), {}),
        (Network(), {"color_order": "BGR"}),
        (Network(layout="NHWC"), {}),
        (Network(layout="NHWC"), {"color_order": "BGR"}),
        (Network(batch=1), {}),
        (Network(batch=2, reshape=True), {}),
        (Network(batch=1, reshape=True), {}),
        (Network(batch=64, reshape=True), {}),  # more than the check has crops
        (Network(size_px="side"), {"size_px": SIZE_PX}),
        (Network(opset=9, initializers_as_inputs=True), {}),
        (Network(element_type=TensorProto.FLOAT16), {}),
        (Network(second_output=True), {}),
    ],
    ids=str,
)
def test_bundle_computes_what_the_network_does(network: Network, options: Options, tmp_path: Path) -> None:
    path = network.save(tmp_path / "network.onnx")
    bundle = import_network(path, tmp_path / "new" / "b.onnx", mean=MEAN, std=STD, license="MIT", **options)
    preprocessing = bundle.metadata.preprocessing
    assert (preprocessing.mean, preprocessing.std, preprocessing.size_px) == (MEAN, STD, SIZE_PX)
    pixels = noise(7)
    output = "unit" if network.unit else "raw"
    tolerance = 5e-3 if network.element_type == TensorProto.FLOAT16 else 1e-5
    reference = expected(path, pixels, preprocessing, output, network.layout)
    embedder = Embedder(bundle)
    for count in (1, 2, 7):
        embeddings = embedder.run(pixels[:count])
        assert embeddings.dtype == np.float32
        np.testing.assert_allclose(embeddings, reference[:count], atol=tolerance)


def test_metadata_names_source_terms_and_missing_calibration(tmp_path: Path) -> None:
    path = Network().save(tmp_path / "network.onnx")
    metadata = import_network(path, tmp_path / "b.onnx", "arcface", license="research only").metadata
    assert metadata.license == "research only"
    assert metadata.source is not None
    assert metadata.source["file"] == "network.onnx"
    assert len(metadata.source["sha256"]) == 64
    assert (metadata.detector, metadata.embedding_dim, metadata.network) == ("yunet", DIM, "network")
    assert not metadata.calibration.fitted
    again = import_network(path, tmp_path / "again.onnx", "arcface", license="research only").metadata
    other = import_network(path, tmp_path / "other.onnx", mean=MEAN, std=STD, license="MIT").metadata
    assert again.space_id == metadata.space_id != other.space_id


def test_initializers_become_constants(tmp_path: Path) -> None:
    path = Network(opset=9, initializers_as_inputs=True).save(tmp_path / "network.onnx")
    bundle = import_network(path, tmp_path / "b.onnx", mean=MEAN, std=STD, license="MIT")
    assert [each.name for each in onnx.load_from_string(bundle.onnx).graph.input] == ["crops"]


def test_weights_in_another_file_are_taken_along(tmp_path: Path) -> None:
    model = Network().build()
    path = tmp_path / "network.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    plain = import_network(
        Network().save(tmp_path / "plain.onnx"), tmp_path / "p.onnx", mean=MEAN, std=STD, license="-"
    )
    bundle = import_network(path, tmp_path / "b.onnx", mean=MEAN, std=STD, license="-")
    (tmp_path / "weights.bin").rename(tmp_path / "gone.bin")
    np.testing.assert_array_equal(Embedder(bundle.path).run(noise(2)), Embedder(plain).run(noise(2)))
    with pytest.raises(BadNetwork, match=r"weights\.bin, which is not beside it"):
        import_network(path, tmp_path / "c.onnx", mean=MEAN, std=STD, license="-")


def test_class_token_of_several_vectors(tmp_path: Path) -> None:
    """Dinov2 returns "n t d", and the embedding is the first of the t vectors."""
    model = Network(size_px=224).build()
    layers = [node for node in model.graph.node if node.op_type in ("Conv", "Relu")]
    del model.graph.node[:]
    pool = helper.make_node("AveragePool", ["lit"], ["pooled"], kernel_shape=[56, 56], strides=[56, 56])
    model.graph.node.extend([*layers, pool])
    model.graph.initializer.append(numpy_helper.from_array(np.array([0, 6, 16]), "tokens"))
    model.graph.node.append(helper.make_node("Reshape", ["pooled", "tokens"], ["vectors"]))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["n", 6, 16]))
    path = tmp_path / "network.onnx"
    onnx.save(model, path)
    with pytest.raises(BadNetwork, match="several vectors per photo"):
        import_network(path, tmp_path / "b.onnx", "clip")
    bundle = import_network(path, tmp_path / "b.onnx", "dinov2")
    assert bundle.metadata.embedding_dim == 16
    assert bundle.metadata.preprocessing.resize_px == 256


def changed(change: Callable[[onnx.ModelProto], object], **settings: Any) -> onnx.ModelProto:
    model = Network(**settings).build()
    change(model)
    return model


def _custom_operator(model: onnx.ModelProto) -> None:
    model.graph.node[1].domain = "acme"
    model.opset_import.append(helper.make_opsetid("acme", 1))


def _rename_output(model: onnx.ModelProto) -> None:
    model.graph.output.append(helper.make_tensor_value_info("flat", TensorProto.FLOAT, ["n", 96]))


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (Network(more_inputs=["scale"]).build(), {}, "has 2: image, scale"),
        (changed(_custom_operator), {}, r"does not have: acme\.Relu"),
        (Network(opset=8).build(), {}, "opset 8; from 9 on"),
        (changed(_rename_output), {}, r"several outputs \(raw, flat\); choose one with --output-name"),
        (Network().build(), {"output_name": "nothing"}, "no output 'nothing'; it has raw"),
        (Network(size_px="side").build(), {}, "give the one to use with --size"),
        (Network().build(), {"size_px": 64}, "takes images of 32 px, not of 64"),
        (Network().build(), {"preset": "sphere"}, "no preset 'sphere'; there are: sface, arcface"),
        (Network().build(), {"license": None}, "state them with --license"),
        (Network().build(), {"mean": None}, "name what it is with --as"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refusal_names_cause_and_remedy(model: onnx.ModelProto, options: Options, message: str, tmp_path: Path) -> None:
    path = tmp_path / "network.onnx"
    onnx.save(model, path)
    with pytest.raises(BadNetwork, match=message):
        import_network(path, tmp_path / "b.onnx", **{"mean": MEAN, "std": STD, "license": "MIT", **options})
    assert not (tmp_path / "b.onnx").exists()


@pytest.mark.parametrize("content", [b"", b"no network at all, but a text\n" * 20, "half"])
def test_refuses_files_that_are_no_network(content: bytes | str, tmp_path: Path) -> None:
    path = tmp_path / "network.onnx"
    whole = Network().build().SerializeToString()
    path.write_bytes(whole[: len(whole) // 2] if isinstance(content, str) else content)
    with pytest.raises(BadNetwork, match=r"network\.onnx: is no"):
        import_network(path, tmp_path / "b.onnx", "arcface", license="MIT")
    with pytest.raises(BadNetwork, match=r"gone\.onnx: cannot be read"):
        import_network(tmp_path / "gone.onnx", tmp_path / "b.onnx", "arcface", license="MIT")


def test_refuses_more_than_2_gib_at_once(tmp_path: Path) -> None:
    path = tmp_path / "network.onnx"
    with path.open("wb") as file:
        file.truncate(2**31)  # sparse: takes no space
    with pytest.raises(BadNetwork, match="larger than 2 GiB"):
        import_network(path, tmp_path / "b.onnx", "arcface", license="MIT")


def test_refuses_a_network_that_says_the_same_of_all_photos(tmp_path: Path) -> None:
    def zero(model: onnx.ModelProto) -> None:
        model.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.zeros((96, DIM), np.float32), "project"))

    path = tmp_path / "network.onnx"
    onnx.save(changed(zero), path)
    with pytest.raises(BadNetwork, match="gives all photos the same embedding"):
        import_network(path, tmp_path / "b.onnx", mean=MEAN, std=STD, license="MIT")


def test_refuses_output_that_is_not_finite(tmp_path: Path) -> None:
    def infinite(model: onnx.ModelProto) -> None:
        model.graph.initializer[2].CopyFrom(numpy_helper.from_array(np.full(DIM, np.inf, np.float32), "bias"))

    path = tmp_path / "network.onnx"
    onnx.save(changed(infinite), path)
    with pytest.raises(BadNetwork, match="not a finite vector"):
        import_network(path, tmp_path / "b.onnx", mean=MEAN, std=STD, license="MIT")


def test_warns_of_a_classifier(tmp_path: Path) -> None:
    def classify(model: onnx.ModelProto) -> None:
        rng = np.random.default_rng(0)
        for index, shape in ((1, (96, 1000)), (2, (1000,))):
            tensor = model.graph.initializer[index]
            tensor.CopyFrom(numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), tensor.name))
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info("raw", TensorProto.FLOAT, ["n", 1000]))

    path = tmp_path / "network.onnx"
    onnx.save(changed(classify), path)
    warnings: list[str] = []
    import_network(path, tmp_path / "b.onnx", mean=MEAN, std=STD, license="MIT", on_warning=warnings.append)
    assert "1000 numbers, like the classes of ImageNet" in warnings[0]


def test_known_file_proposes_its_preset() -> None:
    assert preset_of(PRESETS["sface"].sha256[0]) == "sface"
    assert preset_of("0" * 64) is None


def test_calibration_is_fitted_and_stored(tmp_path: Path) -> None:
    draw_cats(tmp_path / "photos", cats=12, photos=4)
    (tmp_path / "photos" / "cat-0" / "broken.png").write_text("no photo")
    path = Network().save(tmp_path / "network.onnx")
    bundle = import_network(path, tmp_path / "b.onnx", mean=MEAN, std=STD, license="MIT")
    warnings: list[str] = []
    calibrated = calibrate_bundle(bundle, tmp_path / "photos", on_warning=warnings.append)
    assert calibrated.metadata.calibration.fitted
    assert calibrated.metadata.calibration.pairs_same == 12 * 6
    assert calibrated.metadata.space_id == bundle.metadata.space_id
    assert calibrated.file_id == bundle.file_id
    assert "broken.png" in warnings[0]
    crop = Crop(noise(1)[0], "noise")
    np.testing.assert_array_equal(Embedder(calibrated).embed([crop]), Embedder(bundle).embed([crop]))
    (tmp_path / "one").mkdir()
    (tmp_path / "photos" / "cat-1").rename(tmp_path / "one" / "cat-1")
    with pytest.raises(BadDataset, match="too few photos to calibrate: 4 of 1 identities"):
        calibrate_bundle(bundle, tmp_path / "one")


def test_calibration_notices_swapped_channels(tmp_path: Path) -> None:
    """Individuals differ in red, and the network looks at the channel that it takes for the third."""
    rng = np.random.default_rng(0)
    for individual in range(12):
        (tmp_path / "photos" / str(individual)).mkdir(parents=True)
        for number in range(4):
            color = (20 * individual + 10, *rng.integers(0, 256, 2))
            pixels = np.full((SIZE_PX, SIZE_PX, 3), color, np.uint8)
            save_photo(
                Photo(pixels, "drawn", (SIZE_PX, SIZE_PX)), tmp_path / "photos" / str(individual) / f"{number}.png"
            )
    third = np.array([[0, 0], [0, 0], [1, -1]], np.float32)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["image"], ["color"]),
            helper.make_node("Flatten", ["color"], ["flat"]),
            helper.make_node("Gemm", ["flat", "third", "offset"], ["y"]),
        ],
        "network",
        [value("image", TensorProto.FLOAT, ["n", 3, SIZE_PX, SIZE_PX])],
        [value("y", TensorProto.FLOAT, ["n", 2])],
        [numpy_helper.from_array(third, "third"), numpy_helper.from_array(np.array([0, 1], np.float32), "offset")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "n.onnx")
    warnings_by_order: dict[str, list[str]] = {"RGB": [], "BGR": []}
    plain: Options = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0), "license": "MIT"}
    for order, warnings in warnings_by_order.items():
        bundle = import_network(tmp_path / "n.onnx", tmp_path / "b.onnx", color_order=order, **plain)
        calibrate_bundle(bundle, tmp_path / "photos", on_warning=warnings.append)
    assert "with red and blue swapped its ROC AUC would be higher" in warnings_by_order["RGB"][0]
    assert warnings_by_order["BGR"] == []


def write_linear(path: Path, channels: int, extra: list[onnx.NodeProto], tensors: dict[str, np.ndarray]) -> Path:
    """Write a network of one convolution, whose vector the nodes `extra` take from "vector" to "embedding"."""
    weights = np.random.default_rng(0).normal(size=(8, channels, 4, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["image", "weights"], ["map"], strides=[4, 4]),
        helper.make_node("GlobalAveragePool", ["map"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["vector"]),
        *extra,
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", channels, SIZE_PX, SIZE_PX])
    embedding = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["n", 8])
    initializers = [numpy_helper.from_array(value, name) for name, value in {"weights": weights, **tensors}.items()]
    graph = helper.make_graph(nodes, "linear", [image], [embedding], initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8), path)
    return path


def test_gray_network_is_named(tmp_path: Path):
    path = write_linear(tmp_path / "gray.onnx", 1, [helper.make_node("Identity", ["vector"], ["embedding"])], {})
    with pytest.raises(BadNetwork, match="takes gray images, of one channel, and photos have three"):
        import_network(path, tmp_path / "bundle.onnx", mean=MEAN, std=STD, license="MIT")


@pytest.mark.parametrize("layer", ["Dropout", "BatchNormalization"])
@pytest.mark.parametrize("trains", [True, False])
def test_training_mode_is_named(tmp_path: Path, layer: str, trains: bool):
    scale, shift = np.ones(8, np.float32), np.zeros(8, np.float32)
    tensors = {"scale": scale, "shift": shift, "mean": shift, "variance": scale}
    inputs, outputs, mode = ["vector", *tensors], ["embedding"], {"training_mode": int(trains)}
    if layer == "BatchNormalization" and trains:
        outputs += ["new mean", "new variance"]
    if layer == "Dropout":
        tensors = {"ratio": np.array(0.5, np.float32), "trains": np.array(trains)}
        inputs, mode = ["vector", *tensors], {}
    path = write_linear(tmp_path / "network.onnx", 3, [helper.make_node(layer, inputs, outputs, **mode)], tensors)
    options: Options = {"mean": MEAN, "std": STD, "license": "MIT"}
    if not trains:
        import_network(path, tmp_path / "bundle.onnx", **options)
        return
    with pytest.raises(BadNetwork, match=rf"exported in training mode: its {layer} embedding .* call eval\(\)"):
        import_network(path, tmp_path / "bundle.onnx", **options)
