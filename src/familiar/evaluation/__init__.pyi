from .comparison import Difference, compare
from .context import EvaluationOptions
from .results import EvaluationResults, Figure, read_results
from .run_evaluation import evaluate

__all__ = [
    "Difference",
    "EvaluationOptions",
    "EvaluationResults",
    "Figure",
    "compare",
    "evaluate",
    "read_results",
]
