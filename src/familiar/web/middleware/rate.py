"""Rate limits per address: token buckets, in bounded memory."""

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Callable
from http import HTTPStatus

from starlette.types import Scope

from familiar.web.errors import HttpProblem

MAX_ADDRESSES = 10_000
IPV6_PREFIX = 64  # bits; assigned to one household or machine, which may use any address within


class TokenBuckets:
    """Token buckets per key: of `per_minute` tokens, refilled at that rate.

    At most `max_keys` are remembered; the least recently used one is forgotten first. `clock`: seconds of a clock that
    is never set.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float], max_keys: int = MAX_ADDRESSES) -> None:
        self._size, self._clock, self._max_keys = per_minute, clock, max_keys
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # key: (tokens, time)

    def __len__(self) -> int:
        return len(self._buckets)

    def require(self, key: str, detail: str) -> None:
        """Check that there is a token for `key`, without taking it.

        Raises:
            HttpProblem: 429 with `Retry-After`, there is none.
        """
        tokens = self._tokens(key)
        if tokens < 1:
            wait = math.ceil((1 - tokens) * 60 / self._size)
            raise HttpProblem(HTTPStatus.TOO_MANY_REQUESTS, "too-many-requests", detail, wait)

    def take(self, key: str) -> None:
        """Take a token of `key`, if there is one."""
        self._buckets[key] = (max(0.0, self._tokens(key) - 1), self._clock())
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._max_keys:
            self._buckets.popitem(last=False)

    def _tokens(self, key: str) -> float:
        tokens, since = self._buckets.get(key, (float(self._size), self._clock()))
        return min(float(self._size), tokens + (self._clock() - since) * self._size / 60)


def client_key(scope: Scope) -> str:
    """Return a client's IPv4 address, or the /64 of its IPv6 address; "this machine" for loopback and sockets.

    >>> client_key({"client": ("2001:db8::1234:1", 80)})
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
