"""Two photos: one individual or two, where that lies between the thresholds, and what the network saw."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, File, Request, UploadFile
from fastapi.responses import HTMLResponse

from familiar.core.calibration import Calibration
from familiar.embedding.verification import VerificationResult, verify_embeddings
from familiar.gallery.clustering.calibration import calibration
from familiar.web.pages.crops import as_data_url
from familiar.web.pages.render import render_page
from familiar.web.service import ServiceDep
from familiar.web.uploads import receive

SCALE_LEFT = -0.2  # similarity: strangers lie about 0, and what lies further left is as different

router = APIRouter()


@dataclass(frozen=True)
class Mark:
    """A similarity on the scale; `place` in per cent of its width."""

    name: str
    similarity: float
    position: float


@dataclass(frozen=True)
class Comparison:
    """`crops` are the faces as the network saw them; `scale` the thresholds, and `here` the similarity on it."""

    answer: VerificationResult
    calibration: Calibration
    names: tuple[str, str]
    crops: tuple[str, str]
    scale: tuple[Mark, ...]
    similarity_mark: Mark

    @property
    def probability(self) -> float | None:
        """Of the verdict."""
        said = self.answer.probability
        return None if said is None else said if self.answer.same else 1 - said


@router.get("/compare")
async def ask(request: Request, service: ServiceDep) -> HTMLResponse:
    return await render_page(request, service, "compare.html", compared=None)


@router.post("/compare")
async def answer(
    request: Request,
    service: ServiceDep,
    first: Annotated[UploadFile, File()],
    second: Annotated[UploadFile, File()],
) -> HTMLResponse:
    """By the best face of each. NoFaceFound, UnreadablePhoto, Refused."""
    async with receive([first, second], service.settings.limits) as uploads:
        one, other = await service.inference.best_faces(uploads)
    assert one.embedding is not None, "the best face is embedded"
    assert other.embedding is not None, "the best face is embedded"
    means = await service.read_in_model_space(calibration)
    said = verify_embeddings(one.embedding, other.embedding, means)
    compared = Comparison(
        said,
        means,
        (uploads[0].name, uploads[1].name),
        (as_data_url(one.crop), as_data_url(other.crop)),
        threshold_marks(means),
        Mark("similarity", said.similarity, _scale_position(said.similarity)),
    )
    return await render_page(request, service, "compare.html", compared=compared)


def threshold_marks(means: Calibration) -> tuple[Mark, ...]:
    """The three thresholds, from left to right."""
    named = (
        ("high recall", means.high_recall),
        ("balanced", means.balanced),
        ("high precision", means.high_precision),
    )
    return tuple(Mark(name, one.similarity, _scale_position(one.similarity)) for name, one in named)


def _scale_position(similarity: float) -> float:
    """On the scale, in per cent."""
    share = (similarity - SCALE_LEFT) / (1 - SCALE_LEFT)
    return round(100 * min(max(share, 0.0), 1.0), 2)
