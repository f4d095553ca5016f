"""One step of training: embed a batch, compute its loss, propagate it backward, update the parameters."""

from contextlib import nullcontext

import torch
from jaxtyping import Float
from torch import Tensor

from familiar.loading.batches import NetworkBatch
from familiar.losses.distributed import gather_tensors, shared_random_stream
from familiar.losses.validation import NotFiniteError
from familiar.training.offline_mining import OfflineTriplets
from familiar.training.optimizer import split_parameters
from familiar.training.schedule import statistics_momentum
from familiar.training.state import TrainingState
from familiar.training.step_log import batch_recall_at_1


class StepFigures:
    """Figures of a step that a GPU may still be computing.

    Args:
        lr: learning rate of head and classifier.
        photos: of the batch, of all ranks.
        values: loss, norm of its gradient, and recall@1 within the batch.
    """

    def __init__(self, lr: float, photos: int, *values: Float[Tensor, ""]) -> None:
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
    optimizer, ranks, steps = state.optimizer, state.ranks, len(state.sampler)
    optimizer.set_rates(state.epoch + (step + 1) / steps)
    for norm in state.embedder.batch_norms:
        norm.momentum = statistics_momentum(state.epoch * steps + step)
    optimizer.zero_grad()
    images = batch.images.to(next(state.network.parameters()).dtype)
    chunk_size = state.recipe.sampler.chunk_size
    chunks = -(-max(ranks.gather(len(images))) // chunk_size) if chunk_size else 1  # as many on all ranks
    # The loss is that of the photos of all ranks, on each of them. Backward, `gather_tensors` sums the gradients of all
    # ranks, and DistributedDataParallel divides them by the number of ranks: together the gradient of one process.
    embeddings, labels, rows = gather_tensors((state.distributed(images, chunks), batch.labels, batch.rows))
    loss = _joint_loss(state, embeddings, labels, rows, step)
    loss.backward()
    ranks.average_gradients(split_parameters(state.objective)[0])
    gradient_norm = optimizer.step()
    recall = batch_recall_at_1(embeddings, labels, rows)
    return StepFigures(optimizer.current_rates[0], len(labels), loss, gradient_norm, recall)


def _joint_loss(state: TrainingState, embeddings: Tensor, labels: Tensor, rows: Tensor, step: int) -> Tensor:
    """Compute the loss of the photos of all ranks."""
    try:
        if isinstance(state.sampler, OfflineTriplets):
            return state.objective.loss.triplet_loss_from(*embeddings.chunk(3))
        with shared_random_stream(state.device) if state.objective.draws else nullcontext():
            return state.objective(embeddings, labels, rows)
    except NotFiniteError as error:  # on all ranks
        raise state.failure(f"{error}, in epoch {state.epoch + 1}, step {step + 1}") from error
