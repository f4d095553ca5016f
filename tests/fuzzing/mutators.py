"""Changes of inputs that keep most of their structure."""

import copy
import json
import re
import struct
import zlib
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from fuzzing.reader import Mutator

NUMBERS = (0, 1, 2, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)
MAX_BYTES = 2**20  # of an input


def bytes_mutator(data: bytes, dice: Random) -> bytes:
    """Cut, repeat or move a piece, or put a number that is on the edge of something somewhere."""
    if not data:
        return dice.randbytes(8)
    start = dice.randrange(len(data))
    end = min(len(data), start + dice.choice((1, 4, 16, 256)))
    match dice.randrange(6):
        case 0:
            return data[:start]
        case 1:
            return data[:start] + data[end:]
        case 2:
            return data[:end] + data[start:end] * dice.choice((1, 3, 50)) + data[end:]
        case 3:
            return data[:start] + bytes([data[start] ^ 1 << dice.randrange(8)]) + data[start + 1 :]
        case _:
            size = dice.choice("BHIQ")
            number = dice.choice(NUMBERS) % 2 ** (8 * struct.calcsize(size))
            encoded = struct.pack(dice.choice("<>") + size, number)
            return data[:start] + encoded + data[start + len(encoded) :]


def token_mutator(tokens: Sequence[bytes]) -> Mutator:
    """Return a mutator that inserts or replaces words of a language."""

    def mutate(data: bytes, dice: Random) -> bytes:
        token = dice.choice(tokens)
        start = dice.randrange(len(data) + 1)
        words = list(re.finditer(rb"[\w.]+", data))
        match dice.randrange(4):
            case 0 if words:
                word = dice.choice(words)
                return data[: word.start()] + token + data[word.end() :]
            case 1:
                times = min(dice.choice((2, 100, 5000)), MAX_BYTES // len(token))
                return data[:start] + token * times + data[start:]
            case 2:
                return bytes_mutator(data, dice)
            case _:
                return data[:start] + token + data[start:]

    return mutate


CSV_TOKENS = (
    *(
        b",",
        b'"',
        b'""',
        b"\n",
        b"\r",
        b"\r\n",
        b"\0",
        b";",
        b"\t",
        b"#",
        b"#1",
        b"#-1",
        b"-1",
        b"1e999",
        b"nan",
        b"inf",
    ),
    *(b"9" * 30, b"9" * 5000, b"\xff", b"\xed\xa0\x80", "\u2028".encode(), "\u0663".encode(), "\u00b2".encode()),
    *(b"x" * 140_000, b"path", b"name", b"identity", b"photo", b"face", b"../", b"/etc/passwd"),
)
XML_TOKENS = (
    *(b"<a>", b"</a>", b"<a/>", b"<!--", b"-->", b"<![CDATA[", b"]]>", b"<?xml version='1.0' encoding='utf-16'?>"),
    *(
        b"<?xml version='1.0' encoding='cp037'?>",
        b"<?xml version='1.0' encoding='hex'?>",
        b"&#0;",
        b"&#13;",
        b"&#xD800;",
    ),
    *(
        b"&lt;",
        b"&a;",
        b"<!DOCTYPE a [<!ENTITY a 'aaaa'>]>",
        b"<!ENTITY b SYSTEM 'file:///etc/passwd'>",
        b"xmlns:a='b'",
    ),
    *(b"xmlns=''", b"rdf:li", b"rdf:Bag", b"rdf:Alt", b"rdf:Description", b"rdf:parseType='Resource'", b"mwg-rs:Name"),
    *(b"mwg-rs:Regions", b"stArea:x", b"nan", b"inf", b"1e999", b"9" * 5000, b"\xff\xfe", b"\0", "\u2028".encode()),
)


def json_mutator(data: bytes, dice: Random) -> bytes:
    """Replace, remove, repeat or nest a value of a JSON document."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return bytes_mutator(data, dice)
    marker = "a value for the deep nesting"
    odd: tuple[Any, ...] = (
        *(
            None,
            True,
            False,
            0,
            -1,
            1,
            2**31,
            2**63,
            -(2**63) - 1,
            10**40,
            0.5,
            -0.5,
            1e308,
            float("nan"),
            float("inf"),
        ),
        *(
            "",
            "x",
            "x" * 1000,
            "\0",
            "\ud800",
            "../../etc/passwd",
            "/etc/passwd",
            "9" * 5000,
            [],
            {},
            [[]],
            [{}],
            {"": 0},
        ),
        *([0] * 1000, marker),
    )
    paths = list(_paths(document))
    path = dice.choice(paths)
    other = copy.deepcopy(_value_at(document, dice.choice(paths)))
    document = _replaced(document, path, dice.choice(odd) if dice.random() < 0.7 else other, dice)
    text = json.dumps(document)
    deep = dice.choice(("[", '{"a":', '[{"a":')) * dice.choice((30, 300, 3000, 300_000))
    return text.replace(json.dumps(marker), deep).encode()


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterable[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _paths(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value[:20]):
            yield from _paths(child, (*path, index))


def _value_at(value: Any, path: Sequence[Any]) -> Any:
    for key in path:
        value = value[key]
    return value


def _replaced(value: Any, path: tuple[Any, ...], new: Any, dice: Random) -> Any:
    if not path:
        return new
    parent = _value_at(value, path[:-1])
    match dice.randrange(5):
        case 0:
            del parent[path[-1]]
        case 1 if isinstance(parent, dict):
            parent[f"{path[-1]}x"] = parent.pop(path[-1])
        case 2 if isinstance(parent, list):
            parent.insert(path[-1], new)
        case _:
            parent[path[-1]] = new
    return value


def repair_png(data: bytes) -> bytes:
    """Make the checksums of a PNG's chunks right."""
    repaired, start = data[:8], 8
    while start + 12 <= len(data):
        size = int.from_bytes(data[start : start + 4], "big")
        end = start + 8 + size
        if end + 4 > len(data):
            break
        repaired += data[start:end] + zlib.crc32(data[start + 4 : end]).to_bytes(4, "big")
        start = end + 4
    return repaired + data[start:]


def repair_tar(data: bytes) -> bytes:
    """Make the checksums of a tar file's headers right."""
    repaired = bytearray(data)
    start = 0
    while start + 512 <= len(repaired):
        header = repaired[start : start + 512]
        if not any(header):
            break
        header[148:156] = b" " * 8
        repaired[start + 148 : start + 156] = b"%06o\0 " % sum(header)
        try:
            size = int(bytes(header[124:136]).strip(b"\0 ") or b"0", 8)
        except ValueError:
            break
        start += 512 + -(-size // 512) * 512
    return bytes(repaired)
