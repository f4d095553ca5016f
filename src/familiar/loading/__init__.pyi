from .augment.settings import Augmentation
from .batches import PhotoBatches
from .cache import CropCache
from .crops import read_table
from .dataset import FaceDataset
from .downloads import download_lfw, download_mnist
from .sampler import IdentityBatches, ShuffledBatches

__all__ = [
    "Augmentation",
    "CropCache",
    "FaceDataset",
    "IdentityBatches",
    "PhotoBatches",
    "ShuffledBatches",
    "download_lfw",
    "download_mnist",
    "read_table",
]
