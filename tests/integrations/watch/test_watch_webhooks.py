"""Webhooks: what is posted, in which order, how often, and what happens when the receiver does not take it."""

from dataclasses import replace
from pathlib import Path

import pytest

from familiar.core.errors import FamiliarError
from familiar.integrations.watch import outbox, webhooks
from familiar.integrations.watch.delivery import destination_of
from familiar.integrations.watch.webhooks import Webhook, check_url
from support.watched_folder import WatchedFolder
from support.webhook_receiver import Receiver, running_receiver


@pytest.fixture
def watched(tmp_path: Path, mean_color_bundle: Path) -> WatchedFolder:
    return WatchedFolder(tmp_path, mean_color_bundle)


@pytest.fixture
def receiver():
    with running_receiver() as receiver:
        yield receiver


def make_webhook(watched: WatchedFolder, receiver: Receiver, events: int = 3, secret: bytes | None = None) -> Webhook:
    """Let some events wait for a receiver."""
    outbox.start_delivery(watched.gallery, ["stdout", destination_of(receiver.url)], [])
    started = watched.gallery.notes(outbox.EVENTS)[-1].number
    outbox.mark_delivered(watched.gallery, destination_of(receiver.url), started)
    for number in range(events):
        outbox.add_event(watched.gallery, "skipped", path=f"{number}.png", reason="broken")
    return Webhook(watched.gallery, receiver.url, secret, watched.notes.append)


def paths(receiver: Receiver) -> list[str]:
    return [request.document["path"] for request in receiver.requests]


def test_events_are_posted_in_their_order_and_only_once(watched: WatchedFolder, receiver: Receiver):
    webhook = make_webhook(watched, receiver)
    assert webhook.deliver(watched.gallery)
    assert webhook.deliver(watched.gallery)
    assert paths(receiver) == ["0.png", "1.png", "2.png"]
    first = receiver.requests[0]
    assert first.headers["Content-Type"] == "application/json"
    assert (first.headers["X-Familiar-Event"], first.headers["X-Familiar-Id"]) == ("skipped", first.document["id"])
    assert webhooks.SIGNATURE_HEADER not in first.headers
    assert [*first.document] == ["event", "id", "at", "path", "reason"]
    assert first.document["at"].endswith("+00:00")


def test_signature_is_that_of_the_content(watched: WatchedFolder, receiver: Receiver):
    make_webhook(watched, receiver, 1, b"sixteen letters.").deliver(watched.gallery)
    (request,) = receiver.requests
    assert request.headers[webhooks.SIGNATURE_HEADER] == webhooks.sign(b"sixteen letters.", request.body)
    # RFC 4231, test case 2
    expected = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    assert webhooks.sign(b"Jefe", b"what do ya want for nothing?") == expected


@pytest.mark.parametrize("answer", [500, 503, 408, 429, 301, 307, None])
def test_events_are_kept_and_sent_again_until_the_receiver_takes_them(
    watched: WatchedFolder, receiver: Receiver, answer: int | None
):
    receiver.answers = [200, answer]
    webhook = make_webhook(watched, receiver)
    assert not webhook.deliver(watched.gallery)
    assert paths(receiver) == ["0.png", "1.png"]
    assert webhook.deliver(watched.gallery)
    assert paths(receiver) == ["0.png", "1.png", "1.png", "2.png"]
    assert len(watched.notes) == 2, "once that it fails, once that it answers again"
    assert "secret-path" not in "".join(watched.notes)


def test_refused_event_is_dropped_with_a_note(watched: WatchedFolder, receiver: Receiver):
    receiver.answers = [404]
    assert make_webhook(watched, receiver).deliver(watched.gallery)
    assert paths(receiver) == ["0.png", "1.png", "2.png"]
    (note,) = watched.notes
    assert "refused" in note
    assert "404" in note


def test_redirects_are_not_followed(watched: WatchedFolder, receiver: Receiver):
    with running_receiver() as other:
        receiver.answers, receiver.location = [302], other.url
        assert not make_webhook(watched, receiver, 1).deliver(watched.gallery)
        assert other.requests == []
    assert "302" in watched.notes[0]


def test_undelivered_events_survive_a_restart_and_the_url_is_not_stored(watched: WatchedFolder, receiver: Receiver):
    watched.settings = replace(watched.settings, webhooks=(receiver.url,))
    watched.restart()
    watched.draw("a.png", "red")
    watched.settle()
    watched.restart()
    watched.step()
    Webhook(watched.gallery, receiver.url, None, watched.notes.append).deliver(watched.gallery)
    assert [request.document["event"] for request in receiver.requests] == ["started", "enrolled", "started"]
    assert b"secret-path" not in (watched.gallery.folder / "gallery.sqlite").read_bytes()
    assert outbox.undelivered(watched.gallery, "another one", 9) == []


def test_webhook_that_is_not_named_any_more_keeps_no_events(watched: WatchedFolder, receiver: Receiver):
    make_webhook(watched, receiver)
    watched.restart()
    watched.settle()
    assert watched.gallery.notes(outbox.EVENTS) == []


def test_thread_delivers_what_is_left_before_it_ends(watched: WatchedFolder, receiver: Receiver):
    webhook = make_webhook(watched, receiver)
    webhook.start()
    webhook.stop(30)
    assert paths(receiver) == ["0.png", "1.png", "2.png"]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org",
        "ftp://example.org/",
        "file:///etc/passwd",
        "http://",
        "http://a b/",
        "http://[/",
        "http://u:p@a/",
    ],
)
def test_unusable_urls_are_refused(url: str):
    with pytest.raises(FamiliarError, match="--webhook"):
        check_url(url)


def test_usable_url_stays_as_it_is():
    assert check_url("https://example.org:8123/api/webhook/x?y=1") == "https://example.org:8123/api/webhook/x?y=1"
