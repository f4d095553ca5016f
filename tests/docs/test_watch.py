"""The pages about watching: the receiver's code runs, every event is described, and the service's command parses."""

import dataclasses
import re
import shlex
from pathlib import Path
from typing import Any

from familiar.cli.commands.watch import watch
from familiar.integrations.watch.events import EVENTS, Event, Sighting
from familiar.integrations.watch.webhooks import sign

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "watch-a-folder.md").read_text()
FORMATS = (ROOT / "docs" / "reference" / "formats.md").read_text().partition("### Events of a watch")[2]


def test_code_of_the_receiver_checks_the_signature():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    signature = sign(b"sixteen letters.", b"{}")
    assert names["is_genuine"](b"{}", signature, b"sixteen letters.")
    assert not names["is_genuine"](b"{ }", signature, b"sixteen letters.")


def field_names(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def test_every_event_and_field_is_described():
    for kind, event in EVENTS.items():
        (row,) = re.findall(rf"^\| `{kind}` .*", FORMATS, flags=re.MULTILINE)
        base = EVENTS["enrolled"] if "as `enrolled`" in row else Event
        assert all(f"`{name}`" in row for name in field_names(event) - field_names(base)), kind
    for name in field_names(Sighting):
        assert re.search(rf"^\| `{name}` ", FORMATS, flags=re.MULTILINE), name


def test_command_of_the_service_parses():
    unit = (ROOT / "examples" / "watch" / "familiar-watch.service").read_text()
    (line,) = re.findall(r"^ExecStart=(.*)", unit, flags=re.MULTILINE)
    _, command, *arguments = shlex.split(line.replace("%h", "/home/ada"))
    assert command == "watch"
    watch.make_context("watch", arguments)
