"""Table of docs/reference/networks.md: every network's input, size, multiply-adds, file, speed in use and in training.

    networks.py [--rounds 5] [--training-seconds 6] [--write docs/reference/networks.csv] [NAME ...]

A file is the bundle's model as `familiar export` writes it, float32 and float16, of random weights. Milliseconds are
of one photo in ONNX Runtime on one thread, medians over rounds in which all networks take turns, with the ratio to
the pet embedder's network in the same rounds. Training is whole steps (forward, ArcFace over 1,000 classes,
backward, AdamW) on tensors in memory, with as many threads as torch takes.
"""

import argparse
import csv
import time
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from statistics import median

import numpy as np
import onnxruntime as ort
import torch
from torch import nn

from familiar.core.errors import FamiliarError
from familiar.core.files import write_atomically
from familiar.export.onnx import INPUT_NAME, onnx_bytes
from familiar.export.precision import to_float16
from familiar.losses import ArcFace
from familiar.models.catalog import NETWORKS, NetworkSpec

REFERENCE = "mobilenetv3_small_100"
CLASSES = 1000
HEAD = (
    *("network", "input", "embedding", "trained", "numbers in all", "multiply-adds", "file, float32", "float16"),
    *("ms a photo", "times the pet embedder's", "trains, photos/s"),
)


@dataclass
class Row:
    name: str
    spec: NetworkSpec
    file_bytes: int
    half_bytes: int
    milliseconds: list[float]
    training_rate: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--training-seconds", type=float, default=6.0)
    parser.add_argument("--write", type=Path, help="The CSV file from which `make docs` makes the table.")
    options = parser.parse_args()
    names = options.names or list(NETWORKS)
    if REFERENCE not in names:
        names.append(REFERENCE)
    rows, sessions = [], {}
    for name in names:
        spec = NETWORKS[name]
        torch.manual_seed(0)
        rate = training_rate(spec, options.training_seconds)
        whole = onnx_bytes(with_biases(spec.build()), spec.input_px)
        half = len(to_float16(whole))
        sessions[name] = open_session(whole)
        rows.append(Row(name, spec, len(whole), half, [], rate))
        print(f"{name}: {len(whole):,} bytes, {half:,} in float16, trains {rate:.1f} photos/s", flush=True)
    for _ in range(options.rounds):
        for row in rows:
            row.milliseconds.append(milliseconds(sessions[row.name], row.spec.input_px))
    table = StringIO()
    csv.writer(table, lineterminator="\n").writerows([HEAD, *cells(rows)])
    print(f"\ntorch {torch.__version__}, onnxruntime {ort.__version__}, {torch.get_num_threads()} threads\n")
    print(table.getvalue())
    if options.write:
        write_atomically(options.write, table.getvalue().encode())


def training_rate(spec: NetworkSpec, seconds: float) -> float:
    """Photos a second over whole steps; the batch halves until a step fits into a third of the time."""
    network = spec.build().train().to(memory_format=torch.channels_last)
    loss = ArcFace(spec.embedding_dim, CLASSES)
    learned = [each for each in [*network.parameters(), *loss.parameters()] if each.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=1e-4)
    batch_size = 64
    while True:
        images = torch.randn(batch_size, 3, spec.input_px, spec.input_px).to(memory_format=torch.channels_last)
        labels = torch.randint(CLASSES, (batch_size,))
        times: list[float] = []
        while sum(times) < seconds or len(times) < 2:
            began = time.perf_counter()
            optimizer.zero_grad()
            loss(network(images), labels).backward()
            optimizer.step()
            times.append(time.perf_counter() - began)
            if times[0] > seconds / 3 and batch_size > 4:
                break
        if len(times) > 1:
            return batch_size / median(times[1:])
        batch_size //= 2


@torch.no_grad()
def with_biases(network: nn.Module) -> nn.Module:
    """As after training: the zeros that batch norms begin with are left out of a file."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):
            module.bias.normal_(std=0.1)
    return network


def open_session(model: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def milliseconds(session: ort.InferenceSession, size_px: int) -> float:
    """Time one photo: the median over about a third of a second, at least five."""
    images = np.zeros((1, 3, size_px, size_px), np.float32)
    times: list[float] = []
    while len(times) < 5 or sum(times) < 0.3:
        began = time.perf_counter()
        session.run(None, {INPUT_NAME: images})
        times.append(time.perf_counter() - began)
    return 1000 * median(times)


def cells(rows: list[Row]) -> list[list[str]]:
    reference = next(row for row in rows if row.name == REFERENCE).milliseconds
    written = []
    for row in rows:
        size = row.spec.size()
        ratio = median(time / reference_time for time, reference_time in zip(row.milliseconds, reference, strict=True))
        written.append(
            [
                *(
                    row.name,
                    str(row.spec.input_px),
                    str(row.spec.embedding_dim),
                    f"{size.trainable:,}",
                    f"{size.total:,}",
                ),
                *(f"{size.flops / 1e6:,.1f} M", megabytes(row.file_bytes), megabytes(row.half_bytes)),
                *(f"{median(row.milliseconds):.2f}", f"{ratio:.2f}", f"{row.training_rate:,.0f}"),
            ]
        )
    return written


def megabytes(size: int) -> str:
    return f"{size / 1e6:.2f} MB" if size >= 1e6 else f"{size / 1e3:.1f} KB"


if __name__ == "__main__":
    try:
        main()
    except FamiliarError as error:
        raise SystemExit(f"networks.py: {error}") from None
