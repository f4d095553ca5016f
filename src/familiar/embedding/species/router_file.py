"""Router files: a species classifier and the paths of its bundles in one small JSON file.

A bundle is stored by its path, relative to the file, and by its `file_id`, so that another bundle at that path is
detected. `sha256` is the checksum of the rest of the JSON, so that every changed byte is detected.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from familiar.core.errors import BadBundle
from familiar.core.files import absolute_path, write_atomically
from familiar.core.format_marks import explain_other_format
from familiar.core.json_codec import DOCUMENTS
from familiar.core.json_text import parse_json
from familiar.embedding.embedder import Embedder
from familiar.embedding.model import Model
from familiar.embedding.species.classifier import SpeciesClassifier
from familiar.embedding.species.router import RoutedEmbedder
from familiar.embedding.zoo import shipped_bundles

FORMAT = "familiar-router/1"
SUFFIX = ".json"


def open_model(
    model: Path | str, threads: int | None = None, *, providers: Sequence[str] | None = None
) -> Embedder | RoutedEmbedder:
    """Open a router (`.json`), or else a bundle or run folder.

    Args:
        model: its path, or the name of a shipped bundle.
        threads: as for `Embedder`.
        providers: as for `Embedder`.

    Raises:
        BadBundle: as from `load_router` and `Embedder`.
        FamiliarError: a provider is missing or does not start.
    """
    if Path(model).suffix == SUFFIX:
        return load_router(model, threads, providers=providers)
    return Embedder(model, threads, providers=providers)


def as_model(model: Model | Path | str) -> Model:
    """Open a model given as a file, a folder or a name, as `open_model`; an opened one is returned as it is."""
    return open_model(model) if isinstance(model, Path | str) else model


def name_of_model(model: Model) -> str | None:
    """Return the name of a shipped bundle, or the absolute path of a model's file; None: it has none."""
    if model.path is None or not model.path.is_file():
        return None
    path = absolute_path(model.path)
    return next((name for name, file in shipped_bundles().items() if absolute_path(file) == path), str(path))


def open_named(name: str, *, providers: Sequence[str] | None = None) -> Embedder | RoutedEmbedder:
    """Open the model that `name_of_model` named, wherever this process runs.

    Args:
        name: of the model.
        providers: as for `Embedder`.

    Raises:
        BadBundle, FamiliarError: as from `open_model`.
    """
    return open_model(shipped_bundles().get(name, Path(name)), providers=providers)


def write_router(path: Path, router: RoutedEmbedder) -> None:
    """Write a router file.

    Its bundles must still be at the same paths, relative to the file, when it is loaded.

    Raises:
        CannotWrite: the system refuses.
    """
    folder = path.parent.resolve()

    def reference(embedder: Embedder) -> dict[str, str]:
        bundle = embedder.bundle
        return {"path": _relative(bundle.path.resolve(), folder), "file_id": bundle.file_id}

    stored: dict[str, Any] = {
        "format": FORMAT,
        "classifier": DOCUMENTS.to_json(router.classifier),
        "feature_bundle": reference(router.feature_embedder),
        "species_bundles": {name: reference(embedder) for name, embedder in router.embedders.items()},
    }
    write_atomically(path, _canonical({**stored, "sha256": _sha256(stored)}))


def load_router(
    path: Path | str, threads: int | None = None, *, providers: Sequence[str] | None = None
) -> RoutedEmbedder:
    """Load a router and open its bundles, each once.

    Args:
        path: the router file.
        threads: as for `Embedder`.
        providers: as for `Embedder`.

    Raises:
        BadBundle: the file is missing, corrupted or of another format, or a bundle is missing, corrupted or not the
            one that the router was made with.
    """
    path = Path(path)
    stored = _read_stored(path)
    opened: dict[Path, Embedder] = {}

    def open_bundle(role: str, reference: dict[str, str]) -> Embedder:
        bundle_path = path.resolve().parent / _check_reference(reference["path"], path)
        if bundle_path not in opened:
            try:
                opened[bundle_path] = Embedder(bundle_path, threads, providers=providers)
            except BadBundle as error:
                raise BadBundle(f"{path}: its bundle {role} cannot be opened: {error}") from error
        if opened[bundle_path].bundle.file_id != reference["file_id"]:
            raise BadBundle(
                f"{path}: was made with another bundle {role} than the one at {bundle_path}; "
                f"restore that bundle, or make the router again with `familiar species`"
            )
        return opened[bundle_path]

    try:
        return RoutedEmbedder(
            open_bundle("of the classifier", stored["feature_bundle"]),
            DOCUMENTS.from_json(SpeciesClassifier, stored["classifier"]),
            {name: open_bundle(f"for {name}", reference) for name, reference in stored["species_bundles"].items()},
            path,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadBundle(f"{path}: is not a complete router ({error}); make it again") from error


def _read_stored(path: Path) -> dict[str, Any]:
    """Read the JSON of a router file and check it."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadBundle(f"{path}: the router cannot be read ({error.strerror})") from error
    damaged = BadBundle(f"{path}: is not a familiar router, or is corrupted; make it again")
    try:
        stored = parse_json(content)
        # The encoding must be exactly the one `write_router` writes, else a changed byte outside the values would go
        # unnoticed.
        if not isinstance(stored, dict) or content != _canonical(stored):
            raise damaged
    except ValueError as error:
        raise damaged from error
    if stored.pop("sha256", None) != _sha256(stored):
        raise damaged
    if (mark := stored.get("format")) != FORMAT:
        raise BadBundle(f"{path}: {explain_other_format(mark, FORMAT, 'make it again with `familiar species`')}")
    return stored


def _check_reference(reference: str, path: Path) -> Path:
    """Return the path of a bundle, as `write_router` writes it: relative, except on another drive of Windows."""
    if reference.startswith(("/", "\\")):  # also that of another computer, which Windows would tell its password
        raise BadBundle(f"{path}: names a bundle by an absolute path, {reference}; make the router again")
    return Path(reference)


def _relative(path: Path, folder: Path) -> str:
    """Make `path` relative to `folder`, so that both can be moved together."""
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:  # on another drive
        return path.as_posix()


def _canonical(stored: dict[str, Any]) -> bytes:
    return json.dumps(stored, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _sha256(stored: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical(stored)).hexdigest()
