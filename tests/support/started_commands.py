"""Commands that run until they are stopped: start one, and take its first answer."""

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Sequence


def served_page(arguments: Sequence[str]) -> str:
    """Start a server on a free port and return its start page; no browser is opened."""
    port = ["--port", "0"] if arguments[0] == "serve" else []  # the others choose a free one
    command = [sys.executable, "-m", "familiar", *map(os.path.expanduser, arguments), *port]
    environment = os.environ | {"BROWSER": "false"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stderr is not None
            printed = ""
            for text in server.stderr:
                printed += text
                if url := re.search(r"http://[\d.]+:(\d+)/", text):  # every address has this one
                    page = urllib.request.Request(f"http://127.0.0.1:{url[1]}/", headers={"Accept": "text/html"})
                    return urllib.request.urlopen(page, timeout=60).read().decode()
            raise AssertionError(printed)
        finally:
            server.terminate()


def first_event(arguments: Sequence[str]) -> str:
    """Start a watch and return its first line."""
    command = [sys.executable, "-m", "familiar", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
        try:
            assert watch.stdout is not None
            return watch.stdout.readline()
        finally:
            watch.terminate()
