"""Evaluation results for tests that do not evaluate a model."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from familiar.evaluation.context import EvaluationContext, SuiteResult
from familiar.evaluation.results import EvaluationResults, read_results
from familiar.evaluation.results.document import ComparedPhotos, DataInfo, IntervalSettings, LeakResults, ModelInfo
from familiar.evaluation.results.figures import Figure, Figures, make_figures
from familiar.evaluation.suites.catalog import SuiteResults, run_suites

# All suites on 96 photos, 12 replicates; prefixes, slices and sweeps are shortened.
STORED = Path(__file__).parents[1] / "evaluation" / "data" / "eval_results.json"


@cache
def full_results() -> EvaluationResults:
    """Read stored results of every suite."""
    return read_results(STORED)


def empty_results(**changes: Any) -> EvaluationResults:
    """Make results without any suite."""
    model = ModelInfo(
        file_id="f" * 64,
        space_id="mean-color",
        recipe="none",
        network="mean color",
        size_bytes=300,
        embedding_dim=3,
        tta=None,
        thresholds_fitted=True,
        resize_px=None,
    )
    data = DataInfo(
        sources=("colors",),
        split="all",
        identities=12,
        photos=48,
        identities_seen_in_training=0,
        identities_seen_in_validation=0,
        skipped=(),
        fingerprint="e" * 64,
    )
    interval = IntervalSettings(confidence=0.95, resampled="identities", replicates=500, seed=0)
    return replace(EvaluationResults(model, data, interval, leaks=None), **changes)


def measured_results(
    context: EvaluationContext, suites: tuple[str, ...] = ("retrieval", "verification"), **changes: Any
) -> EvaluationResults:
    """Run suites and make results of them."""
    run = run_suites(context, suites) if suites else SuiteResults()
    leaks = LeakResults(ComparedPhotos(36, None), (), (), 0)
    results = empty_results(leaks=leaks, reasons=run.reasons, missing=run.missing, figures=run.figures)
    data = replace(results.data, identities=len(context.table.names), photos=len(context.table))
    return replace(results, data=data, **changes)


def values(result: SuiteResult | SuiteResults | EvaluationResults, parent: str = "") -> dict[str, Any]:
    """Return the values of figures by path; with a parent, of those below it, by the rest of the path."""
    return {path: figure.value for path, figure in _below(result.figures, parent)}


def intervals(
    result: SuiteResult | SuiteResults | EvaluationResults, parent: str = ""
) -> dict[str, tuple[float, float]]:
    """Return the intervals of the figures that have one, by path as `values`."""
    return {path: figure.interval for path, figure in _below(result.figures, parent) if figure.interval is not None}


def _below(figures: Figures, parent: str) -> list[tuple[str, Figure]]:
    start = f"{parent}." if parent else ""
    return [(path.removeprefix(start), figure) for path, figure in figures.items() if path.startswith(start)]


def with_figures(results: EvaluationResults, **suites: dict[str, Any]) -> EvaluationResults:
    """Change or add figures of suites: values, or `Figure`s with an interval, by path within the suite."""
    return replace(results, figures=results.figures | make_figures(suites))
