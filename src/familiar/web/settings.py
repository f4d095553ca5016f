"""What `familiar serve` was told, checked once."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from familiar.core.errors import FamiliarError

MB = 1_000_000
MIN_TOKEN_CHARACTERS = 16  # characters


@dataclass(frozen=True)
class Limits:
    """How much one request or address, or all of them together, may ask for: `_bytes` and `_seconds` are what they
    say, the others are counts."""

    upload_bytes: int = 512 * MB  # of one request
    photo_bytes: int = 64 * MB  # of one photo
    photo_pixels: int = 100_000_000  # of one photo
    photos_per_request: int = 1_000  # of one request
    total_body_bytes: int = 1_000 * MB  # of all bodies together, until they are answered; one more is told 503
    json_bytes: int = 4 * MB  # of a request that brings no photos
    waiting_requests: int = 256  # requests that wait for the gallery or the network; one more is told 503
    waiting_jobs: int = 16  # that wait; one more is told 503
    connections: int = 512  # of all clients; one more is closed
    header_seconds: float = 10.0  # until a connection has done TLS, and again until it has asked
    chunk_seconds: float = 20.0  # between two pieces of a body
    request_seconds: float = 120.0  # from a body's end to the answer
    stop_seconds: float = 20.0  # that a stop waits for the job under way, and then for requests
    requests_per_minute: int = 3_000  # of one address that is not this machine
    wrong_tokens_per_minute: int = 10  # of one address


@dataclass(frozen=True)
class Settings:
    """`roots`: folders whose photos may be read, beside the gallery's own; empty: those of the photos it knows.

    `model` None: nothing can be embedded, all else works. `hosts`: names by which browsers may call this server.
    FamiliarError where others can reach the server and no token protects it.
    """

    gallery: Path
    model: Path | None = None
    detector: str = "none"
    detector_model: Path | None = None
    report: Path | None = None  # a folder that `familiar evaluate` wrote
    roots: tuple[Path, ...] = ()
    address: str = "127.0.0.1"
    port: int = 8000
    hosts: tuple[str, ...] = ()
    token: str | None = None
    certificate: Path | None = None  # PEM, with its key: then it is HTTPS
    certificate_key: Path | None = None
    read_only: bool = False
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if self.token is not None and (len(self.token) < MIN_TOKEN_CHARACTERS or not self.token.isascii()):
            raise FamiliarError(f"a token has {MIN_TOKEN_CHARACTERS} ASCII characters or more")
        if self.token is None and not self.loopback:
            raise FamiliarError(
                f"{self.address} can be reached by others: set a token with FAMILIAR_TOKEN, or serve on 127.0.0.1"
            )

    @property
    def loopback(self) -> bool:
        """Whether this machine alone reaches the server."""
        if self.address == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.address).is_loopback
        except ValueError:
            return False
