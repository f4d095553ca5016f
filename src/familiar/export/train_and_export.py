"""Training and export in one call."""

from pathlib import Path
from typing import Any

from familiar.datasets.folders import DataSpec
from familiar.embedding.bundle import Bundle, load_bundle
from familiar.export.run_export import UNKNOWN_LICENSE, export_bundle
from familiar.training.fitting import fit
from familiar.training.ranks import join_ranks
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder


def train(
    data: DataSpec | Path | str | Any,
    output: Path | str,
    recipe: Recipe | None = None,
    *,
    license: str = UNKNOWN_LICENSE,
    **options: Any,
) -> Bundle:
    """Train a network on labeled photos and export it as a bundle.

    Args:
        data: a folder with one subfolder of photos per identity, a CSV, a DataFrame or another table as for
            `datasets.read_table`, a text such as "synthetic:cats:800x8", or several sources as a `DataSpec`.
        output: the folder of the run, which is created; the bundle is its `model.onnx`.
        recipe: how to train, such as `recipes.recipe_named("pet-nano")`; by default "pet-mobile".
        license: terms of use of the weights, stored in the bundle.
        options: those of `training.fit`: `resume`, `device`, `workers`, `cache`, and the callbacks.

    Returns:
        The bundle of the epoch that validated best.

    Raises:
        BadDataset: there are too few photos or identities.
        BadRun: `output` contains a run already (unless `resume=True`).
        TrainingFailed: the loss is not finite, or the embeddings collapsed.
        ParityFailed: the exported network does not compute what the trained one does.
    """
    run = Path(output)
    bundle = RunFolder(run).bundle
    with join_ranks() as ranks:
        fit(Recipe("pet-mobile") if recipe is None else recipe, data, run, **options)
        photos = None if isinstance(data, DataSpec | Path | str) else data
        exported = export_bundle(run, bundle, photos, license=license) if ranks.is_main else None
        ranks.wait()
    return load_bundle(bundle) if exported is None else exported
