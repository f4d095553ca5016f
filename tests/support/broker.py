"""A real MQTT broker on this machine, and a client that remembers what it hears."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

MOSQUITTO = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/sbin")
PATIENCE_SECONDS = 60.0


def require_mosquitto() -> None:
    """Skip the test where there is no broker."""
    if MOSQUITTO is None:
        pytest.skip("mosquitto is not here (Debian: apt-get install mosquitto)")
    pytest.importorskip("paho.mqtt", reason="paho-mqtt is not installed: pip install 'familiar-faces[watch]'")


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@contextlib.contextmanager
def running_broker(folder: Path, port: int, login: str | None = None) -> Iterator[None]:
    """Run Mosquitto until the block ends; with a login only who knows USER:PASSWORD may connect."""
    assert MOSQUITTO is not None
    folder.mkdir(exist_ok=True)
    lines = [f"listener {port} 127.0.0.1", f"allow_anonymous {'true' if login is None else 'false'}"]
    if os.geteuid() == 0:
        lines.append("user root")  # else it gives up its rights, and cannot read the folders of tests
    if login is not None:
        passwords = folder / "passwords"
        user, _, password = login.partition(":")
        subprocess.run(["mosquitto_passwd", "-b", "-c", passwords, user, password], check=True, capture_output=True)
        lines.append(f"password_file {passwords}")
    (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n")
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen([MOSQUITTO, "-c", folder / "mosquitto.conf"], stdout=log, stderr=log)
    try:
        wait_until(lambda: is_listening(port) or process.poll() is not None)
        assert process.poll() is None, (folder / "log").read_text()
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def is_listening(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.02)


class Listener:
    """A client that has subscribed to everything.

    Attributes:
        messages: topic and content, in the order in which they came.
        state: the last content of each topic; without those that were deleted.
    """

    def __init__(self, port: int, login: str | None = None) -> None:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        self.messages: list[tuple[str, bytes]] = []
        self.client = Client(CallbackAPIVersion.VERSION2)
        if login is not None:
            self.client.username_pw_set(*login.split(":"))
        self.client.on_message = lambda _client, _data, message: self.messages.append(
            (message.topic, bytes(message.payload))
        )
        subscribed: list[int] = []
        self.client.on_subscribe = lambda *_: subscribed.append(1)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        self.client.subscribe("#", 1)
        wait_until(lambda: subscribed)

    @property
    def state(self) -> dict[str, bytes]:
        return {topic: content for topic, content in dict(self.messages).items() if content}

    def document(self, topic: str) -> Any:
        """Wait for a message on a topic, and return the last one."""
        wait_until(lambda: topic in self.state)
        return json.loads(self.state[topic])

    def events(self, topic: str) -> list[Any]:
        return [json.loads(content) for each, content in self.messages.copy() if each == topic]

    def publish(self, topic: str, content: bytes, *, retain: bool = False) -> None:
        self.client.publish(topic, content, 1, retain).wait_for_publish(PATIENCE_SECONDS)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()
