"""The page that compares two photos: the verdict, the similarity among the thresholds, and both crops."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, File, UploadFile
from fastapi.responses import HTMLResponse

from familiar.core.calibration import Calibration
from familiar.core.recognition_types import VerificationResult
from familiar.gallery import Gallery
from familiar.web.pages.crops import as_data_url
from familiar.web.pages.render import PageDep
from familiar.web.uploads import receive

SCALE_LEFT = -0.2  # similarity; different individuals are at about 0, and values further left mean the same

router = APIRouter()


@dataclass(frozen=True)
class Mark:
    """A similarity on the scale; `position` in per cent of its width."""

    name: str
    similarity: float
    position: float


@dataclass(frozen=True)
class Comparison:
    """The comparison of two photos.

    Attributes:
        crops: both faces as the network saw them, as data URLs.
        scale: the thresholds, from left to right.
        similarity_mark: the similarity on this scale.
    """

    result: VerificationResult
    calibration: Calibration
    names: tuple[str, str]
    crops: tuple[str, str]
    scale: tuple[Mark, ...]
    similarity_mark: Mark

    @property
    def probability(self) -> float | None:
        """Probability that the verdict is right; None if there is none, as the model was never calibrated."""
        probability = self.result.probability
        return None if probability is None else probability if self.result.same else 1 - probability


@router.get("/compare")
async def show_form(page: PageDep) -> HTMLResponse:
    return await page.render("compare.html", comparison=None)


@router.post("/compare")
async def compare(
    page: PageDep, first: Annotated[UploadFile, File()], second: Annotated[UploadFile, File()]
) -> HTMLResponse:
    """Compare the best faces of two photos. Raises NoFaceFound, UnreadablePhoto, HttpProblem."""
    async with receive([first, second], page.service.settings.limits) as uploads:
        first_face, second_face = await page.service.inference.best_faces(uploads)
    assert first_face.embedding is not None, "the best face is embedded"
    assert second_face.embedding is not None, "the best face is embedded"
    means = await page.service.read_in_model_space(Gallery.calibration_for, first_face.embedding)
    result = await page.service.read_in_model_space(Gallery.compare, first_face.embedding, second_face.embedding)
    comparison = Comparison(
        result,
        means,
        (uploads[0].name, uploads[1].name),
        (as_data_url(first_face), as_data_url(second_face)),
        threshold_marks(means),
        Mark("similarity", result.similarity, _scale_position(result.similarity)),
    )
    return await page.render("compare.html", comparison=comparison)


def threshold_marks(means: Calibration) -> tuple[Mark, ...]:
    """Return the three thresholds, from left to right."""
    named = (("high recall", means.high_recall), ("balanced", means.balanced), ("high precision", means.high_precision))
    return tuple(Mark(name, each.similarity, _scale_position(each.similarity)) for name, each in named)


def _scale_position(similarity: float) -> float:
    """Return the position on the scale, in per cent."""
    share = (similarity - SCALE_LEFT) / (1 - SCALE_LEFT)
    return round(100 * min(max(share, 0.0), 1.0), 2)
