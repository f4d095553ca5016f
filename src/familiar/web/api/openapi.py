"""OpenAPI document: problem responses (RFC 9457) and the bearer scheme."""

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from pydantic import Field

from familiar.web.api.schemas import ApiModel
from familiar.web.errors import MEDIA_TYPE

COMMON_STATUSES = (400, 401, 403, 413, 422, 429, 503)
WRITE_STATUSES = (409, 507)  # of a route that changes the gallery
UPLOAD_STATUSES = (409, 415, 507)  # of a route that receives photos
_SCHEMAS = "#/components/schemas/"


class Problem(ApiModel):
    """Problem details (RFC 9457)."""

    type: str = Field(
        description="urn:familiar:problem: and the kind of problem.",
        examples=["urn:familiar:problem:not-in-gallery"],
    )
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(description="Cause and remedy, in one line.", examples=["album: has no face 17"])


Responses = dict[int | str, dict[str, Any]]


def problems(*statuses: int) -> Responses:
    """Return the `responses` of a route that can answer these statuses with a problem."""
    content = {MEDIA_TYPE: {"schema": {"$ref": _SCHEMAS + Problem.__name__}}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}


def document(app: FastAPI) -> None:
    """Add to the app's OpenAPI document what FastAPI cannot describe: the problems, and the token."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        schema = make()
        problem = Problem.model_json_schema()
        components = schema.setdefault("components", {})
        components.setdefault("schemas", {}).update({Problem.__name__: problem})
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        schema["security"] = [{"token": []}, {}]
        return schema

    app.openapi = openapi
