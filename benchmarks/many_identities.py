"""Measure the memory of each process of a training step with very many identities (Partial FC, divided among ranks).

    many_identities.py [--identities 1000000] [--ranks 1 2 4]

Each rank embeds nothing: random unit rows take the place of the network, so that only the classifier is measured.
Printed are the sizes of the centers and of the optimizer's moments on a rank, the growth of its peak memory, and the
median seconds of a step. All numbers of ranks must end at the same loss.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from statistics import median

import torch
from torch.nn.functional import normalize

from familiar.losses import PartialFC, gather_batch
from familiar.training.ranks import join_ranks

DIM, BATCH, STEPS, RATE = 128, 256, 5, 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--identities", type=int, default=1_000_000)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    options = parser.parse_args()
    if "RANK" in os.environ:
        step_on_rank(options.identities)
        return
    print(f"{options.identities:,} identities, {DIM} components, batch {BATCH}, rate {RATE}, torch {torch.__version__}")
    for ranks in options.ranks:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        command = [sys.executable, *launcher, __file__, "--identities", str(options.identities)]
        done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, check=True)
        print(done.stdout.decode().strip())


def step_on_rank(identities: int) -> None:
    with join_ranks() as ranks:
        before = peak_mb()
        torch.manual_seed(0)
        loss = PartialFC(DIM, identities, rate=RATE)
        centers = loss.centers
        optimizer = torch.optim.SparseAdam([centers], lr=1e-3)
        seconds: list[float] = []
        for step in range(STEPS):
            generator = torch.Generator().manual_seed(step)
            rows = normalize(torch.randn(BATCH, DIM, generator=generator))
            labels = torch.randint(identities, (BATCH,), generator=generator)
            began = time.perf_counter()
            joined = gather_batch(ranks.share(rows).requires_grad_(), ranks.share(labels))
            torch.manual_seed(step)  # so that all draw the same classes
            value = loss(*joined)
            value.backward()
            optimizer.step()
            optimizer.zero_grad()
            seconds.append(time.perf_counter() - began)
        stored_mb = 3 * centers.numel() * centers.element_size() / 1e6
        reports = ranks.gather((stored_mb, peak_mb() - before, median(seconds)))
        if ranks.is_main:
            largest = [max(column) for column in zip(*reports, strict=True)]
            print(
                f"{ranks.size} ranks: centers and moments {largest[0]:5.0f} MB per rank, peak {largest[1]:5.0f} MB, "
                f"{largest[2]:.2f} s a step, loss {value.item():.6f}"
            )
        ranks.wait()


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    main()
