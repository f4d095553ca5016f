"""What Home Assistant is told: who was last seen, when and where; and Frigate's snapshots. Without a broker."""

import json
import os
from datetime import datetime
from pathlib import Path

import pytest

from familiar.core.errors import FamiliarError
from familiar.gallery import PhotoRow
from familiar.integrations.watch import frigate
from familiar.integrations.watch.frigate import save_snapshot
from familiar.integrations.watch.home_assistant import Sighting, _time_of, last_sightings, location_of, messages
from familiar.integrations.watch.mqtt import Broker, parse_broker
from support.color_album import draw_photo
from support.watched_folder import WatchedFolder

MIA = Sighting("Mia", 3, "cat", "2026-11-28T10:00:00+01:00", "garden", 41, "/photos/garden/1.jpg")


@pytest.fixture
def watched(tmp_path: Path, mean_color_bundle: Path) -> WatchedFolder:
    return WatchedFolder(tmp_path, mean_color_bundle)


def seen_at(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime).astimezone().isoformat(timespec="seconds")


def test_last_sighting_is_the_newest_photo_of_each_name(watched: WatchedFolder):
    photos = [watched.draw(f"{folder}/{folder}.png", "red", shade=shade) for shade, folder in enumerate(("in", "out"))]
    watched.draw("in/blue.png", "blue")
    watched.draw("in/blue2.png", "blue", shade=1)
    watched.settle()
    numbers = {Path(face.path).name: face.face for face in watched.gallery.faces()}
    watched.gallery.split([numbers["blue.png"], numbers["blue2.png"]], propagate=False)
    watched.gallery.split([numbers["in.png"], numbers["out.png"]], "Mia", propagate=False)
    identity = watched.gallery.resolve_identity("Mia")
    os.utime(photos[0], (1, 1))  # the time of enrollment counts
    named, newest = last_sightings(watched.gallery, [str(watched.photos)])
    (mia,) = named
    assert (mia.name, mia.identity, mia.location, mia.path) == ("Mia", identity, "out", str(photos[1]))
    assert mia.seen_at == seen_at(photos[1])
    assert newest is not None
    assert newest.name.startswith("#"), "an individual without a name, which was seen last"
    assert newest.location == "in"


def test_an_album_without_faces_was_seen_by_nobody(watched: WatchedFolder):
    assert last_sightings(watched.gallery, []) == ([], None)
    assert messages("album", [], None) == {}


def test_a_stranger_is_called_unknown(watched: WatchedFolder):
    watched.draw("a.png", "red")
    watched.settle()
    face = watched.gallery.faces()[0]
    if face.identity is not None:
        watched.gallery.reject([face.face], face.identity)
    _, newest = last_sightings(watched.gallery, [str(watched.photos)])
    assert newest is not None
    assert (newest.name, newest.identity, newest.location) == ("unknown face", None, "photos")


def test_time_of_the_camera_comes_before_that_of_the_file(watched: WatchedFolder, tmp_path: Path):
    from PIL import Image

    path = watched.photos / "a.jpg"
    exif = Image.Exif()
    exif[0x0132] = "2020:05:04 03:02:01"  # DateTime
    exif.get_ifd(0x8769)[0x9003] = "2020:05:04 03:02:01"  # DateTimeOriginal
    Image.open(draw_photo(tmp_path / "a.png", "red")).save(tmp_path / "b.jpg", exif=exif)
    (tmp_path / "b.jpg").rename(path)
    watched.settle()
    _, newest = last_sightings(watched.gallery, [])
    assert newest is not None
    assert newest.seen_at == datetime(2020, 5, 4, 3, 2, 1).astimezone().isoformat()


def test_sensors_read_what_the_states_contain():
    """As Home Assistant does: a sensor is what its template takes from the message on its topic."""
    sent = {topic: json.loads(content) for topic, content in messages("album", [MIA], MIA).items()}
    sensors = {topic: each for topic, each in sent.items() if topic.endswith("/config")}
    states = {}
    for topic, sensor in sensors.items():
        prefix, component, node, _, config = topic.split("/")
        assert (prefix, component, node, config) == ("homeassistant", "sensor", "familiar_album", "config")
        field = sensor["value_template"].removeprefix("{{ value_json.").removesuffix(" }}")
        states[sensor["name"]] = sent[sensor["state_topic"]][field]
        assert sensor["json_attributes_topic"] == sensor["state_topic"]
        assert sensor["availability_topic"] == "familiar/album/available"
        assert sensor["device"]["identifiers"] == ["familiar_album"]
        assert sensor["origin"]["name"] == "familiar", "Home Assistant refuses discovery without an origin's name"
        assert ("device_class" in sensor) == sensor["name"].endswith("Mia last seen")
    assert states == {"Last seen": "Mia", "Mia": "garden", "Mia last seen": MIA.seen_at}
    assert len({sensor["unique_id"] for sensor in sensors.values()}) == 3
    assert datetime.fromisoformat(MIA.seen_at).tzinfo, "a timestamp without a time zone is refused"
    topics = list(sent)
    assert all(topics.index(topic) < topics.index(sensor["state_topic"]) for topic, sensor in sensors.items())


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/media/frigate/clips/cat-flap-1607123955.475377-mxklsc.jpg", "cat-flap"),
        ("/media/frigate/clips/cat_flap-1607123955.475377-mxklsc-clean.webp", "cat_flap"),
        ("/media/frigate/garden/1.jpg", "garden"),
        ("/media/frigate/1.jpg", "frigate"),
        ("/elsewhere/pictures/1.jpg", "pictures"),
    ],
)
def test_location_is_the_camera_or_the_folder(path: str, location: str):
    assert location_of(path, ["/media", "/media/frigate"]) == location


def test_snapshots_of_frigate_become_files(tmp_path: Path):
    from PIL import Image

    Image.open(draw_photo(tmp_path / "a.png", "red")).save(tmp_path / "a.jpg")
    content = (tmp_path / "a.jpg").read_bytes()
    path = save_snapshot(tmp_path / "snapshots", "frigate/cat_flap/cat/snapshot", content)
    assert path is not None
    assert path.read_bytes() == content
    assert path.parent == tmp_path / "snapshots" / "cat_flap"
    assert path.name.endswith("-cat.jpg")


@pytest.mark.parametrize(
    ("topic", "content"),
    [
        ("frigate/../cat/snapshot", b"\xff\xd8\xff\xe0"),
        ("frigate/flap/cat", b"\xff\xd8\xff\xe0"),
        ("frigate/flap/cat/snapshot", b"<html>"),
        ("frigate/flap/cat/snapshot", b""),
        ("frigate/flap/cat/snapshot", b"\xff\xd8\xff" + bytes(frigate.MAX_SNAPSHOT_BYTES)),
    ],
)
def test_what_is_no_snapshot_is_not_written(tmp_path: Path, topic: str, content: bytes):
    assert save_snapshot(tmp_path, topic, content) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("address", "broker"),
    [
        ("homeassistant.local", Broker("homeassistant.local")),
        ("192.168.1.2:1884", Broker("192.168.1.2", 1884)),
        ("mqtt://ha", Broker("ha")),
        ("mqtts://ha", Broker("ha", 8883, tls=True)),
        ("[::1]:1884", Broker("::1", 1884)),
    ],
)
def test_addresses_of_brokers(address: str, broker: Broker):
    assert parse_broker(address) == broker


@pytest.mark.parametrize("address", ["", "http://ha", "ha:port", "ha:0", "ada:secret@ha", "mqtt://"])
def test_unusable_addresses_are_refused(address: str):
    with pytest.raises(FamiliarError, match="--mqtt: give a broker"):
        parse_broker(address)


def test_login_is_user_and_password_and_is_not_shown():
    broker = parse_broker("ha", "ada:a:b")
    assert broker.login == ("ada", "a:b")
    assert "a:b" not in f"{broker!r} {broker.url}"
    for wrong in ("", "ada", ":secret"):
        with pytest.raises(FamiliarError, match="USER:PASSWORD"):
            parse_broker("ha", wrong)


@pytest.mark.parametrize("taken_at", ["0001-01-01T00:00:00", "9999-12-31T23:59:59"])
def test_an_impossible_time_of_a_photo_stops_nothing(taken_at: str):
    assert _time_of(PhotoRow(1, "/a.jpg", b"", 1, 2**63 - 1, taken_at)).tzinfo is not None
    assert _time_of(PhotoRow(1, "/a.jpg", b"", 1, 2**63 - 1, None)).tzinfo is not None
