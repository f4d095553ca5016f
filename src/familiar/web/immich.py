"""The server that answers Immich: its address and limits around `familiar.integrations.immich`."""

import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.datastructures import UploadFile
from starlette.types import ASGIApp

from familiar import __version__
from familiar.detection.detectors import build_detector
from familiar.embedding.embedder import Embedder
from familiar.integrations.immich.entries import ImmichError
from familiar.integrations.immich.recognition import FoundFaces, Recognition
from familiar.integrations.immich.service import predict
from familiar.integrations.immich.upstream import Upstream
from familiar.web.error_handlers import answer_errors
from familiar.web.errors import HttpProblem
from familiar.web.inference import Inference
from familiar.web.middleware import wrap_app
from familiar.web.middleware.error_responses import error_response
from familiar.web.server import run_server
from familiar.web.settings import ServerSettings
from familiar.web.uploads import Upload, to_uploads


@dataclass(frozen=True, kw_only=True)
class ImmichSettings(ServerSettings):
    """Settings of the server that answers Immich.

    Attributes:
        models: models by the name that Immich asks for; "": those that answer any other name.
        providers: execution providers of ONNX Runtime; None: the CPU.
        detector: name of the detector of all models; None: each has its own.
        upstream: URL of a server for what is not about faces.
    """

    port: int = 3003  # Immich's default
    models: Mapping[str, Sequence[Path]] = field(default_factory=dict[str, Sequence[Path]])
    providers: tuple[str, ...] | None = None
    detector: str | None = None
    upstream: str | None = None


def serve_immich(settings: ImmichSettings, on_ready: Callable[[str], None]) -> None:
    """Answer an Immich server until interrupted.

    Args:
        settings: of the server.
        on_ready: called with the server's URL once it accepts connections.

    Raises:
        FamiliarError: a model, the certificate or the address cannot be used.
    """
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it would log each request
    run_server(make_immich_app(settings), settings, on_ready)


def make_immich_app(settings: ImmichSettings) -> ASGIApp:
    """Build the application behind its middleware.

    Raises:
        BadDetector, FamiliarError: a detector or a model cannot be used.
    """
    distinct = dict.fromkeys(path for paths in settings.models.values() for path in paths)
    opened = {path: Embedder(path, providers=settings.providers) for path in distinct}
    threads = {
        model: Inference(
            model, build_detector(settings.detector) if settings.detector else model.detector(), settings.limits
        )
        for model in opened.values()
    }

    async def find_faces(model: Embedder, photo: Any) -> FoundFaces:
        detected = await threads[model].detect(cast(Upload, photo))
        return detected.size_px, detected.faces

    recognition = Recognition(
        {name: [opened[path] for path in paths] for name, paths in settings.models.items()}, find_faces
    )
    upstream = None if settings.upstream is None else Upstream(settings.upstream)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None, None]:
        yield
        for inference in threads.values():
            await inference.stop()
        if upstream is not None:
            await upstream.close()

    app = FastAPI(title="familiar for Immich", version=__version__, lifespan=lifespan, openapi_url=None)

    @app.get("/")
    async def name() -> Response:
        return JSONResponse({"message": "familiar for Immich"})

    @app.get("/ping")
    async def ping() -> Response:
        return PlainTextResponse("pong")

    @app.post("/predict")
    async def answer(request: Request) -> Response:
        limits = settings.limits
        async with request.form(max_files=1, max_fields=4, max_part_size=limits.json_bytes) as form:
            entries, image, text = (form.get(field) for field in ("entries", "image", "text"))
            uploads = to_uploads([image] if isinstance(image, UploadFile) else [], limits)
            texts = (each if isinstance(each, str) else None for each in (entries, text))
            try:
                return JSONResponse(
                    await predict(next(texts), next(iter(uploads), None), next(texts), recognition, upstream)
                )
            except ImmichError as error:
                raise HttpProblem(error.status, error.kind, str(error)) from error

    answer_errors(app, lambda request, problem: error_response(problem, request.scope))
    return wrap_app(app, settings)
