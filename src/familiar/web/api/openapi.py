"""What can go wrong, told in the OpenAPI document as it is answered: as problem details."""

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI

from familiar.web.api.responses import Problem
from familiar.web.errors import MEDIA_TYPE

COMMON_STATUSES = (400, 401, 403, 413, 422, 429, 503)
WRITE_STATUSES = (409, 507)  # where the gallery is changed
UPLOAD_STATUSES = (409, 415, 507)  # where photos are sent
_SCHEMAS = "#/components/schemas/"

Responses = dict[int | str, dict[str, Any]]


def problems(*statuses: int) -> Responses:
    """As `responses` of a route."""
    content = {MEDIA_TYPE: {"schema": {"$ref": _SCHEMAS + Problem.__name__}}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}


def document(app: FastAPI) -> None:
    """Adds to the app's OpenAPI document what FastAPI has no words for: our problems, and the token."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        made = make()
        problem = Problem.model_json_schema()
        parts = made.setdefault("components", {})
        parts.setdefault("schemas", {}).update({Problem.__name__: problem})
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{"token": []}, {}]
        return made

    app.openapi = openapi
