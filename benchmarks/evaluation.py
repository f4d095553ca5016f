"""Measure seconds and peak memory of retrieval, verification over all pairs and triplets, on many embeddings.

Usage: evaluation.py [ROWS...] [--peer PML] [--peer scikit-learn] [--repeats N]

128-d, five photos per identity. Every measurement runs in a process of its own, so that peaks do not mix; embeddings
are drawn and modules imported before the clock starts. Peers alternate with ours: PyTorch Metric Learning's
AccuracyCalculator (precision@1, MRR, mAP@R; with its own torch search, since faiss is not installed) and scikit-learn's
`roc_auc_score` over all pairs, only once, since it needs 80 bytes per pair.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from familiar.core.blockwise import similarities, unit_rows
from familiar.core.vectors import normalize
from familiar.metrics.retrieval import rank_queries, summarize
from familiar.metrics.roc import pair_totals, roc_counts_all_pairs
from familiar.metrics.triplets import all_triplets
from familiar.metrics.verification import verification_metrics

DIMENSIONS = 128
PHOTOS_PER_IDENTITY = 5

Measurement = dict[str, dict[str, Any]]
T = TypeVar("T")


def draw_embeddings(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw unit rows around one direction per identity, with enough noise that the metrics are not trivial."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(rows // PHOTOS_PER_IDENTITY), PHOTOS_PER_IDENTITY)
    centers = generator.normal(size=(rows // PHOTOS_PER_IDENTITY, DIMENSIONS)).astype(np.float32)
    noise = generator.normal(size=(rows, DIMENSIONS)).astype(np.float32)
    return normalize(centers[labels] + 1.6 * noise), labels


def timed(work: Callable[[], T]) -> tuple[T, tuple[float, float]]:
    """Return the result of `work`, its wall-clock seconds and its CPU seconds of all threads."""
    clock, processor = time.perf_counter(), time.process_time()
    result = work()
    return result, (time.perf_counter() - clock, time.process_time() - processor)


def ours(embeddings: np.ndarray, labels: np.ndarray) -> Measurement:
    ranked, ranking = timed(lambda: rank_queries(embeddings, labels))
    triplets, comparing = timed(lambda: all_triplets(embeddings, labels, ranked))
    verified, verifying = timed(lambda: verification_metrics(roc_counts_all_pairs(embeddings, labels)))
    averages = summarize(ranked)
    figures = {
        "recall@1": averages.recall_at_k[1],
        "MRR": averages.mrr,
        "mAP@R": averages.map_at_r,
        "violations": triplets.violation_rate,
        "margin": triplets.average_margin,
        "AUC": verified.auc,
    }
    times = {"retrieval": ranking, "triplets": comparing, "verification": verifying}
    return {"times": times, "figures": figures}


def metric_learning(embeddings: np.ndarray, labels: np.ndarray) -> Measurement:
    import torch
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import CustomKNN

    calculator = AccuracyCalculator(
        include=("precision_at_1", "mean_reciprocal_rank", "mean_average_precision_at_r"),
        k="max_bin_count",  # its fastest; its MRR then ends at rank 9
        device=torch.device("cpu"),
        knn_func=CustomKNN(CosineSimilarity(), batch_size=1000),
    )
    accuracies, calculating = timed(lambda: calculator.get_accuracy(embeddings, labels))
    figures = {"recall@1": accuracies["precision_at_1"], "mAP@R": accuracies["mean_average_precision_at_r"]}
    return {"times": {"retrieval": calculating}, "figures": figures}


def scikit_learn(embeddings: np.ndarray, labels: np.ndarray) -> Measurement:
    from sklearn.metrics import roc_auc_score

    rows = unit_rows(embeddings)
    total = sum(pair_totals(labels))
    scores, same = np.empty(total, np.float32), np.empty(total, bool)
    end = 0
    for row in range(len(rows) - 1):
        part = slice(end, end + len(rows) - row - 1)
        scores[part] = similarities(rows[row : row + 1], rows[row + 1 :])[0]
        same[part] = labels[row] == labels[row + 1 :]
        end = part.stop
    auc, scoring = timed(lambda: float(roc_auc_score(same, scores)))
    return {"times": {"verification": scoring}, "figures": {"AUC": auc}}


MEASUREMENTS: dict[str, Callable[[np.ndarray, np.ndarray], Measurement]] = {
    "ours": ours,
    "PML": metric_learning,
    "scikit-learn": scikit_learn,
}


def measure_in_process(name: str, rows: int) -> Measurement:
    command = [sys.executable, str(Path(__file__).resolve()), str(rows), "--only", name]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def measure(rows: int, repeats: int, peers: list[str]) -> None:
    """Measure ours and the peers in turn and print a line each; then the ratios of their times."""
    by_name: dict[str, list[Measurement]] = {}
    for turn in range(repeats):
        for name in ["ours", *peers]:
            if turn == 0 or name != "scikit-learn":
                by_name.setdefault(name, []).append(measure_in_process(name, rows))
    totals = {name: show(name, rows, measurements) for name, measurements in by_name.items()}
    for name in peers:
        clock, processor = totals[name] / totals["ours"]
        print(f"{rows:,}: {name} takes {clock:.1f} times as long as all of ours, {processor:.1f} of the processor")


def show(name: str, rows: int, measurements: list[Measurement]) -> np.ndarray:
    """Print a line of the table and return the total (seconds, CPU seconds)."""
    parts = {part: np.median([run["times"][part] for run in measurements], axis=0) for part in measurements[0]["times"]}
    total = np.sum(list(parts.values()), axis=0)
    peak = max(run["peak"]["GB"] for run in measurements)
    figures = ", ".join(f"{figure} {value:.9f}" for figure, value in measurements[0]["figures"].items())
    print(
        f"| {rows:,} | {sum(pair_totals(np.arange(rows) // PHOTOS_PER_IDENTITY)):,} | {name} | "
        + ", ".join(f"{part} {clock:.2f} s" for part, (clock, _) in parts.items())
        + f" | {total[0]:.2f} s | {total[1]:.2f} s | {peak:.2f} GB | {figures} |",
        flush=True,
    )
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=int, nargs="*", default=[20_000])
    parser.add_argument(
        "--peer", choices=[name for name in MEASUREMENTS if name != "ours"], action="append", default=[]
    )
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--only", choices=MEASUREMENTS, help="measure this alone, in this process, and print JSON")
    arguments = parser.parse_args()
    if not arguments.only:
        print("| rows | pairs | | parts | total | CPU time | peak memory | figures |")
        print("|---|---|---|---|---|---|---|---|")
    for rows in arguments.rows:
        if arguments.only:
            measurement = MEASUREMENTS[arguments.only](*draw_embeddings(rows))
            peak = {"GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6}
            print(json.dumps(measurement | {"peak": peak}))
        else:
            measure(rows, arguments.repeats, arguments.peer)


if __name__ == "__main__":
    main()
