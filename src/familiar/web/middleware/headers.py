"""Headers that keep a browser from doing with an answer what was not meant."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CSP_HEADER = "Content-Security-Policy"
# Of a whole page that came from elsewhere, its styles and pictures inside: nothing in it runs or asks for anything.
SANDBOX_POLICY = (
    "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    CSP_HEADER: (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class SecurityHeadersMiddleware:
    """Sets SAFE on every response, whatever the app said but SHUT_IN, and no-store where it said nothing of caching."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                shut_in = headers.get(CSP_HEADER) == SANDBOX_POLICY
                headers.update(SECURITY_HEADERS | {CSP_HEADER: SANDBOX_POLICY} if shut_in else SECURITY_HEADERS)
                headers.setdefault("Cache-Control", "no-store")
                del headers["Server"]
            await send(message)

        await self._app(scope, receive, safely)
