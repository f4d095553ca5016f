"""Rate limits per address, and their memory."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.web.errors import HttpProblem
from familiar.web.middleware import wrap_app
from familiar.web.middleware.rate import TokenBuckets, client_key
from familiar.web.settings import Limits, Settings
from support.middleware import BROWSER, LOCKED, OPEN, TOKEN, Clock, app, browser, scope_of, status_of

FEW = Limits(requests_per_minute=6, wrong_tokens_per_minute=3)
SIGNED = {"Authorization": f"Bearer {TOKEN}"}


def limited(settings: Settings) -> Settings:
    return replace(settings, limits=FEW)


def test_rate_limit_returns_429_with_retry_after() -> None:
    clock = Clock()
    client = browser(limited(LOCKED), clock, address="192.168.1.7")
    for _ in range(6):
        assert client.get("/", headers=SIGNED).status_code == 200
    for _ in range(20):  # asking on does not make it wait longer
        answer = client.get("/", headers=SIGNED)
        assert (answer.status_code, answer.headers["Retry-After"]) == (429, "10")
    assert client.get("/login").status_code == 429, "what is open to all counts, too"
    clock.now += 9.9
    assert client.get("/", headers=SIGNED).status_code == 429
    clock.now += 0.1
    assert client.get("/", headers=SIGNED).status_code == 200
    assert client.get("/", headers=SIGNED).status_code == 429
    clock.now += 3_600
    assert [client.get("/", headers=SIGNED).status_code for _ in range(7)] == [200] * 6 + [429]


@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_loopback_is_not_rate_limited(address: str) -> None:
    client = browser(limited(OPEN), address=address)
    assert {client.get("/").status_code for _ in range(20)} == {200}


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1", "192.168.1.7"])
@pytest.mark.parametrize("how", ["login", "bearer", "both"])
def test_wrong_tokens_are_limited_without_blocking_right_token(address: str, how: str) -> None:
    clock = Clock()
    client = browser(replace(LOCKED, limits=Limits(wrong_tokens_per_minute=3)), clock, address=address)

    def guess(token: str, number: int) -> int:
        if how == "login" or (how == "both" and number % 2):
            return client.post("/login", data={"token": token}).status_code
        return client.get("/api/v1/faces", headers={"Authorization": f"Bearer {token}"}).status_code

    assert {guess(TOKEN, number) for number in range(20)} <= {200, 303}, "right ones are not counted"
    client.cookies.clear()
    assert {guess("wrong", number) for number in range(3)} <= {401, 303}
    assert [guess("wrong", number) for number in range(4)] == [429] * 4
    assert {guess(TOKEN, number) for number in range(4)} <= {200, 303}, "the one who knows it is let in"
    client.cookies.clear()
    assert guess("wrong", 0) == 429
    clock.now += 20
    assert [guess("wrong", 0) for _ in range(2)] in ([401, 429], [303, 429])


def test_session_survives_wrong_logins_from_same_address() -> None:
    client = browser(limited(LOCKED))
    client.post("/login", data={"token": TOKEN})
    for _ in range(5):
        client.post("/login", data={"token": "wrong"})
    assert client.get("/", headers=BROWSER).status_code == 200


def test_rate_limit_is_per_address_or_ipv6_prefix() -> None:
    chain = wrap_app(app, limited(LOCKED), Clock(), Clock())

    def statuses(client: str) -> list[int]:
        headers = [("Host", "localhost"), *SIGNED.items()]
        return [status_of(chain, scope_of("GET", "/", headers, client=(client, 1))) for _ in range(7)]

    spent = [200] * 6 + [429]
    assert statuses("10.0.0.1") == spent
    assert statuses("10.0.0.2") == spent
    assert statuses("2001:db8:0:1::1") == spent
    assert statuses("2001:db8:0:1:ffff::2") == [429] * 7, "the same /64"
    assert statuses("2001:db8:0:2::1") == spent
    assert statuses("::ffff:10.0.0.1") == [429] * 7, "the IPv4 address"
    assert statuses("fe80::1%eth0") == spent
    assert status_of(chain, scope_of("GET", "/login", [("Host", "localhost")], client=None)) == 200


@pytest.mark.slow
def test_bucket_count_is_bounded() -> None:
    clock = Clock()
    buckets = TokenBuckets(3, clock, max_keys=100)
    for _ in range(3):
        buckets.take("the busy one")
    for number in range(10_000):
        buckets.take(f"address {number}")
        if number % 50 == 0:  # once would do to be remembered
            buckets.take("the busy one")
    assert len(buckets) == 100
    with pytest.raises(HttpProblem):
        buckets.require("the busy one", "not forgotten, since it never stopped")
    clock.now += 20
    buckets.require("the busy one", "to be refused does not make it wait for longer")
    for number in range(10_000):
        buckets.require(f"another {number}", "fresh")
    assert len(buckets) == 100, "to look takes no room"


@given(st.lists(st.floats(0, 100), max_size=60), st.integers(1, 50))
def test_accepted_requests_never_exceed_rate(steps: list[float], a_minute: int) -> None:
    clock = Clock()
    buckets, began, taken = TokenBuckets(a_minute, clock), clock.now, 0
    waits: list[int | None] = []
    for wait in steps:
        clock.now += wait
        try:
            buckets.require("a", "")
        except HttpProblem as error:
            waits.append(error.retry_seconds)
        else:
            buckets.take("a")
            taken += 1
        assert taken <= a_minute * (1 + (clock.now - began) / 60) + 1e-6
    assert all(wait is not None and 1 <= wait <= 60 for wait in waits)


@given(st.ip_addresses(v=6))
def test_ipv6_client_key_is_loopback_prefix_or_ipv4(address: object) -> None:
    key = client_key({"client": (str(address), 1)})
    assert key == "this machine" or "/64" in key or "." in key
