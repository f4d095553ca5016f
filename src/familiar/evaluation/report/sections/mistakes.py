"""Report section: the worst mistakes over pairs."""

from collections.abc import Mapping
from typing import Any

from familiar.evaluation.report.examples import Examples
from familiar.evaluation.report.photos import mistake_cards


def mistakes(_: Mapping[str, Any], examples: Examples, __: Mapping[str, str]) -> str:
    """Render the most similar pairs of different individuals and the least similar ones of the same individual."""
    worst = examples.mistakes
    if worst is None:
        return ""
    negatives = (
        mistake_cards(examples, worst.negatives, "one of two different individuals")
        if len(worst.negatives)
        else '<p class="missing">There are no different pairs: all photos are of one identity.</p>'
    )
    positives = (
        mistake_cards(examples, worst.positives, "one of two photos of the same individual")
        if len(worst.positives)
        else '<p class="missing">No identity has two photos.</p>'
    )
    return (
        f"<h3>Most similar photos of different individuals</h3>{negatives}"
        f"<h3>Least similar photos of the same individual</h3>{positives}"
    )
