"""Example photos of the report: nearest neighbors, worst mistakes, and the identities that fail most."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Int64

from familiar.core.terminal_text import printable
from familiar.datasets.folders import IdentityTable
from familiar.evaluation.context import SEED, EvaluationContext
from familiar.evaluation.plots.photos import Pixels, Tile, example_queries, read_tile
from familiar.evaluation.results import EvaluationResults
from familiar.metrics.mistakes import Mistakes, RankedPairs, worst_listed_mistakes, worst_mistakes
from familiar.neighbors.brute_force import nearest_neighbors

QUERIES, NEIGHBORS = 10, 5
MISTAKES = 12
MAX_FAILING_IDENTITIES = 8

ReadTile: TypeAlias = Callable[[int], Pixels | None]


@dataclass(frozen=True, eq=False)
class Mistake:
    """A pair that the model gets wrong. `probability`: None if the bundle was never calibrated."""

    similarity: float
    probability: float | None
    left: Tile
    right: Tile


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

    `neighbors`: rows of a query and the photos nearest to it. `negatives`: the most similar pairs of different
    individuals; `positives`: the least similar ones of the same individual. `failing`: the worst first.
    `identities_without_miss`: of the `searched_identities`.
    """

    table: IdentityTable
    neighbors: list[list[Tile]] | None = None
    negatives: list[Mistake] | None = None
    positives: list[Mistake] | None = None
    failing: tuple[FailingIdentity, ...] = ()
    identities_without_miss: int = 0
    searched_identities: int = 0


def collect_examples(context: EvaluationContext, results: EvaluationResults) -> Examples:
    """Collect the examples of the suites that were requested."""
    examples, read = Examples(context.table), cache(lambda row: read_tile(row, context.crop))
    if results.has_suite("verification"):
        mistakes = _mistakes(context)
        negatives = _mistake_tiles(context, read, mistakes.negatives, "one of two different individuals")
        positives = _mistake_tiles(context, read, mistakes.positives, "one of two photos of the same individual")
        examples = replace(examples, negatives=negatives, positives=positives)
    if "retrieval" in results.suites:
        failing, without_miss, searched = _failing_identities(context)
        examples = replace(
            examples,
            neighbors=_neighbors(context, read),
            failing=failing,
            identities_without_miss=without_miss,
            searched_identities=searched,
        )
    return examples


def identity_name(table: IdentityTable, label: int) -> str:
    """Return an identity's name for display: ROOT/IDENTITY, or IDENTITY if there is only one root."""
    several_roots = len({name.partition("/")[0] for name in table.names}) > 1
    name = table.names[label]
    return printable(name if several_roots else name.partition("/")[2] or name)


def wilson_lower_bound(missed: int, photos: int) -> float:
    """Compute the lower end of the 95 % score interval of a miss rate (Wilson 1927): few photos prove little."""
    z, rate = 1.96, missed / photos
    spread = z * np.sqrt(rate * (1 - rate) / photos + z**2 / (4 * photos**2))
    return float((rate + z**2 / (2 * photos) - spread) / (1 + z**2 / photos))


def _tile(context: EvaluationContext, read: ReadTile, row: int, description: str, **facts: Any) -> Tile:
    identity = identity_name(context.table, int(context.labels[row]))
    file = printable(context.table.photos[row].name.rpartition("/")[2])
    return Tile(read(row), identity=identity, file=file, alt=f"{identity}, {file}: {description}", **facts)


def _neighbors(context: EvaluationContext, read: ReadTile) -> list[list[Tile]]:
    queries = example_queries(context.labels, QUERIES, SEED)
    rows, similarity = nearest_neighbors(context.embeddings, min(NEIGHBORS, len(context.table) - 1), queries)
    correct = context.labels[rows] == context.labels[queries][:, None]
    return [
        [_tile(context, read, query, "query", text="query")]
        + [
            _tile(
                context, read, row, f"{'the same' if hit else 'another'} individual", text=f"{score:.2f}", correct=hit
            )
            for row, score, hit in zip(*neighbors, strict=True)
        ]
        for query, *neighbors in zip(*(values.tolist() for values in (queries, rows, similarity, correct)), strict=True)
    ]


def _mistake_tiles(context: EvaluationContext, read: ReadTile, pairs: RankedPairs, description: str) -> list[Mistake]:
    probability, columns = context.calibration.probability, (pairs.similarity, pairs.left, pairs.right)
    return [
        Mistake(
            score, probability(score), *(_tile(context, read, row, description, text=f"{score:.3f}") for row in rows)
        )
        for score, *rows in zip(*(values.tolist() for values in columns), strict=True)
    ]


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
