"""A torch dataset of labeled photos: crops by key, optionally augmented."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor
from torch.utils.data import Dataset, get_worker_info

from familiar.core.errors import FamiliarError
from familiar.datasets.identity_table import IdentityTable
from familiar.loading.augment.custom import CUSTOM_STREAM, apply_function, import_function
from familiar.loading.augment.pipeline import augment, photo_generator
from familiar.loading.augment.settings import Augmentation
from familiar.loading.cache import Pixels
from familiar.loading.crops import Crops
from familiar.loading.processes import end_with_parent


class PhotoKey(NamedTuple):
    """What determines an augmented crop, together with the seed.

    Attributes:
        epoch: counted from 0.
        row: of the photo in the dataset.
        repeat: 0 where a photo occurs first in a batch; each time after that one more, so it is augmented anew.
    """

    epoch: int
    row: int
    repeat: int = 0


class Batch(NamedTuple):
    """Augmented crops that are not yet standardized, with their labels and rows of the dataset."""

    rgb_u8: UInt8[Tensor, "n s s 3"]
    labels: Int64[Tensor, " n"]
    rows: Int64[Tensor, " n"]


class FaceDataset(Dataset[tuple[Pixels, int]]):
    """Dataset with an item (crop, label) for each `PhotoKey`. It depends only on the key, so workers need no epoch.

    Args:
        table: photos with their identities.
        crops: the crop of each row of the table.
        augmentation: None for none.
        whole: the crop of each row that is augmented, if it is another than in `crops`; the result has the size of
            `crops`.
        seed: of the augmentation; together with the key it determines how a crop is changed.

    Raises:
        ValueError: there are not as many crops as photos.
        BadRecipe: the custom function of the augmentation cannot be imported.
    """

    def __init__(
        self,
        table: IdentityTable,
        crops: Crops,
        augmentation: Augmentation | None = None,
        seed: int = 0,
        whole: Crops | None = None,
    ) -> None:
        for rows in (crops, whole):
            if rows is not None and len(table) != len(rows):
                raise ValueError(f"{len(rows)} crops for {len(table)} photos")
        if augmentation is not None and augmentation.custom:
            import_function(augmentation.custom)  # the folder it is in becomes known to the loading processes
        self.table = table
        self.crops = crops
        self.whole = whole
        self.labels = table.labels
        self.augmentation = augmentation
        self.seed = seed

    def __len__(self) -> int:
        return len(self.labels)

    def crop(self, row: int) -> Pixels:
        """Return a crop without augmentation.

        Args:
            row: of the dataset.
        """
        return self.crops[row]

    def __getitem__(self, key: PhotoKey) -> tuple[Pixels, int]:
        settings, label = self.augmentation, int(self.labels[key.row])
        if settings is None:
            return self.crop(key.row), label
        rgb_u8 = self.crop(key.row) if self.whole is None else self.whole[key.row]
        rgb_u8 = augment(rgb_u8, settings, photo_generator(self.seed, *key), self.crops.preprocessing.size_px)
        if settings.custom:
            rgb_u8 = apply_function(rgb_u8, settings.custom, photo_generator(self.seed, *key, stream=CUSTOM_STREAM))
        return rgb_u8, label

    def __getitems__(self, keys: Sequence[PhotoKey]) -> Batch | FamiliarError:
        """Load a batch with as many threads as torch uses in this process.

        A FamiliarError is returned as a value, since torch would add a traceback to one raised in a worker.
        """
        side = self.crops.preprocessing.size_px
        rgb_u8 = np.empty((len(keys), side, side, 3), np.uint8)

        def load(indices: range) -> None:
            for index in indices:
                rgb_u8[index] = self[keys[index]][0]

        threads = 1 if get_worker_info() else torch.get_num_threads()
        try:
            if threads == 1:
                load(range(len(keys)))
            else:
                list(self._pool.map(load, (range(start, len(keys), threads) for start in range(threads))))
        except FamiliarError as error:
            return error
        rows = torch.tensor([key.row for key in keys])
        labels = torch.from_numpy(self.labels[rows.numpy()])
        return Batch(torch.from_numpy(rgb_u8), labels, rows)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(torch.get_num_threads())

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_pool"}


def sequential_batches(rows: Sequence[int], batch_size: int) -> list[list[PhotoKey]]:
    """Divide rows into batches in their order, with epoch 0."""
    keys = [PhotoKey(0, row) for row in rows]
    return [keys[start : start + batch_size] for start in range(0, len(keys), batch_size)]


def init_worker(_worker: int) -> None:
    """Set up a worker process to use one thread, since the processes run in parallel."""
    end_with_parent()
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
