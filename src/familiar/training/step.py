"""One step of training: embed a batch, compute its loss, propagate it backward, update the parameters."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from familiar.loading.batches import NetworkBatch
from familiar.losses.distributed import gather_tensors
from familiar.losses.validation import NotFiniteError
from familiar.training.gradient_caching import backward_chunks, embed_chunks
from familiar.training.offline_mining import OfflineTriplets
from familiar.training.optimizer import split_parameters
from familiar.training.schedule import statistics_momentum
from familiar.training.state import TrainingState
from familiar.training.step_log import batch_recall_at_1

LOSS_STREAM = 6  # separates a loss's draws from others that use the same seed


class StepFigures:
    """Figures of a step that a GPU may still be computing.

    Args:
        step: of the epoch, counted from 0.
        lr: learning rate of head and classifier.
        photos: of the batch, of all ranks.
        values: loss, norm of its gradient, and recall@1 within the batch.
    """

    def __init__(self, step: int, lr: float, photos: int, *values: Float[Tensor, ""]) -> None:
        self.step = step
        self.lr = lr
        self.photos = photos
        self._values = torch.stack([value.detach().double() for value in values]).to("cpu", non_blocking=True)
        self._copied = torch.cuda.Event() if values[0].is_cuda else None
        if self._copied is not None:
            self._copied.record()

    def read(self) -> list[float]:
        """Wait for the device, and return the values."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._values.tolist()


def take_step(state: TrainingState, batch: NetworkBatch, step: int) -> StepFigures:
    """Take one optimizer step.

    Args:
        state: of the training; its parameters and its optimizer are changed.
        batch: of this rank.
        step: of the epoch, counted from 0.

    Raises:
        TrainingFailed: embeddings are not finite; on a GPU, only the figures show it.
    """
    network, optimizer, ranks, steps = state.network, state.optimizer, state.ranks, len(state.sampler)
    optimizer.set_rates(state.epoch + (step + 1) / steps)
    for norm in state.embedder.batch_norms:
        norm.momentum = statistics_momentum(state.epoch * steps + step)
    optimizer.zero_grad()
    images = batch.images.to(next(network.parameters()).dtype)
    chunk_size = state.recipe.sampler.chunk_size
    chunks = -(-max(ranks.gather(len(images))) // chunk_size) if chunk_size else 1
    if chunks == 1:
        loss, recall, photos = _joint_loss(state, state.distributed(images), batch, step)
        loss.backward()
    else:
        embeddings, states = embed_chunks(network, state.embedder, images, chunks)
        loss, recall, photos = _joint_loss(state, embeddings.requires_grad_(), batch, step)
        loss.backward()
        assert embeddings.grad is not None
        backward_chunks(network, state.distributed, images, embeddings.grad, states)
    ranks.average_gradients(split_parameters(state.objective)[0])
    gradient_norm = optimizer.step()
    return StepFigures(step, optimizer.current_rates[0], photos, loss, gradient_norm, recall)


def _joint_loss(
    state: TrainingState, embeddings: Float[Tensor, "n d"], batch: NetworkBatch, step: int
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], int]:
    """Return loss, recall@1 and number of photos of the batches of all ranks.

    `gather_tensors` sums the gradients of all ranks, and DistributedDataParallel divides them by the number of ranks,
    which together is the gradient of one process.
    """
    joined, labels, rows = gather_tensors((embeddings, batch.labels, batch.rows))
    recall = batch_recall_at_1(joined, labels, rows)
    try:
        if isinstance(state.sampler, OfflineTriplets):
            return state.objective.loss.triplet_loss_from(*joined.chunk(3)), recall, len(labels)
        with _loss_draws(state, step):
            return state.objective(joined, labels, rows), recall, len(labels)
    except NotFiniteError as error:  # on all ranks: the loss is that of their joined rows
        raise state.failure(f"{error}, in epoch {state.epoch + 1}, step {step + 1}") from error


@contextmanager
def _loss_draws(state: TrainingState, step: int) -> Iterator[None]:
    """Let a loss draw random numbers that depend on seed, epoch and step only: they are the same on all ranks."""
    if not state.objective.draws:
        yield
        return
    with torch.random.fork_rng([state.device] if state.device.type == "cuda" else []):
        entropy = (state.recipe.seed, LOSS_STREAM, state.epoch, step)
        torch.manual_seed(int(np.random.SeedSequence(entropy).generate_state(1)[0]))
        yield
