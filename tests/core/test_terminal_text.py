"""Any file name is shown on a terminal without being obeyed as a control sequence."""

import os

import pytest

from familiar.core.terminal_text import one_line, printable


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Mia, 3 years", "Mia, 3 years"),
        ("قطة \U0001f408 猫", "قطة \U0001f408 猫"),
        ("\U0001f468\u200d\U0001f469", "\U0001f468\u200d\U0001f469"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x1b[2J\x07\x9b1m\x7f", "\\x1b[2J\\x07\\x9b1m\\x7f"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        (os.fsdecode(b"\xff\xc3("), "\\xff\\xc3("),
    ],
)
def test_printable_escapes_control_and_undecodable_characters(name: str, shown: str) -> None:
    assert printable(name) == shown
    printable(name).encode()


def test_one_line_joins_lines_and_escapes_control_characters():
    assert one_line("no such\nfile:\r\n\u2028né \x1b[2J") == "no such file:  né \\x1b[2J"
    assert one_line("") == ""
