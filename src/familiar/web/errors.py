"""HTTP errors: problem details (RFC 9457) built from exceptions, in one place."""

import logging
import traceback
from http import HTTPStatus
from typing import Any

from familiar.core.errors import (
    BadGallery,
    CannotWrite,
    Contradiction,
    CorruptGallery,
    FamiliarError,
    GalleryBusy,
    NoBundleForSpecies,
    NoFaceFound,
    NothingToMeasure,
    NotInGallery,
    SpaceMismatch,
    UnknownSpecies,
    UnreadablePhoto,
)
from familiar.core.terminal_text import one_line

MEDIA_TYPE = "application/problem+json"
STATUS: dict[type[FamiliarError], HTTPStatus] = {
    NotInGallery: HTTPStatus.NOT_FOUND,
    Contradiction: HTTPStatus.CONFLICT,
    SpaceMismatch: HTTPStatus.CONFLICT,
    NothingToMeasure: HTTPStatus.CONFLICT,
    UnreadablePhoto: HTTPStatus.UNPROCESSABLE_ENTITY,
    NoFaceFound: HTTPStatus.UNPROCESSABLE_ENTITY,
    NoBundleForSpecies: HTTPStatus.UNPROCESSABLE_ENTITY,
    UnknownSpecies: HTTPStatus.UNPROCESSABLE_ENTITY,
    GalleryBusy: HTTPStatus.SERVICE_UNAVAILABLE,
    CannotWrite: HTTPStatus.INSUFFICIENT_STORAGE,
    BadGallery: HTTPStatus.INTERNAL_SERVER_ERROR,
    CorruptGallery: HTTPStatus.INTERNAL_SERVER_ERROR,
}
RETRY_SECONDS = 2
log = logging.getLogger("familiar.serve")


class HttpProblem(FamiliarError):
    """An error that is answered with `status`; `kind` names the problem in kebab-case, for programs."""

    def __init__(self, status: int, kind: str, detail: str, retry_seconds: int | None = None) -> None:
        super().__init__(detail)
        self.status = HTTPStatus(status)
        self.kind = kind
        self.retry_seconds = retry_seconds


def internal_error(error: Exception, where: str) -> HttpProblem:
    """Log where an unexpected exception was raised, and return a 500 problem.

    The exception's message may contain names of photos, so it reaches neither the client nor the log.
    """
    frames = traceback.extract_tb(error.__traceback__)
    lines = "\n".join(f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames)
    log.error("internal error in %s: %s\n%s", where, type(error).__name__, lines)
    return HttpProblem(500, "internal-error", "something went wrong on the server; its log says where")


def unavailable(detail: str) -> HttpProblem:
    """Return a 503 problem with `Retry-After`, for a full queue."""
    return HttpProblem(503, "busy", detail, RETRY_SECONDS)


def to_problem(error: FamiliarError) -> HttpProblem:
    """Convert any FamiliarError to the problem it is over HTTP."""
    if isinstance(error, HttpProblem):
        return error
    status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), HTTPStatus.BAD_REQUEST)
    wait = RETRY_SECONDS if status is HTTPStatus.SERVICE_UNAVAILABLE else None
    return HttpProblem(status, kebab(type(error).__name__), str(error), wait)


def problem_details(error: HttpProblem) -> dict[str, Any]:
    """Return the body of the response, as RFC 9457 lays it out."""
    return {
        "type": f"urn:familiar:problem:{error.kind}",
        "title": error.status.phrase,
        "status": int(error.status),
        "detail": one_line(str(error)),
    }


def problem_headers(error: HttpProblem) -> dict[str, str]:
    """Return the headers of the response: `Retry-After` where a retry may succeed."""
    return {} if error.retry_seconds is None else {"Retry-After": str(error.retry_seconds)}


def kebab(name: str) -> str:
    """Convert a class name to kebab-case.

    >>> kebab("NotInGallery")
    'not-in-gallery'
    """
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("-")
