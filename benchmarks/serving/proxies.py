"""Caddy and nginx before a server, as the pages of the documentation configure them."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
UPSTREAM = "127.0.0.1:8000"  # of the pages
NGINX = """
{user} daemon off; error_log stderr; pid {folder}/pid; worker_rlimit_nofile 10000;
events {{ worker_connections 4096; }}
http {{
    access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    {server}
}}
"""
Certificate = tuple[Path, Path]  # and its key


class NotInstalled(Exception):
    """A proxy's program is not installed; the message names it."""


def configuration(page: str, language: str) -> str:
    """Return the only block of a language on a page about how to do something."""
    (block,) = re.findall(rf"```{language}\n(.*?)```", (HOW_TO / page).read_text(), re.DOTALL)
    return block


@contextlib.contextmanager
def nginx_with(folder: Path, server: str, port: int) -> Iterator[None]:
    """Run nginx with a `server` block that listens on a port."""
    folder.mkdir(exist_ok=True)
    user = "user root;" if os.geteuid() == 0 else ""  # or its workers cannot write to the folder
    (folder / "conf").write_text(NGINX.format(user=user, folder=folder, server=server))
    with _running("nginx", ["-p", folder, "-c", folder / "conf"], port):
        yield


@contextlib.contextmanager
def nginx_before(url: str, folder: Path, certificate: Certificate | None = None) -> Iterator[str]:
    """Run nginx before a server, as the page on deploying it says, and provide its URL.

    Args:
        url: of the server.
        folder: for its files.
        certificate: with its key; None: without TLS.
    """
    port, server = free_port(), configuration("deploy.md", "nginx")
    changes = {"listen 443 ssl": f"listen 127.0.0.1:{port}{' ssl' if certificate else ''}", UPSTREAM: _authority(url)}
    if certificate:
        names = ("/etc/ssl/album.example.pem", "/etc/ssl/album.example.key")
        changes |= dict(zip(names, map(str, certificate), strict=True))
    else:
        server = re.sub(r" *ssl_certificate.*\n", "", server)
    with nginx_with(folder, _replaced(server, changes), port):
        yield f"{'https' if certificate else 'http'}://127.0.0.1:{port}"


@contextlib.contextmanager
def caddy_before(url: str, folder: Path, certificate: Certificate) -> Iterator[str]:
    """Run Caddy before a server, as `nginx_before`. It gets a certificate instead of fetching one."""
    port, files = free_port(), " ".join(map(str, certificate))
    options = "    admin off\n    auto_https off\n    skip_install_trust\n    default_sni album.example\n"
    changes = {
        "{\n    servers {": f"{{\n{options}    servers {{",
        "album.example {": f"https://album.example:{port} {{\n    bind 127.0.0.1\n    tls {files}",
        UPSTREAM: _authority(url),
    }
    folder.mkdir(exist_ok=True)
    (folder / "Caddyfile").write_text(_replaced(configuration("deploy.md", "caddy"), changes))
    with _running("caddy", ["run", "--config", folder / "Caddyfile", "--adapter", "caddyfile"], port):
        yield f"https://127.0.0.1:{port}"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def _authority(url: str) -> str:
    return url.removeprefix("http://").rstrip("/")


def _replaced(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert old in text, f"the page has no {old!r}"
        text = text.replace(old, new)
    return text


@contextlib.contextmanager
def _running(name: str, arguments: Sequence[str | Path], port: int) -> Iterator[None]:
    """Run a program until it listens on a port, and then to the end."""
    program = shutil.which(name)
    if program is None:
        raise NotInstalled(f"{name} is not installed")
    process = subprocess.Popen([program, *arguments])
    try:
        while True:
            assert process.poll() is None, f"{name} ended"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait(30)
