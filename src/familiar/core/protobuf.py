"""The encoding of protobuf messages: their fields, without knowing what these mean."""

from collections.abc import Iterator

LENGTH_DELIMITED = 2  # wire type
_MAX_TAG = 2**32 - 1


def iterate_fields(message: bytes | memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Iterate over the fields of a message.

    Args:
        message: the encoded message.

    Yields:
        Number and position of each field, and its content: that of a message, a text or a list as a view of its bytes;
        an integer; 0 for numbers of fixed size.

    Raises:
        ValueError: the message is malformed.
    """
    message = memoryview(message)
    position, end = 0, len(message)
    while position < end:
        start = position
        tag, position = _read_varint(message, position)
        if not 8 <= tag <= _MAX_TAG:  # as in a file of zeros that a crash left
            raise ValueError(f"invalid protobuf tag {tag}")
        content: int | memoryview = 0
        match tag & 7:
            case 0:
                content, position = _read_varint(message, position)
            case 1:
                position += 8
            case 2:
                length, position = _read_varint(message, position)
                content = message[position : position + length]
                position += length
            case 5:
                position += 4
            case other:
                raise ValueError(f"wire type {other}")
        if position > end:
            raise ValueError("truncated")
        yield tag >> 3, start, content


def encode_field(number: int, body: bytes) -> bytes:
    """Encode a field that is a message or a text."""
    return _varint(number << 3 | LENGTH_DELIMITED) + _varint(len(body)) + body


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _read_varint(message: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(message) or shift > 63:
            raise ValueError("truncated")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, position
