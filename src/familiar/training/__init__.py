"""Train a network by a recipe: training loop, schedules, checkpoints (torch)."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from familiar.training.triplets import get_triplets as get_triplets


def __getattr__(name: str) -> Any:
    """Import `get_triplets` on first use: the recipes in this package must import without torch."""
    if name == "get_triplets":
        from familiar.training.triplets import get_triplets

        return get_triplets
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
