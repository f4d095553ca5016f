"""The model: what its bundle says of itself, what its similarities mean here, and how it was evaluated."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse

from familiar.core.errors import BadResults
from familiar.evaluation.results import at_path, read_results
from familiar.gallery.clustering.calibration import ClusteringCalibration, calibration, clustering_calibration
from familiar.gallery.database.connection import Gallery, Space
from familiar.web.errors import HttpProblem
from familiar.web.middleware.headers import CSP_HEADER, SANDBOX_POLICY
from familiar.web.pages.render import render_page
from familiar.web.service import ServiceDep

RESULTS, REPORT = "eval_results.json", "report.html"
METRICS = (  # of an evaluation or a bundle: where, what it is called, what it says
    ("verification.auc", "ROC AUC", "a pair of one individual is more similar than a pair of two"),
    ("verification.eer", "Equal error rate", "strangers accepted, and same ones refused, equally often"),
    ("verification.best_accuracy", "Best accuracy", "pairs judged rightly, both kinds weighed alike"),
    ("verification.tar_at_far.1e-2", "TAR at FAR 1e-2", "same ones recognized where 1 % of strangers are"),
    ("verification.tar_at_far.1e-3", "TAR at FAR 1e-3", "same ones recognized where 0.1 % of strangers are"),
    ("verification.tar_at_far.1e-4", "TAR at FAR 1e-4", "same ones recognized where 0.01 % of strangers are"),
    ("retrieval.recall_at_1", "Recall at 1", "the most similar photo shows the same individual"),
    ("retrieval.recall_at_5", "Recall at 5", "one of the five most similar does"),
    ("retrieval.map_at_r", "mAP at R", "how many of the most similar photos are right ones"),
    ("clustering.groups.pairwise.f", "Pairwise F", "pairs of photos put together rightly"),
    ("clustering.groups.bcubed.f", "B-cubed F", "groups as each photo sees them"),
    ("identification.rank_1", "Rank 1", "a known individual is named first"),
    (
        "identification.dir_at_far.1e-2",
        "DIR at FAR 1e-2",
        "known ones named where 1 % of strangers get a name",
    ),
    ("robustness.clean.recall_at_1", "Recall at 1, clean", "before the photos were spoilt"),
)

router = APIRouter()


@dataclass(frozen=True)
class MetricRow:
    """`value` in [0, 1], None where it could not be computed; `interval` of 95 %, where there is one."""

    name: str
    description: str
    value: float | None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class EvaluationSummary:
    """What stands in a folder of `familiar evaluate`. `ours`: it judged the model that is served."""

    sources: tuple[str, ...]
    identities: int
    photos: int
    figures: tuple[MetricRow, ...]
    is_served_model: bool
    report: bool


@router.get("/model")
async def model(request: Request, service: ServiceDep) -> HTMLResponse:
    """Without a model, what the gallery knows of the one it was made with."""
    space, means, grouped = await service.executor.read(_read_gallery)
    bundle = service.inference.embedder.bundle if service.inference.has_model else None
    evaluated, wrong = None, ""
    if (folder := service.settings.report) is not None:
        try:
            file_id = None if bundle is None else bundle.file_id
            evaluated = await asyncio.to_thread(_read_evaluation, folder, file_id)
        except BadResults as error:
            wrong = str(error)
    return await render_page(
        request,
        service,
        "model.html",
        bundle=bundle,
        said=None if bundle is None else bundle.metadata,
        results=() if bundle is None else tuple(_metric_rows(_as_evaluation_results(bundle.metadata.results))),
        space=space,
        calibration=means,
        own=means != space.calibration,
        grouping=grouped,
        evaluated=evaluated,
        wrong=wrong,
    )


@router.get("/model/report")
async def report(service: ServiceDep) -> FileResponse:
    """The report of the evaluation, which is one file, shut in."""
    folder = service.settings.report
    if folder is None or not (folder / REPORT).is_file():
        raise HttpProblem(HTTPStatus.NOT_FOUND, "no-report", "there is no report; give --report FOLDER of an evaluation")
    return FileResponse(folder / REPORT, media_type="text/html; charset=utf-8", headers={CSP_HEADER: SANDBOX_POLICY})


def _read_gallery(gallery: Gallery) -> tuple[Space, Any, ClusteringCalibration]:
    with gallery.reading():
        return gallery.space, calibration(gallery), clustering_calibration(gallery)


def _read_evaluation(folder: Path, file_id: str | None) -> EvaluationSummary:
    """BadResults."""
    results = read_results(folder / RESULTS)
    data = results["data"]
    return EvaluationSummary(
        sources=tuple(Path(source).name or source for source in data.get("sources", ())),
        identities=data.get("identities", 0),
        photos=data.get("photos", 0),
        figures=tuple(_metric_rows(results)),
        is_served_model=results.get("model", {}).get("file_id") == file_id,
        report=(folder / REPORT).is_file(),
    )


def _as_evaluation_results(results: Mapping[str, Any]) -> dict[str, Any]:
    """A bundle's results, which are flat, laid out as those of an evaluation."""
    return {"verification": results, "retrieval": results}


def _metric_rows(results: Mapping[str, Any]) -> Iterator[MetricRow]:
    """Those that were asked for: what could not be computed is there, too, without a value."""
    for path, name, says in METRICS:
        suite, _, within = path.partition(".")
        try:
            value = at_path(dict(results), path)
        except (KeyError, TypeError):
            continue
        if value is None or isinstance(value, int | float):
            interval = ((results[suite] or {}).get("interval") or {}).get(within)
            yield MetricRow(name, says, value, None if interval is None else (interval[0], interval[1]))
