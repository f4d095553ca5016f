"""Text that may hold anything, such as a file's name, as it can be shown."""

_JOINERS = "\u200c\u200d"  # they hold Persian words and composed emoji together


def printable(text: str) -> str:
    """On one line: line breaks, whatever a terminal would obey, and bytes that are no UTF-8 are escaped.

    >>> print(printable("Mia\\n\\x1b[2J قطة \\udcff"))
    Mia\\n\\x1b[2J قطة \\xff
    """
    return "".join(letter if letter.isprintable() or letter in _JOINERS else _escape(letter) for letter in text)


def one_line(message: str) -> str:
    """A message of several lines as one, and printable."""
    return printable(" ".join(message.splitlines()))


def _escape(letter: str) -> str:
    code = ord(letter)
    # Python stands a byte that is no UTF-8 for as a lone surrogate.
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else letter.encode("unicode_escape").decode()
