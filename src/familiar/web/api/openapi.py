"""OpenAPI document: problem responses (RFC 9457) and the bearer scheme."""

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from familiar.web.api.models import ApiModel
from familiar.web.errors import MEDIA_TYPE
from familiar.web.middleware.root_path import root_path


class Problem(ApiModel):
    """Problem details (RFC 9457)."""

    type: str = Field(examples=["urn:familiar:problem:not-in-gallery"])
    """urn:familiar:problem: and the kind of problem."""
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["album: has no face 17"])
    """Cause and remedy, in one line."""


Responses = dict[int | str, dict[str, Any]]


def _problems(*statuses: int) -> Responses:
    """Return the `responses` of a route that can answer these statuses with a problem."""
    content = {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{Problem.__name__}"}}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}


COMMON = _problems(400, 401, 403, 413, 422, 429, 503)
MISSING = _problems(404)  # of a route to a photo, face, identity or job
CONFLICT = _problems(409)
WRITE = _problems(409, 507)  # of a route that changes the gallery
EDIT = MISSING | WRITE  # of a route that changes a photo, face or identity
UPLOAD = _problems(409, 415, 507)  # of a route that receives photos


def document(app: FastAPI) -> None:
    """Add to the app's OpenAPI document what FastAPI cannot describe, and a route to it.

    These are the problems, the token, and the path under which a proxy serves the API.
    """
    make = app.openapi

    def openapi() -> dict[str, Any]:
        schema = make()
        components = schema["components"]
        components["schemas"][Problem.__name__] = Problem.model_json_schema()
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        schema["security"] = [{"token": []}, {}]
        return schema

    app.openapi = openapi

    @app.get("/api/v1/openapi.json", include_in_schema=False)
    async def _openapi(request: Request) -> JSONResponse:
        root = root_path(request.scope)
        return JSONResponse(app.openapi() | ({"servers": [{"url": root}]} if root else {}))
