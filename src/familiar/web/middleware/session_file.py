"""The file with what sessions need to survive a restart: a secret, and the sessions that were ended early."""

import json
import logging
import re
import secrets
import threading
from pathlib import Path
from typing import Any

from familiar.core.errors import CannotWrite
from familiar.core.files import write_atomically

SECRET_BYTES = 32
MAX_ENDED = 10_000
MAX_FILE_BYTES = 4_000_000
KEY = re.compile("[0-9a-f]{32}")
log = logging.getLogger("familiar.serve")


class SessionFile:
    """A secret, and sessions that were ended before they expire; in memory only if the file cannot be written.

    A file with other content is replaced: all sessions end then, since they were signed with another secret.

    Args:
        path: in an existing folder; None: in memory only.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._secret: bytes | None = None
        self._ended: dict[str, int] = {}  # key: expiry, Unix time in seconds
        if path is None or not path.parent.is_dir():
            self._path = None
            return
        try:
            with path.open("rb") as content:
                self._secret, self._ended = _parse(json.loads(content.read(MAX_FILE_BYTES)))
        except FileNotFoundError:
            self._create()
        except OSError as error:
            log.warning("%s: %s; a restart ends the sessions of browsers", path, error.strerror)
            self._path = None
        except (ValueError, RecursionError):
            log.warning("%s: damaged, and made anew; all browsers have to log in again", path)
            self._create()

    @property
    def secret(self) -> bytes | None:
        """32 random bytes that stay the same across restarts; None if there is no file."""
        return self._secret

    def is_ended(self, key: str) -> bool:
        return key in self._ended

    def end(self, key: str, expires: int, now: float) -> None:
        """Remember that a session was ended. Beyond MAX_ENDED, those that expire soonest are forgotten.

        To be called in a thread, since it waits for the disk.
        """
        with self._lock:
            ended = sorted((end, other) for other, end in self._ended.items() if end > now and other != key)
            self._ended = {other: end for end, other in ended[-MAX_ENDED + 1 :]} | {key: expires}
            if self._path is not None:
                try:
                    self._write()
                except CannotWrite as error:
                    log.warning("%s; a session that was ended just now is valid again after a restart", error)

    def _create(self) -> None:
        self._secret, self._ended = secrets.token_bytes(SECRET_BYTES), {}
        try:
            self._write()
        except CannotWrite as error:
            log.warning("%s; a restart ends the sessions of browsers", error)
            self._path = self._secret = None

    def _write(self) -> None:
        assert self._path is not None
        assert self._secret is not None
        content = {"format_version": 1, "secret": self._secret.hex(), "ended": self._ended}
        write_atomically(self._path, json.dumps(content).encode(), private=True)


def _parse(content: Any) -> tuple[bytes, dict[str, int]]:
    """Return secret and ended sessions. ValueError if the content is not what this version writes."""
    if not isinstance(content, dict) or content.get("format_version") != 1:
        raise ValueError
    secret, ended = content.get("secret"), content.get("ended")
    if not isinstance(secret, str) or not isinstance(ended, dict):
        raise ValueError
    if len(bytes.fromhex(secret)) != SECRET_BYTES:
        raise ValueError
    if not all(KEY.fullmatch(key) and type(expires) is int for key, expires in ended.items()):
        raise ValueError
    return bytes.fromhex(secret), ended
