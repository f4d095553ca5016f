"""DNS rebinding: the accepted Host headers."""

from dataclasses import replace

import pytest

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
        (OPEN, "evil.example", 421),
        (OPEN, "localhost.evil.example", 421),
        (OPEN, "127.0.0.1.nip.io:8000", 421),
        (OPEN, "localhost.", 421),
        (OPEN, "192.168.1.5", 421),
        (OPEN, "[::2]", 421),
        (OPEN, "127.1", 421),
        (OPEN, "2130706433", 421),
        (OPEN, "0x7f000001", 421),
        (OPEN, "", 421),
        (OPEN, " ", 421),
        (OPEN, "localhost:", 421),
        (OPEN, "localhost:port", 421),
        (OPEN, "localhost:80:80", 421),
        (OPEN, "localhost@evil.example", 421),
        (OPEN, "localhost/evil", 421),
        (OPEN, "localhost, evil.example", 421),
        (OPEN, "::1", 421),
        (OPEN, "[::1", 421),
        (OPEN, "[::1]x", 421),
        (OPEN, "[12:34]", 421),
        (OPEN, "[127.0.0.1]", 421),
        (OPEN, "[fe80::1%25eth0]", 421),
        (OPEN, "löcalhost", 421),
        (OPEN, "a" * 254, 421),
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


@pytest.mark.parametrize(("hosts", "status"), [([], 421), (["evil.example", "localhost"], 421)])
def test_rejects_missing_host_header_and_goes_by_the_first(hosts: list[str], status: int) -> None:
    scope = scope_of("GET", "/", [("Host", host) for host in hosts])
    assert status_of(wrap_app(app, OPEN), scope) == status


def test_refusal_says_how_to_name_the_server() -> None:
    answer = browser(OPEN).get("/", headers={"Host": "album.example"})
    assert "start it with --host NAME to let browsers use it" in answer.json()["detail"]
