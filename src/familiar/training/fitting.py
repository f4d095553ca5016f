"""Train a network: from labeled photos to a finished run, started or resumed."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from familiar.core.cpu import available_cores, reuse_freed_memory
from familiar.core.errors import BadRecipe, BadRun, FamiliarError
from familiar.core.files import remove_unfinished_files, write_atomically
from familiar.datasets.folders import DataSpec, open_data
from familiar.loading.augment.custom import check_function
from familiar.loading.cache import CropCache
from familiar.loading.crops import read_table
from familiar.models.network import EmbeddingNetwork
from familiar.models.quantized import round_to_8_bits
from familiar.training.checkpoint import load_weights, mix_weights, save_weights
from familiar.training.data import (
    TrainingData,
    check_same_data,
    check_same_recipe,
    prepare_data,
    record_data,
    split_data,
)
from familiar.training.distillation import check_teachers
from familiar.training.history import EpochRecord
from familiar.training.loop import StepProgress, saved_steps, train
from familiar.training.mining_plot import plot_mining
from familiar.training.network import (
    build_network,
    estimate_batch_norm_statistics,
    initial_network,
    initial_run,
    initialize_projection,
    with_normalization,
)
from familiar.training.ranks import Ranks, join_ranks
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder
from familiar.training.state import TrainingState, load_checkpoint, start_centers_at_means
from familiar.training.step_log import read_steps
from familiar.training.tracking import Tracker, TrackerName, open_tracker, require_tracker

COMPILERS = ("g++", "clang++", "cl")
GPU_WORKERS = 8  # at most; with more, the processes wait for each other's memory


@dataclass(frozen=True)
class FitResult:
    """The outcome of a training.

    Attributes:
        run: the run's folder.
        epochs: number of epochs trained.
        best_epoch: the epoch that validated best, counted from 1.
        best_score: its value of the figure that `validation.best_by` names.
        seconds: wall-clock time of this call's training.
        stopped: "finished", "patience" or "time".
        skipped_photos: number of photos that could not be read.
    """

    run: Path
    epochs: int
    best_epoch: int
    best_score: float
    seconds: float
    stopped: str
    skipped_photos: int


def fit(
    recipe: Recipe,
    data: DataSpec | Path | str | Any,
    run_dir: Path | str,
    *,
    resume: bool = False,
    device: torch.device | None = None,
    workers: int | None = None,
    cache: CropCache | None = None,
    track: TrackerName | None = None,
    compiled: bool = False,
    save_every_steps: int = 0,
    on_photo: Callable[[int, int], None] = lambda _done, _total: None,
    on_teacher: Callable[[int, int], None] = lambda _done, _total: None,
    on_step: Callable[[StepProgress], None] = lambda _: None,
    on_epoch: Callable[[EpochRecord], None] = lambda _: None,
) -> FitResult:
    """Train on `data` by `recipe` and write a run to `run_dir`.

    In processes that torchrun started, all train together: each loads its part of every batch, and the network learns
    what one process would have learned from the whole batches. Rank 0 writes the run and calls the functions given.

    Args:
        recipe: how to train.
        data: a folder with one subfolder of photos per identity, a CSV, a DataFrame or another table as for
            `datasets.read_table`, a text such as "synthetic:cats:800x8", or several sources as a `DataSpec`.
        run_dir: the run's folder, which is created.
        resume: continue the run from where its state was saved last, after an epoch or within one. On one CPU and with
            the same number of torch threads, it ends with exactly the weights of an uninterrupted run.
        device: by default a GPU if there is one.
        workers: number of processes that load photos; by default none on a CPU, where each takes one of torch's
            threads. The photos are the same for any number.
        cache: of decoded crops; without it, photos are decoded in every epoch. The photos are the same either way.
        track: also write the history for a tracker: "tensorboard" (event files in the run), "wandb" or "mlflow".
        compiled: compile the network's steps to machine code; faster after a minute or so, but sums differ in their
            last bits.
        save_every_steps: also save the state to resume from within an epoch, each time after so many steps; 0: only
            after epochs.
        on_photo: called with the numbers of photos read and of all photos.
        on_teacher: called with the numbers of crops that teachers have embedded and will embed, if there are any.
        on_step: called after each step.
        on_epoch: called after each epoch.

    Raises:
        BadRun: `run_dir` contains a run already (unless `resume`), another process trains in it, or the run was
            started with another recipe or other photos.
        BadDataset: there are too few photos.
        BadRecipe: the function that `augmentation.custom` names cannot be imported or does not work; or
            `save_every_steps` with offline mining.
        TrainingFailed: the loss is not finite or the embeddings collapsed; the last good checkpoint is kept.
        FailedOnMain: on other ranks than 0, if one of these errors was raised there.
    """
    run = RunFolder(Path(run_dir))
    _check_before_start(recipe, track, compiled, save_every_steps)
    with join_ranks() as ranks:
        device = device or ranks.device()
        if workers is None:
            workers = 0 if device.type == "cpu" else min(GPU_WORKERS, max(1, available_cores() // ranks.on_machine - 1))
        if device.type == "cpu":
            reuse_freed_memory()
        if not ranks.is_main:
            on_photo = on_teacher = on_step = on_epoch = lambda *_: None
        ranks.on_main(lambda: _check_run_state(run, resume))
        spec, table = open_data(data)
        split_data(recipe, table)  # too few identities are detected before anything is downloaded
        with run.lock() if ranks.is_main else nullcontext():
            ranks.on_main(lambda: _check_run_state(run, resume))  # another process may have started it in the meantime
            torch.manual_seed(recipe.seed)
            has_state = ranks.on_main(lambda: resume and run.state.exists())
            with ranks.first_on_machine():  # which downloads, fills the cache and asks the teachers
                network, recipe = _network_for_run(run, recipe, has_state)
                if resume:
                    check_same_recipe(run, recipe)
                photos = read_table(table, recipe.input.preprocessing(), cache, on_photo)
                training_data = prepare_data(recipe, photos, run.teachers, on_teacher, cache, on_photo)
            ranks.check_same(photos.contents, "photos")
            ranks.on_main(lambda: _prepare_folder(run, recipe, spec, training_data, resume))
            if not has_state:
                _prepare_network(network, recipe, run, training_data, ranks)
            if recipe.quantize.aware:
                round_to_8_bits(network)
            network = network.to(device=device).to(memory_format=torch.channels_last)
            state = TrainingState(recipe, network, training_data, run, device, workers, compiled, ranks)
            if has_state:
                load_checkpoint(state)
            elif getattr(recipe.loss, "start", "random") == "means":
                start_centers_at_means(state)
            started, on_steps, on_epochs = time.perf_counter(), [on_step], [on_epoch]
            tracker = _open_tracker(track, state) if track and ranks.is_main else nullcontext()
            with torch_threads_for(workers), tracker as opened:
                if opened is not None:
                    on_steps.insert(0, lambda progress: opened.add_step(progress.record))
                    on_epochs.insert(0, opened.add)
                stopped = train(state, on_steps, on_epochs, save_every_steps)
            if ranks.is_main:
                _save_best_network(state)
    return FitResult(
        run=run.path,
        epochs=len(state.records),
        best_epoch=state.best_epoch,
        best_score=state.best_score,
        seconds=time.perf_counter() - started,
        stopped=stopped,
        skipped_photos=len(table) - len(photos.table),
    )


def _check_before_start(recipe: Recipe, track: TrackerName | None, compiled: bool, save_every_steps: int) -> None:
    """Raise an error for what is missing or excluded, before photos are read."""
    if track:
        require_tracker(track)
    if compiled:
        require_compiler()
    if save_every_steps and recipe.mining.mode == "offline":
        raise BadRecipe(
            "mining.mode=offline: the triplets mined within an epoch are not saved, so the state cannot be; leave "
            "out --save-every-steps"
        )
    if (old := recipe.loss.compatible_with) and not Path(old).is_file():
        raise BadRecipe(f"{old}: no such file; name the old bundle with --set loss.compatible_with=FILE")
    check_teachers(recipe)
    check_function(recipe.augmentation.custom, recipe.input.size_px)


def _check_run_state(run: RunFolder, resume: bool) -> None:
    if run.recipe_json.exists() and not resume:
        raise BadRun(f"{run.path}: holds a run already; continue it with --resume, or choose another folder")
    if resume and not run.recipe_json.exists():
        raise BadRun(f"{run.path}: holds no run to resume; start it without --resume, or check the path")


def _network_for_run(run: RunFolder, recipe: Recipe, has_state: bool) -> tuple[EmbeddingNetwork, Recipe]:
    """Build the network; return it and the recipe with its normalization resolved.

    A stored state holds the weights, so a run that has one needs no initial weights.
    """
    if has_state:
        return build_network(recipe), with_normalization(recipe, run.recipe().input.normalization)
    return initial_network(recipe)


def _prepare_folder(run: RunFolder, recipe: Recipe, spec: DataSpec, data: TrainingData, resume: bool) -> None:
    if resume:
        check_same_data(run, data)
        remove_unfinished_files(run.path)
        return
    record_data(run, spec, data, initial_run(recipe))
    # Last, since its presence is what makes the folder a run.
    write_atomically(run.recipe_json, recipe.to_json().encode())


def _prepare_network(
    network: EmbeddingNetwork, recipe: Recipe, run: RunFolder, data: TrainingData, ranks: Ranks
) -> None:
    """Give a new network what it needs of the photos, and save it if the final one keeps a share of it."""
    estimate_batch_norm_statistics(network, data.train)
    if recipe.model.projection == "pca":
        initialize_projection(network, data.train)
    if recipe.model.initial_share and ranks.is_main:
        save_weights(run.initial, network=network)


def _open_tracker(track: TrackerName, state: TrainingState) -> AbstractContextManager[Tracker]:
    earlier_steps = read_steps(state.run.steps_csv, saved_steps(state))
    return open_tracker(track, state.run, state.recipe, state.records, earlier_steps)


def _save_best_network(state: TrainingState) -> None:
    """Save the network of the best epoch, with its share of the initial one, and a picture of what mining picks."""
    run, network, recipe = state.run, state.network, state.recipe
    load_weights(run.best, network=network)
    if recipe.model.initial_share:
        mix_weights(network, run.initial, "network", recipe.model.initial_share)
    save_weights(run.embedder, network=network)
    if recipe.loss.mines_triplets:
        plot_mining(network, state.data.train, run.triplets_png, state.objective.mining_margin, recipe.seed)


def require_compiler() -> None:
    """Raise FamiliarError if there is no C++ compiler, which torch.compile needs."""
    chosen = os.environ.get("CXX")
    if not any(shutil.which(name) for name in ([chosen] if chosen else COMPILERS)):
        raise FamiliarError(
            f"--compile needs a C++ compiler, but none of {chosen or ', '.join(COMPILERS)} was found; install one, or "
            "train without --compile"
        )


@contextmanager
def torch_threads_for(workers: int) -> Iterator[None]:
    """Lower the number of torch's threads, so that they and the loading workers share the cores.

    With one thread too many each step waits for the slowest: on two cores, a worker and two threads made training
    several times slower. The environment variable OMP_NUM_THREADS takes precedence.
    """
    before = torch.get_num_threads()
    if workers and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, min(before, available_cores() - workers)))
    try:
        yield
    finally:
        torch.set_num_threads(before)
