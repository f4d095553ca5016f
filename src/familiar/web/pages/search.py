"""The search page: who is on a photo, for each of its faces. The photo is not stored."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from fastapi import APIRouter, File, UploadFile
from fastapi.responses import HTMLResponse
from jaxtyping import Float32

from familiar.core.gallery_types import GalleryFace
from familiar.core.recognition_types import Hit, Match
from familiar.core.types import Face
from familiar.detection.detector import looked_for, not_looked_for
from familiar.gallery import Filter, Gallery
from familiar.web.pages.assignment_forms import SpeciesField
from familiar.web.pages.crops import as_data_url
from familiar.web.pages.render import PageDep
from familiar.web.uploads import receive

MAX_FACES = 12  # of one photo that are searched for, the best ones
MATCHES = 5
HITS = 12
MIN_MENTIONED = 0.01  # minimum probability of another individual to be mentioned

router = APIRouter()


@dataclass(frozen=True)
class SimilarPhoto:
    """A hit and the gallery's data of its face."""

    hit: Hit
    face: GalleryFace


@dataclass(frozen=True)
class Answer:
    """Who one face of the photo may be.

    Attributes:
        crop: the face as the network saw it, as a data URL.
        known: the recognized individual, which is more likely than not; None: there is none.
        most_likely: if none is recognized, the most likely one, if there is any.
        others: further individuals that are likely enough to be mentioned.
        photos_of_known: similar faces of the recognized individual.
        similar_faces: all other similar faces.
    """

    crop: str
    known: Match | None
    most_likely: Match | None
    others: list[Match]
    photos_of_known: list[SimilarPhoto]
    similar_faces: list[SimilarPhoto]


@router.get("/search")
async def show_form(page: PageDep) -> HTMLResponse:
    all_species = await page.service.executor.read(Gallery.species)
    return await page.render("search.html", answers=None, all_species=all_species, species="")


@router.post("/search")
async def search(page: PageDep, photo: Annotated[UploadFile, File()], species: SpeciesField = "") -> HTMLResponse:
    """Search for each face of a photo. HttpProblem if the file is no photo; UnreadablePhoto, NoBundleForSpecies.

    Args:
        photo: the file.
        species: only the photo's faces of this species, among those of the album; "": all.
    """
    async with receive([photo], page.service.settings.limits) as (upload,):
        result = await page.service.inference.detect(upload)
    if result.skipped and not result.faces:
        raise result.skipped[0]
    eligible = [face for face in result.faces if not species or face.species in (None, species)]
    faces = eligible[:MAX_FACES]
    embeddings = [detected.embedding for detected in faces if detected.embedding is not None]
    results = await page.service.read_in_model_space(_search_all, embeddings, Filter(species=species or None))
    answers = [_answer(detected, *rows) for detected, rows in zip(faces, results, strict=True)]
    return await page.render(
        "search.html",
        answers=answers,
        name=upload.name,
        left_out=len(eligible) - len(answers),
        all_species=await page.service.executor.read(Gallery.species),
        species=species,
        looked_for=species or looked_for(page.service.inference.detector),
        not_looked_for="" if species else not_looked_for(page.service.inference.detector),
    )


def _search_all(
    gallery: Gallery, embeddings: list[Float32[np.ndarray, " d"]], only: Filter
) -> list[tuple[list[Match], list[SimilarPhoto]]]:
    with gallery.read():
        queries = [gallery.truncate_query(embedding) for embedding in embeddings]
        return [
            (
                gallery.identify(query, MATCHES, only=only),
                [SimilarPhoto(hit, gallery.face(hit.face)) for hit in gallery.search(query, HITS, only=only)],
            )
            for query in queries
        ]


def _answer(detected: Face, matches: list[Match], similar: list[SimilarPhoto]) -> Answer:
    known = next((match for match in matches if match.known), None)
    likely = [match for match in matches if match.probability is None or match.probability >= MIN_MENTIONED]
    shows_known = [known is not None and item.hit.identity == known.identity for item in similar]
    return Answer(
        as_data_url(detected),
        known,
        matches[0] if matches and known is None else None,
        [match for match in likely if match is not known],
        [item for item, is_known in zip(similar, shows_known, strict=True) if is_known],
        [item for item, is_known in zip(similar, shows_known, strict=True) if not is_known],
    )
