"""Two photos: one individual or two, where that lies between the thresholds, and what the network saw."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, File, Request, UploadFile
from fastapi.responses import HTMLResponse

from familiar.core.calibration import Calibration
from familiar.embedding.verification import VerificationResult, verify_embeddings
from familiar.gallery.clustering.calibration import calibration
from familiar.web.pages.crops import as_data_url
from familiar.web.pages.render import page
from familiar.web.service import Served
from familiar.web.uploads import received

SCALE_LEFT = -0.2  # similarity: strangers lie about 0, and what lies further left is as different

router = APIRouter()


@dataclass(frozen=True)
class Mark:
    """A similarity on the scale; `place` in per cent of its width."""

    name: str
    similarity: float
    place: float


@dataclass(frozen=True)
class Compared:
    """`crops` are the faces as the network saw them; `scale` the thresholds, and `here` the similarity on it."""

    answer: VerificationResult
    calibration: Calibration
    names: tuple[str, str]
    crops: tuple[str, str]
    scale: tuple[Mark, ...]
    here: Mark

    @property
    def probability(self) -> float | None:
        """Of the verdict."""
        said = self.answer.probability
        return None if said is None else said if self.answer.same else 1 - said


@router.get("/compare")
async def ask(request: Request, service: Served) -> HTMLResponse:
    return await page(request, service, "compare.html", compared=None)


@router.post("/compare")
async def answer(
    request: Request,
    service: Served,
    first: Annotated[UploadFile, File()],
    second: Annotated[UploadFile, File()],
) -> HTMLResponse:
    """By the best face of each. NoFaceFound, UnreadablePhoto, Refused."""
    async with received([first, second], service.settings.limits) as uploads:
        one, other = await service.vision.best_of_each(uploads)
    assert one.embedding is not None, "the best face is embedded"
    assert other.embedding is not None, "the best face is embedded"
    means = await service.compare(calibration)
    said = verify_embeddings(one.embedding, other.embedding, means)
    compared = Compared(
        said,
        means,
        (uploads[0].name, uploads[1].name),
        (as_data_url(one.crop), as_data_url(other.crop)),
        marks(means),
        Mark("similarity", said.similarity, _place(said.similarity)),
    )
    return await page(request, service, "compare.html", compared=compared)


def marks(means: Calibration) -> tuple[Mark, ...]:
    """The three thresholds, from left to right."""
    named = (
        ("high recall", means.high_recall),
        ("balanced", means.balanced),
        ("high precision", means.high_precision),
    )
    return tuple(Mark(name, one.similarity, _place(one.similarity)) for name, one in named)


def _place(similarity: float) -> float:
    """On the scale, in per cent."""
    share = (similarity - SCALE_LEFT) / (1 - SCALE_LEFT)
    return round(100 * min(max(share, 0.0), 1.0), 2)
