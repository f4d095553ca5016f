"""One call from labeled photos to a finished run, begun or continued."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from familiar.core.cpu import available_cores
from familiar.core.errors import BadRun, FamiliarError
from familiar.core.files import remove_unfinished_files, write_atomically
from familiar.datasets.folders import DataSpec, IdentityTable
from familiar.loading.cache import CropCache
from familiar.loading.crops import read_table
from familiar.models.quantized import round_to_8_bits
from familiar.training.checkpoint import load_weights, save_weights
from familiar.training.data import check_same_data, check_same_recipe, make_fold, record_data, split_of
from familiar.training.distillation import check_teachers
from familiar.training.history import EpochRecord
from familiar.training.loss_settings import MINED
from familiar.training.mining_plot import picture_of_mining
from familiar.training.network import build_network, initial_network, make_trainable, settled_as
from familiar.training.objective import check_loss
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder
from familiar.training.tensorboard import TensorBoard, require_tensorboard
from familiar.training.trainer import StepProgress, Trainer

COMPILERS = ("g++", "clang++", "cl")
GPU_WORKERS = 8  # at most; beyond it the processes wait for each other's memory


@dataclass(frozen=True)
class FitResult:
    """`best_score` is of the figure `validation.best_by`; `stopped`: "finished", "patience" or "time"."""

    run: Path
    epochs: int
    best_epoch: int
    best_score: float
    seconds: float
    stopped: str
    skipped_photos: int


def fit(
    recipe: Recipe,
    data: DataSpec,
    run_dir: Path,
    *,
    resume: bool = False,
    device: torch.device | None = None,
    workers: int | None = None,
    cache: CropCache | None = None,
    tensorboard: bool = False,
    compiled: bool = False,
    on_photo: Callable[[int, int], None] = lambda _done, _of: None,
    on_step: Callable[[StepProgress], None] = lambda _: None,
    on_epoch: Callable[[EpochRecord], None] = lambda _: None,
) -> FitResult:
    """Train on `data` by `recipe` and leave a run in `run_dir`.

    `resume` continues a run from its newest whole epoch; on one CPU and with the same number of torch's threads
    it ends in the very weights an unbroken run would have reached. `workers` are processes that load photos (by
    default none on a CPU, where each takes one of torch's threads); without a `cache` photos are decoded every
    epoch. Neither changes a photo. `compiled`: the network's steps become machine code of their own, faster after
    a start of a minute or so, with sums that differ in their last bits.

    BadRun where `run_dir` holds a run already (unless `resume`), another process trains in it, or it was begun
    with another recipe or other photos; BadDataset where the photos are too few; TrainingFailed where the loss is
    not finite or the embeddings collapse - the last good checkpoint stays.
    """
    run = RunFolder(run_dir)
    if tensorboard:
        require_tensorboard()
    if compiled:
        require_compiler()
    check_loss(recipe.loss)
    check_teachers(recipe)
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if workers is None:
        workers = 0 if device.type == "cpu" else min(GPU_WORKERS, max(1, available_cores() - 1))
    _check_begun(run, resume)
    table = data.read()
    # Too few identities are found out here too, before anything is downloaded.
    split_of(recipe, table)
    with run.locked():
        _check_begun(run, resume)  # again, since another process may have begun it meanwhile
        trainer = _trainer(run, recipe, data, table, resume, device, workers, compiled, cache, on_photo)
        started = time.perf_counter()
        board = TensorBoard(run.tensorboard, trainer.records) if tensorboard else nullcontext()
        with threads_beside(workers), board:

            def after_epoch(record: EpochRecord) -> None:
                if isinstance(board, TensorBoard):
                    board.add(record)
                on_epoch(record)

            stopped = trainer.train(on_step, after_epoch)
        _leave_best(run, trainer)
    return FitResult(
        run=run_dir,
        epochs=len(trainer.records),
        best_epoch=trainer.best_epoch,
        best_score=trainer.best_score,
        seconds=time.perf_counter() - started,
        stopped=stopped,
        skipped_photos=len(table) - len(trainer.fold.read.table),
    )


def _trainer(
    run: RunFolder,
    recipe: Recipe,
    data: DataSpec,
    table: IdentityTable,
    resume: bool,
    device: torch.device,
    workers: int,
    compiled: bool,
    cache: CropCache | None,
    on_photo: Callable[[int, int], None],
) -> Trainer:
    """At the first epoch of a run that is begun here, or after the newest whole one of a run that is continued."""
    torch.manual_seed(recipe.seed)
    trained = resume and run.state.exists()
    if trained:
        # The stored state holds the weights; only what they settled about the input is still to be known.
        network, recipe = build_network(recipe), settled_as(recipe, run.recipe())
    else:
        network, recipe = initial_network(recipe)
    if resume:
        check_same_recipe(run, recipe)
    fold = make_fold(recipe, read_table(table, recipe.input.preprocessing(), cache, on_photo))
    if resume:
        check_same_data(run, fold)
        remove_unfinished_files(run.path)
    else:
        record_data(run, data, fold)
        # Last, since its presence is what makes the folder a run.
        write_atomically(run.recipe_json, recipe.to_json().encode())
    if not trained:
        make_trainable(network, fold.train)
    if recipe.quantize.aware:
        round_to_8_bits(network)
    network = network.to(device=device).to(memory_format=torch.channels_last)
    trainer = Trainer(recipe, network, fold, run, device, workers, compiled)
    if trained:
        trainer.restore()
    return trainer


def _leave_best(run: RunFolder, trainer: Trainer) -> None:
    """The network of the best epoch, and what mining picks by it."""
    network, recipe = trainer.network, trainer.recipe
    load_weights(run.best, network=network)
    save_weights(run.embedder, network=network)
    if recipe.loss.name in MINED:
        margin = trainer.objective.mining_margin
        picture_of_mining(network, trainer.fold.train, run.triplets_png, margin, recipe.seed)


def _check_begun(run: RunFolder, resume: bool) -> None:
    if run.recipe_json.exists() and not resume:
        raise BadRun(f"{run.path}: holds a run already; continue it with --resume, or name another folder")
    if resume and not run.recipe_json.exists():
        raise BadRun(f"{run.path}: holds no run that could be resumed")


def require_compiler() -> None:
    """FamiliarError where there is none for what torch.compile writes."""
    named = os.environ.get("CXX")
    if not any(shutil.which(name) for name in ([named] if named else COMPILERS)):
        raise FamiliarError(
            f"compiling needs a C++ compiler ({named or ', '.join(COMPILERS)}) and none is found; install one, or "
            "train without --compile"
        )


@contextmanager
def threads_beside(workers: int) -> Iterator[None]:
    """torch's threads and the loading workers share the cores; one too many, and each step waits for the last.

    On two cores a worker beside two threads made training several times slower. OMP_NUM_THREADS wins.
    """
    before = torch.get_num_threads()
    if workers and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, min(before, available_cores() - workers)))
    try:
        yield
    finally:
        torch.set_num_threads(before)
