import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from familiar.core import protobuf
from familiar.core.errors import BadBundle
from familiar.embedding import bundle as module
from familiar.embedding.bundle import load_bundle, serialize_bundle
from support.changed_bundle import write_changed_bundle


def network_of(content: bytes) -> bytes:
    """Return the bytes before the metadata field: its tag 0x72, two or three bytes of length, then the key's field."""
    key = content.index(b"\x0a\x08familiar")
    start = next(key - back for back in (2, 3, 4) if content[key - back] == 0x72)
    return content[:start]


def test_seal_and_load_round_trip(mean_color_bundle: Path):
    bundle = load_bundle(mean_color_bundle)
    content = mean_color_bundle.read_bytes()
    assert bundle.metadata.space_id == "mean-color"
    assert bundle.metadata.preprocessing.size_px == 32
    assert bundle.metadata.calibration.balanced.similarity == 0.9
    assert bundle.metadata.prefixes == (3,)
    assert serialize_bundle(network_of(content), bundle.metadata) == content


def test_file_id_is_sha256_before_metadata(mean_color_bundle: Path):
    content = mean_color_bundle.read_bytes()
    assert load_bundle(mean_color_bundle).file_id == hashlib.sha256(network_of(content)).hexdigest()


@pytest.mark.slow
def test_rejects_bit_flip_at_every_byte(mean_color_bundle: Path, tmp_path: Path):
    content = mean_color_bundle.read_bytes()
    changed = tmp_path / "changed.onnx"
    accepted = []
    for position in range(len(content)):
        for bit in (0, 3, 7):
            changed.write_bytes(content[:position] + bytes([content[position] ^ 1 << bit]) + content[position + 1 :])
            try:
                load_bundle(changed)
            except BadBundle:
                continue
            accepted.append((position, bit))
    assert accepted == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True), extra=st.binary(min_size=1, max_size=20))
def test_rejects_truncated_or_extended_file(mean_color_bundle: Path, tmp_path: Path, share: float, extra: bytes):
    content = mean_color_bundle.read_bytes()
    path = tmp_path / "b.onnx"
    for wrong in (content[: int(share * len(content))], content + extra, extra + content):
        path.write_bytes(wrong)
        with pytest.raises(BadBundle, match=r"b\.onnx"):
            load_bundle(path)


def test_rejects_plain_onnx_model(mean_color_bundle: Path, tmp_path: Path):
    content = mean_color_bundle.read_bytes()
    bare = tmp_path / "bare.onnx"
    bare.write_bytes(network_of(content))
    ort.InferenceSession(bare.read_bytes(), providers=["CPUExecutionProvider"])  # it is a valid model
    with pytest.raises(BadBundle, match="not a familiar bundle"):
        load_bundle(bare)


@pytest.mark.parametrize("key", ["calibration", "detector", "source"])
def test_rejects_resealed_metadata_with_missing_key(mean_color_bundle: Path, tmp_path: Path, key: str):
    path = write_changed_bundle(tmp_path / "incomplete.onnx", mean_color_bundle, key)
    with pytest.raises(BadBundle, match=rf"incomplete.*{key}"):
        load_bundle(path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"format_version": 2}, "was made by a development version of familiar; export or import it again"),
        ({"format_version": 1, "licence": "MIT"}, "was made by a development version of familiar"),
        ({"format": "familiar-bundle/2"}, r"was made by a newer version of familiar \(familiar-bundle/2\); update"),
        ({"format": "familiar-router/1"}, "is of format 'familiar-router/1', not familiar-bundle/1; export or import"),
        ({"format": 3}, "is of format 3, not familiar-bundle/1"),
    ],
)
def test_rejects_other_format_with_remedy(
    mean_color_bundle: Path, tmp_path: Path, changed: dict[str, Any], message: str
):
    path = write_changed_bundle(tmp_path / "another.onnx", mean_color_bundle, "format", **changed)
    with pytest.raises(BadBundle, match=rf"another\.onnx: {message}"):
        load_bundle(path)


def test_onnx_runtime_reads_metadata_after_graph(mean_color_bundle: Path):
    session = ort.InferenceSession(mean_color_bundle.read_bytes(), providers=["CPUExecutionProvider"])
    stored = json.loads(session.get_modelmeta().custom_metadata_map["familiar"])
    assert stored["space_id"] == "mean-color"


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 7])
def test_bundle_runs_in_empty_folder_without_other_files(mean_color_bundle: Path, tmp_path: Path, count: int):
    path = tmp_path / "empty" / "m.onnx"
    path.parent.mkdir()
    path.write_bytes(mean_color_bundle.read_bytes())
    script = (
        "import numpy as np, onnxruntime as o; s = o.InferenceSession('m.onnx', providers=['CPUExecutionProvider']);"
        f"print(s.run(None, {{'crops': np.ones(({count}, 32, 32, 3), np.uint8)}})[0].shape)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=path.parent, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"({count}, 3)"
    assert [file.name for file in path.parent.iterdir()] == ["m.onnx"]


def test_run_folder_resolves_to_its_bundle(mean_color_bundle: Path, tmp_path: Path):
    (tmp_path / "model.onnx").write_bytes(mean_color_bundle.read_bytes())
    assert load_bundle(tmp_path).path == tmp_path / "model.onnx"
    with pytest.raises(BadBundle, match="nowhere"):
        load_bundle(tmp_path / "nowhere.onnx")
    empty = tmp_path / "empty run"
    empty.mkdir()
    with pytest.raises(BadBundle, match="empty run"):
        load_bundle(empty)


def test_rejects_deeply_nested_metadata(mean_color_bundle: Path, tmp_path: Path):
    network = network_of(mean_color_bundle.read_bytes())
    path = tmp_path / "nested.onnx"
    path.write_bytes(network + module._encode_metadata(b"[" * 100_000))
    with pytest.raises(BadBundle, match=r"nested\.onnx: is not a familiar bundle"):
        load_bundle(path)


def test_rejects_zero_filled_file_at_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "zeros.onnx"
    path.write_bytes(bytes(1_000_000))  # what a crash may leave
    read: list[int] = []
    read_varint = protobuf._read_varint
    monkeypatch.setattr(
        protobuf, "_read_varint", lambda message, start: (read.append(start), read_varint(message, start))[1]
    )
    with pytest.raises(BadBundle, match=r"zeros\.onnx"):
        load_bundle(path)
    assert read == [0]


def test_rejects_random_bytes(tmp_path: Path):
    path = tmp_path / "noise.onnx"
    for seed in range(50):
        path.write_bytes(np.random.default_rng(seed).bytes(2000))
        with pytest.raises(BadBundle):
            load_bundle(path)
