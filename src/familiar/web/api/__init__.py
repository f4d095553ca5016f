"""The HTTP API: JSON under /api/v1, for programs. `router` is all of it; `document` completes its OpenAPI document."""

from collections import defaultdict
from http import HTTPStatus

from fastapi import APIRouter, HTTPException
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Route

from familiar.web.api import faces, gallery, identities, inference, photos
from familiar.web.api.openapi import COMMON_STATUSES, document, problems

__all__ = ["document", "router"]


class _MethodNotAllowed:
    """An ASGI app: unlike a function it is asked by every method."""

    def __init__(self, allowed: str) -> None:
        self._allowed = allowed

    async def __call__(self, *_: object) -> None:
        raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": self._allowed})


def _with_method_errors(part: APIRouter) -> APIRouter:
    """Its paths refuse every other method, before /faces/{face} takes the word of /faces/confirm for a number."""
    paths: defaultdict[str, list[APIRoute]] = defaultdict(list)
    for route in part.routes:
        assert isinstance(route, APIRoute)
        paths[route.path].append(route)
    routes: list[BaseRoute] = []
    for path, own in paths.items():
        allowed = sorted(method for route in own for method in route.methods or ())
        routes += [*own, Route(path, _MethodNotAllowed(", ".join(allowed)), include_in_schema=False)]
    part.routes[:] = routes
    return part


router = APIRouter(prefix="/api/v1", responses=problems(*COMMON_STATUSES))
# Paths are tried in turn: what is asked most comes first.
for _part in (inference, gallery, photos, faces, identities):
    router.include_router(_with_method_errors(_part.router))
