"""Pages and API under a path such as /photos, behind a proxy that has other things beside them.

Within the application every path is as without a proxy. This module removes the path from requests, if the proxy left
it there, and adds it to what the answers lead to: links and redirects.
"""

import re
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from familiar.web.middleware.client_address import THIS_MACHINE, client_address
from familiar.web.settings import ROOT_PATH

STATE_KEY = "root_path"  # of scope["state"]
# Jinja escapes quotation marks, so that no text of a user looks like an attribute.
LINK = re.compile(r'\s(?:href|src|action|data-similar|hx-get)="(?=/)')


class RootPathMiddleware:
    """Middleware that lets an application live under a path.

    Proxies forward /photos/album as it is or as /album. Both are understood: the path is removed unless `routes` answer
    the request as it came, such as /photos/12.

    Args:
        app: what answers, as if it had the host for itself.
        root_path: such as "/photos". If it is empty, a proxy on this machine may send it as X-Forwarded-Prefix.
        routes: of the application.
    """

    def __init__(self, app: ASGIApp, root_path: str, routes: Sequence[BaseRoute]) -> None:
        self._app, self._root_path, self._routes = app, root_path, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        root = self._root_path or _forwarded_prefix(scope)
        if not root:
            await self._app(scope, receive, send)
            return

        async def send_with_root(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    (name, _header_with_root(name, value, root.encode())) for name, value in message["headers"]
                ]
            await send(message)

        scope = dict(scope) | {"state": {**scope.get("state", {}), STATE_KEY: root}}
        path: str = scope["path"]
        if f"{path}/".startswith(f"{root}/") and not self._is_route(scope):
            scope["path"] = path.removeprefix(root) or "/"
            scope["raw_path"] = scope["raw_path"].removeprefix(root.encode()) or b"/"
        await self._app(scope, receive, send_with_root)

    def _is_route(self, scope: Scope) -> bool:
        return any(route.matches(scope)[0] is not Match.NONE for route in self._routes)


def root_path(scope: Scope) -> str:
    """Return the path under which the client of a request sees this server; "" if it has the host for itself."""
    return scope.get("state", {}).get(STATE_KEY, "")


def with_root_path(html: str, scope: Scope) -> str:
    """Add the path under which a client sees this server to the links of a page.

    >>> with_root_path('<a href="/album">Album</a>', {"state": {"root_path": "/photos"}})
    '<a href="/photos/album">Album</a>'
    """
    root = root_path(scope)
    return LINK.sub(lambda link: link[0] + root, html) if root else html


def _forwarded_prefix(scope: Scope) -> str:
    """Return X-Forwarded-Prefix, if it is a path, and was sent from this machine: others could be anybody."""
    prefix = Headers(scope=scope).get("x-forwarded-prefix", "").rstrip("/")
    return prefix if client_address(scope) == THIS_MACHINE and ROOT_PATH.fullmatch(prefix) else ""


def _header_with_root(name: bytes, value: bytes, root: bytes) -> bytes:
    if name in (b"location", b"hx-push-url") and value.startswith(b"/"):
        return root + value
    if name == b"clear-site-data":
        return b'"cache"'  # the storage is shared with what else is on this host
    return value
