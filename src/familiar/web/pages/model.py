"""The model page: the bundle's metadata, the calibration in this gallery, and the evaluation."""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse

from familiar.core.calibration import Calibration
from familiar.core.errors import BadResults
from familiar.core.gallery_types import SpeciesClustering
from familiar.embedding.bundle import Bundle
from familiar.evaluation.results import Figure, read_results
from familiar.evaluation.results.figures import make_figures
from familiar.gallery import Gallery, Space
from familiar.web.errors import HttpProblem
from familiar.web.middleware.headers import CSP_HEADER, SANDBOX_POLICY
from familiar.web.pages.album import describe_search
from familiar.web.pages.render import PageDep
from familiar.web.service import ServiceDep

RESULTS, REPORT = "eval_results.json", "report.html"
METRICS = (  # of an evaluation or a bundle: path, name, description
    ("verification.auc", "ROC AUC", "probability that a pair of one individual is more similar than a pair of two"),
    ("verification.eer", "Equal error rate", "rate at which false accepts and false rejects are equally frequent"),
    ("verification.best_accuracy", "Best accuracy", "share of pairs decided correctly, both kinds weighted equally"),
    ("verification.tar_at_far.1e-2", "TAR at FAR 1e-2", "positive pairs accepted if 1 % of negative pairs are"),
    ("verification.tar_at_far.1e-3", "TAR at FAR 1e-3", "positive pairs accepted if 0.1 % of negative pairs are"),
    ("verification.tar_at_far.1e-4", "TAR at FAR 1e-4", "positive pairs accepted if 0.01 % of negative pairs are"),
    ("retrieval.recall_at_1", "Recall at 1", "the most similar photo shows the same individual"),
    ("retrieval.recall_at_5", "Recall at 5", "one of the five most similar does"),
    ("retrieval.map_at_r", "mAP at R", "share of the most similar photos that show the same individual"),
    ("clustering.groups.pairwise.f", "Pairwise F", "agreement on pairs of photos in the same group"),
    ("clustering.groups.bcubed.f", "B-cubed F", "agreement of the groups, averaged over photos"),
    ("identification.rank_1", "Rank 1", "the most similar individual is the right one"),
    (
        "identification.dir_at_far.1e-2",
        "DIR at FAR 1e-2",
        "known individuals identified if 1 % of unknown ones are, too",
    ),
    ("robustness.clean.recall_at_1", "Recall at 1, clean", "on the photos before they were degraded"),
)

router = APIRouter()


@dataclass(frozen=True)
class MetricRow:
    """A metric. `value` in [0, 1], None if it could not be computed; `interval`: 95 % confidence, if there is one."""

    name: str
    description: str
    value: float | None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class EvaluationSummary:
    """The results of `familiar evaluate`. `is_served_model`: they are of the model of this server."""

    sources: tuple[str, ...]
    identities: int
    photos: int
    metrics: tuple[MetricRow, ...]
    is_served_model: bool
    report: bool


@dataclass(frozen=True)
class BundleSummary:
    """A bundle of the server's model, and the species that it embeds; none: all."""

    species: tuple[str, ...]
    bundle: Bundle

    @property
    def is_license_unstated(self) -> bool:
        """Whether the bundle does not say under which terms its weights may be used."""
        return "not stated" in self.bundle.metadata.license

    @property
    def results(self) -> tuple[MetricRow, ...]:
        """The results that the bundle contains."""
        results = self.bundle.metadata.results
        return tuple(_metric_rows(make_figures({"verification": results, "retrieval": results})))


@dataclass(frozen=True)
class ModelPart:
    """What the similarities of a part of the gallery's space mean; there is one part for each bundle."""

    space: Space
    calibration: Calibration


@router.get("/model")
async def model(page: PageDep) -> HTMLResponse:
    """Show the model; without one, what the gallery stores about the model it was created with."""
    calibrations, thresholds = await page.service.executor.read(_read_calibrations)
    bundles = page.service.inference.embedder.bundles if page.service.inference.has_model else {}
    evaluation, error_message = None, ""
    if (folder := page.service.settings.report) is not None:
        try:
            evaluation = await asyncio.to_thread(_read_evaluation, folder, {each.file_id for each in bundles.values()})
        except BadResults as error:
            error_message = str(error)
    return await page.render(
        "model.html",
        bundles=[BundleSummary(species, bundle) for species, bundle in bundles.items()],
        can_search=not page.service.settings.read_only,
        search=await describe_search(page.service),
        calibrations=calibrations,
        by_species=thresholds,
        evaluation=evaluation,
        error_message=error_message,
    )


@router.get("/model/report")
async def report(service: ServiceDep) -> FileResponse:
    """Send the evaluation's report, a single HTML file, in a sandbox."""
    folder = service.settings.report
    if folder is None or not (folder / REPORT).is_file():
        raise HttpProblem(404, "no-report", "there is no report; give --report FOLDER of an evaluation")
    return FileResponse(folder / REPORT, media_type="text/html; charset=utf-8", headers={CSP_HEADER: SANDBOX_POLICY})


def _read_calibrations(gallery: Gallery) -> tuple[list[ModelPart], tuple[SpeciesClustering, ...]]:
    """Return the calibration of each part of the space, and how the faces of each species are clustered."""
    with gallery.read():
        parts = [ModelPart(space, space.gallery_calibration) for space in gallery.space.part_spaces]
        return parts, gallery.thresholds()


def _read_evaluation(folder: Path, file_ids: Collection[str]) -> EvaluationSummary:
    """Read the results of an evaluation. Raises BadResults."""
    results = read_results(folder / RESULTS)
    return EvaluationSummary(
        sources=tuple(Path(source).name or source for source in results.data.sources),
        identities=results.data.identities,
        photos=results.data.photos,
        metrics=tuple(_metric_rows(results.figures)),
        is_served_model=results.model.file_id in file_ids,
        report=(folder / REPORT).is_file(),
    )


def _metric_rows(figures: Mapping[str, Figure]) -> Iterator[MetricRow]:
    """List the requested metrics, including those that could not be computed, without a value."""
    for path, name, description in METRICS:
        figure = figures.get(path)
        if figure is not None and not isinstance(figure.value, str):
            yield MetricRow(name, description, figure.value, figure.interval)
