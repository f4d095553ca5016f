"""Time and memory of the classifiers: each against linear + cross_entropy, and Partial FC against the full ArcFace.

    classifiers.py [--rounds 40] [--threads 2] [--device cpu] [--classes 1000 10000 100000]

First the peak memory over whole steps with the optimizer (AdamW for the full classifier, SparseAdam for the
partial one), each in its own process. Then forward + backward at 10,000 classes, 128-d: all take turns in one
process, medians of the times and of their ratios to the plain classifier in the same round. Last the whole steps,
again taking turns.
"""

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, normalize

from familiar.losses.center import CenterLoss
from familiar.losses.classifiers import ArcFace, CombinedMargin, CosFace, NormFace, Softmax, SubCenterArcFace
from familiar.losses.partial_fc import PartialFC

DIMENSIONS = 128
BATCHES = (120, 520)
MEMORY_STEPS = 5


class Plain(nn.Module):
    """The yardstick: no norms, no margin."""

    def __init__(self, embedding_dim: int, classes: int) -> None:
        super().__init__()
        self.centers = nn.Parameter(torch.randn(classes, embedding_dim) * 0.01)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(linear(embeddings, self.centers), labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--classes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {options.threads} threads, {options.device}")
    if options.device == "cpu":  # first: a process is born with its parent's peak
        for classes in options.classes:
            full, partial = (peak_mib(name, classes, options.threads) for name in ("full", "partial"))
            print(f"{classes:,} classes, peak memory of {MEMORY_STEPS} steps: full {full} MiB, partial {partial} MiB")
    for rows in BATCHES:
        ratios(rows, 10_000, options.rounds, options.device)
    for rows in BATCHES:
        for classes in options.classes:
            partial_against_full(rows, classes, options.rounds, options.device)


def drawn(rows: int, classes: int, device: str) -> tuple[Tensor, Tensor]:
    embeddings = normalize(torch.randn(rows, DIMENSIONS, device=device)).requires_grad_()
    return embeddings, torch.randint(classes, (rows,), device=device)


def ratios(rows: int, classes: int, rounds: int, device: str) -> None:
    objectives = {
        "linear + cross_entropy": Plain(DIMENSIONS, classes),
        "Softmax": Softmax(DIMENSIONS, classes),
        "NormFace": NormFace(DIMENSIONS, classes),
        "ArcFace": ArcFace(DIMENSIONS, classes),
        "ArcFace, continuous": ArcFace(DIMENSIONS, classes, branch="continuous"),
        "ArcFace, smoothing 0.1": ArcFace(DIMENSIONS, classes, label_smoothing=0.1),
        "CosFace": CosFace(DIMENSIONS, classes),
        "CombinedMargin": CombinedMargin(DIMENSIONS, classes),
        "SubCenterArcFace, 3": SubCenterArcFace(DIMENSIONS, classes),
        "PartialFC, 0.1": PartialFC(DIMENSIONS, classes),
        "CenterLoss": CenterLoss(DIMENSIONS, classes),
    }
    embeddings, labels = drawn(rows, classes, device)

    def step_of(objective: nn.Module) -> Callable[[], None]:
        objective.to(device)

        def step() -> None:
            embeddings.grad = None
            objective.zero_grad()
            objective(embeddings, labels).backward()

        return step

    steps = {name: step_of(objective) for name, objective in objectives.items()}
    seconds = by_turns(steps, rounds, device)
    plain = next(iter(seconds.values()))
    print(f"{classes:,} classes, {rows} rows, forward + backward")
    for name, times in seconds.items():
        ratio = median(seconds / reference for seconds, reference in zip(times, plain, strict=True))
        print(f"  {name:24} {median(times) * 1e3:8.2f} ms  {ratio:5.2f} x", flush=True)


def partial_against_full(rows: int, classes: int, rounds: int, device: str) -> None:
    embeddings, labels = drawn(rows, classes, device)
    steps = {name: whole_step(name, classes, embeddings, labels, device) for name in ("full", "partial")}
    seconds = by_turns(steps, rounds, device)
    ratio = median(full / partial for full, partial in zip(seconds["full"], seconds["partial"], strict=True))
    print(
        f"{classes:,} classes, {rows} rows, whole step: full {median(seconds['full']) * 1e3:.2f} ms, "
        f"partial {median(seconds['partial']) * 1e3:.2f} ms, {ratio:.1f} times as fast",
        flush=True,
    )


def whole_step(name: str, classes: int, embeddings: Tensor, labels: Tensor, device: str) -> Callable[[], None]:
    objective = {"full": ArcFace, "partial": PartialFC}[name](DIMENSIONS, classes).to(device)
    kind = {"full": torch.optim.AdamW, "partial": torch.optim.SparseAdam}[name]
    optimizer = kind(objective.parameters(), lr=1e-3)

    def step() -> None:
        embeddings.grad = None
        optimizer.zero_grad()
        objective(embeddings, labels).backward()
        optimizer.step()

    return step


def by_turns(steps: dict[str, Callable[[], None]], rounds: int, device: str) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 2):
        for name, step in steps.items():
            started = time.perf_counter()
            step()
            if device != "cpu":
                torch.cuda.synchronize()
            if turn >= 2:  # the first two warm up
                seconds[name].append(time.perf_counter() - started)
    return seconds


def peak_mib(name: str, classes: int, threads: int) -> int:
    """Above what the process held before there was a classifier."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure_peak, (name, classes, threads))


def measure_peak(name: str, classes: int, threads: int) -> int:
    torch.set_num_threads(threads)
    # A small one first: libraries and threads come with the first product.
    whole_step(name, 100, *drawn(BATCHES[0], 100, "cpu"), "cpu")()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step = whole_step(name, classes, *drawn(BATCHES[0], classes, "cpu"), "cpu")
    for _ in range(MEMORY_STEPS):
        step()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024


if __name__ == "__main__":
    main()
