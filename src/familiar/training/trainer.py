"""The epochs of a run: steps, validation, checkpoints. Plain torch; every draw is keyed by the seed and the epoch."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from familiar.core.errors import BadRun, TrainingFailed
from familiar.loading.batches import NetworkBatch, PhotoBatches
from familiar.loading.sampler import IdentityBatches, ShuffledBatches
from familiar.models.network import EmbeddingNetwork
from familiar.training.checkpoint import load_state, save_state, save_weights, with_current_names
from familiar.training.data import Fold
from familiar.training.gradient_caching import backward
from familiar.training.history import EpochRecord, draw_curves, write_history
from familiar.training.objective import Objective, validation_loss
from familiar.training.offline_mining import OfflineTriplets
from familiar.training.optimizer import Optimizer, build_optimizer
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder
from familiar.training.schedule import BATCH_NORM_MOMENTUM, statistics_momentum
from familiar.training.validation import (
    COLLAPSED_SIMILARITY,
    compared_rows,
    embed_dataset,
    validate,
    validation_pairs,
)

CURVES_SECONDS = 10.0  # between two drawings, each of which takes as long as a small run's epoch


@dataclass(frozen=True)
class StepProgress:
    """Where a run stands, after each step."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    lr: float
    photos_per_second: float
    seconds_left: float


class Trainer:
    """Network, objective and optimizer of one run, and how far they are."""

    def __init__(
        self,
        recipe: Recipe,
        network: EmbeddingNetwork,
        fold: Fold,
        run: RunFolder,
        device: torch.device,
        workers: int,
        compiled: bool = False,
    ) -> None:
        self.recipe = recipe
        self.network = network
        self.embed = network.raw if recipe.loss.on_raw_embeddings else network
        self.compiled = torch.compile(self.embed, dynamic=False) if compiled else self.embed
        self.fold = fold
        self.run = run
        self.device = device
        table = fold.train.table
        self.objective = Objective(
            recipe.loss,
            recipe.model.embedding_dim,
            len(table.names),
            old=None if fold.old is None else fold.old.embeddings,
            taught=None if fold.lessons is None else fold.lessons.embeddings,
            distill_weight=recipe.distill.weight,
        ).to(device)
        self.optimizer: Optimizer = build_optimizer(network, self.objective, recipe.optimizer, recipe.budget.epochs)
        sampler, mining = recipe.sampler, recipe.mining
        if mining.mode == "offline":
            self.sampler = OfflineTriplets(
                fold.train, sampler.batch_size, mining.every_steps, mining.subset, mining.skip, recipe.seed
            )
        elif recipe.by_identities:
            self.sampler = IdentityBatches(table.labels, sampler.identities, sampler.photos, recipe.seed)
        else:
            self.sampler = ShuffledBatches(len(table), sampler.batch_size, recipe.seed)
        self.batches = PhotoBatches(fold.train, self.sampler, device, workers)
        self.batch_norms = [module for module in network.modules() if isinstance(module, _BatchNorm)]
        self.pairs = validation_pairs(fold.validation.table.labels, recipe.validation.pairs, recipe.seed)
        self.compared = compared_rows(fold.validation.table.labels, recipe.seed)
        self.records: list[EpochRecord] = []
        self.best_score = -1.0
        self.best_epoch = 0

    def train(self, on_step: Callable[[StepProgress], None], on_epoch: Callable[[EpochRecord], None]) -> str:
        """Epochs until the budget is spent; why it ended."""
        try:
            return self._epochs(on_step, on_epoch)
        finally:
            if self.records:
                draw_curves(self.run.curves_png, self.records)

    def _epochs(self, on_step: Callable[[StepProgress], None], on_epoch: Callable[[EpochRecord], None]) -> str:
        budget = self.recipe.budget
        started = drawn = time.perf_counter()
        while not (why := self._why_finished()):
            record = self._one_epoch(on_step)
            out_of_time = bool(budget.seconds) and time.perf_counter() - started > budget.seconds
            ends = out_of_time or record.epoch == budget.epochs
            if ends or record.epoch % self.recipe.validation.every_epochs == 0:
                record = self._validated(record, ends)
            self.records.append(record)
            self._save()
            if time.perf_counter() - drawn > CURVES_SECONDS:
                draw_curves(self.run.curves_png, self.records)
                drawn = time.perf_counter()
            on_epoch(record)
            if out_of_time:
                return self._why_finished() or "time"
        return why

    def _why_finished(self) -> str:
        """Empty while there is more to do, also of a run just resumed."""
        budget = self.recipe.budget
        if len(self.records) >= budget.epochs:
            return "finished"
        if budget.patience and self.best_epoch and self._validations_since_best() >= budget.patience:
            return "patience"
        return ""

    def restore(self) -> None:
        """Back to the newest whole epoch. BadRun where the state is missing, damaged or of another version."""
        state = load_state(self.run.state)
        try:
            self.network.load_state_dict(state["network"])
            self.objective.load_state_dict(with_current_names(state["objective"]))
            self.optimizer.load_state_dict(state["optimizer"])
            self.records = [EpochRecord(**record) for record in state["records"]]
            self.best_score = state["best_score"]
            self.best_epoch = state["best_epoch"]
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise BadRun(f"{self.run.state}: was saved by another version ({error})") from error

    def _one_epoch(self, on_step: Callable[[StepProgress], None]) -> EpochRecord:
        epoch = len(self.records)
        # Keyed by the epoch, so that a resumed run draws what an unbroken one would have drawn.
        torch.manual_seed(int(np.random.SeedSequence((self.recipe.seed, epoch)).generate_state(1)[0]))
        self.sampler.epoch = epoch
        self.network.train()
        self.objective.start_epoch(epoch, self.recipe.budget.epochs)
        losses: list[float] = []
        gradient_norms: list[float] = []
        photos = 0
        started = time.perf_counter()
        steps = len(self.sampler)
        for step, batch in enumerate(self._batches_of_epoch()):
            self.optimizer.set_rates(epoch + (step + 1) / steps)
            for batch_norm in self.batch_norms:
                batch_norm.momentum = statistics_momentum(epoch * steps + step)
            loss, gradient_norm = self._one_step(batch)
            if not np.isfinite((loss, gradient_norm)).all():
                raise self._failure(
                    f"the loss is {loss}, its gradient's norm {gradient_norm}, in epoch {epoch + 1}, step {step + 1}"
                )
            losses.append(loss)
            gradient_norms.append(gradient_norm)
            photos += len(batch.labels)
            speed = photos / (time.perf_counter() - started)
            steps_left = steps * (self.recipe.budget.epochs - epoch) - step - 1
            on_step(
                StepProgress(
                    epoch + 1,
                    self.recipe.budget.epochs,
                    step + 1,
                    steps,
                    loss,
                    self.optimizer.rates[0],
                    speed,
                    steps_left * photos / (step + 1) / speed,
                )
            )
        seconds = time.perf_counter() - started
        lr, backbone_lr = self.optimizer.rates
        hyperparameters = self.objective.hyperparameters
        return EpochRecord(
            epoch=epoch + 1,
            loss=float(np.mean(losses)),
            lr=lr,
            backbone_lr=backbone_lr,
            margin=hyperparameters.get("margin_rad", hyperparameters.get("margin")),
            gamma=hyperparameters.get("gamma"),
            active_triplets=self.objective.active_triplets(),
            gradient_norm=float(np.mean(gradient_norms)),
            validation_accuracy=None,
            validation_auc=None,
            validation_recall_at_1=None,
            validation_loss=None,
            stranger_similarity=None,
            photos_per_second=photos / seconds,
            seconds=seconds,
        )

    def _batches_of_epoch(self) -> Iterator[NetworkBatch]:
        if not isinstance(self.sampler, OfflineTriplets):
            yield from self.batches
            return
        for first_step in self.sampler.rounds():
            self.sampler.mine(self.network, first_step)
            yield from self.batches

    def _one_step(self, batch: NetworkBatch) -> tuple[float, float]:
        """Loss and norm of its gradient."""
        # A batch norm's momentum is a constant to the compiler: while it moves, each step would be compiled anew.
        settled = all(batch_norm.momentum == BATCH_NORM_MOMENTUM for batch_norm in self.batch_norms)
        embedder = self.compiled if settled else self.embed

        def embed(images: Float[Tensor, "_ 3 s s"]) -> Float[Tensor, "_ d"]:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
                return embedder(images)

        def loss(embeddings: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
            if isinstance(self.sampler, OfflineTriplets):
                return self.objective.loss.of_triplets(*embeddings.chunk(3))
            return self.objective(embeddings, batch.labels, batch.rows)

        self.optimizer.zero_grad()
        value = backward(self.network, embed, loss, batch.images, self.recipe.sampler.chunk_size)
        return value, self.optimizer.step()

    def _validated(self, record: EpochRecord, ends: bool) -> EpochRecord:
        embeddings = embed_dataset(self.network, self.fold.validation)
        found = validate(embeddings, self.fold.validation.table.labels, self.pairs)
        if found.collapsed and (ends or self._was_collapsed()):
            raise self._failure(
                f"all embeddings fell on one point (mean similarity of strangers {found.stranger_similarity:.4f}, "
                f"epoch {record.epoch})"
            )
        score = getattr(found, self.recipe.validation.best_by)
        if score > self.best_score and not found.collapsed:
            self.best_score, self.best_epoch = score, record.epoch
            save_weights(self.run.best, network=self.network, objective=self.objective)
        return replace(
            record,
            validation_accuracy=found.accuracy,
            validation_auc=found.auc,
            validation_recall_at_1=found.recall_at_1,
            validation_loss=self._validation_loss(embeddings),
            stranger_similarity=found.stranger_similarity,
        )

    def _validation_loss(self, embeddings: Float32[np.ndarray, "n d"]) -> float | None:
        loss = validation_loss(self.recipe.loss)
        if loss is None:
            return None
        labels = torch.from_numpy(self.fold.validation.table.labels[self.compared])
        return loss(torch.from_numpy(embeddings[self.compared]), labels).item()

    def _was_collapsed(self) -> bool:
        """At the validation before: once is no alarm."""
        seen = [record.stranger_similarity for record in self.records if record.stranger_similarity is not None]
        return bool(seen) and seen[-1] > COLLAPSED_SIMILARITY

    def _validations_since_best(self) -> int:
        later = (record for record in self.records if record.epoch > self.best_epoch)
        return sum(record.validation_accuracy is not None for record in later)

    def _failure(self, what: str) -> TrainingFailed:
        kept = f". The best network so far stays in {self.run.best}" if self.best_epoch else ""
        return TrainingFailed(f"{what}; lower optimizer.lr or the loss's margin{kept}")

    def _save(self) -> None:
        write_history(self.run.history_csv, self.records)
        save_weights(self.run.last, network=self.network, objective=self.objective)
        save_state(
            self.run.state,
            {
                "network": self.network.state_dict(),
                "objective": self.objective.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "records": [asdict(record) for record in self.records],
                "best_score": self.best_score,
                "best_epoch": self.best_epoch,
            },
        )
