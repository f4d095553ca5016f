"""Time losses of pairs and triplets against pytorch-metric-learning (PML), forward and backward.

    losses.py [--sizes 120 520 1800] [--rounds 9] [--memory] [--growth] [--harmonic] [--compile]

40 photos per identity, 128 components; both take turns in one process. Prints medians of both, their ratio, and by how
much the values differ; on a GPU if there is one. `--memory`: peak memory of each in its own process, minus that of a
small batch. `--growth`: time from 256 to 8,192 rows and the exponent. `--harmonic`: the time that prefixes add to a
training step of MobileNetV3-Small.
"""

import argparse
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import torch
from pytorch_metric_learning import distances, losses, miners
from torch import Tensor
from torch.nn.functional import normalize

from familiar.losses import (
    BatchAll,
    BatchHard,
    CirclePairs,
    HardNegative,
    HarmonicLoss,
    SemiHard,
)
from familiar.models.catalog import network_spec

Loss = Callable[[Tensor, Tensor], Tensor]
PHOTOS_EACH, COMPONENTS = 40, 128
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def pairs_of_losses() -> dict[str, tuple[Loss, Loss]]:
    """Ours and theirs, the same triplets and the same mean."""
    squared = distances.LpDistance(power=2)
    triplets = losses.TripletMarginLoss(margin=0.2, distance=squared)

    def mined(miner: miners.BaseMiner) -> Loss:
        return lambda embeddings, labels: triplets(embeddings, labels, miner(embeddings, labels))

    semi_hard = miners.TripletMarginMiner(margin=0.2, type_of_triplets="semihard", distance=squared)
    hard_negative = miners.BatchEasyHardMiner(pos_strategy="all", neg_strategy="hard", distance=squared)
    return {
        "batch-all": (BatchAll(), triplets),
        "semi-hard": (SemiHard(), mined(semi_hard)),
        "batch-hard": (BatchHard(), mined(miners.BatchHardMiner(distance=squared))),
        "hard negative": (HardNegative(), mined(hard_negative)),
        "circle": (CirclePairs(), losses.CircleLoss(m=0.25, gamma=256)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[120, 520, 1800])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--harmonic", action="store_true")
    parser.add_argument("--compile", action="store_true", help="Ours through torch.compile.")
    parser.add_argument("--peak-of", nargs=3, metavar=("LOSS", "SIDE", "ROWS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak_of:
        name, side, rows = options.peak_of
        print(peak_bytes(name, int(side), int(rows)))
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {DEVICE}", flush=True)
    if options.growth:
        growth(options.rounds)
    elif options.harmonic:
        harmonic(options.rounds)
    elif options.memory:
        memory(options.sizes)
    else:
        against_peer(options.sizes, options.rounds, options.compile)


def batch_of(rows: int) -> tuple[Tensor, Tensor]:
    """Draw unit rows around a center for each identity, like those of a half-trained network."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(rows) // PHOTOS_EACH
    centers = torch.randn(int(labels.max()) + 1, COMPONENTS, generator=generator)
    noise = torch.randn(rows, COMPONENTS, generator=generator)
    return normalize(centers[labels] + 1.2 * noise).to(DEVICE), labels.to(DEVICE)


def once(loss: Loss, embeddings: Tensor, labels: Tensor) -> tuple[float, float]:
    """Return the seconds of forward and backward pass, and the value of the loss."""
    leaf = embeddings.clone().requires_grad_()
    wait()
    started = time.perf_counter()
    value = loss(leaf, labels)
    value.backward()
    wait()
    return time.perf_counter() - started, value.item()


def wait() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def against_peer(sizes: list[int], rounds: int, compiled: bool) -> None:
    for rows in sizes:
        batch = batch_of(rows)
        for name, (ours, peer) in pairs_of_losses().items():
            loss: Loss = torch.compile(ours) if compiled else ours
            once(loss, *batch), once(peer, *batch)
            # Losses that take a millisecond are timed more often, so that one interruption does not matter.
            repeats = rounds if rows > 1000 else 5 * rounds
            seconds = [(once(loss, *batch)[0], once(peer, *batch)[0]) for _ in range(repeats)]
            our_time, peer_time = (1e3 * median(column) for column in zip(*seconds, strict=True))
            ratio = median(peer_seconds / our_seconds for our_seconds, peer_seconds in seconds)
            difference = abs(once(loss, *batch)[1] / once(peer, *batch)[1] - 1)
            print(
                f"{rows:5d} rows  {name:14} ours {our_time:8.2f} ms  PML {peer_time:8.2f} ms  "
                f"{ratio:6.1f} times as fast  values differ by {difference:.0e}",
                flush=True,
            )


def memory(sizes: list[int]) -> None:
    for rows in sizes:
        for name in pairs_of_losses():
            peaks = [
                int(
                    subprocess.run(
                        [sys.executable, __file__, "--peak-of", name, str(side), str(rows)],
                        capture_output=True,
                        text=True,
                        check=True,
                    ).stdout
                )
                for side in (0, 1)
            ]
            print(
                f"{rows:5d} rows  {name:14} ours {peaks[0] / 2**20:7.0f} MiB  PML {peaks[1] / 2**20:7.0f} MiB  "
                f"ratio {peaks[0] / max(peaks[1], 1):.3f}",
                flush=True,
            )


def peak_bytes(name: str, side: int, rows: int) -> int:
    """Measure how much a loss of this many rows raises the peak memory, after a small one has loaded all code."""
    loss = pairs_of_losses()[name][side]
    once(loss, *batch_of(80))
    if DEVICE.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        once(loss, *batch_of(rows))
        return torch.cuda.max_memory_allocated() - before
    batch = batch_of(rows)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    once(loss, *batch)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


def growth(rounds: int) -> None:
    sizes = [256, 512, 1024, 2048, 4096, 8192]
    for name, (ours, _) in pairs_of_losses().items():
        milliseconds: list[float] = []
        for rows in sizes:
            batch = batch_of(rows)
            once(ours, *batch)
            milliseconds.append(1e3 * median(once(ours, *batch)[0] for _ in range(rounds)))
        # Slope of the logarithms over the upper half, where the constant cost of a call no longer matters.
        steps = len(sizes) // 2
        exponent = math.log2(milliseconds[-1] / milliseconds[-1 - steps]) / steps
        times = "  ".join(f"{rows}: {ms:.1f}" for rows, ms in zip(sizes, milliseconds, strict=True))
        print(f"{name:14} ms at {times};  exponent {exponent:.2f} from {sizes[-1 - steps]} on", flush=True)
    print(f"peak memory of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


def harmonic(rounds: int) -> None:
    """Compare the difference of two losses of a millisecond each with a training step of hundreds."""
    rows, side = 120, 112
    network = network_spec("mobilenetv3_small_100").build(side, 256, 0.0).to(DEVICE).train()
    network = network.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(network.parameters())
    images = torch.randn(rows, 3, side, side, device=DEVICE).to(memory_format=torch.channels_last)
    labels = (torch.arange(rows) // 4).to(DEVICE)
    plain, nested = BatchAll(), HarmonicLoss(BatchAll(), (64, 128, 256), (0.2, 0.3, 0.5))
    embeddings = network(images).detach()

    def step() -> float:
        wait()
        started = time.perf_counter()
        optimizer.zero_grad()
        nested(network(images), labels).backward()
        optimizer.step()
        wait()
        return time.perf_counter() - started

    step()
    extra: list[float] = []
    whole: list[float] = []
    for _ in range(rounds):
        extra += [once(nested, embeddings, labels)[0] - once(plain, embeddings, labels)[0] for _ in range(9)]
        whole.append(step())
    print(
        f"three prefixes, {rows} rows: {1e3 * median(extra):.2f} ms more in a step of {1e3 * median(whole):.0f} ms, "
        f"{median(extra) / median(whole):.2%}"
    )


if __name__ == "__main__":
    main()
