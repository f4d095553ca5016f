"""The application (pages, API and middleware) and the process that serves it."""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.types import ASGIApp

from familiar import __version__
from familiar.core.errors import FamiliarError
from familiar.web import api, pages
from familiar.web.error_handlers import answer_errors
from familiar.web.errors import HttpProblem
from familiar.web.middleware import wrap_app
from familiar.web.middleware.error_responses import error_response, opens_page, wants_page
from familiar.web.pages.render import HAS_DESK
from familiar.web.service import Service
from familiar.web.settings import ServerSettings, Settings

MAX_CONNECTIONS = 512  # beyond them 503 is answered: half of the files that a process may have open, often 1,024
EVERY_ADDRESS = ("0.0.0.0", "::")  # of this machine
STATIC = Path(__file__).parent / "static"
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
        openapi_url=None,  # `api.document` has its route
        docs_url=None,  # its page loads scripts from another host
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    app.include_router(api.router)
    api.document(app)
    app.include_router(pages.router, include_in_schema=False)
    if HAS_DESK or service.settings.desk:
        from familiar.web.pages import desk, desk_pet

        app.include_router(desk.router, include_in_schema=False)
        app.include_router(desk_pet.router, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_api_route("/healthz", _healthz, include_in_schema=False)
    answer_errors(app, _respond)
    return app


def serve(settings: Settings, on_ready: Callable[[str], None]) -> None:
    """Serve until interrupted.

    Args:
        on_ready: called with the server's URL once it accepts connections.

    Raises:
        FamiliarError: the gallery, the model, the certificate or the address cannot be used.
    """
    service = Service(settings)
    run_server(make_app(service), settings, on_ready, service)


def run_server(
    app: ASGIApp, settings: ServerSettings, on_ready: Callable[[str], None], service: Service | None = None
) -> None:
    """Serve an application until interrupted.

    Args:
        app: behind its middleware.
        settings: address, port and certificate.
        on_ready: called with the server's URL once it accepts connections.
        service: whose jobs are stopped first.

    Raises:
        FamiliarError: the certificate or the address cannot be used.
    """
    tls = _tls(settings)
    config = uvicorn.Config(
        app,
        ws="none",
        log_config=None,
        access_log=False,  # it would log names of photos
        proxy_headers=False,  # `wrap_app` does that
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=int(settings.limits.stop_seconds),
        ssl_context_factory=None if tls is None else lambda *_: tls,
    )
    # It logs a warning for each malformed form.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    listening = _listen(settings)
    server = uvicorn.Server(config)

    async def run() -> None:
        stopping = None if service is None else asyncio.ensure_future(_stop_jobs_first(server, service))
        await server.serve([listening])
        server.should_exit = True  # whatever ended it
        if stopping is not None:
            await stopping

    try:
        on_ready(_url(settings, listening.getsockname()[1]))
        with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(run())
    finally:
        listening.close()


async def _stop_jobs_first(server: uvicorn.Server, service: Service) -> None:
    """Stop the jobs when the server is to stop: clients that watch a job keep their connections until it ends.

    If that takes longer than `stop_seconds`, or on a second Ctrl+C, the process exits: acknowledged changes are
    written, and an unfinished batch leaves no trace.
    """
    while not server.should_exit:
        await asyncio.sleep(0.1)
    stopping = asyncio.ensure_future(service.jobs.stop())
    loop = asyncio.get_running_loop()
    end = loop.time() + service.settings.limits.stop_seconds
    while not stopping.done() and not server.force_exit and loop.time() < end:
        await asyncio.wait([stopping], timeout=0.1)
    if not stopping.done():
        log.warning("stopped in the middle of a job; enroll the same photos again for the rest")
        os._exit(1)  # a normal exit would wait for the job's thread


def _tls(settings: ServerSettings) -> ssl.SSLContext | None:
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
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password="")  # or OpenSSL would prompt for one on the terminal
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise FamiliarError(f"{key}: does not belong to {certificate}; give the key of this certificate") from error
        raise FamiliarError(
            f"{certificate} and {key} are not a certificate chain and its key, without a passphrase, as PEM files"
        ) from error
    return context


def _listen(settings: ServerSettings) -> socket.socket:
    """Open the socket; of "::" for IPv4, too, where the system can."""
    try:
        addresses = socket.getaddrinfo(settings.address, settings.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise FamiliarError(
            f"{settings.address}: unknown address; give one of this machine, such as --address 127.0.0.1"
        ) from error
    both = settings.address == "::" and socket.has_dualstack_ipv6()
    try:
        return socket.create_server(addresses[0][4][:2], family=addresses[0][0], backlog=2048, dualstack_ipv6=both)
    except OSError as error:
        raise FamiliarError(
            f"cannot listen on {settings.address}, port {settings.port} ({error.strerror}); give another --port"
        ) from error


def _url(settings: ServerSettings, port: int) -> str:
    address = _address_in_network() if settings.address in EVERY_ADDRESS else settings.address
    host = f"[{address}]" if ":" in address else address
    return f"{'https' if settings.certificate else 'http'}://{host}:{port}{settings.root_path}/"


def _address_in_network() -> str:
    """Return the address by which others in the network know this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address of documentation; this sends nothing
        except OSError:
            return "127.0.0.1"
        return probe.getsockname()[0]


async def _healthz() -> Response:
    return PlainTextResponse("ok")


def _respond(request: Request, problem: HttpProblem) -> Response:
    if wants_page(request.scope):
        problem = pages.without_hints(request, problem)
    if opens_page(request.scope):
        return pages.render_error_page(request, problem)
    return error_response(problem, request.scope)
