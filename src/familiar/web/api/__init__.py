"""HTTP API: JSON under /api/v1, for programs. `router` has all routes; `document` completes the OpenAPI document."""

from collections import defaultdict
from http import HTTPStatus

from fastapi import APIRouter, HTTPException
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Route

from familiar.web.api import faces, gallery, identities, inference, photos
from familiar.web.api.openapi import COMMON, document

__all__ = ["document", "router"]


class _MethodNotAllowed:
    """An ASGI app, since a route to an app matches every method, unlike one to a function."""

    def __init__(self, allowed: str) -> None:
        self._allowed = allowed

    async def __call__(self, *_: object) -> None:
        raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": self._allowed})


def _with_method_errors(part: APIRouter) -> APIRouter:
    """Answer 405 to the other methods of each path, before /faces/{face} reads "confirm" as a number."""
    paths: defaultdict[str, list[APIRoute]] = defaultdict(list)
    for route in part.routes:
        assert isinstance(route, APIRoute)
        paths[route.path].append(route)
    routes: list[BaseRoute] = []
    for path, path_routes in paths.items():
        allowed = sorted(method for route in path_routes for method in route.methods or ())
        routes += [*path_routes, Route(path, _MethodNotAllowed(", ".join(allowed)), include_in_schema=False)]
    part.routes[:] = routes
    return part


router = APIRouter(prefix="/api/v1", responses=COMMON, generate_unique_id_function=lambda route: route.name)
# Routes are matched in turn: the most frequent ones come first.
for _module in (inference, gallery, photos, faces, identities):
    router.include_router(_with_method_errors(_module.router))
