"""Deliver the events of a watch to URLs."""

import hashlib
import hmac
import http.client
import urllib.request
from collections.abc import Callable
from urllib.parse import urlsplit

from familiar import FamiliarError, Gallery, __version__
from familiar.integrations.watch.delivery import TIMEOUT_SECONDS, Delivery
from familiar.integrations.watch.outbox import Event, to_json_line

SIGNATURE_HEADER = "X-Familiar-Signature-256"
_RETRIED = (408, 425, 429)  # of the answers 400 to 499: the same request may succeed later


def check_url(url: str) -> str:
    """Return a URL that can be used as a webhook.

    Raises:
        FamiliarError: it cannot.
    """
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_valid = is_valid and "@" not in parts.netloc and url.isascii() and url.isprintable() and " " not in url
    except ValueError:
        is_valid = False
    if not is_valid:
        raise FamiliarError(
            "--webhook: give a URL such as http://homeassistant.local:8123/api/webhook/NAME, without a password"
        )
    return url


def sign(secret: bytes, body: bytes) -> str:
    """Return the signature of a request's content, as receivers compute it to compare: HMAC-SHA256 (RFC 2104)."""
    return f"sha256={hmac.new(secret, body, hashlib.sha256).hexdigest()}"


def _make_opener() -> urllib.request.OpenerDirector:
    """Return what posts to URLs, without what follows redirects: the content is for the receiver that the user named.

    Nor do answers of errors raise an exception.
    """
    opener = urllib.request.OpenerDirector()
    for handler in (urllib.request.ProxyHandler(), urllib.request.HTTPHandler(), urllib.request.HTTPSHandler()):
        opener.add_handler(handler)
    return opener


class Webhook(Delivery):
    """Posts events to one URL.

    Args:
        gallery: whose events are delivered.
        url: as `check_url` returned it.
        secret: signs each request; None: no signature.
        on_note: called in the thread with messages for the user, which do not contain the URL's path.
    """

    def __init__(self, gallery: Gallery, url: str, secret: bytes | None, on_note: Callable[[str], None]) -> None:
        super().__init__(gallery, url, f"webhook {urlsplit(url).scheme}://{urlsplit(url).netloc}", on_note)
        self._url, self._secret = url, secret
        self._opener = _make_opener()

    def send(self, event: Event) -> str | None:
        """Post an event; return why it has to be posted again, or None."""
        body = to_json_line(event)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"familiar/{__version__}",
            "X-Familiar-Event": event["event"],
            "X-Familiar-Id": event["id"],
        }
        if self._secret is not None:
            headers[SIGNATURE_HEADER] = sign(self._secret, body)
        request = urllib.request.Request(self._url, body, headers, method="POST")
        try:
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
                status = answer.status
        except (OSError, http.client.HTTPException, ValueError) as error:
            return str(getattr(error, "reason", error)) or type(error).__name__
        if 300 <= status < 400 or status >= 500 or status in _RETRIED:
            return f"answers {status}"  # redirects are not followed
        if status >= 400:
            self._on_note(f"{self._label}: refused event {event['id']} ({status}), which is dropped")
        return None
