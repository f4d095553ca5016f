"""The search page: who is on a photo, for each of its faces. The photo is not stored."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from familiar.core.types import Face
from familiar.detection.detector import looked_for, not_looked_for
from familiar.gallery import Filter, Gallery
from familiar.web.pages.assignment_forms import SpeciesField
from familiar.web.pages.crops import PhotoField, as_data_url
from familiar.web.pages.render import PageDep
from familiar.web.uploads import to_uploads

MAX_FACES = 12  # of one photo that are searched for, the best ones
MATCHES = 5
HITS = 12
MIN_MENTIONED = 0.01  # minimum probability of another individual to be mentioned

router = APIRouter()


def _read_species(gallery: Gallery) -> dict[str, Any]:
    return {"all_species": gallery.species()}


@router.get("/search")
async def show_form(page: PageDep) -> HTMLResponse:
    return await page.render("search.html", _read_species, answers=None, species="")


@router.post("/search")
async def search(page: PageDep, photo: PhotoField, species: SpeciesField = "") -> HTMLResponse:
    """Search for each face of a photo. HttpProblem if the file is no photo; UnreadablePhoto, NoBundleForSpecies.

    Args:
        photo: the file.
        species: only the photo's faces of this species, among those of the album; "": all.
    """
    (upload,) = to_uploads([photo], page.service.settings.limits)
    result = await page.service.inference.detect(upload)
    if result.skipped and not result.faces:
        raise result.skipped[0]
    faces = [face for face in result.faces if not species or face.species in (None, species)]

    def read(gallery: Gallery) -> list[dict[str, Any]]:
        return [_answer(gallery, face, Filter(species=species or None)) for face in faces[:MAX_FACES]]

    return await page.render(
        "search.html",
        _read_species,
        answers=await page.service.read_in_model_space(read),
        name=upload.name,
        left_out=max(0, len(faces) - MAX_FACES),
        species=species,
        looked_for=species or looked_for(page.service.inference.detector),
        not_looked_for="" if species else not_looked_for(page.service.inference.detector),
    )


def _answer(gallery: Gallery, face: Face, only: Filter) -> dict[str, Any]:
    """Return who one face of the photo may be.

    Returns:
        `known`: the recognized individual, which is more likely than not, or None; then `most_likely` may be one.
        `others`: further individuals that are likely enough to be mentioned. `photos_of_known`, `similar_faces`: the
        similar faces of the recognized individual, and all others; `photo_of` has their photos.
    """
    assert face.embedding is not None, "a detected face is embedded"
    query = gallery.truncate_query(face.embedding)
    matches, hits = gallery.identify(query, MATCHES, only=only), gallery.search(query, HITS, only=only)
    known = next((match for match in matches if match.known), None)
    likely = [match for match in matches if match.probability is None or match.probability >= MIN_MENTIONED]
    known_hits = [hit for hit in hits if known is not None and hit.identity == known.identity]
    return {
        "crop": as_data_url(face),
        "known": known,
        "most_likely": matches[0] if matches and known is None else None,
        "others": [match for match in likely if match is not known],
        "photo_of": {hit.face: gallery.face(hit.face).photo for hit in hits},
        "photos_of_known": known_hits,
        "similar_faces": [hit for hit in hits if hit not in known_hits],
    }
