"""The model page: the bundle's metadata, the calibration in this gallery, and the evaluation."""

import asyncio
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse

from familiar.core.errors import BadResults
from familiar.evaluation.results import Figure, read_results
from familiar.evaluation.results.figures import make_figures
from familiar.evaluation.results.labels import Label, find_label
from familiar.gallery import Gallery
from familiar.web.errors import HttpProblem
from familiar.web.middleware.headers import CSP_HEADER, SANDBOX_POLICY
from familiar.web.pages.album import describe_search
from familiar.web.pages.render import PageDep
from familiar.web.service import ServiceDep

RESULTS, REPORT = "eval_results.json", "report.html"
METRICS = (  # paths of figures of an evaluation or a bundle
    *("verification.auc", "verification.eer", "verification.best_accuracy"),
    *("verification.tar_at_far.1e-2", "verification.tar_at_far.1e-3", "verification.tar_at_far.1e-4"),
    *("retrieval.recall_at_1", "retrieval.recall_at_5", "retrieval.map_at_r"),
    *("clustering.groups.pairwise.f", "clustering.groups.bcubed.f"),
    *("identification.rank_1", "identification.dir_at_far.1e-2"),
)

router = APIRouter()


@router.get("/model")
async def model(page: PageDep) -> HTMLResponse:
    """Show the model; without one, what the gallery stores about the model it was created with."""
    bundles = page.service.inference.embedder.bundles if page.service.inference.has_model else {}
    evaluation, error_message, folder = None, "", page.service.settings.report
    if folder is not None:
        try:
            evaluation = await asyncio.to_thread(read_results, folder / RESULTS)
        except BadResults as error:
            error_message = str(error)

    def read(gallery: Gallery) -> dict[str, Any]:
        return {
            "spaces": gallery.space.part_spaces,
            "by_species": gallery.thresholds(),
            "search": describe_search(gallery, page.service),
        }

    return await page.render(
        "model.html",
        read,
        bundles=[(species, bundle, _bundle_metrics(bundle.metadata.results)) for species, bundle in bundles.items()],
        can_search=not page.service.settings.read_only,
        evaluation=evaluation,
        metrics_of_evaluation=_metrics(evaluation.figures) if evaluation else [],
        is_served_model=evaluation and evaluation.model.file_id in {bundle.file_id for bundle in bundles.values()},
        has_report=folder is not None and (folder / REPORT).is_file(),
        error_message=error_message,
    )


@router.get("/model/report")
async def report(service: ServiceDep) -> FileResponse:
    """Send the evaluation's report, a single HTML file, in a sandbox."""
    folder = service.settings.report
    if folder is None or not (folder / REPORT).is_file():
        raise HttpProblem(404, "no-report", "there is no report; give --report FOLDER of an evaluation")
    return FileResponse(folder / REPORT, media_type="text/html; charset=utf-8", headers={CSP_HEADER: SANDBOX_POLICY})


def _bundle_metrics(results: Mapping[str, Any]) -> list[tuple[Label, Figure]]:
    """List the metrics of the results that a bundle contains."""
    return _metrics(make_figures({"verification": results, "retrieval": results}))


def _metrics(figures: Mapping[str, Figure]) -> list[tuple[Label, Figure]]:
    """List the metrics among some figures with their labels, including those that could not be computed."""
    known = [(path, figures[path]) for path in METRICS if path in figures]
    return [(find_label(path), figure) for path, figure in known if not isinstance(figure.value, str)]
