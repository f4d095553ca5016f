"""The access token of a server: fixed, or the content of a file, which may change while the server runs."""

import logging
from pathlib import Path

from familiar.core.errors import FamiliarError
from familiar.web.errors import HttpProblem

MIN_TOKEN_CHARACTERS = 16
MAX_TOKEN_BYTES = 4_096
log = logging.getLogger("familiar.serve")


class AccessToken:
    """The token that clients have to send.

    A file is read at each use: a token that is written to it replaces the old one at once. While the file has no valid
    token, nobody is let in, since the owner may have emptied it to lock everybody out.

    Args:
        token: a fixed one.
        file: whose content is the token; None with `token` None: no token is required.
    """

    def __init__(self, token: str | None, file: Path | None) -> None:
        self._token, self._file = token, file
        self._is_readable = True

    @property
    def is_required(self) -> bool:
        return self._token is not None or self._file is not None

    def read(self) -> str:
        """Return the current token; only where one is required.

        Raises:
            HttpProblem: 503, the file has no valid token; the log says why.
        """
        if self._file is None:
            assert self._token is not None
            return self._token
        try:
            token = read_token_file(self._file)
        except FamiliarError as error:
            if self._is_readable:
                log.error("%s; until then nobody can log in", error)
            self._is_readable = False
            raise HttpProblem(503, "no-token", "this server's token cannot be read; its log says why") from error
        self._is_readable = True
        return token


def read_token_file(file: Path) -> str:
    """Read an access token from a file.

    Raises:
        FamiliarError: the file cannot be read, or contains no valid token.
    """
    try:
        with file.open("rb") as content:
            token = content.read(MAX_TOKEN_BYTES + 1).decode("ascii").strip()
    except OSError as error:
        raise FamiliarError(f"{file}: {error.strerror}; give a file that this user may read") from error
    except UnicodeDecodeError as error:
        raise FamiliarError(f"{file}: not a text file; write the token to it, as ASCII") from error
    if not token:
        raise FamiliarError(f"{file}: empty; write the token to it, for example the output of openssl rand -hex 32")
    try:
        check_token(token)
    except FamiliarError as error:
        raise FamiliarError(f"{file}: {error}; for example the output of openssl rand -hex 32") from error
    return token


def check_token(token: str) -> None:
    """Check the length and the characters of an access token.

    Raises:
        FamiliarError: it is too short to be safe, or too long; or it has other than printable ASCII characters.
    """
    if not MIN_TOKEN_CHARACTERS <= len(token) <= MAX_TOKEN_BYTES or not (token.isascii() and token.isprintable()):
        raise FamiliarError(f"a token must have at least {MIN_TOKEN_CHARACTERS} ASCII characters, on one line")
