"""The Host header. A page of another site can have its own name lead to this machine (DNS rebinding) and then count as
of one origin with us: so we answer only to names that are ours."""

import ipaddress
import re
from http import HTTPStatus

from starlette.datastructures import Headers

from familiar.web.errors import HttpProblem
from familiar.web.settings import Settings

HOST = re.compile(r"(\[(?P<ipv6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9._-]{1,253}))(:[0-9]{1,5})?")


class AllowedHosts:
    """Ours are localhost, 127.0.0.1, [::1], the address we serve on and `settings.hosts`; where others
    reach us, any IP address: to rebind takes a name."""

    def __init__(self, settings: Settings) -> None:
        names = ("localhost", "127.0.0.1", "::1", settings.address, *settings.hosts)
        self._names = {canonical(name) for name in names}
        self._any_address = not settings.loopback

    def check(self, headers: Headers) -> None:
        """Refused: 400 where there is not exactly one well-formed Host, 421 where it is not ours."""
        said = headers.getlist("host")
        if len(said) != 1:
            raise HttpProblem(HTTPStatus.BAD_REQUEST, "bad-host", "a request has one Host header")
        name = host_name(said[0])
        if name not in self._names and not (self._any_address and address_of(name) is not None):
            raise HttpProblem(
                HTTPStatus.MISDIRECTED_REQUEST,
                "unknown-host",
                "this server does not answer to that name; start it with --host NAME to let browsers use it",
            )


def host_name(said: str) -> str:
    """The name or address of a Host header, without its port. Refused with 400 where it is malformed.

    >>> host_name("LocalHost:8000"), host_name("[0:0::1]:80")
    ('localhost', '::1')
    """
    match = HOST.fullmatch(said)
    if match is None or (match["ipv6"] and not isinstance(address_of(match["ipv6"]), ipaddress.IPv6Address)):
        raise HttpProblem(HTTPStatus.BAD_REQUEST, "bad-host", "the Host header is malformed")
    return canonical(match["name"] or match["ipv6"])


def canonical(name: str) -> str:
    """A name in lower case; an address in its one short form, without brackets."""
    address = address_of(name.strip("[]"))
    return name.lower() if address is None else str(address)


def address_of(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """None: it is no address, but a name."""
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
