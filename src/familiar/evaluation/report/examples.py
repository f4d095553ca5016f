"""What the report shows of the photos themselves: neighbors, worst mistakes, and whom the model fails."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int64

from familiar.core.calibration import Calibration
from familiar.core.terminal_text import printable
from familiar.datasets.folders import IdentityTable
from familiar.evaluation.context import SEED, EvaluationContext
from familiar.evaluation.plots.photos import Pixels, example_queries, read_tiles
from familiar.metrics.calibration import ProbabilityCurve
from familiar.metrics.mistakes import Mistakes, worst_mistakes, worst_of_pairs
from familiar.neighbors.brute_force import nearest_neighbors

QUERIES, NEIGHBORS = 10, 5
MISTAKES = 12
FAILING = 8  # identities named


@dataclass(frozen=True, eq=False)
class Neighbors:
    """The rows nearest to each query, how similar they are, and whether they are of its identity."""

    queries: Int64[np.ndarray, " q"]
    found: Int64[np.ndarray, "q k"]
    similarity: Float32[np.ndarray, "q k"]
    right: Bool[np.ndarray, "q k"]


@dataclass(frozen=True)
class Failing:
    """`missed` of an identity's `photos` find a stranger first, most often `taken_for`."""

    identity: str
    photos: int
    missed: int
    taken_for: str


@dataclass(frozen=True, eq=False)
class Evidence:
    """`failing`: the worst first; `faultless` of `searched` identities miss nobody. What was not asked for is None."""

    table: IdentityTable
    tiles: dict[int, Pixels | None]
    neighbors: Neighbors | None = None
    mistakes: Mistakes | None = None
    failing: tuple[Failing, ...] = ()
    faultless: int = 0
    searched: int = 0
    probability: ProbabilityCurve | None = None


def gather(measured: EvaluationContext, results: dict[str, Any]) -> Evidence:
    """Everything shown of single photos, for the suites that were asked for."""
    neighbors = _neighbors(measured) if results.get("retrieval") else None
    mistakes = _mistakes(measured) if "verification" in results else None
    rows: list[int] = []
    if neighbors is not None:
        rows += [*neighbors.queries.tolist(), *neighbors.found.ravel().tolist()]
    if mistakes is not None:
        rows += [
            row
            for pairs in (mistakes.strangers, mistakes.selves)
            for row in (*pairs.left.tolist(), *pairs.right.tolist())
        ]
    failing, faultless, searched = _failing(measured) if results.get("retrieval") else ((), 0, 0)
    return Evidence(
        measured.table,
        read_tiles(rows, measured.crop),
        neighbors,
        mistakes,
        failing,
        faultless,
        searched,
        _probability(measured.embedder.metadata.calibration),
    )


def identity_name(table: IdentityTable, label: int) -> str:
    """ROOT/IDENTITY, or IDENTITY alone where there is one root; to be shown."""
    several = len({whole.partition("/")[0] for whole in table.names}) > 1
    whole = table.names[label]
    return printable(whole if several else whole.partition("/")[2] or whole)


def photo_file(table: IdentityTable, row: int) -> str:
    """The photo's own name; to be shown."""
    return printable(table.photos[row].name.rpartition("/")[2])


def wilson_low(missed: int, photos: int) -> float:
    """The least rate that so many misses speak for, at 95 % (Wilson 1927): few photos prove little."""
    z, rate = 1.96, missed / photos
    spread = z * np.sqrt(rate * (1 - rate) / photos + z**2 / (4 * photos**2))
    return float((rate + z**2 / (2 * photos) - spread) / (1 + z**2 / photos))


def _probability(calibration: Calibration) -> ProbabilityCurve | None:
    if calibration.slope is None or calibration.intercept is None:
        return None
    return ProbabilityCurve(calibration.slope, calibration.intercept)


def _neighbors(measured: EvaluationContext) -> Neighbors:
    table = measured.table
    queries = example_queries(table.labels, QUERIES, SEED)
    found, similarity = nearest_neighbors(measured.embeddings, min(NEIGHBORS, len(table) - 1), queries)
    return Neighbors(queries, found, similarity, table.labels[found] == table.labels[queries][:, None])


def _mistakes(measured: EvaluationContext) -> Mistakes:
    if measured.pairs is not None:
        return worst_of_pairs(measured.embeddings, measured.pairs, MISTAKES)
    return worst_mistakes(measured.embeddings, measured.labels, MISTAKES)


def _failing(measured: EvaluationContext) -> tuple[tuple[Failing, ...], int, int]:
    """The identities that fail most, how many never do, and how many were searched for."""
    ranked, table = measured.ranked, measured.table
    missed_queries = ranked.first_match_rank > 1
    asked = np.bincount(ranked.identity, minlength=len(table.names))
    missed = np.bincount(ranked.identity[missed_queries], minlength=len(table.names))
    worst = sorted(
        np.flatnonzero(missed).tolist(), key=lambda label: -wilson_low(int(missed[label]), int(asked[label]))
    )[:FAILING]
    failing = tuple(
        Failing(
            identity_name(table, label),
            int(asked[label]),
            int(missed[label]),
            _taken_for(measured, ranked.query[missed_queries & (ranked.identity == label)]),
        )
        for label in worst
    )
    return failing, int(np.count_nonzero((asked > 0) & (missed == 0))), int(np.count_nonzero(asked))


def _taken_for(measured: EvaluationContext, rows: Int64[np.ndarray, " k"]) -> str:
    """The stranger that stands first most often; a photo of one's own that ties with it does not count."""
    depth = min(int(measured.table.photos_per_identity.max()) + 1, len(measured.table) - 1)
    found, _ = nearest_neighbors(measured.embeddings, depth, rows)
    strangers: Sequence[int] = [
        next((label for label in measured.labels[near].tolist() if label != own), own)
        for near, own in zip(found, measured.labels[rows].tolist(), strict=True)
    ]
    return identity_name(measured.table, Counter(strangers).most_common(1)[0][0])
