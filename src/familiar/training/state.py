"""The state of a training: what it was started with, what its steps change, and how that is saved and restored."""

import logging
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from timm.layers.norm_act import BatchNormAct2d, SyncBatchNormAct
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from familiar.core.errors import BadRun, FamiliarError, TrainingFailed
from familiar.loading.batches import PhotoBatches
from familiar.loading.dataset import FaceDataset
from familiar.models.catalog import TIMM
from familiar.models.network import EmbeddingNetwork
from familiar.training.center_shards import join_centers, sharded_centers, split_centers
from familiar.training.checkpoint import load_state, save_state, save_weights
from familiar.training.data import TrainingData
from familiar.training.gradient_caching import embed_in_chunks
from familiar.training.history import EpochRecord
from familiar.training.objective import Objective
from familiar.training.optimizer import Optimizer, build_optimizer
from familiar.training.ranks import ONE_RANK, Ranks
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder
from familiar.training.sampling import BatchSampler, RankBatches, build_sampler
from familiar.training.schedule import BATCH_NORM_MOMENTUM
from familiar.training.validation import embed_by_ranks

log = logging.getLogger(__name__)


@dataclass
class EpochFigures:
    """The figures of each step of an epoch so far, its photos, and the seconds spent on it."""

    losses: list[float] = field(default_factory=list[float])
    gradient_norms: list[float] = field(default_factory=list[float])
    recalls: list[float] = field(default_factory=list[float])  # of the batches with positives
    photos: int = 0
    seconds: float = 0.0


class StepNetwork(nn.Module):
    """The network as steps call it: in bfloat16 on a GPU, before the embeddings are normalized if the loss wants that.

    Args:
        network: the network.
        raw: whether the embeddings are not normalized.
        compiled: whether to compile it.
    """

    def __init__(self, network: EmbeddingNetwork, raw: bool, compiled: bool) -> None:
        super().__init__()
        self.network = network
        embed = network.raw if raw else network
        self._embed = embed, torch.compile(embed, dynamic=False) if compiled else embed  # no submodules a second time
        self.batch_norms = [module for module in network.modules() if isinstance(module, _BatchNorm)]

    def forward(self, images: Float[Tensor, "n 3 s s"], chunks: int = 1) -> Float[Tensor, "n d"]:
        """Compute embeddings: of all images at once, or in chunks that need less memory (`gradient_caching`)."""
        return self.embed(images) if chunks == 1 else embed_in_chunks(self.network, self.embed, images, chunks)

    def embed(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n d"]:
        """Compute embeddings of all images at once."""
        # A batch norm's momentum is a constant to the compiler: as long as it changes, every step would be recompiled.
        is_constant = all(norm.momentum == BATCH_NORM_MOMENTUM for norm in self.batch_norms)
        with torch.autocast(images.device.type, torch.bfloat16, enabled=images.is_cuda):
            return self._embed[is_constant](images)


@dataclass
class TrainingState:
    """All that a training is: what it is started with, what is built from that, and how far it is.

    Args:
        recipe: how to train.
        network: on `device`, with its initial weights.
        data: the photos.
        run: the folder for checkpoints and history.
        device: where to compute.
        workers: number of processes that load photos.
        compiled: whether to compile the network's steps.
        ranks: the processes that train together, each on its part of every batch. Rank 0 writes the run's files.

    Attributes:
        embedder: calls the network as steps need it.
        distributed: the same; of several ranks, with their gradients averaged.
        objective: the loss.
        optimizer: of the network's and the objective's parameters.
        sampler: chooses the photos of each batch, of all ranks.
        batches: of this rank.
        records: of the epochs so far. The last may be of an epoch whose rest is left to a resumed run.
        epoch: number of complete epochs.
        figures: of the steps since.
        best_score: of all validations.
        best_epoch: counted from 1; 0 before the first validation.
        random_states: of each rank, when the run was saved from which this one continues.
        deadline: of `time.perf_counter`, when the time budget is spent.
        epoch_start: of `time.perf_counter`, for an epoch without an interruption.

    Raises:
        BadRecipe: batches are too small to be divided among the ranks.
    """

    recipe: Recipe
    network: EmbeddingNetwork
    data: TrainingData
    run: RunFolder
    device: torch.device
    workers: int = 0
    compiled: bool = False
    ranks: Ranks = ONE_RANK
    embedder: StepNetwork = field(init=False)
    distributed: nn.Module = field(init=False)
    objective: Objective = field(init=False)
    optimizer: Optimizer = field(init=False)
    sampler: BatchSampler = field(init=False)
    batches: PhotoBatches = field(init=False)
    records: list[EpochRecord] = field(default_factory=list[EpochRecord])
    epoch: int = 0
    figures: EpochFigures = field(default_factory=EpochFigures)
    best_score: float = -1.0
    best_epoch: int = 0
    random_states: list[dict[str, Tensor]] = field(default_factory=list[dict[str, Tensor]])
    deadline: float = math.inf
    epoch_start: float = 0.0

    def __post_init__(self) -> None:
        recipe, network, data = self.recipe, self.network, self.data
        self.embedder = self.distributed = StepNetwork(network, recipe.loss.uses_raw_embeddings, self.compiled)
        if self.ranks.size > 1:
            synchronize_batch_norms(network, self.device, self.ranks)
            has_unused = recipe.model.name.startswith(TIMM)  # layers of timm's after the feature map
            self.distributed = DistributedDataParallel(self.embedder, find_unused_parameters=has_unused)
        reference, teachers = data.reference_embeddings, data.teacher_embeddings
        self.objective = Objective(
            recipe.loss,
            recipe.model.embedding_dim,
            len(data.train.table.names),
            reference_embeddings=None if reference is None else reference.embeddings,
            teacher_embeddings=None if teachers is None else teachers.embeddings,
            distill=recipe.distill,
        ).to(self.device, next(network.parameters()).dtype)
        self.optimizer = build_optimizer(network, self.objective, recipe.optimizer, recipe.budget.epochs)
        self.sampler = build_sampler(recipe, data, self.ranks)
        keys = self.sampler if self.ranks.size == 1 else RankBatches(self.sampler, data.train.labels, self.ranks)
        self.batches = PhotoBatches(data.train, keys, self.device, self.workers)

    def failure(self, cause: str) -> FamiliarError:
        """Return the error that ends a training, on all ranks."""
        best = f". The best network so far is kept in {self.run.best}" if self.best_epoch else ""
        return self.ranks.joint(TrainingFailed(f"{cause}; lower optimizer.lr or the loss's margin{best}"))


def synchronize_batch_norms(network: nn.Module, device: torch.device, ranks: Ranks) -> None:
    """Let batch norms normalize by the photos of all ranks where torch can, on GPUs; elsewhere, say that they do not.

    In place, since a network remembers which of its modules are frozen.
    """
    norms: list[Any] = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    if device.type == "cuda":
        for norm in norms:
            with_activation = isinstance(norm, BatchNormAct2d)
            norm.process_group = None  # all ranks
            norm.__class__ = SyncBatchNormAct if with_activation else nn.SyncBatchNorm
    elif ranks.is_main and any(norm.training for norm in norms):
        log.warning(
            "batch norm: on CPUs each process normalizes its own photos, so several learn not quite what one would"
        )


def start_centers_at_means(state: TrainingState) -> None:
    """Set the class centers to the mean embeddings of the identities' photos, without augmentation.

    With random centers the first steps change a pretrained network at random.
    """
    photos = state.data.train
    unaugmented = FaceDataset(photos.table, photos.crops)
    embeddings = torch.from_numpy(embed_by_ranks(state.network, unaugmented, state.ranks)).to(state.device)
    state.objective.set_class_centers(embeddings, torch.from_numpy(photos.table.labels).to(state.device))


def random_states(device: torch.device) -> dict[str, Tensor]:
    """Return the states of the random number generators: the CPU's, and the GPU's if `device` is one."""
    on_gpu = {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}
    return {"cpu": torch.get_rng_state(), **on_gpu}


def start_epoch(state: TrainingState) -> None:
    """Prepare for what is left of the epoch: a resumed run draws what an uninterrupted one would have drawn.

    Within an epoch, that is so if it has as many ranks.
    """
    step = len(state.figures.losses)
    if step and len(state.random_states) == state.ranks.size:
        states = state.random_states[state.ranks.rank]
        torch.set_rng_state(states["cpu"])
        if state.device.type == "cuda" and "cuda" in states:
            torch.cuda.set_rng_state(states["cuda"], state.device)
    else:
        entropy = (state.recipe.seed, state.epoch, *([] if state.ranks.is_main else [state.ranks.rank]))
        torch.manual_seed(int(np.random.SeedSequence(entropy).generate_state(1)[0]))
    state.sampler.epoch = state.epoch
    state.batches.start_at(step)
    state.network.train()
    state.objective.start_epoch(state.epoch, state.recipe.budget.epochs)


def save_checkpoint(state: TrainingState) -> None:
    """Save all that changes, to resume from. On every rank, at the same step."""
    content: dict[str, Any] = {
        "network": state.network.state_dict(),
        "objective": state.objective.state_dict(),
        "optimizer": state.optimizer.state_dict(),
        "records": [asdict(record) for record in state.records[: state.epoch]],
        "figures": asdict(state.figures),
        "best_score": state.best_score,
        "best_epoch": state.best_epoch,
        "random_states": state.ranks.gather(random_states(state.device)),
    }
    if state.ranks.size > 1:
        join_centers(content, state.objective, state.ranks)
    if state.ranks.is_main:
        save_state(state.run.state, content)


def load_checkpoint(state: TrainingState) -> None:
    """Go back to what was saved last. BadRun if it is missing, damaged or of another version."""
    content = load_state(state.run.state)
    try:
        split_centers(content, state.objective)
        state.network.load_state_dict(content["network"])
        state.objective.load_state_dict(content["objective"])
        state.optimizer.load_state_dict(content["optimizer"])
        state.records = [EpochRecord(**record) for record in content["records"]]
        state.epoch = len(state.records)
        state.figures = EpochFigures(**content["figures"])
        state.best_score, state.best_epoch = content["best_score"], content["best_epoch"]
        state.random_states = content["random_states"]
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise BadRun(f"{state.run.state}: was saved by another version of familiar ({error})") from error


def save_networks(state: TrainingState, path: Path) -> None:
    """Save network and objective on rank 0; the network only, if class centers are divided among the ranks."""
    if state.ranks.is_main:
        is_divided = state.ranks.size > 1 and sharded_centers(state.objective)
        save_weights(path, network=state.network, **({} if is_divided else {"objective": state.objective}))
