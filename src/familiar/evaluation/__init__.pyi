from .comparison import Difference, compare
from .context import EvaluationOptions
from .results import read_results

__all__ = [
    "Difference",
    "EvaluationOptions",
    "compare",
    "read_results",
]
