"""Sessions: a signed cookie with its expiry time. The server stores only the sessions that were ended early."""

import hmac
import os
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from starlette.datastructures import Headers

LIFETIME_SECONDS = 30 * 24 * 3600
MAX_REVOKED = 10_000
VALUE = re.compile(r"(?P<key>[0-9a-f]{32})\.(?P<expires>[0-9]{1,12})\.(?P<mac>[0-9a-f]{64})")


@dataclass(frozen=True)
class Session:
    """A browser session. `key`: 128 random bits in hex; `expires`: Unix time in seconds."""

    key: str
    expires: int


class Sessions:
    """Issues and verifies session cookies.

    They are signed with a key derived from `token`, so that they survive a restart and end with the token; without a
    token, with a random key. Only a client that knows the token is given a cookie signed under it: with a cookie,
    tokens could be tried offline.
    """

    def __init__(self, session_name: str, token: str | None, clock: Callable[[], float]) -> None:
        self._name = cookie_name(session_name)
        secret = secrets.token_bytes(32) if token is None else token.encode()
        self._key = hmac.digest(b"familiar sessions 1", secret, "sha256")  # HKDF's extract (RFC 5869)
        self._clock = clock
        self._revoked: dict[str, int] = {}

    def begin(self) -> Session:
        return Session(secrets.token_hex(16), int(self._clock()) + LIFETIME_SECONDS)

    def read(self, headers: Headers) -> Session | None:
        """Return the first valid session among the request's cookies."""
        return next((session for value in self.cookie_values(headers) if (session := self._read(value))), None)

    def cookie(self, session: Session, *, secure: bool) -> str:
        """Return a Set-Cookie header for a session."""
        signed = f"{session.key}.{session.expires}"
        return self._cookie(f"{signed}.{self._mac('session', signed)}", LIFETIME_SECONDS, secure=secure)

    def clearing_cookie(self, *, secure: bool) -> str:
        """Return a Set-Cookie header that deletes the cookie."""
        return self._cookie("", 0, secure=secure)

    def cookie_values(self, headers: Headers) -> list[str]:
        """List the values of the request's session cookies, valid or not."""
        pairs = (pair.strip().partition("=") for line in headers.getlist("cookie") for pair in line.split(";"))
        return [value for name, _, value in pairs if name == self._name]

    def csrf_token(self, session: Session) -> str:
        """Return the token that a page of this session sends when it writes; no other site can know it."""
        return self._mac("csrf", session.key)

    def end(self, session: Session) -> None:
        """Revoke a session. Beyond MAX_REVOKED, those that expire soonest are forgotten."""
        now = self._clock()
        revoked = sorted(
            (expires, key) for key, expires in self._revoked.items() if expires > now and key != session.key
        )
        self._revoked = {key: expires for expires, key in revoked[-MAX_REVOKED + 1 :]} | {session.key: session.expires}

    def _read(self, value: str) -> Session | None:
        match = VALUE.fullmatch(value)
        if match is None:
            return None
        session = Session(match["key"], int(match["expires"]))
        expected = self._mac("session", f"{match['key']}.{match['expires']}")
        if not hmac.compare_digest(expected, match["mac"]):
            return None
        return None if session.expires <= self._clock() or session.key in self._revoked else session

    def _mac(self, purpose: str, text: str) -> str:
        return hmac.digest(self._key, f"{purpose} {text}".encode(), "sha256").hex()

    def _cookie(self, value: str, seconds: int, *, secure: bool) -> str:
        end = "; Secure" if secure else ""
        return f"{self._name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{end}"


def cookie_name(session_name: str) -> str:
    """Return a cookie name per `ServerSettings.session_name`: browsers share cookies between all ports of a machine."""
    return f"familiar_{sha256(os.fsencode(session_name)).hexdigest()[:8]}"
