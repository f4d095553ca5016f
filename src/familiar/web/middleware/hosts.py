"""Check of the Host header against DNS rebinding.

A page of another site can point its own name to this machine (DNS rebinding) and then has the same origin as this
server. So requests are answered only under this server's names.
"""

import ipaddress
import re
from http import HTTPStatus

from starlette.datastructures import Headers

from familiar.web.errors import HttpProblem
from familiar.web.settings import ServerSettings

HOST = re.compile(r"(\[(?P<ipv6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9._-]{1,253}))(:[0-9]{1,5})?")


class AllowedHosts:
    """The names of this server: localhost, 127.0.0.1, [::1], the address it serves on and `settings.hosts`.

    If other machines can reach it, also any IP address: rebinding takes a name.
    """

    def __init__(self, settings: ServerSettings) -> None:
        names = ("localhost", "127.0.0.1", "::1", settings.address, *settings.hosts)
        self._names = {canonical(name) for name in names}
        self._any_address = not settings.loopback

    def check(self, headers: Headers) -> None:
        """Check the Host header.

        Raises:
            HttpProblem: 400, there is not exactly one well-formed Host; 421, it is not a name of this server.
        """
        values = headers.getlist("host")
        if len(values) != 1:
            raise HttpProblem(HTTPStatus.BAD_REQUEST, "bad-host", "a request must have exactly one Host header")
        name = host_name(values[0])
        if name not in self._names and not (self._any_address and address_of(name) is not None):
            raise HttpProblem(
                HTTPStatus.MISDIRECTED_REQUEST,
                "unknown-host",
                "this server does not answer to that name; start it with --host NAME to let browsers use it",
            )


def host_name(header: str) -> str:
    """Return the name or address of a Host header, without its port. HttpProblem with 400 if it is malformed.

    >>> host_name("LocalHost:8000"), host_name("[0:0::1]:80")
    ('localhost', '::1')
    """
    match = HOST.fullmatch(header)
    if match is None or (match["ipv6"] and not isinstance(address_of(match["ipv6"]), ipaddress.IPv6Address)):
        raise HttpProblem(HTTPStatus.BAD_REQUEST, "bad-host", "the Host header is malformed")
    return canonical(match["name"] or match["ipv6"])


def canonical(name: str) -> str:
    """Return a name in lower case, an address in its canonical short form without brackets."""
    address = address_of(name.strip("[]"))
    return name.lower() if address is None else str(address)


def address_of(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse an IP address; None for a name."""
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
