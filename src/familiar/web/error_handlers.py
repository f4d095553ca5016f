"""How an application answers exceptions: as problem details, or as its own error page."""

from collections.abc import Callable
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from familiar.core.errors import CannotWrite, FamiliarError
from familiar.web.errors import HttpProblem, internal_error, kebab, to_problem

MAX_REPORTED_ERRORS = 5  # validation errors of one request
NO_FILE = "this part has no file name; send the photo as a file, with a name in Content-Disposition"
Respond = Callable[[Request, HttpProblem], Response]


def answer_errors(app: FastAPI, respond: Respond) -> None:
    """Answer all exceptions of an application.

    Args:
        app: whose handlers raise them.
        respond: makes the response to a request that has a problem.
    """

    def handle(request: Request, error: Exception) -> Response:
        response = respond(request, _problem(error))
        response.headers.update(getattr(error, "headers", None) or {})  # such as Allow of a 405
        return response

    for kind in (FamiliarError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, handle)
    app.add_middleware(_CatchAllMiddleware, respond=respond)


def _problem(error: Exception) -> HttpProblem:
    if isinstance(error, RequestValidationError):  # where the request is wrong and why, without its values
        messages = [
            f"{'/'.join(map(str, each['loc']))}: {NO_FILE if 'Expected UploadFile' in each['msg'] else each['msg']}"
            for each in error.errors()[:MAX_REPORTED_ERRORS]
        ]
        return HttpProblem(422, "invalid", "; ".join(messages))
    cause = error if isinstance(error, FamiliarError) else error.__cause__
    if isinstance(cause, FamiliarError):  # raised while a body was read, if it is the cause of another error
        return to_problem(cause)
    if isinstance(cause, OSError):  # of the form parser, which writes large photos to temporary files
        reason = f"the server's folder for temporary files cannot be written ({cause.strerror or cause})"
        return to_problem(CannotWrite(f"{reason}; nothing was changed"))
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    return HttpProblem(status, kebab(status.phrase.title().replace(" ", "")), str(error.detail))


class _CatchAllMiddleware:
    """Middleware that answers any other exception with a 500 problem and does not raise it further."""

    def __init__(self, app: ASGIApp, respond: Respond) -> None:
        self._app, self._respond = app, respond

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
                await self._respond(Request(scope), problem)(scope, receive, send)
