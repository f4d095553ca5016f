"""Example photos of the report: nearest neighbors, worst mistakes, and the identities that fail most."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int64

from familiar.core.calibration import Calibration
from familiar.core.terminal_text import printable
from familiar.datasets.folders import IdentityTable
from familiar.evaluation.context import SEED, EvaluationContext
from familiar.evaluation.plots.photos import Pixels, example_queries, read_tiles
from familiar.evaluation.results import EvaluationResults
from familiar.metrics.mistakes import Mistakes, worst_listed_mistakes, worst_mistakes
from familiar.neighbors.brute_force import nearest_neighbors

QUERIES, NEIGHBORS = 10, 5
MISTAKES = 12
MAX_FAILING_IDENTITIES = 8


@dataclass(frozen=True, eq=False)
class Neighbors:
    """The rows nearest to each query, their similarities, and whether they are of its identity."""

    queries: Int64[np.ndarray, " q"]
    rows: Int64[np.ndarray, "q k"]
    similarity: Float32[np.ndarray, "q k"]
    correct: Bool[np.ndarray, "q k"]


@dataclass(frozen=True)
class FailingIdentity:
    """An identity of whose `photos` `missed` are nearest to another identity, most often to `confused_with`."""

    identity: str
    photos: int
    missed: int
    confused_with: str


@dataclass(frozen=True, eq=False)
class Examples:
    """Example photos and identities; None or empty if their suite was not requested.

    `tiles`: thumbnails by row. `failing`: the worst first. `identities_without_miss`: of the `searched_identities`.
    `calibration`: of the bundle; has no curve for several bundles.
    """

    table: IdentityTable
    tiles: dict[int, Pixels | None]
    calibration: Calibration
    neighbors: Neighbors | None = None
    mistakes: Mistakes | None = None
    failing: tuple[FailingIdentity, ...] = ()
    identities_without_miss: int = 0
    searched_identities: int = 0


def collect_examples(context: EvaluationContext, results: EvaluationResults) -> Examples:
    """Collect the examples of the suites that were requested."""
    neighbors = _neighbors(context) if "retrieval" in results.suites else None
    mistakes = _mistakes(context) if results.has_suite("verification") else None
    rows: list[int] = []
    if neighbors is not None:
        rows += [*neighbors.queries.tolist(), *neighbors.rows.ravel().tolist()]
    if mistakes is not None:
        rows += [
            row
            for pairs in (mistakes.negatives, mistakes.positives)
            for row in (*pairs.left.tolist(), *pairs.right.tolist())
        ]
    failing, without_miss, searched = _failing_identities(context) if "retrieval" in results.suites else ((), 0, 0)
    return Examples(
        context.table,
        read_tiles(rows, context.crop),
        context.calibration,
        neighbors,
        mistakes,
        failing,
        without_miss,
        searched,
    )


def identity_name(table: IdentityTable, label: int) -> str:
    """Return an identity's name for display: ROOT/IDENTITY, or IDENTITY if there is only one root."""
    several_roots = len({name.partition("/")[0] for name in table.names}) > 1
    name = table.names[label]
    return printable(name if several_roots else name.partition("/")[2] or name)


def photo_file(table: IdentityTable, row: int) -> str:
    """Return the file name of a photo for display."""
    return printable(table.photos[row].name.rpartition("/")[2])


def wilson_lower_bound(missed: int, photos: int) -> float:
    """Compute the lower end of the 95 % score interval of a miss rate (Wilson 1927): few photos prove little."""
    z, rate = 1.96, missed / photos
    spread = z * np.sqrt(rate * (1 - rate) / photos + z**2 / (4 * photos**2))
    return float((rate + z**2 / (2 * photos) - spread) / (1 + z**2 / photos))


def _neighbors(context: EvaluationContext) -> Neighbors:
    table = context.table
    queries = example_queries(table.labels, QUERIES, SEED)
    rows, similarity = nearest_neighbors(context.embeddings, min(NEIGHBORS, len(table) - 1), queries)
    return Neighbors(queries, rows, similarity, table.labels[rows] == table.labels[queries][:, None])


def _mistakes(context: EvaluationContext) -> Mistakes:
    if context.pairs is not None:
        return worst_listed_mistakes(context.embeddings, context.pairs, MISTAKES)
    return worst_mistakes(context.embeddings, context.labels, MISTAKES)


def _failing_identities(context: EvaluationContext) -> tuple[tuple[FailingIdentity, ...], int, int]:
    """Return the identities that fail most, the number that never fail, and the number searched for."""
    ranked, table = context.ranked_queries, context.table
    is_miss = ranked.first_match_rank > 1
    queries = np.bincount(ranked.identity, minlength=len(table.names))
    misses = np.bincount(ranked.identity[is_miss], minlength=len(table.names))
    worst = sorted(
        np.flatnonzero(misses).tolist(),
        key=lambda label: -wilson_lower_bound(int(misses[label]), int(queries[label])),
    )[:MAX_FAILING_IDENTITIES]
    failing = tuple(
        FailingIdentity(
            identity_name(table, label),
            int(queries[label]),
            int(misses[label]),
            _most_confused_with(context, ranked.query[is_miss & (ranked.identity == label)]),
        )
        for label in worst
    )
    return failing, int(np.count_nonzero((queries > 0) & (misses == 0))), int(np.count_nonzero(queries))


def _most_confused_with(context: EvaluationContext, rows: Int64[np.ndarray, " k"]) -> str:
    """Return the other identity that is nearest most often; a photo of the query's identity that ties is skipped."""
    depth = min(int(context.table.photos_per_identity.max()) + 1, len(context.table) - 1)
    neighbor_rows, _ = nearest_neighbors(context.embeddings, depth, rows)
    nearest_negatives: Sequence[int] = [
        next((label for label in context.labels[neighbors].tolist() if label != query_label), query_label)
        for neighbors, query_label in zip(neighbor_rows, context.labels[rows].tolist(), strict=True)
    ]
    return identity_name(context.table, Counter(nearest_negatives).most_common(1)[0][0])
