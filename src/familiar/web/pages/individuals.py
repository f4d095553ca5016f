"""The page of all individuals: tabs of tiles, the unassigned faces, naming and merging."""

from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from familiar.core.errors import Contradiction
from familiar.core.gallery_types import Counts, GalleryFace, IdentitySummary
from familiar.gallery import NO_IDENTITY, Gallery
from familiar.web.middleware.access import local_path
from familiar.web.pages.assignment_forms import (
    FacesField,
    Name,
    NameField,
    Number,
    Numbers,
    Position,
    SpeciesQuery,
    find_by_name,
    require_existing,
    require_name,
)
from familiar.web.pages.edits import EditDep
from familiar.web.pages.flash import current_url, url_after_change, url_with_flash
from familiar.web.pages.render import PageDep, page_response
from familiar.web.service import ServiceDep

TILES = 500  # on a page
FACES = 300  # unassigned ones, on a page
MAX_MERGED = 100  # at once

router = APIRouter()
Tab = Literal["named", "unnamed", "unassigned"]
Identities = Annotated[Numbers, Form(max_length=MAX_MERGED)]


@router.get("/individuals")
async def individuals(
    page: PageDep, tab: Tab | None = None, species: SpeciesQuery = None, faces: Position = 0, after: Position = 0
) -> HTMLResponse:
    """Show a tab of tiles, those with most faces first.

    Args:
        species: only individuals and faces of this species.
        faces, after: the number of faces and the number of the previous page's last tile; of unassigned faces, `after`
            is the number of its last face.
    """
    species_query = f"&{urlencode({'species': species})}" if species else ""

    def read(gallery: Gallery) -> dict[str, Any]:
        counts = gallery.counts(species=species)
        current_tab = tab or _first_tab(counts)
        tiles: list[IdentitySummary] = []
        unassigned: list[GalleryFace] = []
        if current_tab == "unassigned":
            unassigned = gallery.unassigned_faces(species=species, after=after, limit=FACES + 1)
            states = gallery.states([NO_IDENTITY])
        else:
            last, is_named = (faces, after) if after else None, current_tab == "named"
            tiles = gallery.identities(named=is_named, species=species, after=last, limit=TILES + 1)
            states = gallery.states(tile.identity for tile in tiles)
        tab_url = f"/individuals?tab={current_tab}{species_query}"
        shown_url = current_url(page.request)
        if tab is None:  # the first tab may be another one after a change
            shown_url += f"{'&' if '?' in shown_url else '?'}tab={current_tab}"
        return {
            "counts": counts,
            "tab": current_tab,
            "individuals_of": _count_individuals(gallery),
            "tiles": tiles[:TILES],
            "faces": unassigned[:FACES],
            "states": states,
            "more": _next_page_url(tab_url, tiles, unassigned),
            "first": tab_url if after else None,
            "doubtful": gallery.doubtful_identities(),
            "threshold_is_guess": gallery.threshold_is_guess(),
            "current_url": shown_url,
        }

    return await page.render("individuals.html", read, species=species, species_query=species_query)


@router.post("/individuals/unassigned")
async def assign_unassigned(edit: EditDep, face: FacesField, name: NameField = "") -> Response:
    """Assign the selected faces to the individual with this name, or to a new one."""
    path = local_path(edit.back, "/individuals?tab=unassigned")
    return await edit.write(lambda gallery: edit.correct(gallery, face, "move", name, path))


@router.post("/individuals/group")
async def group_faces(service: ServiceDep) -> RedirectResponse:
    """Cluster the unassigned faces; existing individuals stay."""
    result = await service.executor.compute_then_write(Gallery.cluster)
    if not result.changed:
        return RedirectResponse(url_with_flash("/individuals?tab=unassigned", "nothing-grouped"), 303)
    return RedirectResponse(url_with_flash("/individuals?tab=unnamed", "grouped", count=result.identities), 303)


@router.get("/individuals/merge")
async def choose_merge(
    page: PageDep, identity: Annotated[Numbers, Query(max_length=MAX_MERGED)], back: str = "/individuals"
) -> HTMLResponse:
    """Ask whether individuals are the same, and which one to keep."""

    def read(gallery: Gallery) -> dict[str, Any]:
        tiles = [gallery.identity(number) for number in identity]
        # Named and large ones first: they are the most likely to be kept.
        tiles.sort(key=lambda tile: (tile.name is None, -tile.faces, tile.identity))
        return {"tiles": tiles, "states": gallery.states(identity), "species": _species(gallery, identity)}

    response = await page.render("merge.html", read, to=local_path(back))
    response.headers["HX-Push-Url"] = current_url(page.request)  # also if a form that replaces its page led here
    return response


@router.post("/individuals/merge")
async def merge(
    edit: EditDep,
    identity: Identities,
    into: Annotated[Number | None, Form()] = None,
    are_same: Annotated[bool, Form()] = False,
) -> Response:
    """Merge individuals into `into`; without it, or if they are of several species, redirect to the page that asks.

    Args:
        are_same: the user was asked.
    """
    back = local_path(edit.back, "/individuals")
    identities = list(dict.fromkeys(identity if into is None else [*identity, into]))
    if len(identities) < 2:
        raise Contradiction("an individual cannot be merged with itself; select two or more")
    if into is None:
        return RedirectResponse(merge_url(identities, back), 303)

    merged_pages = {f"/individuals/{number}" for number in identities}
    path = f"/individuals/{into}" if back.partition("?")[0] in merged_pages else back

    def write(gallery: Gallery) -> str:
        gallery.check_states([state for state in edit.states if state.identity in identities])
        require_existing(gallery, identities=identities)
        if not are_same and len(_species(gallery, identities)) > 1:
            return merge_url(identities, back)
        result = gallery.merge(into, identities, same_photo=edit.same_photo)
        return url_after_change(gallery, path, "merged", propagated=result.propagated_faces, identity=into)

    return await edit.write(write)


@router.get("/individuals/names")
async def complete_name(page: PageDep, name: Annotated[Name, Query()] = "") -> HTMLResponse:
    """List the names that start with what is being typed."""
    names = await page.service.executor.read(Gallery.names_beginning, name.strip())
    return page_response(page.request, "names.html", {"names": names})


@router.post("/individuals/{identity:int}/name")
async def rename(edit: EditDep, identity: Number, name: NameField = "") -> Response:
    """Name an individual. If another one has the name, redirect to the page that asks whether both are the same."""

    def write(gallery: Gallery) -> str:
        gallery.check_states(edit.states)
        require_existing(gallery, identities=[identity])
        other, back = find_by_name(gallery, name), local_path(edit.back, "/individuals")
        if other is not None and other != identity:
            return merge_url([other, identity], back)
        require_name(name)
        gallery.name(identity, name)
        return url_after_change(gallery, back, "named", identity=identity)

    return await edit.write(write)


def merge_url(identities: list[int], back: str) -> str:
    """Return the URL of the page that asks which of these individuals to keep."""
    fields = [("identity", str(number)) for number in identities[:MAX_MERGED]]
    return f"/individuals/merge?{urlencode([*fields, ('back', local_path(back))])}"


def _species(gallery: Gallery, identities: list[int]) -> set[str]:
    """Return the species of individuals, each by its best face; that of some may not be known."""
    best = (gallery.identity(number).best[:1] for number in identities)
    return {species for faces in best for face in faces if (species := gallery.face(face).species)}


def _count_individuals(gallery: Gallery) -> dict[str, int]:
    with gallery.read():
        counts = {species: gallery.counts(species=species) for species in gallery.species()}
    return {species: each.named + each.unnamed for species, each in counts.items()}


def _first_tab(gallery_counts: Counts) -> Tab:
    """Return the first tab that is not empty."""
    if gallery_counts.named:
        return "named"
    return "unassigned" if gallery_counts.unassigned and not gallery_counts.unnamed else "unnamed"


def _next_page_url(url: str, tiles: list[IdentitySummary], unassigned: list[GalleryFace]) -> str | None:
    """Return the URL of the next page of a tab, if there is one."""
    if len(tiles) > TILES:
        last = tiles[TILES - 1]
        return f"{url}&faces={last.faces}&after={last.identity}"
    if len(unassigned) > FACES:
        return f"{url}&after={unassigned[FACES - 1].face}"
    return None
