"""Security headers of every response."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CSP_HEADER = "Content-Security-Policy"
# For a whole page from elsewhere, with its styles and images inline: it runs no script and loads nothing.
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
    "Referrer-Policy": "same-origin",  # with none, the Origin of forms would be "null"
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class SecurityHeadersMiddleware:
    """Middleware that sets SECURITY_HEADERS on every response.

    Of these, the app may only replace the policy, by SANDBOX_POLICY. Cache-Control is `no-store` by default.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                sandboxed = headers.get(CSP_HEADER) == SANDBOX_POLICY
                headers.update(SECURITY_HEADERS | {CSP_HEADER: SANDBOX_POLICY} if sandboxed else SECURITY_HEADERS)
                headers.setdefault("Cache-Control", "no-store")
                del headers["Server"]
            await send(message)

        await self._app(scope, receive, send_with_headers)
