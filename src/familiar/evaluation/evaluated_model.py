"""The model of an evaluation: open a bundle or a router, list its bundles, and describe it for the results."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from familiar.core.errors import BadDataset
from familiar.embedding.bundle import Bundle, BundleMetadata
from familiar.embedding.embedder import Embedder
from familiar.embedding.model import Model
from familiar.embedding.species.router import RoutedEmbedder
from familiar.embedding.species.router_file import open_model
from familiar.evaluation.context import EvaluationContext
from familiar.evaluation.results.document import ModelInfo


def open_evaluated_model(
    model: Path | str, resize_px: int | None, providers: Sequence[str] | None = None
) -> Embedder | RoutedEmbedder:
    """Open a bundle or a router.

    Args:
        model: a file, a run folder or the name of a bundle.
        resize_px: replaces how the bundle resizes photos; None: as the bundle says.
        providers: as for `Embedder`.

    Raises:
        BadBundle: there is no such model.
        BadDataset: `resize_px` does not fit the bundle, or the model is a router.
    """
    opened = open_model(model, providers=providers)
    if resize_px is None:
        return opened
    if isinstance(opened, RoutedEmbedder):
        raise BadDataset(
            f"--resize-px: {model} is a router, and each of its bundles would need its own; evaluate one of its "
            "bundles with this option instead"
        )
    try:
        preprocessing = replace(opened.metadata.preprocessing, resize="center_crop", resize_px=resize_px)
    except ValueError as error:
        raise BadDataset(f"--resize-px: {error}") from error
    bundle = replace(opened.bundle, metadata=replace(opened.metadata, preprocessing=preprocessing))
    return Embedder(bundle, providers=providers)


def embedding_bundles(model: Model) -> list[Bundle]:
    """List the bundles that embed photos, each once: of a router, those of its species."""
    if not isinstance(model, RoutedEmbedder):
        return list(model.bundles.values())
    return list({embedder.bundle.path: embedder.bundle for embedder in model.embedders.values()}.values())


def all_bundles(model: Model) -> list[Bundle]:
    """List the bundles, each once; of a router also that of its species classifier."""
    classifier = [model.feature_embedder.bundle] if isinstance(model, RoutedEmbedder) else []
    return list({bundle.path: bundle for bundle in (*embedding_bundles(model), *classifier)}.values())


def model_info(context: EvaluationContext, path: Path | str, resize_px: int | None) -> ModelInfo:
    """Describe the model for the results.

    Args:
        context: with the model.
        path: of the model.
        resize_px: as for `open_evaluated_model`.
    """
    model = context.model
    space_id, embedding_dim, _ = model.space
    is_router = isinstance(model, RoutedEmbedder)
    sizes = {bundle.file_id: len(bundle.onnx) for bundle in all_bundles(model)}
    return ModelInfo(
        file_id=hashlib.sha256(Path(path).read_bytes()).hexdigest() if is_router else next(iter(sizes)),
        space_id=space_id,
        recipe=_describe(model, lambda metadata: metadata.recipe),
        network=_describe(model, lambda metadata: metadata.network),
        size_bytes=sum(sizes.values()),
        embedding_dim=embedding_dim,
        tta="flip" if context.flip else None,
        thresholds_fitted=context.calibration.fitted,
        resize_px=resize_px,
        centered=context.uncentered_model is not None,
    )


def _describe(model: Model, describe: Callable[[BundleMetadata], str]) -> str:
    """Return a text of a bundle's metadata; of a router, that of each of its bundles, with their species."""
    if not isinstance(model, RoutedEmbedder):
        (bundle,) = model.bundles.values()
        return describe(bundle.metadata)
    parts: list[str] = []
    for bundle in embedding_bundles(model):
        species = [name for name, embedder in model.embedders.items() if embedder.bundle.path == bundle.path]
        parts.append(f"{', '.join(species)}: {describe(bundle.metadata)}")
    parts.append(f"species classifier: {describe(model.feature_embedder.metadata)}")
    return f"router ({'; '.join(parts)})"
