from .comparison import Difference, compare
from .context import EvaluationOptions
from .results import EvaluationResults, metric_at, read_results
from .run_evaluation import evaluate

__all__ = [
    "Difference",
    "EvaluationOptions",
    "EvaluationResults",
    "compare",
    "evaluate",
    "metric_at",
    "read_results",
]
