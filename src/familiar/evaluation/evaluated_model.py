"""The model of an evaluation: open it, and describe it for the results."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from familiar.core.errors import BadDataset
from familiar.embedding.bundle import BundleMetadata
from familiar.embedding.embedder import Embedder
from familiar.evaluation.context import EvaluationContext
from familiar.evaluation.results.document import ModelInfo


def open_evaluated_model(model: Path | str, resize_px: int | None, providers: Sequence[str] | None = None) -> Embedder:
    """Open a bundle, or one for each species.

    Args:
        model: a file, a run folder or the name of a bundle.
        resize_px: replaces how the bundle resizes photos; None: as the bundle says.
        providers: as for `Embedder`.

    Raises:
        BadBundle: there is no such model.
        BadDataset: `resize_px` does not fit the bundle, or there are several.
    """
    opened = Embedder(model, providers=providers)
    if resize_px is None:
        return opened
    if opened.species is not None:
        raise BadDataset(
            f"--resize-px: {model} has a bundle for each species, and each would need its own; evaluate one of the "
            "bundles with this option instead"
        )
    try:
        preprocessing = replace(opened.metadata.preprocessing, resize="center_crop", resize_px=resize_px)
    except ValueError as error:
        raise BadDataset(f"--resize-px: {error}") from error
    bundle = replace(opened.bundle, metadata=replace(opened.metadata, preprocessing=preprocessing))
    return Embedder(bundle, providers=providers)


def model_info(context: EvaluationContext, resize_px: int | None) -> ModelInfo:
    """Describe the model for the results.

    Args:
        context: with the model.
        resize_px: as for `open_evaluated_model`.
    """
    model = context.model
    space_id, embedding_dim, _ = model.space
    sizes = {bundle.file_id: len(bundle.onnx) for bundle in model.all_bundles}
    file_ids = "".join(sorted(sizes))
    return ModelInfo(
        file_id=file_ids if len(sizes) == 1 else hashlib.sha256(file_ids.encode()).hexdigest(),
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


def _describe(model: Embedder, describe: Callable[[BundleMetadata], str]) -> str:
    """Return a text of a bundle's metadata; of several, that of each, with its species."""
    if model.species is None:
        return describe(model.metadata)
    species: dict[str, list[str]] = {}
    for name, (bundle, _) in model.networks.items():
        species.setdefault(bundle.file_id, []).append(str(name))
    return "; ".join(f"{', '.join(species[each.file_id])}: {describe(each.metadata)}" for each in model.all_bundles)
