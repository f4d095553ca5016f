"""A router on disk: one small JSON file that holds a species head and names the bundles, which stay as they are.

Each bundle is named by its path, relative to the file, and by its `file_id`, so that another in its place is
noticed. `sha256` is over the rest of the JSON: a changed byte is refused.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from familiar.core.errors import BadBundle
from familiar.core.files import write_atomically
from familiar.embedding.embedder import Embedder
from familiar.embedding.species.classifier import SpeciesClassifier
from familiar.embedding.species.router import RoutedEmbedder

FORMAT_VERSION = 1
SUFFIX = ".json"


def open_model(model: Path | str) -> Embedder | RoutedEmbedder:
    """What a user means by a model: a router (`.json`), else a bundle or a run's folder. BadBundle as by both."""
    return load_router(model) if Path(model).suffix == SUFFIX else Embedder(model)


def write_router(path: Path, router: RoutedEmbedder) -> None:
    """Write `router` down. Where its bundles lie then, seen from the file, they must lie when it is loaded."""
    folder = path.parent.resolve()

    def named(embedder: Embedder) -> dict[str, str]:
        bundle = embedder.bundle
        return {"path": _relative(bundle.path.resolve(), folder), "file_id": bundle.file_id}

    stored: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "head": router.classifier.as_dict(),
        "features": named(router.feature_embedder),
        "bundles": {name: named(embedder) for name, embedder in router.embedders.items()},
    }
    write_atomically(path, _canonical({**stored, "sha256": _sha256(stored)}))


def load_router(path: Path | str, threads: int | None = None) -> RoutedEmbedder:
    """The router in a file, its bundles opened, each once. `threads` as for `Embedder`.

    BadBundle where the file or a bundle was changed, or a bundle is gone or another one than was written down.
    """
    path = Path(path)
    stored = _read_stored(path)
    opened: dict[Path, Embedder] = {}

    def embedder(role: str, named: dict[str, str]) -> Embedder:
        place = path.resolve().parent / named["path"]
        if place not in opened:
            try:
                opened[place] = Embedder(place, threads)
            except BadBundle as error:
                raise BadBundle(f"{path}: its bundle {role} does not open: {error}") from error
        if opened[place].bundle.file_id != named["file_id"]:
            raise BadBundle(
                f"{path}: was made with another bundle {role} than now lies at {place}; "
                f"put that one back, or make the router again with `familiar species`"
            )
        return opened[place]

    try:
        return RoutedEmbedder(
            embedder("of the head", stored["features"]),
            SpeciesClassifier.from_dict(stored["head"]),
            {name: embedder(f"for {name}", named) for name, named in stored["bundles"].items()},
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadBundle(f"{path}: is no complete router ({error}); make it again") from error


def _read_stored(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadBundle(f"{path}: no router can be read from it ({error.strerror})") from error
    damaged = BadBundle(f"{path}: is no router of ours, or was cut or changed; make it again")
    try:
        stored = json.loads(content)
        # Bytes outside the JSON's values must be just as we write them, or a change there would go unseen.
        if not isinstance(stored, dict) or content != _canonical(stored):
            raise damaged
    except (RecursionError, ValueError) as error:
        raise damaged from error
    if stored.pop("sha256", None) != _sha256(stored):
        raise damaged
    if stored.get("format_version") != FORMAT_VERSION:
        raise BadBundle(f"{path}: is of format {stored.get('format_version')}; this version reads {FORMAT_VERSION}")
    return stored


def _relative(path: Path, folder: Path) -> str:
    """`path` seen from `folder`, so that both can move together."""
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:  # on another drive
        return path.as_posix()


def _canonical(stored: dict[str, Any]) -> bytes:
    return json.dumps(stored, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _sha256(stored: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical(stored)).hexdigest()
