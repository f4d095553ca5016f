"""Batches of crops for the network: on its device and standardized."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor
from torch.utils.data import DataLoader

from familiar.core.errors import FamiliarError, TrainingFailed
from familiar.loading.dataset import Batch, FaceDataset, PhotoKey, init_worker
from familiar.loading.processes import SCRIPTS_NEED_A_GUARD, process_context
from familiar.photos.preprocessing import Preprocessing


class NetworkBatch(NamedTuple):
    """Standardized images, channels last in memory, with their labels and rows of the dataset."""

    images: Float32[Tensor, "n 3 s s"]
    labels: Int64[Tensor, " n"]
    rows: Int64[Tensor, " n"]


class PhotoBatches:
    """Iterable of batches on `device`.

    Args:
        dataset: the crops.
        keys: keys of each batch; iterated again for each iteration of the batches.
        device: of the network.
        workers: processes that load ahead. With 0, threads of this process load each batch before it is used,
            which is faster if the network runs on the same cores. The number does not change any pixel.

    Raises:
        TrainingFailed: while iterating, if a worker died.
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
        self._keys = _KeysFromBatch(keys)
        self._loader = DataLoader(
            dataset,
            batch_sampler=self._keys,  # pyright: ignore[reportArgumentType] - any iterable works
            collate_fn=_keep_batch,  # pyright: ignore[reportArgumentType] - batches are complete already
            num_workers=workers,
            worker_init_fn=init_worker,
            multiprocessing_context=process_context() if workers else None,
            persistent_workers=workers > 0,
            pin_memory=device.type == "cuda",
            generator=torch.Generator(),  # otherwise it would draw from the generator of dropout
        )

    def start_at(self, batch: int) -> None:
        """Let the next iterations begin with another batch than the first; those before are not loaded.

        Args:
            batch: counted from 0.
        """
        self._keys.first = batch

    def __iter__(self) -> Iterator[NetworkBatch]:
        try:
            for batch in self._loader:
                if isinstance(batch, FamiliarError):
                    raise batch
                yield self._on_device(batch)
        except (RuntimeError, ConnectionError, EOFError) as error:
            # ConnectionError and EOFError are raised if a worker died while sending.
            if isinstance(error, RuntimeError) and "DataLoader worker (pid" not in str(error):
                raise
            raise TrainingFailed(
                "a process that loads photos stopped unexpectedly, possibly for lack of memory. Use fewer workers. "
                f"{SCRIPTS_NEED_A_GUARD}"
            ) from error

    def _on_device(self, batch: Batch) -> NetworkBatch:
        rgb_u8, labels, rows = (column.to(self.device, non_blocking=True) for column in batch)
        return NetworkBatch(standardize_batch(rgb_u8, self.dataset.crops.preprocessing), labels, rows)


class _KeysFromBatch:
    """The keys of the batches from a given one on."""

    def __init__(self, keys: Iterable[Sequence[PhotoKey]]) -> None:
        self._keys = keys
        self.first = 0

    def __iter__(self) -> Iterator[Sequence[PhotoKey]]:
        return islice(iter(self._keys), self.first, None)


def standardize_batch(rgb_u8: UInt8[Tensor, "n s s 3"], preprocessing: Preprocessing) -> Float32[Tensor, "n 3 s s"]:
    """Standardize as `photos.preprocessing` does, to the bit, on the tensor's device; channels last in memory."""
    mean, std = _mean_and_std(preprocessing.mean, preprocessing.std, rgb_u8.device)
    pixels = rgb_u8 if preprocessing.color_order == "RGB" else rgb_u8.flip(-1)
    return pixels.float().sub_(mean).div_(std).permute(0, 3, 1, 2)


@lru_cache(maxsize=8)  # a transfer in every batch would stall a GPU
def _mean_and_std(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of pixels in [0, 255]."""
    return torch.tensor(mean, device=device) * 255, torch.tensor(std, device=device) * 255


def _keep_batch(batch: Batch | FamiliarError) -> Batch | FamiliarError:
    """Return a batch as it is, since the dataset collates it."""
    return batch
