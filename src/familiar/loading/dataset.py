"""A table of labelled photos as a torch dataset: decode, crop, augment, standardise."""

import logging
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor
from torch.utils.data import Dataset

from familiar.core.errors import BadDataset, FamiliarError
from familiar.datasets.folders import IdentityTable, PhotoRef, open_photo
from familiar.faces.embedder import crop_photo
from familiar.faces.tensor import Preprocessing, standardise
from familiar.loading.augment import Augmentation, augment, photo_generator

log = logging.getLogger(__name__)

KEPT_BYTES = 256 * 2**20  # of crops, in each process that loads


class PhotoKey(NamedTuple):
    """Which photo, and in which epoch: all that an augmented crop depends on besides the seed."""

    epoch: int
    row: int


class FaceDataset(Dataset[tuple[Tensor, int]]):
    """Item: (float32 "3 s s", label) of a `PhotoKey`, or of a row where nothing is augmented.

    An item depends on its key alone, so workers need not be told of epochs. Crops are kept, before they are
    augmented, as far as `KEPT_BYTES` reach: later epochs neither decode nor draw those again.
    """

    def __init__(
        self,
        table: IdentityTable,
        preprocessing: Preprocessing,
        augmentation: Augmentation | None = None,
        seed: int = 0,
    ) -> None:
        self.table = table
        self.preprocessing = preprocessing
        self.augmentation = augmentation
        self.seed = seed
        self._kept: dict[int, np.ndarray] = {}
        self._room = KEPT_BYTES // (3 * preprocessing.size_px**2)

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, key: PhotoKey | int) -> tuple[Float32[Tensor, "3 s s"], int]:
        epoch, row = key if isinstance(key, tuple) else (0, key)
        rgb_u8 = self._kept.get(row)
        if rgb_u8 is None:
            rgb_u8 = crop_of(self.table.photos[row], self.preprocessing)
            if len(self._kept) < self._room:
                self._kept[row] = rgb_u8
        if self.augmentation is not None:
            rgb_u8 = augment(rgb_u8, self.augmentation, photo_generator(self.seed, epoch, row))
        image = standardise(rgb_u8[None], self.preprocessing)[0]
        return torch.from_numpy(image), int(self.table.labels[row])


def crop_of(photo: PhotoRef, preprocessing: Preprocessing) -> np.ndarray:
    """The photo as the network will see it in use: training photos are faces already."""
    return crop_photo(photo, preprocessing, open_photo=open_photo).rgb_u8


def without_unreadable(table: IdentityTable, preprocessing: Preprocessing) -> IdentityTable:
    """The table without the photos that cannot be decoded, each named in a warning.

    Opens every photo once: better now than in the middle of the ninth epoch. BadDataset where none is left.
    """
    readable: list[int] = []
    for row, photo in enumerate(table.photos):
        try:
            if isinstance(photo, Path):
                crop_of(photo, preprocessing)
        except FamiliarError as error:
            log.warning("skipped %s", error)
        else:
            readable.append(row)
    if not readable:
        raise BadDataset("not one of the photos can be read")
    return table if len(readable) == len(table) else table.rows(np.array(readable, np.int64))


def start_worker(_worker: int) -> None:
    """One thread per worker process: the processes are the parallelism."""
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
