"""A repair while a real server writes: every name that the server acknowledged is there, and the server goes on."""

import json
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from familiar.gallery.database.connection import GalleryDatabase
from familiar.gallery.integrity.repair import repair
from support.rotting_gallery import create_gallery_with_every_table
from support.tiers import small_and_exhaustive


@pytest.mark.slow
@pytest.mark.parametrize("repairs", small_and_exhaustive(1, 20))
def test_repair_beside_a_server_loses_no_acknowledged_name(tmp_path: Path, repairs: int):
    folder = tmp_path / "gallery"
    create_gallery_with_every_table(folder)
    command = [sys.executable, "-m", "familiar", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            url = next(match[0] for line in server.stderr if (match := re.search(r"http://127\.0\.0\.1:\d+/", line)))
            drain = threading.Thread(target=server.stderr.read)
            drain.start()
            acknowledged: list[str] = []
            stop = threading.Event()

            def name_until_stopped() -> None:
                while not stop.is_set():
                    name = f"name {len(acknowledged)}"
                    request = urllib.request.Request(
                        f"{url}api/v1/identities/3",
                        json.dumps({"name": name}).encode(),
                        {"Content-Type": "application/json"},
                        method="PATCH",
                    )
                    try:
                        with urllib.request.urlopen(request, timeout=60):
                            acknowledged.append(name)
                    except urllib.error.HTTPError as error:
                        assert error.code == 503, "only that it is busy, and to try again"  # noqa: PT017

            client = threading.Thread(target=name_until_stopped)
            client.start()
            try:
                for _ in range(repairs):
                    count = len(acknowledged)
                    while client.is_alive() and len(acknowledged) < count + 3:
                        client.join(0.01)
                    assert repair(folder).lost == ()
                count = len(acknowledged)
                while client.is_alive() and len(acknowledged) < count + 3:
                    client.join(0.01)
                assert client.is_alive(), "the server refused a name"
            finally:
                stop.set()
                client.join(60)
        finally:
            server.terminate()
    drain.join(60)
    with GalleryDatabase.open(folder) as gallery, gallery.reading() as repository:
        (name,) = repository.connection.execute("SELECT name FROM identities WHERE id = 3").fetchone()
    assert name == acknowledged[-1]
