"""Deliver the events of a watch to URLs: in their order, at least once, while enrollment goes on."""

import hashlib
import hmac
import http.client
import threading
import urllib.request
from collections.abc import Callable
from urllib.parse import urlsplit

from familiar import FamiliarError, Gallery, __version__
from familiar.core.errors import GalleryBusy
from familiar.integrations.watch import outbox
from familiar.integrations.watch.outbox import Event, to_json_line

TIMEOUT_SECONDS = 10.0  # without a byte from the receiver
FIRST_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 300.0
SIGNATURE_HEADER = "X-Familiar-Signature-256"
_RETRIED = (408, 425, 429)  # of the answers 400 to 499: the same request may succeed later


def destination_of(url: str) -> str:
    """Return by what a URL is recognized in the database, which must not contain it: it may be a secret."""
    return hashlib.sha256(url.encode("utf-8", "surrogateescape")).hexdigest()


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


class Webhook(threading.Thread):
    """Delivers events to one URL, in a thread.

    Args:
        gallery: whose events are delivered; the thread opens a connection of its own.
        url: as `check_url` returned it.
        secret: signs each request; None: no signature.
        on_note: called in the thread with messages for the user, which do not contain the URL's path.
    """

    def __init__(self, gallery: Gallery, url: str, secret: bytes | None, on_note: Callable[[str], None]) -> None:
        super().__init__(name="webhook", daemon=True)
        self._gallery, self._url, self._secret, self._on_note = gallery, url, secret, on_note
        self._destination = destination_of(url)
        self._host = f"webhook {urlsplit(url).scheme}://{urlsplit(url).netloc}"
        self._opener = _make_opener()
        self._wake = threading.Event()
        self._is_stopping = False
        self._retry_seconds = 0.0

    def wake(self) -> None:
        """Look for new events, unless the receiver does not answer at the moment."""
        if not self._retry_seconds:
            self._wake.set()

    def stop(self, timeout_seconds: float) -> None:
        """Try to deliver what is left once, and end the thread; what remains is delivered after the next start."""
        self._is_stopping = True
        self._wake.set()
        self.join(timeout_seconds)

    def run(self) -> None:
        """Deliver events until `stop` is called."""
        try:
            with self._gallery.connect() as gallery:
                is_last = False
                while not is_last:
                    self._wake.clear()
                    is_last = self._is_stopping
                    try:
                        wait_seconds = None if self.deliver(gallery) else self._retry_seconds
                    except GalleryBusy:
                        wait_seconds = FIRST_RETRY_SECONDS
                    if not is_last:
                        self._wake.wait(wait_seconds)
        except FamiliarError as error:  # the watch meets it, too
            self._on_note(f"{self._host}: posts nothing more, because of this: {error}")

    def deliver(self, gallery: Gallery) -> bool:
        """Deliver the events that wait, in their order.

        Args:
            gallery: a connection for this thread.

        Returns:
            Whether the receiver took all of them, or refused them for good.
        """
        problem = outbox.deliver(gallery, self._destination, self._post)
        if problem is None:
            return True
        if not self._retry_seconds:
            self._on_note(f"{self._host}: {problem}; its events are kept and sent again until it takes them")
        self._retry_seconds = min(MAX_RETRY_SECONDS, max(FIRST_RETRY_SECONDS, 2 * self._retry_seconds))
        return False

    def _post(self, event: Event) -> str | None:
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
            self._on_note(f"{self._host}: refused event {event['id']} ({status}), which is dropped")
        elif self._retry_seconds:
            self._retry_seconds = 0.0
            self._on_note(f"{self._host}: answers again")
        return None
