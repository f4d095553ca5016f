"""Bundles with other metadata than familiar writes, under the right checksums."""

from pathlib import Path
from typing import Any

from familiar.embedding import bundle as module


def write_changed_bundle(path: Path, bundle: Path, *removed: str, **changed: Any) -> Path:
    """Write a bundle without some fields of its metadata, and with other ones."""
    network, stored = module._verify_metadata(bundle.read_bytes(), bundle)
    for name in removed:
        del stored[name]
    stored |= changed
    stored["metadata_sha256"] = module._metadata_sha256(stored)
    path.write_bytes(network + module._encode_metadata(module._canonical(stored)))
    return path
