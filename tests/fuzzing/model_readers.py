"""Readers of networks: bundles, files of species, ONNX networks of others, and weights."""

import hashlib
import io
import json
import zipfile
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fuzzing.mutators import bytes_mutator, json_mutator
from fuzzing.onnx_mutator import onnx_mutator
from fuzzing.reader import Read, Reader, reading_file


@cache
def _bundle() -> bytes:
    from support.mean_color_bundle import CALIBRATED, write_mean_color_bundle

    with TemporaryDirectory() as folder:
        return write_mean_color_bundle(Path(folder) / "bundle.onnx", CALIBRATED).read_bytes()


def split_bundle(data: bytes) -> tuple[bytes, dict[str, Any]]:
    """Return a bundle's network and its metadata; of other bytes all, and the metadata of the valid bundle."""
    from familiar.core.errors import BadBundle
    from familiar.embedding.bundle import _verify_metadata

    try:
        network, stored = _verify_metadata(data, Path("bundle"))
        return network, stored
    except BadBundle:
        return data, _verify_metadata(_bundle(), Path("bundle"))[1]


def joined_bundle(network: bytes, stored: dict[str, Any]) -> bytes:
    from familiar.embedding import bundle

    try:
        stored = {**stored, "file_id": hashlib.sha256(network).hexdigest()}
        stored["metadata_sha256"] = bundle._metadata_sha256(stored)
        metadata = bundle._encode_metadata(bundle._canonical(stored))
    except (ValueError, TypeError, RecursionError):  # not a number, or nested deeply
        return network
    return network + metadata


def _mutate_bundle(data: bytes, dice: Random) -> bytes:
    network, stored = split_bundle(data)
    match dice.randrange(4):
        case 0:
            return bytes_mutator(data, dice)
        case 1:
            return joined_bundle(onnx_mutator(network, dice), stored)
        case 2:
            return joined_bundle(bytes_mutator(network, dice), stored)
        case _:
            try:
                changed = json.loads(json_mutator(json.dumps(stored).encode(), dice))
            except (ValueError, RecursionError):
                return data
            return joined_bundle(network, changed if isinstance(changed, dict) else stored)


def _prepare_bundle(folder: Path) -> Read:
    """All of a bundle is read; only the valid network is run, as its memory is not bounded (untrusted-files.md)."""
    from familiar.core.types import Face, Photo
    from familiar.detection.alignment import align
    from familiar.embedding.bundle import load_bundle, network_bytes
    from familiar.embedding.embedder import Embedder
    from familiar.gallery.store.space import Space

    valid = network_bytes(load_bundle(_write(folder / "valid.onnx", _bundle())))

    photo = Photo(np.full((40, 60, 3), 128, np.uint8), "gray", (60, 40))
    landmarks = np.array([[20, 15], [40, 15], [30, 25], [22, 33], [38, 33]], np.float32)
    faces = [Face((5.0, 5.0, 50.0, 38.0), points, 1.0) for points in (None, landmarks)]

    def open_and_run(path: Path) -> None:
        bundle = load_bundle(path)
        if network_bytes(bundle) != valid:
            return
        embedder = Embedder(bundle, threads=1)
        embedder.embed([align(photo, face, bundle.metadata.preprocessing) for face in faces])
        Space.from_metadata(embedder.metadata)

    return reading_file(folder / "bundle.onnx", open_and_run)


def _write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _prepare_species(folder: Path) -> Read:
    from familiar.embedding.species import open_bundles

    _write(folder / "cat.onnx", _bundle())
    return reading_file(folder / "family.json", open_bundles)


def _prepare_scan(folder: Path) -> Read:
    """What looks at a network of others in the user's own process, before another one tries it."""
    from familiar.conversion import graph
    from familiar.embedding.network_scan import check_network, scan_network

    path = folder / "network.onnx"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        try:
            scan = scan_network(data)
            check_network(scan)
        except ValueError:  # as documented
            return
        graph._check_external_data(scan.locations, path)

    return read


def _prepare_import(folder: Path) -> Read:
    from familiar.conversion import trial
    from familiar.conversion.importing import import_network

    trial.SECONDS, trial.MEMORY_BYTES = 20, 2 * 2**30  # pyright: ignore[reportAttributeAccessIssue]

    def run(path: Path) -> None:
        import_network(path, folder / "bundle.onnx", mean=(0.5,) * 3, std=(0.5,) * 3, license="none", size_px=32)

    return reading_file(folder / "network.onnx", run)


@cache
def _networks() -> tuple[bytes, ...]:
    from support.foreign_network import Network

    networks = (Network(), Network(batch=1, reshape=True), Network(opset=9, initializers_as_inputs=True))
    return tuple(network.build().SerializeToString() for network in networks)


def _prepare_weights(folder: Path) -> Read:
    from familiar.models.weights import is_network_file, read_tensors

    def read(data: bytes) -> None:
        suffix = ".npz" if data[:2] == b"PK" and b".npy" in data else ".pt" if data[:2] == b"PK" else ".safetensors"
        path = _write(folder / f"weights{suffix}", data)
        is_network_file(path)
        read_tensors(path)

    return read


def _weights() -> list[bytes]:
    import safetensors.torch
    import torch

    tensors = {"network.a": torch.zeros(2, 3), "b": torch.arange(4)}
    state, arrays = io.BytesIO(), io.BytesIO()
    torch.save(tensors, state)
    np.savez(arrays, **{name: tensor.numpy() for name, tensor in tensors.items()})
    packed = io.BytesIO()
    np.savez_compressed(packed, a=np.zeros((50, 50), np.float32))
    return [safetensors.torch.save(tensors), state.getvalue(), arrays.getvalue(), packed.getvalue()]


def _repair_zip(data: bytes) -> bytes:
    """Make the checksums of the members of a zip file right, where its directory can be read."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            repaired = bytearray(data)
            for info in archive.infolist():
                start = info.header_offset + 30 + len(info.filename.encode())
                if info.compress_type == zipfile.ZIP_STORED:
                    content = data[start : start + info.file_size]
                    old = info.CRC.to_bytes(4, "little")
                    new = zipfile.crc32(content).to_bytes(4, "little")  # pyright: ignore[reportAttributeAccessIssue]
                    repaired = bytearray(bytes(repaired).replace(old, new))
            return bytes(repaired)
    except Exception:  # a damaged directory
        return data


def _prepare_state(folder: Path) -> Read:
    from torch import nn

    from familiar.training.checkpoint import load_state, load_weights

    network = nn.Linear(3, 2)

    def read(path: Path) -> None:
        load_state(path)

    def run(data: bytes) -> None:
        if data[:2] == b"PK":
            read(_write(folder / "state.pt", data))
        else:
            load_weights(_write(folder / "last.safetensors", data), network=network)

    return run


def _states() -> list[bytes]:
    import safetensors.torch
    import torch

    buffer = io.BytesIO()
    torch.save(
        {"optimizer": {"lr": 0.1, "moments": [torch.ones(3)]}, "epoch": 3, "random": torch.get_rng_state()[:8]}, buffer
    )
    return [
        buffer.getvalue(),
        safetensors.torch.save({"network.weight": torch.zeros(2, 3), "network.bias": torch.zeros(2)}),
    ]


def _prepare_hnsw(folder: Path) -> Read:
    from familiar.neighbors.hnsw import HnswIndex, Stamp

    def read(data: bytes) -> None:
        index, _, stamp = data.partition(b"\n--\n")
        from familiar.neighbors import hnsw

        (folder / hnsw.INDEX_FILE).write_bytes(index)
        (folder / hnsw.STAMP_FILE).write_bytes(stamp)
        HnswIndex.open(folder, Stamp(4, "gallery"))

    return read


def _index() -> bytes:
    from familiar.neighbors import hnsw

    with TemporaryDirectory() as name:
        folder = Path(name)
        rows = np.eye(4, 8, dtype=np.float32)
        hnsw.HnswIndex.build(rows, np.arange(4)).save(folder, "gallery")
        return (folder / hnsw.INDEX_FILE).read_bytes() + b"\n--\n" + (folder / hnsw.STAMP_FILE).read_bytes()


READERS = {
    "bundle": Reader(_prepare_bundle, lambda: [_bundle()], _mutate_bundle),
    "species": Reader(_prepare_species, lambda: [b'{"cat": "cat.onnx", "dog": "pet-nano"}'], json_mutator),
    "network-scan": Reader(_prepare_scan, lambda: list(_networks()), onnx_mutator),
    "import": Reader(_prepare_import, lambda: list(_networks()), onnx_mutator, starts_processes=True),
    "weights": Reader(_prepare_weights, _weights, bytes_mutator, _repair_zip),
    "checkpoint": Reader(_prepare_state, _states, bytes_mutator, _repair_zip),
    "hnsw": Reader(_prepare_hnsw, lambda: [_index()], bytes_mutator),
}
