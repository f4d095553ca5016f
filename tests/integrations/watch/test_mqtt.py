"""MQTT with a real broker, Mosquitto: events, who was last seen, Frigate's snapshots, and what happens without one."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from familiar.integrations.watch.mqtt import parse_broker
from support.broker import Listener, free_port, require_mosquitto, running_broker, wait_until
from support.color_album import draw_photo
from support.watched_folder import WatchedFolder

pytestmark = pytest.mark.exhaustive

BASE = "familiar/gallery"
LOCATION = "homeassistant/sensor/familiar_gallery/identity_1/config"


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    require_mosquitto()
    port = free_port()
    with running_broker(tmp_path / "broker", port):
        yield port


@pytest.fixture
def listener(port: int) -> Iterator[Listener]:
    listener = Listener(port)
    yield listener
    listener.close()


def start_watch(folder: Path, bundle: Path, port: int, login: str | None = None) -> WatchedFolder:
    watched = WatchedFolder(folder, bundle)
    broker = parse_broker(f"127.0.0.1:{port}", login)
    watched.settings = replace(watched.settings, broker=broker, snapshots=watched.photos)
    watched.restart()
    watched.watch._deliveries[0].start()
    return watched


def test_home_assistant_learns_names_places_and_what_is_gone(
    tmp_path: Path, mean_color_bundle: Path, port: int, listener: Listener
):
    listener.publish("homeassistant/sensor/familiar_gallery/identity_9/config", b'{"name": "merged"}', retain=True)
    listener.publish("homeassistant/sensor/another_device/x/config", b"{}", retain=True)
    watched = start_watch(tmp_path, mean_color_bundle, port)
    watched.draw("garden/a.png", "red")
    watched.draw("garden/b.png", "red", shade=1)
    watched.settle()
    assert listener.document(f"{BASE}/last_seen")["name"] == "#1"
    assert LOCATION not in listener.state
    watched.gallery.name(1, "Mia")
    watched.draw("flap/c.png", "red", shade=2)
    watched.settle()
    wait_until(lambda: listener.document(f"{BASE}/identity/1")["location"] == "flap")
    assert listener.document(LOCATION)["name"] == "Mia"
    assert listener.document(f"{BASE}/last_seen")["name"] == "Mia"
    assert "homeassistant/sensor/familiar_gallery/identity_9/config" not in listener.state
    assert "homeassistant/sensor/another_device/x/config" in listener.state
    events = listener.events(f"{BASE}/events")
    assert [each["event"] for each in events] == [each["event"] for each in watched.events]
    assert listener.state[f"{BASE}/available"] == b"online"

    watched.gallery.forget(identity=1)
    watched.watch._deliveries[0].wake()
    events_topic = f"{BASE}/events"  # it is not retained
    wait_until(lambda: not any(b"Mia" in each for topic, each in listener.state.items() if topic != events_topic))
    assert f"{BASE}/identity/1" not in listener.state
    watched.watch.finish()
    wait_until(lambda: listener.state[f"{BASE}/available"] == b"offline")
    assert watched.notes == []
    late = Listener(port)
    assert f"{BASE}/events" not in late.state, "events are not retained"
    late.close()


def test_events_wait_for_the_broker_and_all_is_told_again_after_its_restart(tmp_path: Path, mean_color_bundle: Path):
    require_mosquitto()
    port = free_port()
    watched = start_watch(tmp_path, mean_color_bundle, port)
    for shade in range(3):
        watched.draw(f"{shade}.png", "red", shade=shade)
    watched.settle()
    watched.gallery.name(1, "Mia")
    wait_until(lambda: watched.notes)
    assert "cannot be reached" in watched.notes[0]
    for life in range(2):  # the second broker has never heard of us
        with running_broker(tmp_path / f"broker{life}", port):
            listener = Listener(port)
            assert listener.document(LOCATION)["name"] == "Mia"
            wait_until(lambda: BASE + "/available" in listener.state)  # noqa: B023
            if life == 0:
                wait_until(lambda: len(listener.events(f"{BASE}/events")) >= 4)  # noqa: B023
                sent = list({each["id"]: each for each in listener.events(f"{BASE}/events")}.values())
                assert sent == watched.events
            listener.close()
    watched.watch.finish()


def test_a_wrong_login_is_told(tmp_path: Path, mean_color_bundle: Path):
    require_mosquitto()
    port = free_port()
    with running_broker(tmp_path / "broker", port, "ada:right"):
        watched = start_watch(tmp_path, mean_color_bundle, port, "ada:wrong")
        watched.settle()
        wait_until(lambda: any("refuses the connection" in note for note in watched.notes))
        assert not any("wrong" in note for note in watched.notes)
        watched.watch.finish()
        watched.settings = replace(watched.settings, broker=parse_broker(f"127.0.0.1:{port}", "ada:right"))
        watched.restart()
        watched.watch._deliveries[0].start()
        listener = Listener(port, "ada:right")
        wait_until(lambda: listener.state.get(f"{BASE}/available") == b"online")
        watched.watch.finish()
        listener.close()


def test_snapshots_of_frigate_are_enrolled_under_their_camera(
    tmp_path: Path, mean_color_bundle: Path, port: int, listener: Listener
):
    contents: list[bytes] = []
    for shade in range(3):
        Image.open(draw_photo(tmp_path / "a.png", "red", shade=9 * shade)).save(tmp_path / "a.jpg", quality=95)
        contents.append((tmp_path / "a.jpg").read_bytes())
    listener.publish("frigate/cat_flap/cat/snapshot", contents[0], retain=True)
    watched = start_watch(tmp_path, mean_color_bundle, port)
    wait_until(lambda: listener.state.get(f"{BASE}/available") == b"online")
    listener.publish("frigate/cat_flap/cat/snapshot", contents[1], retain=True)
    listener.publish("frigate/cat_flap/car/snapshot", contents[2])
    listener.publish("frigate/cat_flap/cat/snapshot", b"no picture")
    wait_until(lambda: list(watched.photos.glob("*/*.jpg")))
    watched.settle()
    (saved,) = watched.photos.glob("*/*.jpg")
    assert saved.read_bytes() == contents[1], "the first was there before the watch, and a car has no face"
    assert watched.reported() == [("enrolled", f"cat_flap/{saved.name}")]
    assert listener.document(f"{BASE}/last_seen")["location"] == "cat_flap"
    watched.watch.finish()
    listener.messages.clear()
    watched.restart()
    watched.watch._deliveries[0].start()
    wait_until(lambda: listener.state.get(f"{BASE}/last_seen"))
    watched.watch.finish()
    wait_until(lambda: listener.state[f"{BASE}/available"] == b"offline")
    assert [topic for topic, _ in listener.messages].count(f"{BASE}/last_seen") == 1, "nothing is sent twice"


def test_a_killed_watch_becomes_unavailable(tmp_path: Path, mean_color_bundle: Path, port: int, listener: Listener):
    draw_photo(tmp_path / "a.png", "red")
    (tmp_path / "photos").mkdir()
    (tmp_path / "a.png").rename(tmp_path / "photos" / "a.png")
    command = [sys.executable, "-m", "familiar", "watch", tmp_path / "photos", "--gallery", tmp_path / "gallery"]
    command += ["--model", mean_color_bundle, "--detector", "none", "--settle", "0.1", "--mqtt", f"127.0.0.1:{port}"]
    with (tmp_path / "lines").open("wb") as lines, (tmp_path / "notes").open("wb") as notes:
        process = subprocess.Popen(command, stdout=lines, stderr=notes)
    try:
        assert listener.document(f"{BASE}/last_seen")["location"] == "photos", (tmp_path / "notes").read_text()
        enrolled = next(each for each in listener.events(f"{BASE}/events") if each["event"] == "enrolled")
        assert enrolled in map(json.loads, (tmp_path / "lines").read_text().splitlines())
        assert listener.state[f"{BASE}/available"] == b"online"
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: listener.state[f"{BASE}/available"] == b"offline")
