"""Import of an ONNX network as a bundle."""

import hashlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import numpy as np
import onnx

from familiar.conversion.checks import Comparison, check_import
from familiar.conversion.graph import (
    MAX_BYTES,
    ImageInput,
    Layout,
    check_file_size,
    check_mode,
    free_batch_size,
    image_input,
    keep_output,
    make_initializers_constant,
    normalize_output,
    read_network,
)
from familiar.conversion.pixel_input import take_pixels
from familiar.conversion.presets import PRESETS, Preset, Triple, preset_of
from familiar.conversion.trial import try_network
from familiar.core.errors import BadNetwork
from familiar.core.files import content_sha256, make_folder, write_atomically
from familiar.embedding.bundle import Bundle, BundleMetadata, load_bundle, serialize_bundle
from familiar.metrics.calibration import calibrate
from familiar.photos.preprocessing import Preprocessing

CLASSIFIER_DIMS = (1000, 1001, 21841, 21843)  # the numbers of classes of ImageNet


def import_network(
    network: Path | str,
    output: Path | str,
    preset: str | None = None,
    *,
    license: str | None = None,
    size_px: int | None = None,
    mean: Triple | None = None,
    std: Triple | None = None,
    color_order: Literal["RGB", "BGR"] | None = None,
    layout: Layout | None = None,
    template: Literal["arcface", "box"] | None = None,
    detector: str | None = None,
    output_name: str | None = None,
    on_warning: Callable[[str], None] = lambda _: None,
) -> Bundle:
    """Turn an ONNX network that maps an image to a vector into a bundle.

    The network is first run in another process with bounded memory and time (`try_network`). Before the bundle is
    written, it is compared with the network.

    Args:
        network: the ONNX file; weights in files beside it are taken into the bundle.
        output: the bundle's file; its folder is created.
        preset: a name of `PRESETS`; None: that of the file where it is a known one, else `mean` and `std` are required.
        license: terms of use of the weights; required unless the preset knows them.
        size_px: side of the square crop; None: as the file says, or the preset.
        mean: subtracted from values in [0, 1], in the order of `color_order`.
        std: divides the difference.
        color_order: order of the channels that the network takes.
        layout: order of the axes that it takes; None: by the shape of its input.
        template: how a face with landmarks is cropped, as in `Preprocessing`.
        detector: name of the detector whose faces the network takes; "none": it takes whole photos.
        output_name: the output that is the embedding; None: the only one with one vector per photo.
        on_warning: called with a line of text for what may be wrong.

    Returns:
        The bundle, as it is read back from the file. It is not calibrated.

    Raises:
        BadNetwork: the file is no such network, something about it is unknown, or the comparison fails.
        CannotWrite: the output cannot be written.
    """
    path, target = Path(network), Path(output)
    check_file_size(path)
    sha256 = _sha256(path)
    name = preset or preset_of(sha256)
    known = _preset(name, mean, std, path)
    terms = license or known.license
    if terms is None:
        raise BadNetwork(f"{path}: the terms of use of its weights are unknown: state them with --license")
    try_network(path, layout, size_px or known.size_px or None)
    model = read_network(path)
    make_initializers_constant(model)
    check_mode(model, path)
    taken = image_input(model, path, layout)
    side = _side(taken, size_px, known, path)
    preprocessing = Preprocessing(
        size_px=side,
        resize=known.resize,
        resize_px=max(side, known.resize_px or side),
        margin=known.margin,
        template=template or known.template,
        color_order=color_order or known.color_order,
        mean=mean or known.mean,
        std=std or known.std,
    )
    keep_output(model, path, output_name)
    vector = model.graph.output[0].name
    axes = len(model.graph.output[0].type.tensor_type.shape.dim)
    if axes == 3 and known.token is None:
        raise BadNetwork(
            f"{path}: its output {vector} has several vectors per photo; choose another with --output-name, or a "
            "preset that knows which one to take"
        )
    imported, comparison = _converted(model, path, taken, axes, known.token, preprocessing, vector)
    embedding_dim = comparison.embedding_dim
    if embedding_dim in CLASSIFIER_DIMS:
        on_warning(
            f"{path}: its output {vector} has {embedding_dim} numbers, like the classes of ImageNet: if these are "
            "scores of classes, they recognize nobody; choose the layer before with --output-name"
        )
    metadata = BundleMetadata(
        space_id=hashlib.sha256(imported).hexdigest()[:32],
        embedding_dim=embedding_dim,
        preprocessing=preprocessing,
        calibration=calibrate(np.zeros((0, embedding_dim), np.float32), np.zeros(0, np.int64)),
        prefixes=(embedding_dim,),
        recipe="imported",
        network=path.stem,
        precision=_precision(model),
        trained_on={},
        results={},
        parity=asdict(comparison),
        license=terms,
        detector=detector or known.detector,
        source={"file": path.name, "sha256": sha256, "published": known.source},
    )
    make_folder(target.parent)
    write_atomically(target, serialize_bundle(imported, metadata))
    return load_bundle(target)


def _converted(
    model: onnx.ModelProto,
    path: Path,
    taken: ImageInput,
    axes: int,
    token: int | None,
    preprocessing: Preprocessing,
    vector: str,
) -> tuple[bytes, Comparison]:
    """Change the graph and compare it with the original; return it and the comparison."""
    refusal: BadNetwork | None = None
    # Constant shapes are changed only where the network fails without: some mean something else by the same number.
    for reshapes in (False, True) if taken.batch else (False,):
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        if taken.batch:
            free_batch_size(changed, reshapes=reshapes)
        normalize_output(changed, axes, token)
        take_pixels(changed, preprocessing, taken.layout)
        del changed.metadata_props[:]  # its own go behind; those of others would not be covered by them
        if changed.ByteSize() > MAX_BYTES:
            raise BadNetwork(f"{path}: is larger than 2 GiB with its weights")
        content = changed.SerializeToString(deterministic=True)
        try:
            return content, check_import(path, taken, vector, token, content, preprocessing)
        except BadNetwork as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _preset(name: str | None, mean: Triple | None, std: Triple | None, path: Path) -> Preset:
    if name is not None:
        if name not in PRESETS:
            raise BadNetwork(f"there is no preset {name!r}; there are: {', '.join(PRESETS)}")
        return PRESETS[name]
    if mean is None or std is None:
        raise BadNetwork(
            f"{path}: is not a file that familiar knows: name what it is with --as ({', '.join(PRESETS)}), or state "
            "how pixels are standardized with --mean and --std"
        )
    return Preset(description="", mean=mean, std=std, size_px=0)


def _side(taken: ImageInput, size_px: int | None, known: Preset, path: Path) -> int:
    """Return the side of the crop: what the file says, which others must not contradict."""
    if taken.height_px != taken.width_px:
        raise BadNetwork(
            f"{path}: takes images of {taken.width_px} x {taken.height_px} px, and only squares are possible"
        )
    if taken.height_px is not None:
        if size_px not in (None, taken.height_px):
            raise BadNetwork(f"{path}: takes images of {taken.height_px} px, not of {size_px}")
        return taken.height_px
    if size_px is None and not known.size_px:
        raise BadNetwork(f"{path}: takes images of any size: give the one to use with --size")
    return size_px or known.size_px


def _precision(model: onnx.ModelProto) -> str:
    weights = [tensor for tensor in model.graph.initializer if tensor.data_type in (1, 10)]
    half = sum(int(np.prod(tensor.dims)) for tensor in weights if tensor.data_type == onnx.TensorProto.FLOAT16)
    return "float16" if 2 * half > sum(int(np.prod(tensor.dims)) for tensor in weights) else "float32"


def _sha256(path: Path) -> str:
    try:
        return content_sha256(path).hex()
    except OSError as error:
        raise BadNetwork(f"{path}: cannot be read ({error.strerror or error})") from error
