"""Photos as small files that are taken along to a machine with a GPU: WebP, many in one file."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
from jaxtyping import UInt8


def write_pack(file: Path, photos: Iterable[tuple[str, UInt8[np.ndarray, "h w 3"]]], quality: int) -> int:
    """Write photos, each with a name, and return how many."""
    names: list[str] = []
    parts: list[np.ndarray] = []
    for name, rgb_u8 in photos:
        done, encoded = cv2.imencode(".webp", rgb_u8[..., ::-1], [cv2.IMWRITE_WEBP_QUALITY, quality])
        assert done, name
        names.append(name)
        parts.append(encoded)
    file.parent.mkdir(parents=True, exist_ok=True)
    ends = np.cumsum([len(part) for part in parts])
    with file.open("wb") as output:
        np.savez(output, names=np.array(names), ends=ends, encoded=np.concatenate(parts))
    return len(names)


def read_pack(file: Path, size_px: int, threads: int = 8) -> tuple[list[str], UInt8[np.ndarray, "n s s 3"]]:
    """Read the names and photos of a pack; photos of another size are resized."""
    with np.load(file) as arrays:
        names, ends, encoded = arrays["names"].tolist(), arrays["ends"], arrays["encoded"]
    photos = np.empty((len(names), size_px, size_px, 3), np.uint8)

    def decode(row: int) -> None:
        bgr_u8 = cv2.imdecode(encoded[ends[row - 1] if row else 0 : ends[row]], cv2.IMREAD_COLOR)
        if bgr_u8.shape[:2] != (size_px, size_px):
            smaller = size_px < bgr_u8.shape[0]
            bgr_u8 = cv2.resize(
                bgr_u8, (size_px, size_px), interpolation=cv2.INTER_AREA if smaller else cv2.INTER_LINEAR
            )
        photos[row] = bgr_u8[..., ::-1]

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(decode, range(len(names))))
    return names, photos


def labels_of(names: Sequence[str]) -> np.ndarray:
    """Return a number for each individual: names are COLLECTION/IDENTITY/PHOTO."""
    identities = [name.rpartition("/")[0] for name in names]
    return np.unique(identities, return_inverse=True)[1].astype(np.int64)
