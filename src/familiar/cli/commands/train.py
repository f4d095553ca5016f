"""`familiar train`: train an embedding model and export it."""

import logging
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from familiar.cli.console import StatusLine, duration, note, print_json
from familiar.cli.options import (
    FILE,
    data_argument,
    data_spec,
    json_option,
    license_option,
    limit_options,
    max_megapixels_option,
    recipe_options,
    recipe_with,
)

if TYPE_CHECKING:  # torch is imported when training begins, not for --help
    from familiar.datasets.folders import DataSpec
    from familiar.embedding.bundle import Bundle
    from familiar.loading.cache import CropCache
    from familiar.training.fitting import FitResult
    from familiar.training.history import EpochRecord
    from familiar.training.loop import StepProgress
    from familiar.training.recipe import Recipe

STOPPED = {
    "patience": "stopped after {epochs} epochs: validation has not improved for budget.patience epochs",
    "time": "stopped in epoch {epochs}: budget.seconds is over",
}


WITHOUT_DOWNLOAD = (  # a small network that learns from random weights, at the rates that these need
    *("--set", "model.initial_weights=none", "--set", "model.name=nano"),
    *("--set", "optimizer.lr=3e-3", "--set", "optimizer.backbone_lr=3e-3"),
)


@click.command()
@data_argument
@click.option("--output", "-o", required=True, type=FILE, help="Run folder; created if missing.")
@recipe_options
@limit_options
@max_megapixels_option
@click.option(
    "--teacher",
    "teachers",
    multiple=True,
    type=FILE,
    metavar="BUNDLE",
    help="Also learn the embeddings of this bundle; may be repeated.",
)
@click.option(
    "--leave-out",
    multiple=True,
    metavar="ROOT",
    help="Train without this folder of DATA, to evaluate on all of it; may be repeated.",
)
@click.option("--resume", is_flag=True, help="Resume the interrupted run in the run folder.")
@click.option(
    "--save-every-steps",
    type=click.IntRange(1),
    metavar="N",
    help="Also save the state for --resume within epochs, after every N steps (default: after each epoch); not "
    "with offline mining.",
)
@click.option(
    "--workers",
    type=click.IntRange(0),
    help="Number of processes that load photos (default: 0 on a CPU, up to 8 on a GPU).",
)
@click.option(
    "--cache",
    type=FILE,
    envvar="FAMILIAR_CACHE",
    help="Folder of the crop cache (default: $FAMILIAR_CACHE, or in the user's cache folder).",
)
@click.option("--cache-gb", type=click.FloatRange(0, 1e6), help="Crop cache size in GB (default 20; 0 disables it).")
@click.option(
    "--track",
    type=click.Choice(["tensorboard", "wandb", "mlflow"]),
    help="Also send the figures to an experiment tracker; TensorBoard's files are written into the run.",
)
@click.option(
    "--compile",
    "compiled",
    is_flag=True,
    help="Compile the network: faster steps after a slow start; needs a C++ compiler.",
)
@license_option
@json_option
def train(
    data: tuple[str, ...],
    output: Path,
    recipe: str,
    settings: tuple[str, ...],
    function: str | None,
    identities: Path | None,
    max_identities: int | None,
    max_photos: int | None,
    exclude: tuple[str, ...],
    teachers: tuple[Path, ...],
    leave_out: tuple[str, ...],
    resume: bool,
    save_every_steps: int | None,
    workers: int | None,
    cache: Path | None,
    cache_gb: float | None,
    track: str | None,
    compiled: bool,
    license: str | None,
    as_json: bool,
) -> None:
    """Train an embedding model and export it.

    DATA are folders with one subfolder per identity. Trains with the settings of a recipe, and writes model.onnx to
    the run folder. With --teacher it learns from another network, such as an imported one, as well as from the labels.
    torchrun starts several processes that train together, such as one for each GPU.

    \b
    Example:
      familiar train photos/cats --recipe pet-mobile --output runs/cats
      familiar train photos/people --recipe person-nano --teacher sface.onnx --output runs/people
      familiar train photos/cats photos/dogs photos/cows --leave-out cows --output runs/without-cows
      torchrun --nproc-per-node 8 -m familiar train photos/people --output runs/people
    """
    from familiar.datasets.sources import parse_sources
    from familiar.export.run_export import UNKNOWN_LICENSE
    from familiar.training.ranks import restarted_by_torchrun
    from familiar.training.run import RunFolder

    spec = data_spec(data, identities, max_identities, max_photos, exclude)
    spec = replace(spec, leave_out=tuple(Path(name).name for name in leave_out))
    left_out = [source for source in data if parse_sources([source]).keys() <= set(spec.leave_out)]
    chosen = recipe_with(recipe, settings, function)
    if teachers:
        chosen = replace(chosen, distill=replace(chosen.distill, teacher=tuple(map(str, teachers))))
    result, bundle = train_and_export(
        chosen,
        spec,
        output,
        license or UNKNOWN_LICENSE,
        resume=resume or (restarted_by_torchrun() and RunFolder(output).recipe_json.exists()),
        save_every_steps=save_every_steps or 0,
        workers=workers,
        cache=crop_cache(cache, cache_gb),
        track=track,
        compiled=compiled,
    )
    validation = bundle.metadata.results
    if as_json:
        print_json(
            {
                "run": output,
                "bundle": bundle.path,
                "size_bytes": len(bundle.onnx),
                "epochs": result.epochs,
                "best_epoch": result.best_epoch,
                "stopped": result.stopped,
                "seconds": round(result.seconds, 1),
                "skipped_photos": result.skipped_photos,
                "validation": validation,
            }
        )
        return
    click.echo(
        f"{bundle.path}: {len(bundle.onnx) / 1e6:.2f} MB, {bundle.metadata.embedding_dim}-d, "
        f"on {validation['identities']} unseen identities AUC {validation['auc']:.3f}, "
        f"recall@1 {validation['recall_at_1']:.3f}"
    )
    if result.skipped_photos:
        click.echo(f"{result.skipped_photos} photos could not be read and were left out")
    evaluate = ["familiar", "evaluate", str(output), *(left_out or data), "--output", str(output / "evaluation")]
    if bundle.metadata.detector != "none":
        evaluate += ["--detector", "none"]  # training photos are crops already
    click.echo(f"next: {shlex.join(evaluate)}")


def crop_cache(folder: Path | None, size_gb: float | None) -> "CropCache | None":
    """Configure the crop cache, by default in the user's cache folder; None where its size is 0."""
    from platformdirs import user_cache_path

    from familiar.loading.cache import DEFAULT_MAX_BYTES, CropCache

    max_bytes = DEFAULT_MAX_BYTES if size_gb is None else int(size_gb * 1e9)
    return CropCache(folder or user_cache_path("familiar") / "crops", max_bytes) if max_bytes else None


def train_and_export(
    recipe: "Recipe", data: "DataSpec", output: Path, license: str, **fit_options: Any
) -> "tuple[FitResult, Bundle]":
    """Train and export, with progress on stderr. Of several processes, the others than rank 0 end after training."""
    from familiar.core.errors import BadWeights
    from familiar.export.run_export import export_bundle
    from familiar.training.fitting import fit
    from familiar.training.ranks import join_ranks
    from familiar.training.run import RunFolder

    status = StatusLine()

    def on_photo(done: int, total: int) -> None:
        status.show(f"reading photos  {done:,}/{total:,}")

    def on_teacher(done: int, total: int) -> None:
        status.show(f"teacher  {done:,}/{total:,}")

    def on_step(progress: "StepProgress") -> None:
        record = progress.record
        status.show(
            f"epoch {record.epoch}/{progress.epochs}  step {progress.step}/{progress.steps}  "
            f"loss {record.loss:.3f}  lr {record.lr:.1e}  "
            f"{progress.photos_per_second:.0f} photos/s  {duration(progress.seconds_left)} left"
        )

    def on_epoch(record: "EpochRecord") -> None:
        status.clear()
        line = (
            f"epoch {record.epoch:3d}  loss {record.loss:6.3f}  lr {record.lr:.1e}  "
            f"{record.photos_per_second:4.0f} photos/s"
        )
        if record.margin is not None:
            line += f"  margin {record.margin:.2f}"
        if record.active_triplets is not None:
            line += f"  active {record.active_triplets:.1%}"
        if record.validation_accuracy is not None:
            line += f"  accuracy {record.validation_accuracy:.3f}  AUC {record.validation_auc:.3f}"
        if record.validation_recall_at_1 is not None:
            line += f"  recall@1 {record.validation_recall_at_1:.3f}"
        note(line)

    with join_ranks() as ranks:
        if not ranks.is_main:
            logging.getLogger("familiar").setLevel(logging.ERROR)  # rank 0 reads the same photos
        callbacks = {"on_photo": on_photo, "on_teacher": on_teacher, "on_step": on_step, "on_epoch": on_epoch}
        try:
            result = fit(recipe, data, output, **callbacks, **fit_options)
        except BadWeights as error:
            if recipe.model.initial_weights != "imagenet":
                raise
            command = shlex.join(["familiar", *sys.argv[1:], *WITHOUT_DOWNLOAD])
            raise BadWeights(f"{error}. This works without a download: {command}") from error
    if not ranks.is_main:
        sys.exit()
    if result.stopped != "finished":
        note(STOPPED[result.stopped].format(epochs=result.epochs))
    best_by = recipe.validation.best_by.replace("_at_", "@")
    note(f"exporting the network of epoch {result.best_epoch} ({best_by} {result.best_score:.3f})")
    return result, export_bundle(output, RunFolder(output).bundle, license=license)
