"""Inputs that once were findings, as small as they could be made; all are mended."""

import json
from typing import Any

from fuzzing.data_readers import READERS as DATA_READERS
from fuzzing.model_readers import READERS as MODEL_READERS
from fuzzing.model_readers import joined_bundle, split_bundle
from fuzzing.run_readers import READERS as RUN_READERS
from support.foreign_network import Network

DEEP = b"[" * 100_000  # deeper than Python's stack
NESTED = b'{"a":' * 900 + b"1" + b"}" * 900  # parsed by json, but too deep for functions that call themselves
DIGITS = b"9" * 5_000  # more than Python converts to an integer


def _tar_index(**changes: Any) -> bytes:
    (seed,) = DATA_READERS["tar-index"].seeds()
    return json.dumps(json.loads(seed) | changes).encode()


def _run_data(**changes: Any) -> bytes:
    return json.dumps(json.loads(RUN_READERS["run"].seeds()[0]) | changes).encode()


def _run_spec(**changes: Any) -> bytes:
    return _run_data(spec=json.loads(RUN_READERS["run"].seeds()[0])["spec"] | changes)


def _tar(header: int, size_bytes: int) -> bytes:
    """Give the member with a header at this position another size, in the notation of what has too many octal digits.

    A negative one may lead back to an earlier member, and so on forever.
    """
    tar = bytearray(DATA_READERS["tar"].seeds()[1])
    number = size_bytes.to_bytes(11, "big", signed=True)
    tar[header + 124 : header + 136] = (b"\xff" if size_bytes < 0 else b"\x80") + number
    return DATA_READERS["tar"].repair(bytes(tar))


def _embedding_part(old: bytes, new: bytes) -> bytes:
    """Replace the name of a column, or a value."""
    (seed,) = DATA_READERS["embedding-parts"].seeds()
    return seed.replace(old, new)


def _bundle(**changes: Any) -> bytes:
    network, stored = split_bundle(MODEL_READERS["bundle"].seeds()[0])
    return joined_bundle(network, stored | changes)


def regressions() -> dict[str, list[bytes]]:
    """Make the inputs, by the reader that they once broke."""
    entry = ["Mia", "a.jpg", 1024, 5, "0" * 64]
    entries: tuple[Any, ...] = (
        *(True, 3, [entry[:4]], [[None, *entry[1:]]], [[*entry[:2], "1024", 5, ""]], [[*entry[:2], None, 5, ""]]),
        *([[*entry[:2], -1, 5, ""]], [[*entry[:2], 10**30, 5, ""]], [[*entry[:2], 0, 2**62, ""]], [[*entry[:4], 7]]),
    )
    counts: tuple[Any, ...] = ([], "x", {"cats": 3}, {"cats": {"photos": {}}}, {"cats": {"photos": "9"}})
    return {
        "bundle": [
            *(_bundle(embedding_dim=value) for value in ({}, True, 0, -1, 2.0)),
            *(_bundle(prefixes=value) for value in ([0], [-1], [10**9], ["x"])),
            *(_bundle(space_id=3), _bundle(trained_on=[]), _bundle(species_means=[])),
            _bundle(parity={"x": 123456}).replace(b"123456", b"9e+308"),  # infinite
        ],
        "import": [Network(batch=64).build().SerializeToString()],
        "recipe": [DEEP, NESTED],
        "results": [DEEP, b'{"format": "familiar-evaluation/1", "x": ' + NESTED + b"}"],
        "run": [
            *(DEEP, NESTED, b'{"seed": Infinity, "train": [], "validation": [], "test": []}'),
            *(_run_data(train=value) for value in counts),
            *(_run_data(initial=value) for value in (3, "x", {"train": 3, "space_ids": []})),
            *(_run_data(initial={"train": {}, "space_ids": value}) for value in (3, [{}])),
            *(_run_data(distilled=value) for value in (3, "x", {"space_ids": [[]]})),
            *(_run_spec(sources=value) for value in ("x", [3], {})),
            _run_spec(max_photos="3"),
        ],
        "pairs": [b"Ann\t1\t" + DIGITS, b"2\t" + DIGITS + b"\nAnn\t1\t2", b"2\t1\x1f"],  # a blank of Python's
        "people": [DIGITS + b"\nAnn\t1", b"1\x1f\nAnn\t1"],
        "tar-index": [
            DEEP,
            *(_tar_index(bytes=value) for value in ({}, "x", None)),
            *(_tar_index(photos=value) for value in entries),
        ],
        "tar": [_tar(0, 2**70), _tar(0, -(2**70)), _tar(2048, -1536)],
        "embedding-parts": [
            *(_embedding_part(column, column[:-1] + b"x") for column in (b"photo", b"face")),
            _embedding_part(b"a.jpg", b"\xff.jpg"),
        ],
        "species": [
            json.dumps({"cat": path}).encode()
            for path in ("x" * 5_000, "\0", "/etc/passwd", "//server/share/x.onnx", "\\\\server\\x")
        ],
    }
