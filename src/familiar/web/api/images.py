"""Image responses with ETags."""

from typing import Annotated

from fastapi import Header
from fastapi.responses import Response

from familiar.web.api.openapi import MISSING, Responses
from familiar.web.thumbnails import Thumbnail

IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match", description="The ETag of the cached image.")]


class Jpeg(Response):
    media_type = "image/jpeg"


def image_response(thumbnail: Thumbnail, if_none_match: str | None) -> Response:
    """Return the image, or 304 if the client's copy is current: a corrected face box changes its crop.

    Browsers must not store it: their caches are files on the disks of everybody who has looked at a page, where no
    `forget` reaches. A program that keeps copies itself may revalidate them by the ETag.
    """
    headers = {"ETag": thumbnail.etag, "Cache-Control": "no-store"}
    if if_none_match is not None and thumbnail.etag in {
        tag.strip().removeprefix("W/") for tag in if_none_match.split(",")
    }:
        return Response(status_code=304, headers=headers)
    return Jpeg(thumbnail.content, headers=headers)


RESPONSES: Responses = {304: {"description": "The cached image is up to date."}} | MISSING
