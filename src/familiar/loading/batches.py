"""A dataset's crops as the network takes them: in batches, on its device, standardized."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor
from torch.utils.data import DataLoader

from familiar.core.errors import FamiliarError, TrainingFailed
from familiar.loading.augment.ops_torch import augment_batch
from familiar.loading.augment.pipeline import draw_change, photo_generator
from familiar.loading.dataset import Batch, FaceDataset, PhotoKey, init_worker
from familiar.loading.processes import SCRIPTS_NEED_A_GUARD, process_context
from familiar.photos.preprocessing import Preprocessing


class NetworkBatch(NamedTuple):
    """Standardized images, channels last in memory; whose they are; and which rows of the dataset."""

    images: Float32[Tensor, "n 3 s s"]
    labels: Int64[Tensor, " n"]
    rows: Int64[Tensor, " n"]


class PhotoBatches:
    """Iterates batches on `device`.

    `keys` are asked anew at each iteration. With `workers` other processes load ahead; with none, the threads of
    this one load each batch before it is used, which is the faster way where the network runs on the same cores.
    The number of workers changes no pixel. TrainingFailed where a worker dies.
    """

    def __init__(
        self,
        dataset: FaceDataset,
        keys: Iterable[Sequence[PhotoKey]],
        device: torch.device,
        workers: int = 0,
    ) -> None:
        self.dataset = dataset
        self.device = device
        self._loader = DataLoader(
            dataset,
            batch_sampler=keys,  # pyright: ignore[reportArgumentType] - any iterable will do
            collate_fn=_keep_batch,  # pyright: ignore[reportArgumentType] - a whole batch, made at once
            num_workers=workers,
            worker_init_fn=init_worker,
            multiprocessing_context=process_context() if workers else None,
            persistent_workers=workers > 0,
            pin_memory=device.type == "cuda",
            generator=torch.Generator(),  # or it would draw from the one that dropout draws from
        )

    def __iter__(self) -> Iterator[NetworkBatch]:
        try:
            for batch in self._loader:
                if isinstance(batch, FamiliarError):
                    raise batch
                yield self._on_device(batch)
        except (
            RuntimeError,
            ConnectionError,
            EOFError,
        ) as error:  # the latter two, if it died in mid-sentence
            if isinstance(error, RuntimeError) and "DataLoader worker (pid" not in str(error):
                raise
            raise TrainingFailed(
                f"a process that loads photos died. Was the memory used up? Try fewer workers. {SCRIPTS_NEED_A_GUARD}"
            ) from error

    def _on_device(self, batch: Batch) -> NetworkBatch:
        rgb_u8 = batch.rgb_u8.to(self.device, non_blocking=True)
        settings = self.dataset.augmentation
        if settings is not None and settings.where == "device":
            keys = zip(batch.epochs.tolist(), batch.rows.tolist(), strict=True)
            generators = (photo_generator(self.dataset.seed, epoch, row) for epoch, row in keys)
            changes = [draw_change(settings, generator) for generator in generators]
            rgb_u8 = augment_batch(rgb_u8.permute(0, 3, 1, 2), changes).permute(0, 2, 3, 1)
        images = standardize_batch(rgb_u8, self.dataset.crops.preprocessing)
        labels, rows = (column.to(self.device, non_blocking=True) for column in (batch.labels, batch.rows))
        return NetworkBatch(images, labels, rows)


def standardize_batch(rgb_u8: UInt8[Tensor, "n s s 3"], preprocessing: Preprocessing) -> Float32[Tensor, "n 3 s s"]:
    """What `faces.tensor.standardize` computes, to the bit, on the tensor's device; channels last in memory."""
    mean, std = _mean_and_std(preprocessing.mean, preprocessing.std, rgb_u8.device)
    pixels = rgb_u8 if preprocessing.color_order == "RGB" else rgb_u8.flip(-1)
    return pixels.float().sub_(mean).div_(std).permute(0, 3, 1, 2)


@lru_cache(maxsize=8)  # a transfer in every batch would hold a GPU up
def _mean_and_std(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Of values in [0, 255]."""
    return torch.tensor(mean, device=device) * 255, torch.tensor(std, device=device) * 255


def _keep_batch(batch: Batch | FamiliarError) -> Batch | FamiliarError:
    return batch
