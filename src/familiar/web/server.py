"""The application (pages, API and middleware) and the process that serves it."""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Callable
from http import HTTPStatus
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from familiar import __version__
from familiar.core.errors import FamiliarError
from familiar.web import api, pages
from familiar.web.errors import (
    MEDIA_TYPE,
    HttpProblem,
    internal_error,
    kebab,
    problem_details,
    problem_headers,
    to_problem,
)
from familiar.web.middleware import wrap_app
from familiar.web.middleware.error_responses import opens_page, wants_page
from familiar.web.middleware.http_protocol import make_protocol_factory
from familiar.web.service import Service
from familiar.web.settings import Settings

STATIC = Path(__file__).parent / "static"
MAX_REPORTED_ERRORS = 5  # validation errors of one request
log = logging.getLogger("familiar.serve")


def make_app(service: Service) -> ASGIApp:
    """Build the application: pages and API behind the middleware. The service starts and stops with it."""
    return wrap_app(_application(service), service.settings)


def _application(service: Service) -> FastAPI:
    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None, None]:
        await service.start()
        yield
        await service.stop()

    app = FastAPI(
        title="familiar",
        version=__version__,
        summary="Search and edit one face gallery: its photos, faces and individuals.",
        lifespan=lifespan,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # its page loads scripts from another host
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    app.include_router(api.router)
    api.document(app)
    app.include_router(pages.router, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_api_route("/healthz", _healthz, include_in_schema=False)
    app.add_exception_handler(FamiliarError, _exception_handler(_problem_from_familiar_error))
    app.add_exception_handler(RequestValidationError, _exception_handler(_problem_from_validation))
    app.add_exception_handler(HTTPException, _exception_handler(_problem_from_http_exception))
    app.add_middleware(_CatchAllMiddleware)
    return app


def serve(settings: Settings, on_ready: Callable[[str], None]) -> None:
    """Serve until interrupted.

    Args:
        on_ready: called with the server's URL once it accepts connections.

    Raises:
        FamiliarError: the gallery, the model, the certificate or the address cannot be used.
    """
    tls = _tls(settings)
    service = Service(settings)
    config = uvicorn.Config(
        make_app(service),
        http=make_protocol_factory(settings.limits, tls),
        ws="none",
        log_config=None,
        access_log=False,  # it would log names of photos
        proxy_headers=False,  # any client can send these headers
        server_header=False,
        timeout_graceful_shutdown=int(settings.limits.stop_seconds),
    )
    # It logs a warning for each malformed form.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    listening = _listen(settings)
    try:
        on_ready(_url(settings, listening.getsockname()[1]))
        with contextlib.suppress(KeyboardInterrupt):  # the way to stop it
            _Server(config, service).run([listening])
    finally:
        listening.close()


class _Server(uvicorn.Server):
    """A uvicorn server that stops the jobs first: clients that watch a job keep their connections until it ends.

    If the jobs take longer than `stop_seconds`, or on a second Ctrl+C, the process exits: acknowledged changes are
    written, and an unfinished batch leaves no trace.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        stopping = asyncio.ensure_future(self._service.jobs.stop())
        loop = asyncio.get_running_loop()
        end = loop.time() + self._service.settings.limits.stop_seconds
        while not stopping.done() and not self.force_exit and loop.time() < end:
            await asyncio.wait([stopping], timeout=0.1)
        if not stopping.done():
            log.warning("stopped in the middle of a job; enroll the same photos again for the rest")
            os._exit(1)  # a normal exit would wait for the job's thread
        await super().shutdown(sockets)
        if self.force_exit:
            os._exit(1)


def _tls(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context, None for plain HTTP."""
    certificate, key = settings.certificate, settings.certificate_key
    if certificate is None or key is None:
        return None
    for file in (certificate, key):
        try:
            file.read_bytes()
        except OSError as error:  # the error of `ssl` names no file
            raise FamiliarError(f"{file}: {error.strerror}; give a PEM file that this user may read") from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password="")  # or OpenSSL would prompt for one on the terminal
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise FamiliarError(f"{key}: does not belong to {certificate}; give the key of this certificate") from error
        raise FamiliarError(
            f"{certificate} and {key} are not a certificate chain and its key, without a passphrase, as PEM files"
        ) from error
    return context


def _listen(settings: Settings) -> socket.socket:
    try:
        addresses = socket.getaddrinfo(settings.address, settings.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise FamiliarError(
            f"{settings.address}: unknown address; give one of this machine, such as --address 127.0.0.1"
        ) from error
    try:
        return socket.create_server(addresses[0][4][:2], family=addresses[0][0], backlog=2048)
    except OSError as error:
        raise FamiliarError(
            f"cannot listen on {settings.address}, port {settings.port} ({error.strerror}); give another --port"
        ) from error


def _url(settings: Settings, port: int) -> str:
    host = f"[{settings.address}]" if ":" in settings.address else settings.address
    return f"{'https' if settings.certificate else 'http'}://{host}:{port}/"


async def _healthz() -> Response:
    return PlainTextResponse("ok")


def _exception_handler(to_http_problem: Callable[[Exception], HttpProblem]) -> Callable[[Request, Exception], Response]:
    def handle(request: Request, error: Exception) -> Response:
        response = _respond(request, to_http_problem(error))
        response.headers.update(getattr(error, "headers", None) or {})  # such as Allow of a 405
        return response

    return handle


def _respond(request: Request, problem: HttpProblem) -> Response:
    if wants_page(request.scope):
        problem = pages.without_hints(request, problem)
    if opens_page(request.scope):
        return pages.render_error_page(request, problem)
    return JSONResponse(problem_details(problem), problem.status, problem_headers(problem), MEDIA_TYPE)


def _problem_from_familiar_error(error: Exception) -> HttpProblem:
    assert isinstance(error, FamiliarError)
    return to_problem(error)


def _problem_from_validation(error: Exception) -> HttpProblem:
    """Report where the request is wrong and why, without repeating its values."""
    assert isinstance(error, RequestValidationError)
    messages = [f"{'/'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:MAX_REPORTED_ERRORS]]
    return HttpProblem(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid", "; ".join(messages))


def _problem_from_http_exception(error: Exception) -> HttpProblem:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    return HttpProblem(status, kebab(status.phrase.title().replace(" ", "")), str(error.detail))


class _CatchAllMiddleware:
    """Middleware that answers any other exception with a 500 problem and does not raise it further."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response_started = False

        async def send_and_note(message: Message) -> None:
            nonlocal response_started
            response_started = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except ClientDisconnect:  # no client is left to answer
            return
        except Exception as error:
            if scope["type"] != "http":  # the app cannot start
                raise
            problem = internal_error(error, "a request")
            if not response_started:
                await _respond(Request(scope), problem)(scope, receive, send)
