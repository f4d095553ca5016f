"""The training loop of a run: steps, validation, checkpoints. Every random draw depends only on seed and epoch."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from familiar.core.errors import BadRecipe, BadRun, FamiliarError, TrainingFailed
from familiar.loading.batches import NetworkBatch, PhotoBatches
from familiar.loading.dataset import FaceDataset
from familiar.losses.distributed import gather_tensors
from familiar.losses.validation import NotFiniteError
from familiar.models.network import EmbeddingNetwork
from familiar.training.center_shards import load_rows, remove_other_shards, save_rows, sharded_centers
from familiar.training.checkpoint import load_state, save_state, save_weights
from familiar.training.data import TrainingData
from familiar.training.gradient_caching import backward
from familiar.training.history import EpochRecord, draw_curves, write_history
from familiar.training.objective import Objective, validation_loss
from familiar.training.offline_mining import OfflineTriplets
from familiar.training.optimizer import Optimizer, build_optimizer
from familiar.training.ranks import ONE_RANK, Ranks
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder
from familiar.training.sampling import RankBatches, build_sampler
from familiar.training.schedule import BATCH_NORM_MOMENTUM, statistics_momentum
from familiar.training.step_log import StepLog, StepRecord, batch_recall_at_1
from familiar.training.validation import (
    COLLAPSED_SIMILARITY,
    embed_by_ranks,
    validate,
    validation_loss_rows,
    validation_pairs,
)

LOST_CONNECTION = ("Connection closed", "Connection reset", "Broken pipe")  # gloo's words
LOSS_STREAM = 6  # separates a loss's draws from others that use the same seed
CURVES_SECONDS = 10.0  # between two drawings, each of which takes as long as a small run's epoch


@dataclass(frozen=True)
class StepProgress:
    """The state of a run after a step; epochs and steps count from 1."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    batch_recall_at_1: float | None
    lr: float
    photos_per_second: float
    seconds_left: float

    @property
    def record(self) -> StepRecord:
        """What is recorded of the step."""
        return StepRecord(
            step=(self.epoch - 1) * self.steps + self.step,
            epoch=self.epoch,
            loss=self.loss,
            batch_recall_at_1=self.batch_recall_at_1,
            lr=self.lr,
        )


@dataclass
class _EpochTotals:
    """What the steps of the current epoch gave."""

    seconds_before: float = 0.0  # spent on it before the run was interrupted
    losses: list[float] = field(default_factory=list)
    gradient_norms: list[float] = field(default_factory=list)
    recalls: list[float | None] = field(default_factory=list)
    photos: int = 0

    def __post_init__(self) -> None:
        self._started = time.perf_counter()

    def add(self, loss: float, gradient_norm: float, recall: float | None, photos: int) -> None:
        self.losses.append(loss)
        self.gradient_norms.append(gradient_norm)
        self.recalls.append(recall)
        self.photos += photos

    @property
    def seconds(self) -> float:
        """Time spent on the epoch."""
        return self.seconds_before + time.perf_counter() - self._started

    @property
    def steps(self) -> int:
        """Steps taken."""
        return len(self.losses)

    def state(self) -> dict[str, Any]:
        """Return what the epoch is continued from."""
        return {**asdict(self), "seconds_before": self.seconds}


class Trainer:
    """Network, objective and optimizer of one run, and its progress.

    Args:
        recipe: how to train.
        network: on `device`, with its initial weights.
        data: the photos.
        run: the folder for checkpoints and history.
        device: where to compute.
        workers: number of processes that load photos.
        compiled: whether to compile the network's steps.
        ranks: the processes that train together, each on its part of every batch. Rank 0 writes the run's files.
        save_every_steps: also save the state within an epoch, after so many steps; 0: only after epochs.

    Raises:
        BadRecipe: batches are too small to be divided among the ranks, or the state is to be saved within an epoch of
            mined triplets.
    """

    def __init__(
        self,
        recipe: Recipe,
        network: EmbeddingNetwork,
        data: TrainingData,
        run: RunFolder,
        device: torch.device,
        workers: int,
        compiled: bool = False,
        ranks: Ranks = ONE_RANK,
        save_every_steps: int = 0,
    ) -> None:
        self.ranks = ranks
        self.save_every_steps = save_every_steps
        self.recipe = recipe
        self.network = network
        self.embed = network.raw if recipe.loss.uses_raw_embeddings else network
        self.compiled = torch.compile(self.embed, dynamic=False) if compiled else self.embed
        self.data = data
        self.run = run
        self.device = device
        self.dtype = next(network.parameters()).dtype
        reference, teachers = data.reference_embeddings, data.teacher_embeddings
        self.objective = Objective(
            recipe.loss,
            recipe.model.embedding_dim,
            len(data.train.table.names),
            reference_embeddings=None if reference is None else reference.embeddings,
            teacher_embeddings=None if teachers is None else teachers.embeddings,
            distill=recipe.distill,
        ).to(device, self.dtype)
        self.sharded = sharded_centers(self.objective)
        self.optimizer: Optimizer = build_optimizer(network, self.objective, recipe.optimizer, recipe.budget.epochs)
        self.sampler = build_sampler(recipe, data, ranks)
        if save_every_steps and isinstance(self.sampler, OfflineTriplets):
            raise BadRecipe(
                "mining.mode=offline: the triplets mined within an epoch are not saved, so the state cannot be; leave "
                "out --save-every-steps"
            )
        self._ends_within_epochs = not isinstance(self.sampler, OfflineTriplets)  # whose state cannot be saved there
        keys = self.sampler if ranks.size == 1 else RankBatches(self.sampler, data.train.labels, ranks)
        self.batches = PhotoBatches(data.train, keys, device, workers)
        self.batch_norms = [module for module in network.modules() if isinstance(module, _BatchNorm)]
        self.pairs = validation_pairs(data.validation.table.labels, recipe.validation.pairs, recipe.seed)
        self.validation_loss_rows = validation_loss_rows(data.validation.table.labels, recipe.seed)
        self.records: list[EpochRecord] = []
        self.best_score = -1.0
        self.best_epoch = 0
        self._unfinished: _EpochTotals | None = None  # of the epoch that a resumed run continues
        self._deadline = math.inf  # of `time.perf_counter`, when the time budget is spent
        self._generators: list[dict[str, Tensor]] = []  # of each rank, when that epoch was interrupted

    def train(self, on_step: Callable[[StepProgress], None], on_epoch: Callable[[EpochRecord], None]) -> str:
        """Train until the budget is spent.

        Returns:
            Why it ended: "finished", "patience" or "time".
        """
        try:
            with StepLog(self.run.steps_csv, self.saved_steps) if self.ranks.is_main else nullcontext() as log:
                return self._train_epochs(log, on_step, on_epoch)
        except RuntimeError as error:
            if self.ranks.size > 1 and any(cause in str(error) for cause in LOST_CONNECTION):
                raise TrainingFailed(
                    f"rank {self.ranks.rank}: another process of this training has ended; its message says why. "
                    "Continue with --resume"
                ) from error
            raise
        finally:
            if self.records and self.ranks.is_main:
                draw_curves(self.run.curves_png, self.records)

    @property
    def saved_steps(self) -> int:
        """Steps that a resumed run does not repeat, counted over the epochs."""
        return len(self.records) * len(self.sampler) + (self._unfinished.steps if self._unfinished else 0)

    def start_centers_at_means(self) -> None:
        """Set the class centers to the mean embeddings of the identities' photos, without augmentation.

        With random centers the first steps change a pretrained network at random.
        """
        photos = self.data.train
        unaugmented = FaceDataset(photos.table, photos.crops)
        embeddings = torch.from_numpy(embed_by_ranks(self.network, unaugmented, self.ranks)).to(self.device)
        self.objective.set_class_centers(embeddings, torch.from_numpy(photos.table.labels).to(self.device))

    def restore(self) -> None:
        """Go back to what was saved last. BadRun if the state is missing, damaged or of another version."""
        state = load_state(self.run.state)
        try:
            if self.sharded:
                shards = {name: loss.shard for name, loss in self.sharded.items()}
                state = load_rows(self.run.path, state, shards)
            self.network.load_state_dict(state["network"])
            self.objective.load_state_dict(state["objective"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.records = [EpochRecord(**record) for record in state["records"]]
            self.best_score = state["best_score"]
            self.best_epoch = state["best_epoch"]
            if (unfinished := state.get("unfinished_epoch")) is not None:
                self._unfinished = _EpochTotals(**unfinished)
                self._generators = state["generators"]
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise BadRun(f"{self.run.state}: was saved by another version of familiar ({error})") from error

    def _train_epochs(
        self, log: StepLog | None, on_step: Callable[[StepProgress], None], on_epoch: Callable[[EpochRecord], None]
    ) -> str:
        budget = self.recipe.budget
        curves_drawn = time.perf_counter()
        self._deadline = curves_drawn + (budget.seconds or math.inf)
        while not (stop_reason := self._stop_reason()):
            record, unfinished = self._train_epoch(log, on_step)
            out_of_time = self._is_out_of_time()
            is_last = out_of_time or record.epoch == budget.epochs
            if is_last or record.epoch % self.recipe.validation.every_epochs == 0:
                record = self._validate(record, is_last)
            if log is not None:
                log.save()
            if unfinished is None:
                self.records.append(record)
                self._save()
            else:  # the rest of the epoch is left to a resumed run, which records it as a whole
                self._save(unfinished)
                self.records.append(record)
                self._save_progress()
            if self.ranks.is_main and time.perf_counter() - curves_drawn > CURVES_SECONDS:
                draw_curves(self.run.curves_png, self.records)
                curves_drawn = time.perf_counter()
            on_epoch(record)
            if out_of_time:
                return "time" if unfinished else self._stop_reason() or "time"
        return stop_reason

    def _is_out_of_time(self) -> bool:
        return self._deadline < math.inf and self.ranks.on_main(lambda: time.perf_counter() > self._deadline)

    def _stop_reason(self) -> str:
        """Return why training is finished, or "" to continue; a run just resumed may be finished already."""
        budget = self.recipe.budget
        if len(self.records) >= budget.epochs:
            return "finished"
        if budget.patience and self.best_epoch and self._validations_since_best() >= budget.patience:
            return "patience"
        return ""

    def _validations_since_best(self) -> int:
        later = (record for record in self.records if record.epoch > self.best_epoch)
        return sum(record.validation_accuracy is not None for record in later)

    def _train_epoch(
        self, log: StepLog | None, on_step: Callable[[StepProgress], None]
    ) -> tuple[EpochRecord, _EpochTotals | None]:
        """Train an epoch, or as much of it as there is time for.

        Returns:
            Its record; and what its steps gave, if some are left for a resumed run.
        """
        epoch = len(self.records)
        totals, self._unfinished = self._unfinished or _EpochTotals(), None
        self._seed_generators(epoch, totals.steps)
        self.sampler.epoch = epoch
        self.batches.start_at(totals.steps)
        self.network.train()
        self.objective.start_epoch(epoch, self.recipe.budget.epochs)
        for step, batch in enumerate(self._batches_of_epoch(), start=totals.steps):
            self._set_rates(epoch, step)
            try:
                loss, gradient_norm, recall, photos = self._train_step(batch, (epoch, step))
            except NotFiniteError as error:  # on all ranks: the loss is that of their joined rows
                raise self._failure(f"{error}, in epoch {epoch + 1}, step {step + 1}") from error
            totals.add(loss, gradient_norm, recall, photos)
            progress = self._progress(epoch, step, totals)
            if log is not None:
                log.add(progress.record)
            if not np.isfinite((loss, gradient_norm)).all():
                raise self._failure(
                    f"the loss is {loss} and the norm of its gradient {gradient_norm} "
                    f"in epoch {epoch + 1}, step {step + 1}"
                )
            on_step(progress)
            if step + 1 < len(self.sampler) and self._ends_within_epochs and self._is_out_of_time():
                return self._record(epoch, totals), totals
            if self.save_every_steps and (step + 1) % self.save_every_steps == 0 and step + 1 < len(self.sampler):
                if log is not None:
                    log.save()
                self._save(totals)
        return self._record(epoch, totals), None

    def _seed_generators(self, epoch: int, step: int) -> None:
        """Let a resumed run draw what an uninterrupted one would have drawn, if it has as many ranks.

        Args:
            epoch: counted from 0.
            step: of the epoch, from which a resumed run continues.
        """
        generators, self._generators = self._generators, []
        if step and len(generators) == self.ranks.size:
            states = generators[self.ranks.rank]
            torch.set_rng_state(states["cpu"])
            if self.device.type == "cuda" and "cuda" in states:
                torch.cuda.set_rng_state(states["cuda"], self.device)
            return
        entropy = (self.recipe.seed, epoch, *([] if self.ranks.is_main else [self.ranks.rank]))
        torch.manual_seed(int(np.random.SeedSequence(entropy).generate_state(1)[0]))

    def _generator_states(self) -> dict[str, Tensor]:
        on_gpu = {"cuda": torch.cuda.get_rng_state(self.device)} if self.device.type == "cuda" else {}
        return {"cpu": torch.get_rng_state(), **on_gpu}

    def _batches_of_epoch(self) -> Iterator[NetworkBatch]:
        if not isinstance(self.sampler, OfflineTriplets):
            yield from self.batches
            return
        for first_step in self.sampler.round_starts():
            self.sampler.mine_triplets(self.network, first_step, self.ranks)
            yield from self.batches

    def _set_rates(self, epoch: int, step: int) -> None:
        """Set learning rates and batch norm momentum for a step; epoch and step count from 0."""
        steps = len(self.sampler)
        self.optimizer.set_rates(epoch + (step + 1) / steps)
        for batch_norm in self.batch_norms:
            batch_norm.momentum = statistics_momentum(epoch * steps + step)

    def _train_step(
        self, batch: NetworkBatch, epoch_and_step: tuple[int, int]
    ) -> tuple[float, float, float | None, int]:
        """Take one optimizer step.

        Args:
            batch: of this rank.
            epoch_and_step: counted from 0; what the loss draws depends on them alone, not on the number of ranks.

        Returns:
            The loss, the norm of its gradient, the recall@1 within the batch, and the photos of the batch: those of all
            ranks.
        """
        # A batch norm's momentum is a constant to the compiler: as long as it changes, every step would be recompiled.
        momentum_is_constant = all(batch_norm.momentum == BATCH_NORM_MOMENTUM for batch_norm in self.batch_norms)
        embedder = self.compiled if momentum_is_constant else self.embed

        def embed(images: Float[Tensor, "_ 3 s s"]) -> Float[Tensor, "_ d"]:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
                return embedder(images)

        recall, photos = None, 0

        def loss(rank_embeddings: Float[Tensor, "_ d"]) -> Float[Tensor, ""]:
            nonlocal recall, photos
            embeddings, labels, rows = gather_tensors((rank_embeddings, batch.labels, batch.rows))
            recall, photos = batch_recall_at_1(embeddings, labels, rows), len(labels)
            if isinstance(self.sampler, OfflineTriplets):
                return self.objective.loss.triplet_loss_from(*embeddings.chunk(3))
            with self._random_stream(LOSS_STREAM, *epoch_and_step):
                return self.objective(embeddings, labels, rows)

        self.optimizer.zero_grad()
        images = batch.images.to(self.dtype)
        value = backward(self.network, embed, loss, images, self.recipe.sampler.chunk_size, self.ranks)
        self.ranks.average_gradients(self.optimizer.dense_parameters)
        return value, self.optimizer.step(), recall, photos

    @contextmanager
    def _random_stream(self, *numbers: int) -> Iterator[None]:
        """Draw random numbers from a stream that depends on the seed and these numbers, and then go on as before."""
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(int(np.random.SeedSequence((self.recipe.seed, *numbers)).generate_state(1)[0]))
            yield

    def _progress(self, epoch: int, step: int, totals: _EpochTotals) -> StepProgress:
        steps, epochs = len(self.sampler), self.recipe.budget.epochs
        speed = totals.photos / totals.seconds
        remaining_steps = steps * (epochs - epoch) - step - 1
        photos_per_step = totals.photos / (step + 1)
        return StepProgress(
            epoch=epoch + 1,
            epochs=epochs,
            step=step + 1,
            steps=steps,
            loss=totals.losses[-1],
            batch_recall_at_1=totals.recalls[-1],
            lr=self.optimizer.current_rates[0],
            photos_per_second=speed,
            seconds_left=min(remaining_steps * photos_per_step / speed, max(self._deadline - time.perf_counter(), 0.0)),
        )

    def _record(self, epoch: int, totals: _EpochTotals) -> EpochRecord:
        """Return the record of an epoch that is not validated yet."""
        seconds = totals.seconds
        lr, backbone_lr = self.optimizer.current_rates
        hyperparameters = self.objective.hyperparameters
        recalls = [recall for recall in totals.recalls if recall is not None]
        return EpochRecord(
            epoch=epoch + 1,
            loss=float(np.mean(totals.losses)),
            lr=lr,
            backbone_lr=backbone_lr,
            margin=hyperparameters.get("margin_rad", hyperparameters.get("margin")),
            gamma=hyperparameters.get("gamma"),
            active_triplets=self.objective.active_triplets(),
            batch_recall_at_1=float(np.mean(recalls)) if recalls else None,
            gradient_norm=float(np.mean(totals.gradient_norms)),
            photos_per_second=totals.photos / seconds,
            seconds=seconds,
        )

    def _validate(self, record: EpochRecord, is_last: bool) -> EpochRecord:
        """Add the validation figures to an epoch's record, and save the weights if they are the best so far.

        Raises:
            TrainingFailed: the embeddings are collapsed, in the last epoch or for the second time in a row.
        """
        embeddings = embed_by_ranks(self.network, self.data.validation, self.ranks)
        scores = validate(embeddings, self.data.validation.table.labels, self.pairs)
        if scores.collapsed and (is_last or self._was_collapsed()):
            raise self._failure(
                "all embeddings collapsed to one point (mean similarity of different identities "
                f"{scores.mean_negative_similarity:.4f}, epoch {record.epoch})"
            )
        score = getattr(scores, self.recipe.validation.best_by)
        if score > self.best_score and not scores.collapsed:
            self.best_score, self.best_epoch = score, record.epoch
            self._save_weights(self.run.best)
        return replace(
            record,
            validation_accuracy=scores.accuracy,
            validation_auc=scores.auc,
            validation_recall_at_1=scores.recall_at_1,
            validation_loss=self._validation_loss(embeddings),
            stranger_similarity=scores.mean_negative_similarity,
        )

    def _validation_loss(self, embeddings: Float32[np.ndarray, "n d"]) -> float | None:
        loss = validation_loss(self.recipe.loss)
        if loss is None:
            return None
        rows = self.validation_loss_rows
        labels = torch.from_numpy(self.data.validation.table.labels[rows])
        return loss(torch.from_numpy(embeddings[rows]), labels).item()

    def _was_collapsed(self) -> bool:
        """Whether the previous validation was collapsed too; a single occurrence is ignored."""
        similarities = [record.stranger_similarity for record in self.records if record.stranger_similarity is not None]
        return bool(similarities) and similarities[-1] > COLLAPSED_SIMILARITY

    def _failure(self, cause: str) -> FamiliarError:
        best = f". The best network so far is kept in {self.run.best}" if self.best_epoch else ""
        return self.ranks.joint(TrainingFailed(f"{cause}; lower optimizer.lr or the loss's margin{best}"))

    def _save(self, unfinished: _EpochTotals | None = None) -> None:
        """Save the state to resume from.

        Args:
            unfinished: the epoch that it is in the middle of; None: it is at the end of one.
        """
        state = {
            "network": self.network.state_dict(),
            "objective": self.objective.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "records": [asdict(record) for record in self.records],
            "best_score": self.best_score,
            "best_epoch": self.best_epoch,
        }
        if unfinished is not None:
            state["unfinished_epoch"] = unfinished.state()
            state["generators"] = self.ranks.gather(self._generator_states())
        if self.ranks.size > 1 and self.sharded:
            step = unfinished.steps if unfinished else 0
            state = save_rows(self.run.path, len(self.records), step, state, list(self.sharded), self.ranks)
        if unfinished is None:
            self._save_progress()
        if self.ranks.is_main:
            save_state(self.run.state, state)
            remove_other_shards(self.run.path, state.get("shards", []))

    def _save_progress(self) -> None:
        """Write the history and the last weights."""
        if self.ranks.is_main:
            write_history(self.run.history_csv, self.records)
            self._save_weights(self.run.last)

    def _save_weights(self, path: Path) -> None:
        """Save network and objective, without class centers that are divided among the ranks."""
        if self.ranks.is_main:
            left_out = [f"objective.{name}" for name in self.sharded] if self.ranks.size > 1 else []
            save_weights(path, left_out, network=self.network, objective=self.objective)
