"""A bundle that embeds a crop of 32 px as the unit vector of its mean color.

Its ONNX is encoded by hand, since the plain environment does not have the `onnx` package.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from familiar.core.calibration import Calibration, Threshold
from familiar.core.protobuf import encode_field
from familiar.embedding.bundle import BundleMetadata, serialize_bundle
from familiar.photos.preprocessing import Preprocessing

_THRESHOLD = Threshold(similarity=0.9, far=0.0, tar=1.0)
CALIBRATED = Calibration(_THRESHOLD, _THRESHOLD, _THRESHOLD, 20.0, -18.0, 0.0, 1, 1)
_GUESS = Threshold(similarity=0.55, far=None, tar=None)
UNCALIBRATED = Calibration(_GUESS, _GUESS, _GUESS, None, None, None, 0, 0)


def write_mean_color_bundle(path: Path, calibration: Calibration, space_id: str = "mean-color", **changes: Any) -> Path:
    metadata = BundleMetadata(
        space_id=space_id,
        embedding_dim=3,
        preprocessing=Preprocessing(size_px=32, resize_px=32, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)),
        calibration=calibration,
        prefixes=(3,),
        recipe="none",
        network="mean color",
        precision="float32",
        trained_on={},
        results={},
        parity={},
        license="Apache-2.0",
    )
    path.write_bytes(serialize_bundle(_mean_color_onnx(), replace(metadata, **changes)))
    return path


def _mean_color_onnx() -> bytes:
    """Encode Transpose, Cast, GlobalAveragePool, Flatten and LpNormalization by the field numbers of onnx.proto."""

    def number(field: int, value: int) -> bytes:
        return bytes([field << 3, value])

    def text(field: int, value: str) -> bytes:
        return encode_field(field, value.encode())

    def node(operator: str, input_name: str, output_name: str, attribute: bytes = b"") -> bytes:
        return encode_field(1, text(1, input_name) + text(2, output_name) + text(4, operator) + attribute)

    def attribute(name: str, kind: int, values: bytes) -> bytes:
        return encode_field(5, text(1, name) + values + bytes([0xA0, 0x01, kind]))

    def value(field: int, name: str, element_type: int, *dimensions: int) -> bytes:
        sizes = [text(2, "n"), *(number(1, size) for size in dimensions)]
        shape = b"".join(encode_field(1, size) for size in sizes)
        tensor = encode_field(1, number(1, element_type) + encode_field(2, shape))
        return encode_field(field, text(1, name) + encode_field(2, tensor))

    graph = (
        node("Transpose", "crops", "planes", attribute("perm", 7, b"".join(number(8, axis) for axis in (0, 3, 1, 2))))
        + node("Cast", "planes", "images", attribute("to", 2, number(3, 1)))
        + node("GlobalAveragePool", "images", "pooled")
        + node("Flatten", "pooled", "flat")
        + node("LpNormalization", "flat", "embeddings")
        + text(2, "g")
        + value(11, "crops", 2, 32, 32, 3)
        + value(12, "embeddings", 1, 3)
    )
    return number(1, 8) + encode_field(7, graph) + encode_field(8, number(2, 18))
