"""Settings of `familiar serve`, validated once."""

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path

from familiar.core.errors import FamiliarError
from familiar.core.files import absolute_path
from familiar.photos.opening import pixel_limit
from familiar.web.access_token import check_token, read_token_file

MB = 1_000_000
SESSIONS = "sessions.json"
ROOT_PATH = re.compile(r"(?:/(?!\.+(?:/|$))[\w.~-]+)+", re.ASCII)  # no "..", nothing that a URL would have to encode


@dataclass(frozen=True)
class Limits:
    """Limits on one request, one address or all of them together: `_bytes`, `_seconds`, the others are counts.

    Slow clients and too many of them are for a reverse proxy to limit.
    """

    upload_bytes: int = 512 * MB  # of one request
    photo_bytes: int = 64 * MB  # of one photo
    photo_pixels: int = field(default_factory=pixel_limit)  # of one photo
    photos_per_request: int = 1_000
    json_bytes: int = 4 * MB  # of a request without photos
    waiting_requests: int = 256  # requests that wait for the gallery or the network; the next one gets 503
    waiting_jobs: int = 16  # jobs that wait; the next one gets 503
    stop_seconds: float = 20.0  # that a stop waits for the current job, and then for requests
    wrong_tokens_per_minute: int = 10  # of one address


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """How a server is reached, and who may use it.

    Attributes:
        hosts: names by which clients may call this server.
        token: that clients have to send.
        token_file: a file with that token instead, which is read again whenever it is needed.
        trusted_network: whether everyone who can reach the server may use it without a token.
        certificate, certificate_key: PEM files; with them the server speaks HTTPS.
        root_path: under which a proxy serves this server, such as "/photos"; empty: it has its host for itself.

    Raises:
        FamiliarError: the token is too short, the file cannot be read, both are given, one of them together with
            `trusted_network`, or others can reach the server and no token protects it; `root_path` is no such path.
    """

    address: str = "127.0.0.1"
    port: int = 8000
    hosts: tuple[str, ...] = ()
    token: str | None = None
    token_file: Path | None = None
    trusted_network: bool = False
    certificate: Path | None = None
    certificate_key: Path | None = None
    root_path: str = ""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.token is not None and self.token_file is not None:
            raise FamiliarError("give a token, or a file that contains it, not both")
        if self.requires_token and self.trusted_network:
            raise FamiliarError("a server with a token has no trusted network: give one of the two")
        if self.root_path and not ROOT_PATH.fullmatch(self.root_path):
            raise FamiliarError(f"{self.root_path!r} is no path under a host; give one such as /photos")
        if self.token is not None:
            check_token(self.token)
        if self.token_file is not None:
            read_token_file(self.token_file)
        if not self.requires_token and not self.loopback and not self.trusted_network:
            raise FamiliarError(
                f"{self.address} can be reached by others: set a token with FAMILIAR_TOKEN, or serve on 127.0.0.1"
            )

    @property
    def requires_token(self) -> bool:
        """Whether clients have to send a token."""
        return self.token is not None or self.token_file is not None

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        if self.address == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.address).is_loopback
        except ValueError:
            return False

    @property
    def knows_visitors(self) -> bool:
        """Whether the visitors of the pages are logged in, or sit at this machine."""
        return self.requires_token or self.loopback

    @property
    def session_name(self) -> str:
        """What the cookies of this server's sessions are named after."""
        return "familiar"

    @property
    def session_file(self) -> Path | None:
        """The file with which sessions survive a restart; None: they end with the server."""
        return None


@dataclass(frozen=True, kw_only=True)
class Settings(ServerSettings):
    """Everything that serving a gallery can be configured with.

    Attributes:
        models: as for `Embedder`; empty: the gallery's, or for a new one those for cats, dogs and people.
        providers: execution providers of ONNX Runtime; None: the CPU.
        report: a folder that `familiar evaluate` wrote.
        desk: whether the lost pets come first; otherwise their page is in the navigation once there is a report.
        roots: folders whose photos may be read, in addition to the gallery's own; empty: the folders of the photos
            that the gallery contains.
    """

    gallery: Path
    models: tuple[Path | str, ...] = ()
    providers: tuple[str, ...] | None = None
    detector: str | None = None
    detector_model: Path | None = None
    report: Path | None = None
    roots: tuple[Path, ...] = ()
    read_only: bool = False
    desk: bool = False

    @property
    def session_name(self) -> str:
        """The gallery's path: two galleries on one machine have different cookies."""
        return str(absolute_path(self.gallery))

    @property
    def session_file(self) -> Path:
        """In the gallery's folder, which moves with it."""
        return self.gallery / SESSIONS
