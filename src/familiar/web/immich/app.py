"""The application and the process that answer an Immich server."""

import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.datastructures import UploadFile
from starlette.types import ASGIApp

from familiar import __version__
from familiar.core.types import Face
from familiar.embedding.embedder import Embedder
from familiar.web.error_handlers import answer_errors
from familiar.web.errors import HttpProblem
from familiar.web.immich.entries import FACES, parse_entries
from familiar.web.immich.recognition import ANY_NAME, Recognition
from familiar.web.immich.upstream import Upstream
from familiar.web.middleware import wrap_app
from familiar.web.middleware.error_responses import error_response
from familiar.web.server import run_server
from familiar.web.settings import ServerSettings
from familiar.web.uploads import receive


@dataclass(frozen=True, kw_only=True)
class ImmichSettings(ServerSettings):
    """Settings of the server that answers Immich.

    Attributes:
        models: models by the name that Immich asks for; `ANY_NAME`: those that answer any other name.
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
        FamiliarError: a model cannot be used.
    """
    distinct = dict.fromkeys(path for paths in settings.models.values() for path in paths)
    opened = {path: Embedder(path, providers=settings.providers) for path in distinct}
    models = {name: [opened[path] for path in paths] for name, paths in settings.models.items()}
    recognition = Recognition(models, settings.detector, settings.limits)
    upstream = None if settings.upstream is None else Upstream(settings.upstream)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None, None]:
        yield
        await recognition.stop()
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
    async def predict(request: Request) -> Response:
        return JSONResponse(await _predict(request, recognition, upstream, settings))

    answer_errors(app, lambda request, problem: error_response(problem, request.scope))
    return wrap_app(app, settings)


async def _predict(
    request: Request, recognition: Recognition, upstream: Upstream | None, settings: ImmichSettings
) -> dict[str, Any]:
    async with request.form(max_files=1, max_fields=4, max_part_size=settings.limits.json_bytes) as form:
        entries, image, text = form.get("entries"), form.get("image"), form.get("text")
        if not isinstance(entries, str):
            raise HttpProblem(HTTPStatus.UNPROCESSABLE_ENTITY, "bad-entries", "the form has no field entries")
        tasks = parse_entries(entries)
        if not isinstance(image, UploadFile) and not isinstance(text, str):
            raise HttpProblem(HTTPStatus.BAD_REQUEST, "no-input", "the form has neither an image nor a text")
        if tasks.faces is not None and not isinstance(image, UploadFile):
            raise HttpProblem(HTTPStatus.BAD_REQUEST, "no-input", f"{FACES} needs an image")
        if tasks.others and upstream is None:
            raise HttpProblem(
                HTTPStatus.NOT_IMPLEMENTED,
                "faces-only",
                f"familiar has no models for {', '.join(tasks.others)}: start it with --upstream and the URL of "
                "Immich's own machine-learning server, or turn that off in Immich",
            )
        files = [image] if isinstance(image, UploadFile) else []
        answer: dict[str, Any] = {}
        async with receive(files, settings.limits) as uploads:
            photo = uploads[0] if uploads else None
            if tasks.others and upstream is not None:
                answer |= await upstream.predict(tasks.others, photo, text if isinstance(text, str) else None)
            if tasks.faces is not None and photo is not None:
                size_px, faces = await recognition.recognize(photo, tasks.faces.model, tasks.faces.min_score)
                width, height = size_px
                answer |= {FACES: [_describe(face) for face in faces], "imageHeight": height, "imageWidth": width}
        return answer


def _describe(face: Face) -> dict[str, Any]:
    assert face.embedding is not None
    x1, y1, x2, y2 = face.box_xyxy_px
    return {
        "boundingBox": {"x1": x1, "y1": y1, "x2": x2, "y2": y2},
        # A text, since Immich passes it to its database as it is.
        "embedding": "[" + ",".join(f"{number:.7g}" for number in face.embedding.tolist()) + "]",
        "score": face.score,
    }


def parse_models(models: Sequence[str]) -> dict[str, list[Path]]:
    """Parse models as the command line has them: MODEL, or NAME=MODEL for one of Immich's names.

    >>> parse_models(["person-mobile", "pets=pet-nano"])
    {'': [PosixPath('person-mobile')], 'pets': [PosixPath('pet-nano')]}
    """
    by_name: dict[str, list[Path]] = {}
    for model in models:
        name, separator, path = model.partition("=")
        if not separator or Path(model).exists():
            name, path = ANY_NAME, model
        by_name.setdefault(name, []).append(Path(path))
    return by_name
