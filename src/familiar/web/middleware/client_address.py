"""Who sent a request, as the log and the limits name them."""

import ipaddress

from starlette.types import Scope

IPV6_PREFIX = 64  # bits; assigned to one household or machine, which may use any address within
THIS_MACHINE = "this machine"


def client_address(scope: Scope) -> str:
    """Return a client's IPv4 address, or the /64 of its IPv6 address; "this machine" for loopback and sockets.

    >>> client_address({"client": ("2001:db8::1234:1", 80)})
    '2001:db8::/64'
    """
    try:
        address = ipaddress.ip_address(scope["client"][0].partition("%")[0]) if scope.get("client") else None
    except ValueError:
        return scope["client"][0]
    mapped = getattr(address, "ipv4_mapped", None)
    address = address if mapped is None else mapped
    if address is None or address.is_loopback:
        return THIS_MACHINE
    return str(address if address.version == 4 else ipaddress.ip_network((int(address), IPV6_PREFIX), strict=False))
