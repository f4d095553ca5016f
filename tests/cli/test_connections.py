"""No command connects to another machine, unless its user names one; and what commands write into the home folder."""

from pathlib import Path

import pytest

from support import connections
from support.drawn_cats import draw_cats
from support.tiers import small_and_exhaustive

pytest.importorskip("familiar.integrations", reason="commands of the integrations are among those watched")
pytestmark = pytest.mark.slow

SMALL = " ".join(
    f"--set {setting}"
    for setting in (
        "model.name=mobilenetv3_small_050",
        "model.initial_weights=none",
        "input.size_px=32",
        "input.resize_px=32",
        "sampler.batch_size=16",
        "budget.epochs=1",
    )
)
USE = [
    "gallery enroll album photos --model pet-nano --detector none",
    "gallery cluster album",
    "gallery search album photos/cat-0/0.png --model pet-nano --detector none",
    "verify photos/cat-0/0.png photos/cat-1/0.png --model pet-nano --detector none",
    "serve album --model pet-nano",
]
REST = [
    "inspect photos",
    "recipes",
    "models --shipped",
    "augment photos --output augmented.png",
    "pack photos --output shards",
    f"train photos --output run --track tensorboard {SMALL}",
    "evaluate run photos --output report --split all",
    "export run --output model.onnx --max-auc-drop 1 --max-recall-drop 1",
    "embed photos --model model.onnx --detector none --output photos.npz",
    "embed photos --model pet-nano --detector none --output embedded --engine ray",
    "cluster embedded --output clusters --model pet-nano",
    "gallery enroll lost photos --model pet-nano --detector none",
    "gallery index lost --index milvus:index.db",
    "gallery search lost photos/cat-0/0.png --model pet-nano --detector none",
    "gallery check lost",
    "watch photos --gallery lost --model pet-nano --detector none",
    "match photos/cat-0/0.png --gallery lost --model pet-nano",
    "gallery export lost --output lost.csv",
    "gallery forget lost --photo photos/cat-0/0.png --yes",
]
# Of a home folder, what our own commands and matplotlib and Ray keep there. Telemetry would keep an identifier.
EXPECTED_IN_HOME = {".cache/familiar", ".cache/matplotlib", ".config/matplotlib", ".ray/auth_token"}


@pytest.mark.parametrize("commands", small_and_exhaustive(USE, REST), ids=["use", "rest"])
def test_commands_connect_to_no_other_machine(commands: list[str], tmp_path: Path):
    if reason := connections.reason_to_skip():
        pytest.skip(reason)
    draw_cats(tmp_path / "photos", cats=12, photos=4)
    user_folder = tmp_path / "home"
    user_folder.mkdir()
    traced = connections.trace(commands, tmp_path, user_folder)
    assert traced.code == 0, traced.output
    assert traced.addresses == frozenset()
    entries = {"/".join(path.relative_to(user_folder).parts[:2]) for path in user_folder.glob("*/*")}
    assert entries <= EXPECTED_IN_HOME


@pytest.mark.exhaustive
def test_a_named_address_is_seen(tmp_path: Path):
    """Of the test above: it would notice."""
    if reason := connections.reason_to_skip():
        pytest.skip(reason)
    draw_cats(tmp_path / "photos", cats=1, photos=1)
    watch = "watch photos --gallery album --model pet-nano --detector none --webhook http://198.51.100.7/"
    assert connections.trace([watch], tmp_path, tmp_path).addresses == {"198.51.100.7:80"}


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ('connect(3, {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("127.0.0.1")}, 16) = 0', []),
        (
            'connect(3, {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("10.0.0.1")}, 16)',
            ["10.0.0.1:80"],
        ),
        (
            'sendto(3, "..", 2, 0, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("127.0.0.53")}, 16) = 2',
            ["127.0.0.53:53"],
        ),
        (
            "connect(3, {sa_family=AF_INET6, sin6_port=htons(443), sin6_flowinfo=htonl(0), "
            'inet_pton(AF_INET6, "2001:db8::1", &sin6_addr), sin6_scope_id=0}, 28) = -1',
            ["2001:db8::1:443"],
        ),
        ('connect(3, {sa_family=AF_INET6, sin6_port=htons(80), inet_pton(AF_INET6, "::1", &sin6_addr)}, 28) = 0', []),
        (
            'connect(3, {sa_family=AF_UNIX, sun_path="/run/systemd/resolve/io.systemd.Resolve"}, 42) = 0',
            ["/run/systemd/resolve/io.systemd.Resolve (names)"],
        ),
        ('connect(3, {sa_family=AF_UNIX, sun_path="/tmp/ray/sockets/raylet"}, 110) = 0', []),
    ],
)
def test_outside_addresses_are_read_from_a_trace(call: str, expected: list[str]):
    assert connections.outside_addresses(f"7 {call}\n") == expected
