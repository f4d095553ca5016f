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
from familiar.web.errors import Refused
from familiar.web.middleware.headers import POLICY, SHUT_IN
from familiar.web.pages.render import page
from familiar.web.service import Served

RESULTS, REPORT = "eval_results.json", "report.html"
FIGURES = (  # of an evaluation or a bundle: where, what it is called, what it says
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
class Figure:
    """`value` in [0, 1], None where it could not be computed; `interval` of 95 %, where there is one."""

    name: str
    says: str
    value: float | None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Evaluated:
    """What stands in a folder of `familiar evaluate`. `ours`: it judged the model that is served."""

    sources: tuple[str, ...]
    identities: int
    photos: int
    figures: tuple[Figure, ...]
    ours: bool
    report: bool


@router.get("/model")
async def model(request: Request, service: Served) -> HTMLResponse:
    """Without a model, what the gallery knows of the one it was made with."""
    space, means, grouped = await service.threads.read(_of_gallery)
    bundle = service.vision.embedder.bundle if service.vision.has_model else None
    evaluated, wrong = None, ""
    if (folder := service.settings.report) is not None:
        try:
            file_id = None if bundle is None else bundle.file_id
            evaluated = await asyncio.to_thread(_evaluated, folder, file_id)
        except BadResults as error:
            wrong = str(error)
    return await page(
        request,
        service,
        "model.html",
        bundle=bundle,
        said=None if bundle is None else bundle.metadata,
        results=() if bundle is None else tuple(_figures(_as_evaluated(bundle.metadata.results))),
        space=space,
        calibration=means,
        own=means != space.calibration,
        grouping=grouped,
        evaluated=evaluated,
        wrong=wrong,
    )


@router.get("/model/report")
async def report(service: Served) -> FileResponse:
    """The report of the evaluation, which is one file, shut in."""
    folder = service.settings.report
    if folder is None or not (folder / REPORT).is_file():
        raise Refused(HTTPStatus.NOT_FOUND, "no-report", "there is no report; give --report FOLDER of an evaluation")
    return FileResponse(folder / REPORT, media_type="text/html; charset=utf-8", headers={POLICY: SHUT_IN})


def _of_gallery(gallery: Gallery) -> tuple[Space, Any, ClusteringCalibration]:
    with gallery.reading():
        return gallery.space, calibration(gallery), clustering_calibration(gallery)


def _evaluated(folder: Path, file_id: str | None) -> Evaluated:
    """BadResults."""
    results = read_results(folder / RESULTS)
    data = results["data"]
    return Evaluated(
        sources=tuple(Path(source).name or source for source in data.get("sources", ())),
        identities=data.get("identities", 0),
        photos=data.get("photos", 0),
        figures=tuple(_figures(results)),
        ours=results.get("model", {}).get("file_id") == file_id,
        report=(folder / REPORT).is_file(),
    )


def _as_evaluated(results: Mapping[str, Any]) -> dict[str, Any]:
    """A bundle's results, which are flat, laid out as those of an evaluation."""
    return {"verification": results, "retrieval": results}


def _figures(results: Mapping[str, Any]) -> Iterator[Figure]:
    """Those that were asked for: what could not be computed is there, too, without a value."""
    for path, name, says in FIGURES:
        suite, _, within = path.partition(".")
        try:
            value = at_path(dict(results), path)
        except (KeyError, TypeError):
            continue
        if value is None or isinstance(value, int | float):
            interval = ((results[suite] or {}).get("interval") or {}).get(within)
            yield Figure(name, says, value, None if interval is None else (interval[0], interval[1]))
