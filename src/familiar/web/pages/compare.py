"""The page that compares two photos: the verdict, the similarity among the thresholds, and both crops."""

from dataclasses import dataclass

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from familiar.core.calibration import Calibration
from familiar.gallery import Gallery
from familiar.web.pages.crops import PhotoField, as_data_url
from familiar.web.pages.render import PageDep
from familiar.web.uploads import printable_name

SCALE_LEFT = -0.2  # similarity; different individuals are at about 0, and values further left mean the same

router = APIRouter()


@dataclass(frozen=True)
class Mark:
    """A similarity on the scale."""

    name: str
    similarity: float

    @property
    def position(self) -> float:
        """In per cent of the scale's width."""
        share = (self.similarity - SCALE_LEFT) / (1 - SCALE_LEFT)
        return round(100 * min(max(share, 0.0), 1.0), 2)


@router.get("/compare")
async def show_form(page: PageDep) -> HTMLResponse:
    return await page.render("compare.html", result=None)


@router.post("/compare")
async def compare(page: PageDep, first: PhotoField, second: PhotoField) -> HTMLResponse:
    """Compare the best faces of two photos. Raises NoFaceFound, UnreadablePhoto, HttpProblem."""
    faces, embeddings = await page.service.best_faces(first, second)
    calibration = await page.service.read_in_model_space(Gallery.calibration_for, embeddings[0])
    result = await page.service.read_in_model_space(Gallery.compare, *embeddings)
    return await page.render(
        "compare.html",
        result=result,
        calibration=calibration,
        names=[printable_name(file.filename) for file in (first, second)],
        crops=[as_data_url(face) for face in faces],
        scale=threshold_marks(calibration),
        here=Mark("similarity", result.similarity),
    )


def threshold_marks(calibration: Calibration) -> tuple[Mark, ...]:
    """Return the three thresholds, from left to right."""
    names = ("high recall", "balanced", "high precision")
    thresholds = (calibration.high_recall, calibration.balanced, calibration.high_precision)
    return tuple(Mark(name, threshold.similarity) for name, threshold in zip(names, thresholds, strict=True))
