"""A bundle that embeds a crop of 32 px as the unit vector of its mean color.

Its ONNX is encoded by hand, since the plain environment does not have the `onnx` package.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from familiar.core.calibration import Calibration, Threshold
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

    def field(number: int, body: bytes | int) -> bytes:
        if isinstance(body, int):
            return bytes([number << 3, body])
        assert len(body) < 128
        return bytes([number << 3 | 2, len(body)]) + body

    def long_field(number: int, body: bytes) -> bytes:
        return bytes([number << 3 | 2, len(body) & 0x7F | 0x80, len(body) >> 7]) + body

    def node(operator: str, input_name: str, output_name: str, attribute: bytes = b"") -> bytes:
        names = field(1, input_name.encode()) + field(2, output_name.encode())
        return names + field(4, operator.encode()) + (field(5, attribute) if attribute else b"")

    def attribute(name: str, kind: int, values: bytes) -> bytes:
        return field(1, name.encode()) + values + bytes([0xA0, 0x01, kind])

    def value(name: str, element_type: int, *dimensions: str | int) -> bytes:
        shape = b"".join(
            field(1, field(1, size) if isinstance(size, int) else field(2, size.encode())) for size in dimensions
        )
        return field(1, name.encode()) + field(2, field(1, field(1, element_type) + field(2, shape)))

    graph = (
        field(
            1, node("Transpose", "crops", "planes", attribute("perm", 7, b"".join(field(8, x) for x in (0, 3, 1, 2))))
        )
        + field(1, node("Cast", "planes", "images", attribute("to", 2, field(3, 1))))
        + field(1, node("GlobalAveragePool", "images", "pooled"))
        + field(1, node("Flatten", "pooled", "flat"))
        + field(1, node("LpNormalization", "flat", "embeddings"))
        + field(2, b"g")
        + field(11, value("crops", 2, "n", 32, 32, 3))
        + field(12, value("embeddings", 1, "n", 3))
    )
    return field(1, 8) + long_field(7, graph) + field(8, field(2, 18))
