"""`familiar train`: photos in, a run with its bundle out."""

from pathlib import Path
from typing import Annotated

import typer

from familiar.app.console import StatusLine, duration, note, print_json
from familiar.app.options import Data, Identities, Json, MaxIdentities, MaxPhotos


def train(
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the run; made if missing.")],
    recipe: Annotated[str, typer.Option("--recipe", "-r", help="See `familiar recipes`.")] = "pet-mobile",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the recipe.")
    ] = None,
    identities: Identities = None,
    max_identities: MaxIdentities = None,
    max_photos: MaxPhotos = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in that folder.")] = False,
    licence: Annotated[str | None, typer.Option(help="Terms of use to write into the bundle.")] = None,
    as_json: Json = False,
) -> None:
    """Photos in, an embedder out.

    Trains a network by a recipe, then exports it as one bundle file.

    Example: familiar train photos/cats --recipe pet-mobile --output runs/cats
    """
    from familiar.datasets.folders import DataSpec, read_identity_list
    from familiar.export.bundle import UNKNOWN_LICENCE, export_run
    from familiar.recipes import recipe_named
    from familiar.training.history import EpochRecord
    from familiar.training.loop import StepProgress, fit

    status = StatusLine()

    def on_step(at: StepProgress) -> None:
        status.show(
            f"epoch {at.epoch}/{at.epochs}  step {at.step}/{at.steps}  loss {at.loss:.3f}  lr {at.lr:.1e}  "
            f"{at.photos_per_second:.0f} photos/s  {duration(at.seconds_left)} left"
        )

    def on_epoch(record: EpochRecord) -> None:
        status.clear()
        line = f"epoch {record.epoch:3d}  loss {record.loss:6.3f}  lr {record.lr:.1e}  margin {record.margin_rad:.2f}"
        line += f"  {record.photos_per_second:4.0f} photos/s"
        if record.validation_accuracy is not None:
            line += f"  accuracy {record.validation_accuracy:.3f}  AUC {record.validation_auc:.3f}"
        if record.validation_recall_at_1 is not None:
            line += f"  recall@1 {record.validation_recall_at_1:.3f}"
        note(line)

    listed = None if identities is None else tuple(sorted(read_identity_list(identities)))
    chosen = recipe_named(recipe).with_settings(settings or [])
    spec = DataSpec(tuple(data), listed, max_identities, max_photos)
    result = fit(chosen, spec, output, resume=resume, on_step=on_step, on_epoch=on_epoch)
    note(f"exporting the network of epoch {result.best_epoch} (accuracy {result.best_accuracy:.3f})")
    bundle = export_run(output, output / "model.onnx", licence=licence or UNKNOWN_LICENCE)
    size_bytes = len(bundle.onnx)
    if as_json:
        print_json(
            {
                "run": output,
                "bundle": bundle.path,
                "size_bytes": size_bytes,
                "epochs": result.epochs,
                "best_epoch": result.best_epoch,
                "stopped": result.stopped,
                "seconds": round(result.seconds, 1),
                "skipped_photos": result.skipped_photos,
                "validation": bundle.metadata.results,
            }
        )
        return
    measured = bundle.metadata.results
    typer.echo(
        f"{bundle.path}: {size_bytes / 1e6:.2f} MB, {bundle.metadata.embedding_dim}-d, "
        f"on {measured['identities']} unseen identities AUC {measured['auc']:.3f}, "
        f"recall@1 {measured['recall_at_1']:.3f}"
    )
    if result.skipped_photos:
        typer.echo(f"{result.skipped_photos} photos could not be read and were left out")
    typer.echo(f"next: familiar evaluate {output} {' '.join(data)} --output {output}/evaluation")
