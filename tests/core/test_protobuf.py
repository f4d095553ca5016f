"""Fields of protobuf messages, against the encoder and what cannot be a message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core import protobuf
from familiar.core.protobuf import encode_field, iterate_fields


@given(st.integers(0, 2**40))
def test_varint_round_trip(value: int):
    encoded = protobuf._varint(value)
    assert protobuf._read_varint(memoryview(encoded), 0) == (value, len(encoded))


@given(st.lists(st.tuples(st.integers(1, 2**20), st.binary(max_size=300))))
def test_fields_are_read_as_they_were_encoded(fields: list[tuple[int, bytes]]):
    message = b"".join(encode_field(number, body) for number, body in fields)
    read = list(iterate_fields(message))
    assert [(number, bytes(body)) for number, _, body in read if not isinstance(body, int)] == fields
    assert [start for _, start, _ in read] == [
        len(b"".join(encode_field(*field) for field in fields[:index])) for index in range(len(fields))
    ]


def test_numbers_are_read_or_skipped():
    message = b"\x08\x96\x01" + b"\x11" + bytes(8) + b"\x1d" + bytes(4)  # 1: 150; 2: a double; 3: a float
    assert [(number, content) for number, _, content in iterate_fields(message)] == [(1, 150), (2, 0), (3, 0)]


@pytest.mark.parametrize(
    "message",
    [
        b"\0",  # field number 0
        b"\x08",  # ends in a number
        b"\x08" + b"\x80" * 10,  # a number without an end
        b"\x0a\x05abc",  # ends in a text
        b"\x11" + bytes(7),  # ends in a double
        b"\x1d" + bytes(3),  # ends in a float
        b"\x0b\x0c",  # a group, which nobody writes any more
        b"\x88\x80\x80\x80\x80\x80\x01\0",  # a field number of more than 29 bits
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # a text of nearly 2^63 bytes
    ],
)
def test_rejects_what_is_no_message(message: bytes):
    with pytest.raises(ValueError, match=r"truncated|wire type|invalid protobuf tag"):
        list(iterate_fields(message))
