"""Deliver the events of a watch to a receiver: in their order, at least once, while enrollment goes on."""

import hashlib
import threading
from collections.abc import Callable

from familiar import FamiliarError, Gallery
from familiar.core.errors import GalleryBusy
from familiar.integrations.watch import outbox
from familiar.integrations.watch.outbox import Event

TIMEOUT_SECONDS = 10.0  # without a byte from the receiver
FIRST_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 300.0


def destination_of(url: str) -> str:
    """Return by what a URL is recognized in the database, which must not contain it: it may be a secret."""
    return hashlib.sha256(url.encode("utf-8", "surrogateescape")).hexdigest()


class Delivery(threading.Thread):
    """Delivers events to one receiver, in a thread. A subclass says how one is sent.

    Args:
        gallery: whose events are delivered; the thread opens a connection of its own.
        url: of the receiver.
        label: calls the receiver in messages; without what is secret of the URL.
        on_note: called in the thread with messages for the user.
    """

    def __init__(self, gallery: Gallery, url: str, label: str, on_note: Callable[[str], None]) -> None:
        super().__init__(name=label, daemon=True)
        self.destination = destination_of(url)
        self._gallery, self._label, self._on_note = gallery, label, on_note
        self._wake = threading.Event()
        self._is_stopping = False
        self._retry_seconds = 0.0

    def send(self, event: Event) -> str | None:
        """Send an event; return why it has to be sent again, or None."""
        raise NotImplementedError

    def finish_batch(self, gallery: Gallery) -> str | None:
        """Send what goes with the events, once the receiver has them; return why it has to be sent again, or None.

        Args:
            gallery: a connection for this thread.
        """
        del gallery

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
            self._on_note(f"{self._label}: sends nothing more, because of this: {error}")

    def deliver(self, gallery: Gallery) -> bool:
        """Deliver the events that wait, in their order.

        Args:
            gallery: a connection for this thread.

        Returns:
            Whether the receiver took all of them, or refused them for good.
        """
        problem = outbox.deliver(gallery, self.destination, self._send_once) or self.finish_batch(gallery)
        if problem is None:
            self._end_retries()
            return True
        if not self._retry_seconds:
            self._on_note(f"{self._label}: {problem}; its events are kept and sent again until it takes them")
        self._retry_seconds = min(MAX_RETRY_SECONDS, max(FIRST_RETRY_SECONDS, 2 * self._retry_seconds))
        return False

    def _send_once(self, event: Event) -> str | None:
        if (problem := self.send(event)) is None:
            self._end_retries()
        return problem

    def _end_retries(self) -> None:
        if self._retry_seconds:
            self._retry_seconds = 0.0
            self._on_note(f"{self._label}: answers again")
