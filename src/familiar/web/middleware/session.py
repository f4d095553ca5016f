"""Sessions: a signed cookie with its expiry time. The server stores only a secret and the sessions that were ended."""

import hmac
import os
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from starlette.datastructures import Headers

from familiar.web.access_token import AccessToken
from familiar.web.middleware.session_file import SessionFile

LIFETIME_SECONDS = 30 * 24 * 3600
MAX_CLOCK_ERROR_SECONDS = 24 * 3600
HOST_PREFIX = "__Host-"  # browsers accept such a cookie over HTTPS only, and from this host only (RFC 6265bis)
VALUE = re.compile(r"(?P<key>[0-9a-f]{32})\.(?P<expires>[0-9]{1,12})\.(?P<mac>[0-9a-f]{64})")


@dataclass(frozen=True)
class Session:
    """A browser session. `key`: 128 random bits in hex; `expires`: Unix time in seconds."""

    key: str
    expires: int


class Sessions:
    """Issues and verifies session cookies.

    They are signed with a key derived from the file's secret and from the token, so that they survive a restart, end
    when the token is replaced, and tell a thief nothing about the token. Without a file only the token is left of it,
    and without a token a random key: then only a client that knows the token is given a cookie signed under it, since
    tokens could be tried offline with one.

    Args:
        session_name: of the server's settings.
        token: the server's.
        file: secret, and sessions that were ended.
        clock: seconds since 1970: sessions outlive the process.
    """

    def __init__(self, session_name: str, token: AccessToken, file: SessionFile, clock: Callable[[], float]) -> None:
        self._name = cookie_name(session_name)
        self._token, self._file, self._clock = token, file, clock
        self._secret = file.secret or (b"" if token.is_required else secrets.token_bytes(32))

    def begin(self) -> Session:
        return Session(secrets.token_hex(16), int(self._clock()) + LIFETIME_SECONDS)

    def read(self, headers: Headers, *, secure: bool) -> Session | None:
        """Return the first valid session among the cookies of a request, over HTTPS if it is `secure`."""
        values = self.cookie_values(headers, secure=secure)
        return next((session for value in values if (session := self._read(value))), None)

    def cookie(self, session: Session, *, secure: bool) -> str:
        """Return a Set-Cookie header for a session."""
        signed = f"{session.key}.{session.expires}"
        return self._cookie(f"{signed}.{self._mac('session', signed)}", LIFETIME_SECONDS, secure=secure)

    def clearing_cookie(self, *, secure: bool) -> str:
        """Return a Set-Cookie header that deletes the cookie."""
        return self._cookie("", 0, secure=secure)

    def cookie_values(self, headers: Headers, *, secure: bool) -> list[str]:
        """List the values of the request's session cookies, valid or not."""
        expected_name = self._cookie_name(secure=secure)
        pairs = (pair.strip().partition("=") for line in headers.getlist("cookie") for pair in line.split(";"))
        return [value for name, _, value in pairs if name == expected_name]

    def csrf_token(self, session: Session) -> str:
        """Return the token that a page of this session sends when it writes; no other site can know it."""
        return self._mac("csrf", session.key)

    def end(self, session: Session) -> None:
        """Revoke a session; to be called in a thread."""
        self._file.end(session.key, session.expires, self._clock())

    def _read(self, value: str) -> Session | None:
        match = VALUE.fullmatch(value)
        if match is None:
            return None
        session = Session(match["key"], int(match["expires"]))
        expected = self._mac("session", f"{match['key']}.{match['expires']}")
        if not hmac.compare_digest(expected, match["mac"]):
            return None
        # One that was begun in the future, while the clock was wrong, would hold too long.
        remaining = session.expires - self._clock()
        is_current = 0 < remaining <= LIFETIME_SECONDS + MAX_CLOCK_ERROR_SECONDS
        return session if is_current and not self._file.is_ended(session.key) else None

    def _mac(self, purpose: str, text: str) -> str:
        """Return a MAC in hex. HttpProblem with 503 if the token cannot be read."""
        material = self._secret + (self._token.read().encode() if self._token.is_required else b"")
        key = hmac.digest(b"familiar sessions 2", material, "sha256")  # HKDF's extract (RFC 5869)
        return hmac.digest(key, f"{purpose} {text}".encode(), "sha256").hex()

    def _cookie(self, value: str, seconds: int, *, secure: bool) -> str:
        end = "; Secure" if secure else ""
        return f"{self._cookie_name(secure=secure)}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{end}"

    def _cookie_name(self, *, secure: bool) -> str:
        return f"{HOST_PREFIX}{self._name}" if secure else self._name


def cookie_name(session_name: str) -> str:
    """Return a cookie name per `ServerSettings.session_name`: browsers share cookies between all ports of a machine."""
    return f"familiar_{sha256(os.fsencode(session_name)).hexdigest()[:8]}"
