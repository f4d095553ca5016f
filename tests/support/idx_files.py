"""Small idx files in MNIST's layout, for tests."""

import gzip
import struct
from pathlib import Path

import numpy as np


def idx_bytes(array: np.ndarray) -> bytes:
    """Format an idx file: two zeros, 8 for unsigned bytes, the number of dimensions; big-endian sizes; the values."""
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_mnist(folder: Path, counts: dict[str, int], *, packed: bool = True, side: int = 28) -> Path:
    """Write the four files with `counts` images of "train" and "t10k"; label i % 10, random pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in counts.items():
        labels = (np.arange(count) % 10).astype(np.uint8)
        images = np.random.default_rng(count).integers(0, 256, (count, side, side), np.uint8)
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            content = idx_bytes(array)
            path = folder / f"{part}-{name}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(content, mtime=0) if packed else content)
    return folder
