"""DNS rebinding: the accepted Host headers."""

import ipaddress
import re
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from familiar.web.middleware import wrap_app
from familiar.web.settings import Settings
from support.middleware import OPEN, SHARED, TOKEN, app, browser, scope_of, status_of


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "host", "status"),
    [
        (OPEN, "localhost", 200),
        (OPEN, "LOCALHOST:8000", 200),
        (OPEN, "127.0.0.1:1", 200),
        (OPEN, "[::1]:8000", 200),
        (OPEN, "[0:0:0:0:0:0:0:1]", 200),
        (OPEN, "evil.example", 421),
        (OPEN, "localhost.evil.example", 421),
        (OPEN, "127.0.0.1.nip.io:8000", 421),
        (OPEN, "localhost.", 421),
        (OPEN, "192.168.1.5", 421),
        (OPEN, "[::2]", 421),
        (OPEN, "127.1", 421),
        (OPEN, "2130706433", 421),
        (OPEN, "0x7f000001", 421),
        (OPEN, "", 400),
        (OPEN, " ", 400),
        (OPEN, "localhost:", 400),
        (OPEN, "localhost:port", 400),
        (OPEN, "localhost:80:80", 400),
        (OPEN, "localhost@evil.example", 400),
        (OPEN, "localhost/evil", 400),
        (OPEN, "localhost, evil.example", 400),
        (OPEN, "::1", 400),
        (OPEN, "[::1", 400),
        (OPEN, "[::1]x", 400),
        (OPEN, "[12:34]", 400),
        (OPEN, "[127.0.0.1]", 400),
        (OPEN, "[fe80::1%25eth0]", 400),
        (OPEN, "löcalhost", 400),
        (OPEN, "a" * 254, 400),
        (SHARED, "192.168.1.5:8000", 200),
        (SHARED, "10.0.0.9", 200),
        (SHARED, "[2001:db8::1]", 200),
        (SHARED, "Album.Example", 200),
        (SHARED, "localhost", 200),
        (SHARED, "evil.example", 421),
        (replace(OPEN, hosts=("Album.Local",)), "album.local:8000", 200),
        (replace(OPEN, address="127.0.0.9"), "127.0.0.9", 200),
    ],
)
def test_accepts_only_own_host_names(settings: Settings, host: str, status: int) -> None:
    headers = {b"Host": host.encode("latin-1"), b"Authorization": f"Bearer {TOKEN}".encode()}
    assert browser(settings).get("/", headers=headers).status_code == status


def is_loopback(name: str) -> bool:
    try:
        return ipaddress.IPv6Address(name) == ipaddress.IPv6Address("::1")
    except ValueError:
        return False


LABEL = st.from_regex(r"[A-Za-z0-9._\[\]:@/ -]{0,24}", fullmatch=True)


@pytest.mark.slow
@given(st.one_of(LABEL, LABEL.map("localhost".__add__), LABEL.map("[::1]".__add__), st.characters(max_codepoint=255)))
@example("[:::1]")
@example("[0::01]:00080")
def test_arbitrary_host_is_accepted_only_if_local(host: str) -> None:
    name, _ = re.fullmatch(r"(.*?)(:[0-9]{1,5})?", host, re.DOTALL).groups()  # pyright: ignore
    ours = name.lower() in ("localhost", "127.0.0.1") or (name[:1] + name[-1:] == "[]" and is_loopback(name[1:-1]))
    status = status_of(wrap_app(app, OPEN), scope_of("GET", "/", [("Host", host)]))
    assert status == 200 if ours else status in (400, 421)


@pytest.mark.parametrize("hosts", [[], ["localhost"] * 2, ["localhost", "evil.example"]])
def test_rejects_missing_or_repeated_host_header(hosts: list[str]) -> None:
    scope = scope_of("GET", "/", [("Host", host) for host in hosts])
    assert status_of(wrap_app(app, OPEN), scope) == 400
