"""Safe display of arbitrary text, such as file names, on a terminal."""

_JOINERS = "\u200c\u200d"  # zero-width joiners, needed in Persian words and composed emoji


def printable(text: str) -> str:
    """Escape line breaks, terminal control characters, and bytes that are not UTF-8.

    >>> print(printable("Mia\\n\\x1b[2J قطة \\udcff"))
    Mia\\n\\x1b[2J قطة \\xff
    """
    if text.isprintable():  # nearly all
        return text
    return "".join(letter if letter.isprintable() or letter in _JOINERS else _escape(letter) for letter in text)


def one_line(message: str) -> str:
    """Join the lines of a message with spaces and make it printable."""
    return printable(" ".join(message.splitlines()))


def _escape(letter: str) -> str:
    code = ord(letter)
    # Python represents a byte that is not UTF-8 as a lone surrogate.
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else letter.encode("unicode_escape").decode()
