"""Export of a router as one folder with all its bundles, which works wherever it is moved."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from familiar.core import run_files
from familiar.core.errors import BadRecipe, BadRun, CannotWrite
from familiar.core.files import draft_folder, publish_folder, write_atomically
from familiar.embedding.bundle import Bundle
from familiar.embedding.embedder import Embedder
from familiar.embedding.species.router import RoutedEmbedder
from familiar.embedding.species.router_file import load_router, write_router

ROUTER = "router.json"
CLASSIFIER = "classifier"  # file name of its bundle, if no species has the same one
MAX_NAME_LETTERS = 60  # of up to 4 bytes: file names may have 255


def export_router(router: Path | str, output: Path | str, **options: Any) -> RoutedEmbedder:
    """Write a router and all its bundles to a folder of their own, which can be moved as a whole.

    The folder contains `router.json` and each different bundle once, called by the species that it is for. It appears
    complete or not at all.

    Args:
        router: the router file.
        output: the folder; it may exist if it is empty or has exactly these files.
        options: those of `export_bundle`, with which the bundle of each species is exported again from its run; without
            any, bundles are copied as they are. The classifier's bundle is always copied, since the classifier was
            fitted on its embeddings. By default an exported bundle has the license of the one it replaces.

    Returns:
        The router, as it is read back from the folder.

    Raises:
        BadBundle: the router or one of its bundles is missing, corrupted or another.
        BadRun: a bundle to export again is not the `model.onnx` of a run folder.
        BadRecipe: a bundle has no prefix of so many `components`.
        ParityFailed, GateRefused, TooLarge, BadDataset: as from `export_bundle`; nothing was written.
        CannotWrite: the folder has other contents or cannot be written.
    """
    folder = Path(output)
    if _has_contents(folder) and not (folder / ROUTER).is_file():
        raise _occupied(folder)
    loaded = load_router(router)
    features, bundles = loaded.feature_embedder.bundle, {name: each.bundle for name, each in loaded.embedders.items()}
    if options:
        bundles = _export_again(bundles, options)
    names = _file_names(features, bundles)
    with draft_folder(folder) as draft:
        for content, name in names.items():
            write_atomically(draft / name, content)
        opened = {content: Embedder(draft / name) for content, name in names.items()}
        embedders = {species: opened[bundle.onnx] for species, bundle in bundles.items()}
        write_router(draft / ROUTER, RoutedEmbedder(opened[features.onnx], loaded.classifier, embedders))
        _rename(draft, folder)
    return load_router(folder / ROUTER)


def _export_again(bundles: Mapping[str, Bundle], options: Mapping[str, Any]) -> dict[str, Bundle]:
    """Export the bundle of each species from its run, each run once."""
    from familiar.export.run_export import export_bundle  # imports torch, which copies do without

    runs = {species: _run_folder(bundle, species) for species, bundle in bundles.items()}
    components = options.get("components")
    for species, bundle in bundles.items():
        lengths = bundle.metadata.prefixes
        if components is not None and components not in lengths:
            raise BadRecipe(
                f"{bundle.path.resolve()}: the bundle for {species} has {', '.join(map(str, lengths))} components, not "
                f"{components}; shorter ones must be trained (--set loss.prefixes)"
            )
    exported: dict[Path, Bundle] = {}
    with TemporaryDirectory() as temporary:
        for species, run in runs.items():
            if run not in exported:
                chosen = {"license": bundles[species].metadata.license, **options}
                exported[run] = export_bundle(run, Path(temporary) / f"{len(exported)}.onnx", **chosen)
    return {species: exported[run] for species, run in runs.items()}


def _run_folder(bundle: Bundle, species: str) -> Path:
    """Return the run folder that a bundle lies in."""
    path = bundle.path.resolve()
    if path.name != run_files.BUNDLE or not (path.parent / run_files.RECIPE).is_file():
        raise BadRun(
            f"{path}: the bundle for {species} is not the {run_files.BUNDLE} of a run folder, so it cannot be exported "
            "again; export its run with `familiar export` first and make the router again with `familiar species`"
        )
    return path.parent


def _file_names(features: Bundle, bundles: Mapping[str, Bundle]) -> dict[bytes, str]:
    """Choose a file name for the content of each different bundle."""
    species_of: dict[bytes, list[str]] = {}
    for species, bundle in bundles.items():
        species_of.setdefault(bundle.onnx, []).append(species)
    species_of.setdefault(features.onnx, [CLASSIFIER])
    return dict(zip(species_of, _distinct_names("+".join(names) for names in species_of.values()), strict=True))


def _distinct_names(stems: Iterable[str]) -> list[str]:
    """Make file names that differ by more than the case of letters, which some file systems ignore."""
    names: dict[str, str] = {}  # by the name in lower case
    for stem in stems:
        short, number = stem[:MAX_NAME_LETTERS], 1
        name = f"{short}.onnx"
        while name.casefold() in names:
            number += 1
            name = f"{short} {number}.onnx"
        names[name.casefold()] = name
    return list(names.values())


def _has_contents(folder: Path) -> bool:
    return folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))


def _occupied(folder: Path) -> CannotWrite:
    return CannotWrite(f"{folder}: exists and is not this router; name a new folder, or remove it")


def _rename(draft: Path, folder: Path) -> None:
    """Give a folder its name, unless there is one with the same files already."""
    if _has_contents(folder):
        if _contents(folder) != _contents(draft):
            raise _occupied(folder)
        return
    publish_folder(draft, folder)


def _contents(folder: Path) -> dict[str, bytes | None] | None:
    """Return the content of each file, None of a subfolder; None if it is no folder."""
    if not folder.is_dir():
        return None
    return {path.name: path.read_bytes() if path.is_file() else None for path in folder.iterdir()}
