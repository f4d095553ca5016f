"""The results of an evaluation: the figures of all suites by path, and the file `eval_results.json`."""

from familiar.evaluation.results.document import FORMAT, EvaluationResults
from familiar.evaluation.results.figures import Figure
from familiar.evaluation.results.files import read_results, write_results

__all__ = ["FORMAT", "EvaluationResults", "Figure", "read_results", "write_results"]
