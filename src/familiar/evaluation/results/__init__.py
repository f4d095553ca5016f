"""The results of an evaluation: typed metrics of each suite, and the file `eval_results.json`."""

from familiar.evaluation.results.document import FORMAT, EvaluationResults
from familiar.evaluation.results.files import read_results, write_results
from familiar.evaluation.results.paths import interval_at, metric_at

__all__ = ["FORMAT", "EvaluationResults", "interval_at", "metric_at", "read_results", "write_results"]
