"""The pages about watching: the receiver's code runs, every event is described, and the service's command parses."""

import re
import shlex
from pathlib import Path
from typing import Any

from familiar.cli.commands.watch import watch
from familiar.integrations.watch.webhooks import sign
from support.watched_folder import WatchedFolder

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "watch-a-folder.md").read_text()
FORMATS = (ROOT / "docs" / "reference" / "formats.md").read_text().partition("### Events of a watch")[2]
ENROLLED = {"photo", "path", "taken_at", "faces"}


def test_code_of_the_receiver_checks_the_signature():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    signature = sign(b"sixteen letters.", b"{}")
    assert names["is_genuine"](b"{}", signature, b"sixteen letters.")
    assert not names["is_genuine"](b"{ }", signature, b"sixteen letters.")


def test_every_event_and_field_is_described(tmp_path: Path, mean_color_bundle: Path):
    watched = WatchedFolder(tmp_path, mean_color_bundle)
    path = watched.draw("a.png", "red")
    watched.write("b.png", b"no photo")
    watched.settle()
    content = watched.draw("a.png", "red", shade=2).read_bytes()
    watched.settle()
    moved = path.rename(watched.photos / "c.png")
    watched.settle()
    moved.unlink()
    watched.settle()
    watched.write("c.png", content)
    watched.settle()
    watched.watch.finish()
    described = set(re.findall(r"^\| `([a-z]+)` .*", FORMATS.partition("Each of the `faces`")[0], flags=re.MULTILINE))
    assert {event["event"] for event in watched.events} == described - {"event"}
    for event in watched.events:
        (row,) = re.findall(rf"^\| `{event['event']}` .*", FORMATS, flags=re.MULTILINE)
        fields = event.keys() - {"event", "id", "at"} - (ENROLLED if "as `enrolled`" in row else set())
        assert all(f"`{name}`" in row for name in fields), event
        for name in {name for face in event.get("faces", ()) for name in face}:
            assert re.search(rf"^\| `{name}` ", FORMATS, flags=re.MULTILINE), name


def test_command_of_the_service_parses():
    unit = (ROOT / "examples" / "watch" / "familiar-watch.service").read_text()
    (line,) = re.findall(r"^ExecStart=(.*)", unit, flags=re.MULTILINE)
    _, command, *arguments = shlex.split(line.replace("%h", "/home/ada"))
    assert command == "watch"
    watch.make_context("watch", arguments)
