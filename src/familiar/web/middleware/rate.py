"""How often one address may ask: token buckets, of which only so many are remembered."""

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Callable
from http import HTTPStatus

from starlette.types import Scope

from familiar.web.errors import HttpProblem

MAX_ADDRESSES = 10_000
IPV6_PREFIX = 64  # bits; what one household or machine is given, and may draw addresses from as it likes


class TokenBuckets:
    """`a_minute` at once, and as many each minute from then on, per key. The key unused longest is forgotten first."""

    def __init__(self, a_minute: int, clock: Callable[[], float], most: int = MAX_ADDRESSES) -> None:
        self._size, self._clock, self._most = a_minute, clock, most
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # key: how many, at what time

    def __len__(self) -> int:
        return len(self._buckets)

    def require(self, key: str, detail: str) -> None:
        """Refused with 429, and when to come again, where nothing is left for `key`. Takes nothing."""
        left = self._now(key)
        if left < 1:
            wait = math.ceil((1 - left) * 60 / self._size)
            raise HttpProblem(HTTPStatus.TOO_MANY_REQUESTS, "too-many-requests", detail, wait)

    def take(self, key: str) -> None:
        """One less for `key`, down to none."""
        self._buckets[key] = (max(0.0, self._now(key) - 1), self._clock())
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)

    def _now(self, key: str) -> float:
        left, since = self._buckets.get(key, (float(self._size), self._clock()))
        # A clock that is set back must not take away what there was.
        return min(float(self._size), left + max(0.0, self._clock() - since) * self._size / 60)


def client_key(scope: Scope) -> str:
    """Whose request it is: an IPv4 address or the /64 of an IPv6 address. "this machine" for loopback and sockets.

    >>> asking({"client": ("2001:db8::1234:1", 80)})
    '2001:db8::/64'
    """
    client = scope.get("client")
    if client is None:
        return "this machine"
    try:
        address = ipaddress.ip_address(client[0].partition("%")[0])
    except ValueError:
        return client[0]
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback:
        return "this machine"
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(address), IPV6_PREFIX), strict=False))
    return str(address)
