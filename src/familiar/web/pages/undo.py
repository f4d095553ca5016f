"""The undo button of every page."""

import contextlib
import re
from urllib.parse import parse_qsl, urlsplit

from fastapi import APIRouter
from fastapi.responses import Response

from familiar.core.errors import NotInGallery
from familiar.gallery import Gallery
from familiar.web.middleware.access import local_path
from familiar.web.pages.assignment_forms import NumberField
from familiar.web.pages.edits import EditDep
from familiar.web.pages.flash import parse_number, url_with_flash

router = APIRouter()


@router.post("/undo")
async def undo(edit: EditDep, decision: NumberField) -> Response:
    """Undo the decision that the button named, and return to its page."""
    path = local_path(edit.back)

    def write(gallery: Gallery) -> str:
        gallery.undo(decision)
        return _url_after_undo(gallery, path, decision)

    return await edit.write(write)


def _url_after_undo(gallery: Gallery, path: str, decision: int) -> str:
    """Return the page with a flash message: of a decision that the page reports, where the faces or the name are now.

    Args:
        gallery: after the decision was undone.
        path: of the page, with the flash message about the decision.
        decision: that was undone.
    """
    parts = urlsplit(path)
    query = dict(parse_qsl(parts.query))
    done, count = query.get("done"), parse_number(query.get("count")) or 0
    if query.get("decision") != str(decision):
        return url_with_flash(path, "undone")
    if done == "named":
        return url_with_flash(path, "undone-name", identity=parse_number(query.get("individual")))
    face, page = parse_number(query.get("face")), re.fullmatch(r"/individuals/(\d+)", parts.path)
    is_listed = page or query.get("tab") == "unassigned"
    if done not in ("moved", "split", "rejected") or not (is_listed or face):
        return url_with_flash(path, "undone")
    identity = parse_number(page[1]) if page else None
    if face and not is_listed:
        with contextlib.suppress(NotInGallery):
            identity = gallery.face(face).identity
    done = "undone-unassigned" if identity is None else "undone-faces"
    return url_with_flash(path, done, count=count, identity=identity)
