"""Hand on the events of a watch: to the caller, in this thread, and to the webhooks, in theirs."""

import time
from collections.abc import Callable, Sequence

from familiar.core.plural import pluralize
from familiar.gallery.store.store import Store
from familiar.gallery.watching import outbox
from familiar.gallery.watching.events import Event
from familiar.gallery.watching.webhooks import Webhook, destination_of

STDOUT = "stdout"  # the caller, as a destination of events
_REPORTED = 100  # events between two writes
_STOP_SECONDS = 5.0  # for webhooks, at the end


class Reporter:
    """Hands on events from the outbox.

    Args:
        gallery: whose events they are.
        webhooks: URLs.
        secret: signs what is posted to them.
        on_event: called with each event at least once, in their order.
        on_note: called with messages for the user, also by other threads.
    """

    def __init__(
        self,
        gallery: Store,
        webhooks: Sequence[str],
        secret: bytes | None,
        on_event: Callable[[Event], None],
        on_note: Callable[[str], None],
    ) -> None:
        self._gallery, self._on_event, self._on_note = gallery, on_event, on_note
        self._urls = tuple(dict.fromkeys(webhooks))
        self._webhooks = [Webhook(gallery, url, secret, on_note) for url in self._urls]

    def begin(self, folders: Sequence[str]) -> None:
        """Write that the watch starts. From now on events are kept for its webhooks, and for no others.

        Raises:
            GalleryBusy: another process writes.
        """
        with self._gallery.write() as repository:
            repository.watch_events.set_destinations([STDOUT, *map(destination_of, self._urls)])
            if repository.watch_events.last_identity() is None:
                repository.watch_events.set_last_identity(repository.identities.last_number())
            outbox.add_event(repository, "started", folders=folders, photos=repository.photos.count())

    def start_webhooks(self) -> None:
        """Start the threads that post."""
        for webhook in self._webhooks:
            webhook.start()

    def report(self) -> None:
        """Complete the events that wait for clustering, and hand all on.

        Raises:
            GalleryBusy: another process writes.
        """
        outbox.complete_events(self._gallery)
        is_any = False
        while events := outbox.undelivered(self._gallery, STDOUT, _REPORTED):
            is_any = True
            for _, event in events:
                self._on_event(event)
            outbox.mark_delivered(self._gallery, STDOUT, events[-1][0])
        if is_any:
            for webhook in self._webhooks:
                webhook.wake()
            if lost := outbox.delete_oldest(self._gallery):
                self._on_note(f"{pluralize(lost, 'event')} dropped: a webhook has not answered for too long")

    def end(self) -> None:
        """Write that the watch stops, and report it.

        Raises:
            GalleryBusy: another process writes.
        """
        with self._gallery.write() as repository:
            outbox.add_event(repository, "stopped")
        self.report()

    def stop_webhooks(self) -> None:
        """Give the webhooks a few seconds; what is left then is posted after the next start."""
        deadline = time.monotonic() + _STOP_SECONDS
        for webhook in self._webhooks:
            webhook.stop(max(0.0, deadline - time.monotonic()))
