"""Requests to one server, with its errors as FamiliarError."""

import contextlib
import time
from collections.abc import Generator, Iterator, Sequence
from http import HTTPStatus
from typing import Any

import httpx2

from familiar.client.photos import Source, part
from familiar.client.responses import parse_response
from familiar.core.errors import FamiliarError
from familiar.core.terminal_text import one_line

MAX_TRIES = 3
MAX_WAIT_SECONDS = 10.0  # before one more try
_RETRY_STATUSES = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_PROBLEM_PREFIX = "urn:familiar:problem:"


class ServerError(FamiliarError):
    """The server refused a request.

    Attributes:
        status: HTTP status code, such as 404.
        kind: name of the problem for programs, such as "not-in-gallery"; "unknown" if the answer states none.
        detail: the reason in words, which is also the exception's message.
    """

    def __init__(self, status: int, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail


class Connection:
    """Connection to the API of a server. Proxies of the environment are not used.

    Args:
        url: such as "http://127.0.0.1:8000".
        timeout: in seconds, for each step of a request.
    """

    def __init__(self, url: str, token: str | None, timeout: float) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._url = url.rstrip("/")
        with self._translate_errors():
            self._http = httpx2.Client(
                base_url=f"{self._url}/api/v1", headers=headers, timeout=timeout, trust_env=False
            )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def request(
        self,
        kind: Any,
        method: str,
        path: str,
        *,
        query: dict[str, Any] | None = None,
        body: Any = None,
        photos: Sequence[tuple[str, Source]] | None = None,
        reads: bool = False,
    ) -> Any:
        """Send a request, and return the response as a value of a type.

        Args:
            kind: the type; bytes: the content as it is; None: nothing.
            method: of HTTP.
            path: below /api/v1.
            query: parameters; those that are None are left out.
            body: sent as JSON.
            photos: sent as parts of a multipart form, by the fields' names; read again for each try.
            reads: nothing is changed by the request, so it is repeated if the server is busy.

        Raises:
            ServerError: the server refuses it.
            FamiliarError: the server does not answer, or with something else.
        """
        parameters = {name: value for name, value in (query or {}).items() if value is not None}
        tries = MAX_TRIES if reads else 1
        while True:
            tries -= 1
            with self._translate_errors():
                files = None if photos is None else [part(field, photo) for field, photo in photos]
                response = self._http.request(method, path, params=parameters, json=body, files=files)
            if response.status_code not in _RETRY_STATUSES or not tries:
                _require_success(response)
                return _parse(kind, response)
            time.sleep(_wait_seconds(response))

    def events(self, path: str) -> Iterator[Any]:
        """Yield the data of server-sent events until they end."""
        with self._translate_errors(), self._http.sse(path) as source:
            if not source.response.is_success:
                source.response.read()
                _require_success(source.response)
            for event in source:
                yield event.json()

    @contextlib.contextmanager
    def _translate_errors(self) -> Generator[None, None, None]:
        """Translate httpx2's errors to FamiliarError."""
        try:
            yield
        except httpx2.ConnectError as error:
            raise FamiliarError(f"{self._url}: no server answers; start one with: familiar serve GALLERY") from error
        except httpx2.TimeoutException as error:
            raise FamiliarError(f"{self._url}: did not answer in time; try again, or set a longer timeout") from error
        except (httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
            raise FamiliarError(f"{self._url}: is not a URL such as http://127.0.0.1:8000") from error
        except httpx2.HTTPError as error:
            raise FamiliarError(f"{self._url}: the connection failed ({one_line(str(error))})") from error


def _require_success(response: httpx2.Response) -> None:
    if response.is_success:
        return
    status, problem = response.status_code, {}
    with contextlib.suppress(ValueError):
        problem = response.json()
    if not (isinstance(problem, dict) and isinstance(problem.get("type"), str)):
        raise ServerError(status, "unknown", f"{response.url}: answered {status} {response.reason_phrase}")
    raise ServerError(
        status, problem["type"].removeprefix(_PROBLEM_PREFIX), one_line(str(problem.get("detail", problem["type"])))
    )


def _parse(kind: Any, response: httpx2.Response) -> Any:
    if kind in (bytes, None):
        return response.content if kind else None
    content = None
    with contextlib.suppress(ValueError):
        content = response.json()
    return parse_response(kind, content)


def _wait_seconds(response: httpx2.Response) -> float:
    retry_after = response.headers.get("Retry-After", "")
    return min(float(retry_after) if retry_after.isdecimal() else 1.0, MAX_WAIT_SECONDS)
