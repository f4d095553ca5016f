"""Bundles: a trained network as one ONNX file with the metadata needed to use it, and checksums of both.

An ONNX file is a protobuf message, and protobuf fields may have any order. So a bundle is the serialized network with
one more field appended: `metadata_props["familiar"]`, the metadata as JSON. The checksum `file_id` covers the bytes
before it, `metadata_sha256` the JSON; both are verified with the standard library alone.
"""

import hashlib
import json
from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from familiar.core import run_files
from familiar.core.calibration import Calibration
from familiar.core.errors import BadBundle
from familiar.core.format_marks import explain_other_format
from familiar.core.json_codec import DOCUMENTS
from familiar.core.json_text import parse_json
from familiar.core.protobuf import encode_field, iterate_fields
from familiar.core.species_means import SpeciesMeans
from familiar.embedding.hub_download import fetch_bundle, is_hub_name
from familiar.embedding.network_scan import check_network, scan_network
from familiar.embedding.zoo import shipped_bundles
from familiar.photos.preprocessing import Preprocessing

FORMAT = "familiar-bundle/1"
METADATA_KEY = "familiar"
METADATA_PROPS_FIELD = 14  # onnx.proto: ModelProto.metadata_props
MAX_BYTES = 2**31 - 1  # of a protobuf message
MAX_FIELDS = 1_000  # of the model; it has about ten
MAX_METADATA_BYTES = 16 * 2**20


@dataclass(frozen=True)
class BundleMetadata:
    """Metadata of a bundle. In the file there are its format and two checksums besides (`serialize_bundle`).

    Attributes:
        space_id: identifies the embedding space; only embeddings of the same space can be compared.
        embedding_dim: dimension of the embeddings.
        preprocessing: how a crop is resized and standardized.
        calibration: thresholds, and the curve from similarity to probability.
        prefixes: lengths to which its embeddings may be truncated.
        prefix_calibrations: of similarities between embeddings truncated to each of the shorter prefixes.
        recipe: name of the recipe it was trained with.
        network: name of the network.
        precision: numeric precision of weights and computation.
        trained_on: for each data set it was trained on, the numbers of `identities` and `photos`.
        results: metrics by name, and `on`, the photos on which they were measured.
        parity: how far its output differs from that of the trained network, and the network's own metrics (`source`).
        license: license of the weights.
        taught_by: the spaces of the bundles it was distilled from.
        detector: name of the detector whose faces the network takes; "none": it takes whole photos or crops.
        species_means: what a gallery subtracts from embeddings until it has enough photos of its own to take the means
            of; None: it compares embeddings as they are.
        source: of an imported network: the `file` it was made of, its `sha256`, and who `published` it.
    """

    space_id: str
    embedding_dim: int
    preprocessing: Preprocessing
    calibration: Calibration
    prefixes: tuple[int, ...]
    recipe: str
    network: str
    precision: str
    trained_on: dict[str, Any]
    results: dict[str, Any]
    parity: dict[str, Any]
    license: str
    taught_by: tuple[str, ...] = ()
    detector: str = "none"
    species_means: SpeciesMeans | None = None
    prefix_calibrations: dict[int, Calibration] = field(default_factory=dict[int, Calibration])
    source: dict[str, str] | None = None

    @property
    def space(self) -> tuple[str, int, tuple[int, ...]]:
        """What tells whether its embeddings can be compared with others: space, dimension and prefixes."""
        return self.space_id, self.embedding_dim, self.prefixes


@dataclass(frozen=True)
class Bundle:
    """A bundle with verified checksums.

    Attributes:
        path: the file that it was read from.
        onnx: content of the whole file, as ONNX Runtime takes it.
        file_id: SHA-256 of the network, without the metadata, in hexadecimal.
        metadata: what is needed to use the network.
    """

    path: Path
    onnx: bytes = field(repr=False)
    file_id: str
    metadata: BundleMetadata


def resolve_model(model: Path | str) -> Path:
    """Find the file of a bundle.

    Args:
        model: a bundle file, a run folder with a bundle, the name of a shipped bundle, or `hf://ORG/REPO[@REVISION]`,
            which is downloaded. A file or folder with that name takes precedence over the shipped bundle.

    Raises:
        BadBundle: there is none.
    """
    if is_hub_name(model):
        return fetch_bundle(model)
    path, shipped = Path(model), shipped_bundles()
    try:
        if not path.exists():
            path = shipped.get(str(model), path)
        if path.is_dir():
            _check_finished(path)
            path = path / run_files.BUNDLE
        is_there = path.is_file()
    except (OSError, ValueError):  # a name that is too long, or with a zero byte
        is_there = False
    if not is_there:
        names = f", or a shipped bundle: {', '.join(shipped)}" if shipped else ""
        raise BadBundle(
            f"{model}: no bundle found; give a .onnx file of `familiar export`, the folder of a finished run{names}"
        )
    return path


def _check_finished(run: Path) -> None:
    """Raise BadBundle if a folder holds a run that has no bundle yet."""
    if (run / run_files.BUNDLE).is_file() or not (run / run_files.RECIPE).is_file():
        return
    if (run / run_files.EMBEDDER_WEIGHTS).is_file():
        raise BadBundle(
            f"{run}: this run is not exported yet; do so: familiar export {run} --output {run / run_files.BUNDLE}"
        )
    raise BadBundle(
        f"{run}: this run is not finished; repeat its command with --resume: familiar train ... --output {run} --resume"
    )


def load_bundle(model: Path | str) -> Bundle:
    """Read a bundle and verify its checksums, which cover every byte.

    Args:
        model: a bundle file, a run folder, the name of a shipped bundle or one of the Hub, as for `resolve_model`.

    Raises:
        BadBundle: the file is missing, not a bundle, corrupted, or of another format, or its network refers to other
            files or repeats parts of itself; names the file and the cause.
    """
    path = resolve_model(model)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadBundle(f"{path}: is larger than 2 GiB, which no bundle is")
        content = path.read_bytes()
    except OSError as error:
        raise BadBundle(f"{path}: cannot be read ({error.strerror})") from error
    network, stored = _verify_metadata(content, path)
    file_id = stored.pop("file_id")
    if (mark := stored.pop("format", None)) != FORMAT:
        raise BadBundle(f"{path}: {explain_other_format(mark, FORMAT, 'export or import it again')}")
    if hashlib.sha256(network).hexdigest() != file_id:
        raise BadBundle(f"{path}: the network's bytes changed since it was exported; download or export it again")
    _check_harmless(network, path)
    try:
        return Bundle(path, content, file_id, _parse_metadata(stored))
    except ValueError as error:
        raise BadBundle(f"{path}: its metadata is incomplete or of another type ({error})") from error


def network_bytes(bundle: Bundle) -> bytes:
    """Return a bundle's network without the metadata, as `serialize_bundle` takes it.

    Args:
        bundle: whose file was verified.
    """
    return _verify_metadata(bundle.onnx, bundle.path)[0]


def serialize_bundle(network: bytes, metadata: BundleMetadata) -> bytes:
    """Make the content of a bundle: a serialized ONNX model followed by its metadata and checksums."""
    stored = {"format": FORMAT, **DOCUMENTS.to_json(metadata)}
    stored["file_id"] = hashlib.sha256(network).hexdigest()
    stored["metadata_sha256"] = _metadata_sha256(stored)
    return network + _encode_metadata(_canonical(stored))


def _verify_metadata(content: bytes, path: Path) -> tuple[bytes, dict[str, Any]]:
    """Split a bundle's content into the network's bytes and the metadata, whose checksum is verified."""
    damaged = BadBundle(f"{path}: is not a familiar bundle, or is corrupted; download or export it again")
    try:
        number, start, body = deque(islice(iterate_fields(content), MAX_FIELDS), maxlen=1).pop()
        if isinstance(body, int):
            raise ValueError("it ends with a number")
        entry = {inner: bytes(value) for inner, _, value in iterate_fields(body) if not isinstance(value, int)}
        if len(entry[2]) > MAX_METADATA_BYTES:
            raise ValueError("too much metadata")
        stored = parse_json(entry[2])
        canonical = _canonical(stored)  # not of numbers that are infinite
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise damaged from error
    # The encoding must be exactly what `serialize_bundle` writes, or a changed byte outside the values would go
    # unnoticed.
    if (
        number != METADATA_PROPS_FIELD
        or not isinstance(stored, dict)
        or not {"file_id", "metadata_sha256"} <= stored.keys()
        or content[start:] != _encode_metadata(entry[2])
        or entry[2] != canonical
        or stored.pop("metadata_sha256") != _metadata_sha256(stored)
    ):
        raise damaged
    return content[:start], stored


def _check_harmless(network: bytes, path: Path) -> None:
    """Raise BadBundle for a network that could read other files or run without end, whatever its checksums say."""
    try:
        scan = scan_network(network)
        check_network(scan)
        if scan.external:
            raise ValueError("its weights are in other files")
    except ValueError as error:
        raise BadBundle(f"{path}: is not opened, as familiar never writes such a network: {error}") from error


def _parse_metadata(stored: dict[str, Any]) -> BundleMetadata:
    metadata = DOCUMENTS.from_json(BundleMetadata, stored)
    if not all(0 < length <= metadata.embedding_dim for length in (metadata.embedding_dim, *metadata.prefixes)):
        raise ValueError(f"embedding_dim is {metadata.embedding_dim}, prefixes are {metadata.prefixes}")
    return metadata


def _encode_metadata(stored: bytes) -> bytes:
    return encode_field(METADATA_PROPS_FIELD, encode_field(1, METADATA_KEY.encode()) + encode_field(2, stored))


def _canonical(stored: Any) -> bytes:
    return json.dumps(stored, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _metadata_sha256(stored: dict[str, Any]) -> str:
    rest = {key: value for key, value in stored.items() if key != "metadata_sha256"}
    return hashlib.sha256(_canonical(rest)).hexdigest()
