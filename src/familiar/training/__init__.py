"""Fit a network by a recipe: loop, schedules, checkpoints (torch)."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from familiar.training.triplets import get_triplets as get_triplets


def __getattr__(name: str) -> Any:
    """Imported when first asked for: recipes stand in this package too, and need no torch."""
    if name == "get_triplets":
        from familiar.training.triplets import get_triplets

        return get_triplets
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
