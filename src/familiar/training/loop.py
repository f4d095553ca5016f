"""The training loop: epochs, steps, validation, checkpoints, stop.

`fitting.fit` makes a `TrainingState` and calls `train`. What a step does is in `step.py`; what steps change, and how
that is saved and restored, in `state.py`. Random draws depend on seed and epoch, and within an epoch on states of the
random number generators that a checkpoint has: so a resumed run computes what an uninterrupted one would have.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch

from familiar.core.errors import TrainingFailed
from familiar.loading.batches import NetworkBatch
from familiar.metrics.pairs import sample_pairs
from familiar.training.history import EpochRecord, draw_curves, write_history
from familiar.training.objective import validation_loss
from familiar.training.offline_mining import OfflineTriplets
from familiar.training.state import EpochFigures, TrainingState, save_checkpoint, save_networks, start_epoch
from familiar.training.step import StepFigures, take_step
from familiar.training.step_log import StepLog, StepRecord
from familiar.training.validation import (
    COLLAPSED_SIMILARITY,
    embed_by_ranks,
    validate,
    validation_loss_rows,
)

LOST_CONNECTION = ("Connection closed", "Connection reset", "Broken pipe")  # gloo's words
CURVES_SECONDS = 10.0  # between two drawings, each of which takes as long as a small run's epoch
STEPS_BEHIND = {"cuda": 1}  # how late figures are read, by the device: reading those of the last step waits for it


@dataclass(frozen=True)
class StepProgress:
    """A step, and how far the run is.

    Attributes:
        record: of the step.
        step: of the epoch, counted from 1.
        steps: of an epoch.
        epochs: of the run, at most.
        photos_per_second: mean over the epoch so far.
        seconds_left: until the run ends, at most.
    """

    record: StepRecord
    step: int
    steps: int
    epochs: int
    photos_per_second: float
    seconds_left: float


def train(
    state: TrainingState,
    on_steps: Sequence[Callable[[StepProgress], None]] = (),
    on_epochs: Sequence[Callable[[EpochRecord], None]] = (),
    save_every_steps: int = 0,
) -> str:
    """Train until the budget is spent.

    Args:
        state: new, or restored from a checkpoint.
        on_steps: called after each step, on a GPU while the next one runs.
        on_epochs: called after each epoch.
        save_every_steps: also save a checkpoint within an epoch, after so many steps; 0: only after epochs.

    Returns:
        Why it ended: "finished", "patience" or "time".
    """
    budget, steps = state.recipe.budget, len(state.sampler)
    behind = STEPS_BEHIND.get(state.device.type, 0)
    state.deadline = time.perf_counter() + (budget.seconds or math.inf)
    curves_drawn = time.perf_counter()
    stopped = stop_reason(state)
    with open_log(state) as log:
        while not stopped:
            start_epoch(state)
            state.epoch_start = time.perf_counter() - state.figures.seconds
            running: deque[StepFigures] = deque()
            for step, batch in enumerate(batches_of_epoch(state), start=len(state.figures.losses)):
                running.append(take_step(state, batch, step))
                report(state, running, behind, log, on_steps)
                if step + 1 < steps and not isinstance(state.sampler, OfflineTriplets) and out_of_time(state):
                    break
                if save_every_steps and (step + 1) % save_every_steps == 0 and step + 1 < steps:
                    report(state, running, 0, log, on_steps)
                    save(state, log)
            report(state, running, 0, log, on_steps)
            is_complete, is_late = len(state.figures.losses) == steps, out_of_time(state)
            is_last = is_late or state.epoch + 1 == budget.epochs
            record = epoch_record(state)
            if is_last or record.epoch % state.recipe.validation.every_epochs == 0:
                record = validate_epoch(state, record, is_last)
            state.records.append(record)
            if is_complete:
                state.epoch, state.figures = state.epoch + 1, EpochFigures()
            if state.ranks.is_main:
                write_history(state.run.history_csv, state.records)
                if time.perf_counter() - curves_drawn > CURVES_SECONDS:
                    draw_curves(state.run.curves_png, state.records)
                    curves_drawn = time.perf_counter()
            save_networks(state, state.run.last)
            save(state, log)
            for on_epoch in on_epochs:
                on_epoch(record)
            stopped = (stop_reason(state) if is_complete else "") or ("time" if is_late else "")
    return stopped


def stop_reason(state: TrainingState) -> str:
    """Return why training is finished, or "" to continue; a run just resumed may be finished already."""
    budget = state.recipe.budget
    if state.epoch >= budget.epochs:
        return "finished"
    later = [record for record in state.records if record.epoch > state.best_epoch]
    validations = sum(record.validation_accuracy is not None for record in later)
    return "patience" if budget.patience and state.best_epoch and validations >= budget.patience else ""


def out_of_time(state: TrainingState) -> bool:
    """Whether the time budget is spent, by the clock of rank 0."""
    return state.deadline < math.inf and state.ranks.on_main(lambda: time.perf_counter() > state.deadline)


def batches_of_epoch(state: TrainingState) -> Iterator[NetworkBatch]:
    """Yield this rank's batches of what is left of the epoch, mining triplets before each round if the recipe does."""
    rounds = state.sampler.round_starts() if isinstance(state.sampler, OfflineTriplets) else (0,)
    for first_step in rounds:
        if isinstance(state.sampler, OfflineTriplets):
            state.sampler.mine_triplets(state.network, first_step, state.ranks)
        yield from state.batches


def report(
    state: TrainingState,
    running: deque[StepFigures],
    behind: int,
    log: StepLog | None,
    on_steps: Sequence[Callable[[StepProgress], None]],
) -> None:
    """Read and report the figures of all steps but the last `behind`. TrainingFailed if they are not finite."""
    while len(running) > behind:
        step = running.popleft()
        loss, gradient_norm, recall = step.read()
        figures = state.figures
        figures.losses.append(loss)
        figures.gradient_norms.append(gradient_norm)
        figures.recalls += [] if math.isnan(recall) else [recall]
        figures.photos += step.photos
        figures.seconds = time.perf_counter() - state.epoch_start
        record = StepRecord(
            step=saved_steps(state),
            epoch=state.epoch + 1,
            loss=loss,
            batch_recall_at_1=None if math.isnan(recall) else recall,
            lr=step.lr,
        )
        if log is not None:
            log.add(record)
        if not (math.isfinite(loss) and math.isfinite(gradient_norm)):
            raise state.failure(
                f"the loss is {loss} and the norm of its gradient {gradient_norm} "
                f"in epoch {record.epoch}, step {len(figures.losses)}"
            )
        progress = step_progress(state, record)
        for on_step in on_steps:
            on_step(progress)


def step_progress(state: TrainingState, record: StepRecord) -> StepProgress:
    """Return what is reported of the last step."""
    figures, steps, epochs = state.figures, len(state.sampler), state.recipe.budget.epochs
    seconds_left = (steps * epochs - record.step) * figures.seconds / len(figures.losses)
    return StepProgress(
        record,
        step=len(figures.losses),
        steps=steps,
        epochs=epochs,
        photos_per_second=figures.photos / figures.seconds,
        seconds_left=min(seconds_left, max(state.deadline - time.perf_counter(), 0.0)),
    )


def epoch_record(state: TrainingState) -> EpochRecord:
    """Return the record of an epoch that is not validated yet."""
    figures, hyperparameters = state.figures, state.objective.hyperparameters
    lr, backbone_lr = state.optimizer.current_rates
    return EpochRecord(
        epoch=state.epoch + 1,
        loss=float(np.mean(figures.losses)),
        lr=lr,
        backbone_lr=backbone_lr,
        margin=hyperparameters.get("margin_rad", hyperparameters.get("margin")),
        gamma=hyperparameters.get("gamma"),
        active_triplets=state.objective.active_triplets(),
        batch_recall_at_1=float(np.mean(figures.recalls)) if figures.recalls else None,
        gradient_norm=float(np.mean(figures.gradient_norms)),
        photos_per_second=figures.photos / figures.seconds,
        seconds=figures.seconds,
    )


def validate_epoch(state: TrainingState, record: EpochRecord, is_last: bool) -> EpochRecord:
    """Add the validation figures to an epoch's record, and save the weights if they are the best so far.

    Raises:
        TrainingFailed: the embeddings are collapsed, in the last epoch or for the second time in a row.
    """
    labels, recipe = state.data.validation.table.labels, state.recipe
    embeddings = embed_by_ranks(state.network, state.data.validation, state.ranks)
    scores = validate(embeddings, labels, sample_pairs(labels, recipe.validation.pairs, recipe.seed))
    earlier = [each.stranger_similarity for each in state.records if each.stranger_similarity is not None]
    if scores.collapsed and (is_last or max(earlier[-1:], default=0.0) > COLLAPSED_SIMILARITY):
        raise state.failure(
            "all embeddings collapsed to one point (mean similarity of different identities "
            f"{scores.mean_negative_similarity:.4f}, epoch {record.epoch})"
        )
    score = getattr(scores, recipe.validation.best_by)
    if score > state.best_score and not scores.collapsed:
        state.best_score, state.best_epoch = score, record.epoch
        save_networks(state, state.run.best)
    rows = validation_loss_rows(labels, recipe.seed)
    loss = validation_loss(recipe.loss)
    return replace(
        record,
        validation_accuracy=scores.accuracy,
        validation_auc=scores.auc,
        validation_recall_at_1=scores.recall_at_1,
        validation_loss=None if loss is None else loss(*map(torch.from_numpy, (embeddings[rows], labels[rows]))).item(),
        stranger_similarity=scores.mean_negative_similarity,
    )


def save(state: TrainingState, log: StepLog | None) -> None:
    """Save a checkpoint; the steps before it, since a resumed run does not repeat them."""
    if log is not None:
        log.save()
    save_checkpoint(state)


@contextmanager
def open_log(state: TrainingState) -> Iterator[StepLog | None]:
    """Open the log of steps on rank 0, None on others; draw the curves at the end, and explain a lost connection."""
    log = StepLog(state.run.steps_csv, saved_steps(state)) if state.ranks.is_main else nullcontext()
    try:
        with log as opened:
            yield opened
    except RuntimeError as error:
        if state.ranks.size == 1 or not any(cause in str(error) for cause in LOST_CONNECTION):
            raise
        raise TrainingFailed(
            f"rank {state.ranks.rank}: another process of this training has ended; its message says why. "
            "Continue with --resume"
        ) from error
    finally:
        if state.records and state.ranks.is_main:
            draw_curves(state.run.curves_png, state.records)


def saved_steps(state: TrainingState) -> int:
    """Return the number of steps that a resumed run does not repeat, counted over the epochs."""
    return state.epoch * len(state.sampler) + len(state.figures.losses)
