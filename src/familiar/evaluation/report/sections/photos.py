"""Values of the sections of example photos: nearest neighbors, worst mistakes, the map of the embeddings."""

from typing import Any

from familiar.evaluation.plots.photos import SIGNS
from familiar.evaluation.report.examples import Examples
from familiar.evaluation.report.photos import mistake_cards, neighbor_rows
from familiar.evaluation.results import EvaluationResults


def nearest_neighbors(_: EvaluationResults, examples: Examples) -> dict[str, Any] | None:
    """Return example queries with their nearest neighbors."""
    return None if examples.neighbors is None else {"rows": neighbor_rows(examples), "signs": SIGNS}


def mistakes(_: EvaluationResults, examples: Examples) -> dict[str, Any] | None:
    """Return the most similar pairs of different individuals and the least similar ones of the same individual."""
    worst = examples.mistakes
    if worst is None:
        return None
    return {
        "negatives": mistake_cards(examples, worst.negatives, "one of two different individuals"),
        "positives": mistake_cards(examples, worst.positives, "one of two photos of the same individual"),
    }
