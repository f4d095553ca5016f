"""The application, put together, and the process that serves it."""

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
from familiar.web.errors import MEDIA_TYPE, HttpProblem, problem_details, problem_headers, kebab, internal_error, to_problem
from familiar.web.middleware import wrap_app
from familiar.web.middleware.error_responses import opens_page, wants_page
from familiar.web.middleware.http_protocol import make_protocol_factory
from familiar.web.service import Service
from familiar.web.settings import Settings

STATIC = Path(__file__).parent / "static"
MAX_REPORTED_ERRORS = 5  # things that are wrong with one request
log = logging.getLogger("familiar.serve")


def make_app(service: Service) -> ASGIApp:
    """Pages, API and the guard before them. The service starts and stops with it."""
    return wrap_app(_application(service), service.settings)


def _application(service: Service) -> FastAPI:
    @contextlib.asynccontextmanager
    async def living(_: FastAPI) -> AsyncGenerator[None, None]:
        await service.start()
        yield
        await service.stop()

    app = FastAPI(
        title="familiar",
        version=__version__,
        summary="Who is on which photo: one gallery, its photos, faces and individuals.",
        lifespan=living,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # its page asks another host for its scripts
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    app.include_router(api.router)
    api.document(app)
    app.include_router(pages.router, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_api_route("/healthz", _healthy, include_in_schema=False)
    app.add_exception_handler(FamiliarError, _exception_handler(_problem_from_familiar_error))
    app.add_exception_handler(RequestValidationError, _exception_handler(_problem_from_validation))
    app.add_exception_handler(HTTPException, _exception_handler(_problem_from_http_exception))
    app.add_middleware(_CatchAllMiddleware)
    return app


def serve(settings: Settings, on_ready: Callable[[str], None]) -> None:
    """Serves until it is interrupted. `told` is given the address once photos can be taken in.

    FamiliarError where the gallery, the model, the certificate or the address cannot be had.
    """
    tls = _tls(settings)
    service = Service(settings)
    config = uvicorn.Config(
        make_app(service),
        http=make_protocol_factory(settings.limits, tls),
        ws="none",
        log_config=None,
        access_log=False,  # it would log names of photos
        proxy_headers=False,  # anybody can send them
        server_header=False,
        timeout_graceful_shutdown=int(settings.limits.stop_seconds),
    )
    # It warns of each form that is not well made.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    listening = _listen(settings)
    try:
        on_ready(_url(settings, listening.getsockname()[1]))
        with contextlib.suppress(KeyboardInterrupt):  # which is how it is stopped
            _Server(config, service).run([listening])
    finally:
        listening.close()


class _Server(uvicorn.Server):
    """Stops in the right order: jobs first, or those who watch their progress would keep their connections.

    The process is ended where they take longer than stop_seconds, or on a second Ctrl+C: what was acknowledged is
    written, and the rest of a batch is as if it had never begun.
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
            log.warning("stopped in the midst of a job; take in the same photos again for the rest")
            os._exit(1)  # Python itself would wait for the job's thread
        await super().shutdown(sockets)
        if self.force_exit:
            os._exit(1)


def _tls(settings: Settings) -> ssl.SSLContext | None:
    """None: plain HTTP."""
    certificate, key = settings.certificate, settings.certificate_key
    if certificate is None or key is None:
        return None
    for file in (certificate, key):
        try:
            file.read_bytes()
        except OSError as error:  # that of ssl names no file
            raise FamiliarError(f"{file}: {error.strerror}; give a PEM file that this user may read") from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password="")  # or OpenSSL would ask the terminal for one
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise FamiliarError(f"{key}: the key of another certificate than {certificate}; give its own") from error
        raise FamiliarError(
            f"{certificate} and {key} are not a certificate chain and its key, without a passphrase, as PEM files"
        ) from error
    return context


def _listen(settings: Settings) -> socket.socket:
    try:
        found = socket.getaddrinfo(settings.address, settings.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise FamiliarError(
            f"{settings.address}: no address that is known here; give one of this machine, as --address 127.0.0.1"
        ) from error
    try:
        return socket.create_server(found[0][4][:2], family=found[0][0], backlog=2048)
    except OSError as error:
        raise FamiliarError(
            f"cannot listen on {settings.address}, port {settings.port} ({error.strerror}); give another --port"
        ) from error


def _url(settings: Settings, port: int) -> str:
    host = f"[{settings.address}]" if ":" in settings.address else settings.address
    return f"{'https' if settings.certificate else 'http'}://{host}:{port}/"


async def _healthy() -> Response:
    return PlainTextResponse("ok")


def _exception_handler(as_refused: Callable[[Exception], HttpProblem]) -> Callable[[Request, Exception], Response]:
    def answer(request: Request, error: Exception) -> Response:
        response = _respond(request, as_refused(error))
        response.headers.update(getattr(error, "headers", None) or {})  # such as Allow of a 405
        return response

    return answer


def _respond(request: Request, said: HttpProblem) -> Response:
    if wants_page(request.scope):
        said = pages.without_hints(request, said)
    if opens_page(request.scope):
        return pages.render_error_page(request, said)
    return JSONResponse(problem_details(said), said.status, problem_headers(said), MEDIA_TYPE)


def _problem_from_familiar_error(error: Exception) -> HttpProblem:
    assert isinstance(error, FamiliarError)
    return to_problem(error)


def _problem_from_validation(error: Exception) -> HttpProblem:
    """Where it is wrong and why, never what was sent."""
    assert isinstance(error, RequestValidationError)
    wrong = [f"{'/'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:MAX_REPORTED_ERRORS]]
    return HttpProblem(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid", "; ".join(wrong))


def _problem_from_http_exception(error: Exception) -> HttpProblem:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    return HttpProblem(status, kebab(status.phrase.title().replace(" ", "")), str(error.detail))


class _CatchAllMiddleware:
    """Whatever else goes wrong is told as a mistake of ours, and goes no further."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def note(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, note)
        except ClientDisconnect:  # nobody is left to be told
            return
        except Exception as error:
            if scope["type"] != "http":  # it cannot start
                raise
            said = internal_error(error, "a request")
            if not begun:
                await _respond(Request(scope), said)(scope, receive, send)
