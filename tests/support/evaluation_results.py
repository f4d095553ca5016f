"""Evaluation results for tests that do not evaluate a model."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from familiar.evaluation.context import EvaluationContext
from familiar.evaluation.results import EvaluationResults, read_results
from familiar.evaluation.results.document import ComparedPhotos, DataInfo, IntervalSettings, LeakResults, ModelInfo
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
    results = empty_results(leaks=LeakResults(ComparedPhotos(36, None), (), (), 0), reasons=run.reasons, **run.metrics)
    data = replace(results.data, identities=len(context.table.names), photos=len(context.table))
    return replace(results, data=data, **changes)
