"""Compare `familiar embed` on files with ONNX Runtime on tensors in memory, alternately in one process.

    embedding.py [--sides 224 112] [--photos 1920] [--rounds 7] [--large 24]

Crops are JPEG files of the network's input size; the network has random weights. Also reports the speed with photos of
12 megapixels, and the share of the processor's time that their decoding takes.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import cv2
import numpy as np
import onnx
import onnxruntime as ort
import torch

from familiar.conversion.pixel_input import take_pixels
from familiar.core.calibration import Calibration, Threshold
from familiar.core.types import Photo
from familiar.datasets.synthetic import SyntheticPhoto
from familiar.embedding.bundle import BundleMetadata, serialize_bundle
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from familiar.export.onnx import onnx_bytes
from familiar.models.catalog import network_spec
from familiar.photos.decoding import load_photo
from familiar.photos.preprocessing import Preprocessing

BATCH_SIZE = 32
LARGE_PX = (4000, 3000)
NETWORK, EMBEDDING_DIM = "mobilenetv3_small_100", 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sides", type=int, nargs="+", default=[224, 112])
    parser.add_argument("--photos", type=int, default=1920)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--large", type=int, default=24)
    options = parser.parse_args()
    print(f"onnxruntime {ort.__version__}, {os.cpu_count()} cores, batches of {BATCH_SIZE} in memory")
    with tempfile.TemporaryDirectory() as folder:
        for side in options.sides:
            embedder = Embedder(make_bundle(side, Path(folder) / f"{side}.onnx"))
            crops = [
                write(SyntheticPhoto("cats", row, 0, size_px=side).draw(), folder, f"{side} {row}.jpg")
                for row in range(options.photos)
            ]
            compare(embedder, crops, side, options.rounds)
            large = [write(enlarged(row), folder, f"large {row}.jpg") for row in range(options.large)]
            decode_share(embedder, large, side, options.rounds)


def make_bundle(side: int, path: Path) -> Path:
    torch.manual_seed(0)
    network = network_spec(NETWORK).build(side, EMBEDDING_DIM, 0.0)
    threshold = Threshold(similarity=0.5, far=0.0, tar=1.0)
    metadata = BundleMetadata(
        space_id="random",
        embedding_dim=EMBEDDING_DIM,
        preprocessing=Preprocessing(size_px=side, resize_px=side),
        calibration=Calibration(threshold, threshold, threshold, 20.0, -10.0, 0.0, 1, 1),
        prefixes=(EMBEDDING_DIM,),
        recipe="none",
        network=NETWORK,
        precision="float32",
        trained_on={},
        results={},
        parity={},
        license="Apache-2.0",
    )
    model = onnx.load_from_string(onnx_bytes(network, side))
    take_pixels(model, metadata.preprocessing)
    path.write_bytes(serialize_bundle(model.SerializeToString(), metadata))
    return path


def compare(embedder: Embedder, crops: list[Path], side: int, rounds: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (BATCH_SIZE, side, side, 3), dtype=np.uint8)
    session = ort.InferenceSession(embedder.bundle.onnx, providers=["CPUExecutionProvider"])

    def onnx_runtime() -> None:
        for _ in range(len(crops) // BATCH_SIZE):
            session.run(None, {session.get_inputs()[0].name: pixels})

    def familiar() -> None:
        embedded = embed_photos(embedder, crops)
        assert len(embedded.rows) == len(crops)

    speeds = alternate({"onnx_runtime": onnx_runtime, "familiar": familiar}, rounds, len(crops))
    ratio = median(files / tensors for files, tensors in zip(speeds["familiar"], speeds["onnx_runtime"], strict=True))
    print(
        f"{side} px: embedding files {median(speeds['familiar']):.0f} photos/s, "
        f"ONNX Runtime alone {median(speeds['onnx_runtime']):.0f}, ratio {ratio:.2f}",
        flush=True,
    )


def decode_share(embedder: Embedder, photos: list[Path], side: int, rounds: int) -> None:
    """Compare CPU times rather than wall times, because decoding and the network run in parallel."""
    cpu: dict[str, list[float]] = {"decode": [], "all": []}

    def decode() -> None:
        started = time.process_time()
        for photo in photos:
            load_photo(photo, min_side_px=side)
        cpu["decode"].append(time.process_time() - started)

    def embed() -> None:
        started = time.process_time()
        embed_photos(embedder, photos)
        cpu["all"].append(time.process_time() - started)

    speeds = alternate({"decode": decode, "embed": embed}, rounds, len(photos))
    print(
        f"{side} px, photos of 12 megapixels: {median(speeds['embed']):.1f} photos/s, decoding takes "
        f"{median(cpu['decode']) / median(cpu['all']):.0%} of the processor's time",
        flush=True,
    )


def alternate(jobs: dict[str, Callable[[], None]], rounds: int, photos: int) -> dict[str, list[float]]:
    """Run the jobs alternately; return photos a second of each job in each round, after a warm-up round."""
    speeds: dict[str, list[float]] = {name: [] for name in jobs}
    for round_number in range(rounds + 1):
        for name, job in jobs.items():
            started = time.perf_counter()
            job()
            if round_number:
                speeds[name].append(photos / (time.perf_counter() - started))
    return speeds


def enlarged(row: int) -> Photo:
    drawn = SyntheticPhoto("cats", row, 0, size_px=512).draw()
    rgb_u8 = cv2.resize(drawn.rgb_u8, LARGE_PX, interpolation=cv2.INTER_CUBIC)
    grain = np.random.default_rng(row).integers(-6, 7, rgb_u8.shape)  # camera noise, without which JPEG decodes faster
    return Photo(np.clip(rgb_u8 + grain, 0, 255).astype(np.uint8), "large", LARGE_PX)


def write(photo: Photo, folder: str, name: str, quality: int = 90) -> Path:
    path = Path(folder) / name
    cv2.imwrite(str(path), photo.rgb_u8[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])
    return path


if __name__ == "__main__":
    main()
