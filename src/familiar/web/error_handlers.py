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
    app.add_exception_handler(FamiliarError, _exception_handler(_problem_from_familiar_error, respond))
    app.add_exception_handler(RequestValidationError, _exception_handler(_problem_from_validation, respond))
    app.add_exception_handler(HTTPException, _exception_handler(_problem_from_http_exception, respond))
    app.add_middleware(_CatchAllMiddleware, respond=respond)


def _exception_handler(
    to_http_problem: Callable[[Exception], HttpProblem], respond: Respond
) -> Callable[[Request, Exception], Response]:
    def handle(request: Request, error: Exception) -> Response:
        response = respond(request, to_http_problem(error))
        response.headers.update(getattr(error, "headers", None) or {})  # such as Allow of a 405
        return response

    return handle


def _problem_from_familiar_error(error: Exception) -> HttpProblem:
    assert isinstance(error, FamiliarError)
    return to_problem(error)


def _problem_from_validation(error: Exception) -> HttpProblem:
    """Report where the request is wrong and why, without repeating its values."""
    assert isinstance(error, RequestValidationError)
    messages = [
        f"{'/'.join(map(str, each['loc']))}: {NO_FILE if 'Expected UploadFile' in each['msg'] else each['msg']}"
        for each in error.errors()[:MAX_REPORTED_ERRORS]
    ]
    return HttpProblem(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid", "; ".join(messages))


def _problem_from_http_exception(error: Exception) -> HttpProblem:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, OSError):  # of the form parser, which writes large photos to temporary files
        return to_problem(_temporary_files_error(error.__cause__))
    status = HTTPStatus(error.status_code)
    return HttpProblem(status, kebab(status.phrase.title().replace(" ", "")), str(error.detail))


def _temporary_files_error(error: OSError) -> CannotWrite:
    return CannotWrite(
        f"the server's folder for temporary files cannot be written ({error.strerror or error}); nothing was changed"
    )


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
