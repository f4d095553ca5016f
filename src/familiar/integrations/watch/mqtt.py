"""Deliver the events of a watch to an MQTT broker, with who was last seen; and take Frigate's snapshots from it."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from familiar import FamiliarError, Gallery
from familiar.core.files import make_folder
from familiar.integrations.watch import frigate, home_assistant
from familiar.integrations.watch.delivery import TIMEOUT_SECONDS, Delivery
from familiar.integrations.watch.outbox import Event, to_json_line

PORT, TLS_PORT = 1883, 8883  # IANA's
_CONNECT_SECONDS = 3.0  # that an event waits for a connection
_KEEPALIVE_SECONDS = 30
_AT_LEAST_ONCE = 1  # MQTT's quality of service


@dataclass(frozen=True)
class Broker:
    """Where an MQTT broker is, and who logs in.

    Attributes:
        host: its name or address.
        port: of TCP.
        tls: whether the connection is encrypted, by a certificate that the system trusts.
        login: user and password; None: without.
    """

    host: str
    port: int = PORT
    tls: bool = False
    login: tuple[str, str] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """The address without the login."""
        return f"mqtt{'s' * self.tls}://{self.host}:{self.port}"


def parse_broker(address: str, login: str | None = None) -> Broker:
    """Return the broker at an address.

    Args:
        address: HOST, HOST:PORT, or mqtts://HOST for TLS.
        login: USER:PASSWORD; None: without.

    Raises:
        FamiliarError: it is no address, or no login.
    """
    try:
        parts = urlsplit(address if "://" in address else f"mqtt://{address}")
        port, host = parts.port, parts.hostname
    except ValueError:
        parts, port, host = None, None, None
    if parts is None or not host or port == 0 or parts.scheme not in ("mqtt", "mqtts") or "@" in parts.netloc:
        raise FamiliarError(
            "--mqtt: give a broker such as homeassistant.local, homeassistant.local:1883 or mqtts://homeassistant.local"
        )
    user, separator, password = (login or "").partition(":")
    if login is not None and not (user and separator):
        raise FamiliarError("--mqtt-login: the file needs one line, USER:PASSWORD")
    tls = parts.scheme == "mqtts"
    return Broker(host, port or (TLS_PORT if tls else PORT), tls, (user, password) if separator else None)


class MqttDelivery(Delivery):
    """Publishes events, and who was last seen, at one broker.

    Args:
        gallery: whose events are delivered.
        broker: where.
        folders: the watched ones, absolute.
        snapshots: folder for Frigate's snapshots; None: they are not taken.
        on_note: called with messages for the user, by other threads.

    Raises:
        FamiliarError: paho-mqtt is not installed, or the folder cannot be created.
    """

    def __init__(
        self,
        gallery: Gallery,
        broker: Broker,
        folders: Sequence[str],
        snapshots: Path | None,
        on_note: Callable[[str], None],
    ) -> None:
        super().__init__(gallery, broker.url, f"MQTT broker {broker.host}:{broker.port}", on_note)
        self._broker, self._folders, self._snapshots = broker, folders, snapshots
        if snapshots is not None:
            make_folder(snapshots)  # a folder that is missing would count as not mounted
        self._album = home_assistant.album_id(gallery.folder)
        self._base = home_assistant.base_topic(self._album)
        self._connected = threading.Event()
        self._problem = "cannot be reached"
        self._published: dict[str, bytes] = {}  # the retained messages of this connection
        self._current_topics = frozenset[str]()  # their topics
        self._retained = set[str]()  # topics about individuals that have a message at the broker
        self._client = self._make_client()

    def _make_client(self) -> Any:
        try:
            from paho.mqtt.client import Client
            from paho.mqtt.enums import CallbackAPIVersion
        except ModuleNotFoundError as error:
            raise FamiliarError("--mqtt needs paho-mqtt: pip install 'familiar-faces[watch]'") from error
        client = Client(CallbackAPIVersion.VERSION2)
        client.will_set(f"{self._base}/available", b"offline", _AT_LEAST_ONCE, retain=True)
        if self._broker.login is not None:
            client.username_pw_set(*self._broker.login)
        if self._broker.tls:
            client.tls_set()
        client.on_connect, client.on_disconnect = self._on_connect, self._on_disconnect
        for topic in home_assistant.retained_topics(self._album):
            client.message_callback_add(topic, self._on_retained)
        for topic in frigate.TOPICS if self._snapshots else ():
            client.message_callback_add(topic, self._on_snapshot)
        return client

    def run(self) -> None:
        """Stay connected, and deliver events until `stop` is called."""
        self._client.connect_async(self._broker.host, self._broker.port, _KEEPALIVE_SECONDS)
        self._client.loop_start()
        try:
            super().run()
        finally:
            if self._connected.is_set():
                self._publish(f"{self._base}/available", b"offline", retain=True)
            self._client.disconnect()
            self._client.loop_stop()

    def send(self, event: Event) -> str | None:
        """Publish an event; return why it has to be published again, or None."""
        return self._publish(f"{self._base}/events", to_json_line(event))

    def finish_batch(self, gallery: Gallery) -> str | None:
        """Publish who was last seen as far as it has changed, and delete what is about nobody any more."""
        if not self._connected.wait(_CONNECT_SECONDS):
            return self._problem
        messages = home_assistant.messages(self._album, *home_assistant.last_sightings(gallery, self._folders))
        self._current_topics, published = frozenset(messages), self._published  # of this connection
        deleted = dict.fromkeys(self._retained.copy() - messages.keys(), b"")
        for topic, content in (messages | deleted).items():
            if published.get(topic) != content:
                if (problem := self._publish(topic, content, retain=True)) is not None:
                    return problem
                published[topic] = content
        return None

    def _publish(self, topic: str, content: bytes, *, retain: bool = False) -> str | None:
        if not self._connected.wait(_CONNECT_SECONDS):
            return self._problem
        try:
            message = self._client.publish(topic, content, _AT_LEAST_ONCE, retain)
            message.wait_for_publish(TIMEOUT_SECONDS)
            return None if message.is_published() else "does not answer"
        except (RuntimeError, ValueError) as error:  # the connection was lost
            return str(error)

    # --- in the thread of the connection: what is raised here would end it --------------------------------------------

    def _on_connect(self, client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._problem = f"refuses the connection ({reason})"
            return
        self._problem = "cannot be reached"
        self._published = {}  # a broker may have forgotten everything
        topics = [*home_assistant.retained_topics(self._album), *(frigate.TOPICS if self._snapshots else ())]
        client.subscribe([(topic, _AT_LEAST_ONCE) for topic in topics])
        client.publish(f"{self._base}/available", b"online", _AT_LEAST_ONCE, retain=True)
        self._connected.set()
        self._wake.set()

    def _on_disconnect(self, _client: Any, _data: Any, _flags: Any, _reason: Any, _properties: Any) -> None:
        self._connected.clear()

    def _on_retained(self, _client: Any, _data: Any, message: Any) -> None:
        if message.payload:
            self._retained.add(message.topic)
            if message.topic not in self._current_topics:  # of an individual that was forgotten or merged
                self._wake.set()

    def _on_snapshot(self, _client: Any, _data: Any, message: Any) -> None:
        assert self._snapshots is not None
        if message.retain:
            return  # of before this connection: nobody knows when
        try:
            frigate.save_snapshot(self._snapshots, message.topic, message.payload)
        except (OSError, FamiliarError) as error:
            self._on_note(f"Frigate's snapshot is not saved: {error}")
