"""What familiar has no models for is answered by another server of Immich's contract."""

import asyncio
import json
from http import HTTPStatus
from typing import Any

import httpx2

from familiar import FamiliarError
from familiar.core.json_text import parse_json
from familiar.integrations.immich.entries import ImmichError
from familiar.integrations.immich.recognition import UploadedPhoto

TIMEOUT_SECONDS = 110.0  # below that of a request
ERROR_STATUSES = frozenset(status for status in HTTPStatus if status >= HTTPStatus.BAD_REQUEST)  # proxies have others


class Upstream:
    """A machine-learning server of Immich.

    Args:
        url: such as http://immich-machine-learning:3003.

    Raises:
        FamiliarError: it is no URL.
    """

    def __init__(self, url: str) -> None:
        try:
            parsed = httpx2.URL(url)
        except httpx2.InvalidURL as error:
            raise FamiliarError(f"{url}: not a URL such as http://immich-machine-learning:3003") from error
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise FamiliarError(f"{url}: not a URL such as http://immich-machine-learning:3003")
        self._url = parsed.join("/predict")
        self._client = httpx2.AsyncClient(timeout=TIMEOUT_SECONDS)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def predict(self, entries: dict[str, Any], photo: UploadedPhoto | None, text: str | None) -> dict[str, Any]:
        """Pass on a request, and return the answer.

        Raises:
            ImmichError: 502, the server cannot be reached, or its answer is not JSON; or the status that it answers.
        """
        # Fields go as parts of a multipart form too, as Immich sends them.
        parts: dict[str, Any] = {"entries": (None, json.dumps(entries))}
        if text is not None:
            parts["text"] = (None, text)
        if photo is not None:
            parts["image"] = ("blob", await asyncio.to_thread(photo.read), "application/octet-stream")
        try:
            response = await self._client.post(self._url, files=parts)
            answer = parse_json(response.content) if response.is_success else None
        except (httpx2.HTTPError, ValueError) as error:
            raise ImmichError(
                HTTPStatus.BAD_GATEWAY, "upstream", f"the server of --upstream does not answer ({type(error).__name__})"
            ) from error
        if not isinstance(answer, dict):
            is_error = response.status_code in ERROR_STATUSES
            status = HTTPStatus(response.status_code) if is_error else HTTPStatus.BAD_GATEWAY
            raise ImmichError(status, "upstream", f"the server of --upstream answered {response.status_code}")
        return answer
