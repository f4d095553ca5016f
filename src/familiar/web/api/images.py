"""Pictures over HTTP: sent once, then asked for by their tag."""

from typing import Annotated

from fastapi import Header
from fastapi.responses import Response

from familiar.web.api.openapi import Responses, problems
from familiar.web.thumbnails import Thumbnail

IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match", description="The ETag of what is there already.")]


class Jpeg(Response):
    media_type = "image/jpeg"


def image_response(picture: Thumbnail, known: str | None) -> Response:
    """The picture, or that it has not changed. The browser asks each time, since a box may be moved by hand."""
    headers = {"ETag": picture.etag, "Cache-Control": "private, no-cache"}
    if known is not None and picture.etag in {tag.strip().removeprefix("W/") for tag in known.split(",")}:
        return Response(status_code=304, headers=headers)
    return Response(picture.content, media_type=picture.media_type, headers=headers)


RESPONSES: Responses = {304: {"description": "What is known has not changed."}} | problems(404)
