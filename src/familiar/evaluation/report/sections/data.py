"""Values of the sections on the data, train/test leakage, and skipped photos."""

from typing import Any

from familiar.evaluation.report.examples import Examples
from familiar.evaluation.results import EvaluationResults

MAX_LISTED = 50


def data(results: EvaluationResults, examples: Examples) -> dict[str, Any]:
    """Count the photos per identity, and those of each species."""
    photos = examples.table.photos_per_identity
    return {
        "identities": results.data.identities,
        "low": int(photos.min()),
        "high": int(photos.max()),
        "single": int((photos == 1).sum()),
        "routing": results.data.routing,
    }


def leaks(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """Return the result of the leak check."""
    return {"leaks": results.leaks, "max_listed": MAX_LISTED}


def skipped_photos(results: EvaluationResults, _: Examples) -> dict[str, Any] | None:
    """Return why photos could not be evaluated."""
    return {"skipped": results.data.skipped, "max_listed": MAX_LISTED} if results.data.skipped else None
