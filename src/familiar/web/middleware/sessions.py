"""Sessions of browsers: Starlette's signed cookies, and a small file by which they and their ends outlast a restart."""

import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path

from starlette.middleware.sessions import SessionMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from familiar.core.errors import CannotWrite
from familiar.core.files import write_atomically
from familiar.core.json_codec import DOCUMENTS
from familiar.web.settings import ServerSettings

FORMAT = "familiar-sessions/1"
LIFETIME_SECONDS = 30 * 24 * 3600
HOST_PREFIX = "__Host-"  # browsers accept such a cookie over HTTPS only, and from this host only (RFC 6265bis)
log = logging.getLogger("familiar.serve")


@dataclass
class _Stored:
    """Content of the file. `secret`: signs cookies; `ended`: IDs of sessions, and when they would have expired."""

    format: str = FORMAT
    secret: str = field(default_factory=lambda: secrets.token_hex(32))
    ended: Mapping[str, float] = field(default_factory=dict[str, float])


class EndedSessions:
    """The sessions that were ended before they expire, and the secret that signs cookies.

    A file with other content is replaced, which ends all sessions. If it cannot be written, a restart does.

    Args:
        path: in an existing folder; None: in memory only.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path if path is not None and path.parent.is_dir() else None
        self._lock, self._stored = threading.Lock(), _Stored()
        if self._path is None:
            return
        try:
            stored = DOCUMENTS.from_json(_Stored, json.loads(self._path.read_bytes()))
            if stored.format != FORMAT:
                raise ValueError
            self._stored = stored
        except FileNotFoundError:
            self._write()
        except OSError as error:
            log.warning("%s: %s; a restart ends the sessions of browsers", self._path, error.strerror)
            self._path = None
        except (ValueError, RecursionError):
            log.warning("%s: damaged, and made anew; all browsers have to log in again", self._path)
            self._write()

    @property
    def secret(self) -> str:
        return self._stored.secret

    def __contains__(self, session: object) -> bool:
        return session in self._stored.ended

    def add(self, session: str) -> None:
        """Remember that a session was ended; to be called in a thread, since it waits for the disk."""
        now = time.time()
        with self._lock:
            current = {other: end for other, end in self._stored.ended.items() if end > now}
            self._stored = _Stored(FORMAT, self.secret, current | {session: now + LIFETIME_SECONDS})
            self._write()

    def _write(self) -> None:
        if self._path is not None:
            try:
                write_atomically(self._path, json.dumps(asdict(self._stored)).encode(), private=True)
            except CannotWrite as error:
                log.warning("%s; a restart ends the sessions of browsers, or revives those that logged out", error)


def with_sessions(app: ASGIApp, settings: ServerSettings, ended: EndedSessions) -> ASGIApp:
    """Give requests their `session`: over HTTPS from a cookie that only this host can set, and only over HTTPS."""

    def middleware(prefix: str, path: str, *, secure: bool) -> ASGIApp:
        name = prefix + cookie_name(settings.session_name)
        return SessionMiddleware(app, ended.secret, name, LIFETIME_SECONDS, path, "strict", https_only=secure)

    plain = middleware("", settings.root_path or "/", secure=False)
    secure = middleware(HOST_PREFIX, "/", secure=True)

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        await (secure if scope["scheme"] == "https" else plain)(scope, receive, send)

    return run


def cookie_name(session_name: str) -> str:
    """Return a cookie name per `ServerSettings.session_name`: browsers share cookies between all ports of a machine."""
    return f"familiar_{sha256(os.fsencode(session_name)).hexdigest()[:8]}"
