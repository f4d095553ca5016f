"""Deliver the events of a watch to URLs: in their order, at least once, while enrollment goes on."""

import hashlib
import hmac
import http.client
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from familiar import __version__
from familiar.core.errors import FamiliarError, GalleryBusy
from familiar.gallery.store.store import Store
from familiar.gallery.watching.events import Event, to_json_line
from familiar.gallery.watching.outbox import mark_delivered, undelivered

TIMEOUT_SECONDS = 10.0  # without a byte from the receiver
FIRST_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 300.0
SIGNATURE_HEADER = "X-Familiar-Signature-256"
_RETRIED = (408, 425, 429)  # of the answers 400 to 499: the same request may succeed later
_BATCH = 20  # events between two writes: a killed watch delivers as many again at most


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
        is_valid = is_valid and url.isascii() and url.isprintable() and " " not in url
    except ValueError:
        is_valid = False
        parts = urlsplit("")
    if not is_valid:
        raise FamiliarError("--webhook: give a URL such as http://homeassistant.local:8123/api/webhook/NAME")
    if "@" in parts.netloc:
        raise FamiliarError("--webhook: a user name and a password in a URL are not supported; use a signature")
    return url


def sign(secret: bytes, body: bytes) -> str:
    """Return the signature of a request's content, as receivers compute it to compare: HMAC-SHA256 (RFC 2104)."""
    return f"sha256={hmac.new(secret, body, hashlib.sha256).hexdigest()}"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow none: the content is for the receiver that the user named."""


class Webhook:
    """Delivers events to one URL.

    Args:
        gallery: whose events are delivered; the thread opens a connection of its own.
        url: as `check_url` returned it.
        secret: signs each request; None: no signature.
        on_note: called in the thread with messages for the user, which do not contain the URL's path.
    """

    def __init__(self, gallery: Store, url: str, secret: bytes | None, on_note: Callable[[str], None]) -> None:
        self._gallery, self._url, self._secret, self._on_note = gallery, url, secret, on_note
        self._destination = destination_of(url)
        self._host = f"webhook {urlsplit(url).scheme}://{urlsplit(url).netloc}"
        self._opener = urllib.request.build_opener(_NoRedirects())
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._retry_seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Look for new events, unless the receiver does not answer at the moment."""
        self._wake.set()

    def stop(self, timeout_seconds: float) -> None:
        """Try to deliver what is left once, and end the thread; what remains is delivered after the next start."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        try:
            with self._gallery.new_connection() as gallery:
                self._deliver_until_stopped(gallery)
        except FamiliarError as error:  # the watch meets it, too
            self._on_note(f"{self._host}: posts nothing more, because of this: {error}")

    def _deliver_until_stopped(self, gallery: Store) -> None:
        while True:
            is_last = self._stopping.is_set()
            self._wake.clear()
            try:
                is_complete, pause_seconds = self.deliver(gallery), self._retry_seconds
            except GalleryBusy:
                is_complete, pause_seconds = False, FIRST_RETRY_SECONDS
            if is_last:
                return
            if is_complete:
                self._wake.wait()
            else:
                self._stopping.wait(pause_seconds)

    def deliver(self, gallery: Store) -> bool:
        """Deliver the events that wait, in their order.

        Args:
            gallery: a connection for this thread.

        Returns:
            Whether the receiver took all of them, or refused them for good.
        """
        while events := undelivered(gallery, self._destination, _BATCH):
            last = None
            try:
                for number, event in events:
                    problem = self._post(event)
                    if problem is not None:
                        self._note_failure(problem)
                        return False
                    last = number
            finally:
                if last is not None:
                    mark_delivered(gallery, self._destination, last)
        return True

    def _post(self, event: Event) -> str | None:
        """Post an event; return why it has to be posted again, or None."""
        body = to_json_line(event)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"familiar/{__version__}",
            "X-Familiar-Event": event.kind,
            "X-Familiar-Id": event.id,
        }
        if self._secret is not None:
            headers[SIGNATURE_HEADER] = sign(self._secret, body)
        request = urllib.request.Request(self._url, body, headers, method="POST")
        try:
            with self._opener.open(request, timeout=TIMEOUT_SECONDS):
                pass
        except urllib.error.HTTPError as error:
            error.close()
            return self._answer_problem(event, error.code, error.headers.get("Location"))
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason: Any = getattr(error, "reason", error)
            return str(reason) or type(error).__name__
        if self._retry_seconds:
            self._retry_seconds = 0.0
            self._on_note(f"{self._host}: answers again")
        return None

    def _answer_problem(self, event: Event, status: int, location: str | None) -> str | None:
        if 400 <= status < 500 and status not in _RETRIED:
            self._on_note(f"{self._host}: refused event {event.id} ({status}), which is dropped")
            return None
        if 300 <= status < 400:
            return f"answers with a redirect ({status}) to {urlsplit(location or '').netloc or 'itself'}, not followed"
        return f"answers {status}"

    def _note_failure(self, problem: str) -> None:
        if not self._retry_seconds:
            self._on_note(f"{self._host}: {problem}; its events are kept and sent again until it takes them")
        self._retry_seconds = min(MAX_RETRY_SECONDS, max(FIRST_RETRY_SECONDS, 2 * self._retry_seconds))
