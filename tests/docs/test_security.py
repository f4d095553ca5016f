"""The table of security requirements is complete, and what it names exists."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/explanation/security.md"
FOLDERS = (ROOT, ROOT / "tests/web", ROOT / "src/familiar/web")
ROW = re.compile(r"\| (\d+\.\d+\.\d+) \| (.+?) \| \**(met|not met|not applicable)\** \| (.+) \|")
# Number of requirements of levels 1 and 2 in each section of ASVS 5.0.0, where they come first; without V10 and V17.
LEVEL_1_AND_2 = """
    1.1:2 1.2:9 1.3:11 1.4:3 1.5:2 2.1:3 2.2:3 2.3:4 2.4:1 3.2:2 3.3:4 3.4:6 3.5:5 3.7:2 4.1:3 4.2:1 4.3:2
    4.4:4 5.1:1 5.2:3 5.3:2 5.4:3 6.1:3 6.2:12 6.3:4 6.4:4 6.5:5 6.6:3 6.8:4 7.1:3 7.2:4 7.3:2 7.4:5 7.5:2
    7.6:2 8.1:2 8.2:3 8.3:1 8.4:1 9.1:3 9.2:4 11.1:2 11.2:3 11.3:3 11.4:4 11.5:1 11.6:1 12.1:3 12.2:2 12.3:4
    13.1:1 13.2:5 13.3:2 13.4:5 14.1:2 14.2:4 14.3:3 15.1:3 15.2:3 15.3:7 16.1:1 16.2:5 16.3:4 16.4:3 16.5:3
"""


@pytest.fixture(scope="module")
def rows() -> list[tuple[str, str, str, str]]:
    """Return requirement, its text, status and reason of each row."""
    return ROW.findall(PAGE.read_text("utf-8"))


def test_table_has_every_requirement_once(rows: list[tuple[str, str, str, str]]) -> None:
    counts = [each.split(":") for each in LEVEL_1_AND_2.split()]
    expected = [f"{section}.{number}" for section, count in counts for number in range(1, int(count) + 1)]
    assert [row[0] for row in rows] == expected


def test_page_counts_what_is_met(rows: list[tuple[str, str, str, str]]) -> None:
    counts = Counter(status for *_, status, _ in rows)
    text = " ".join(PAGE.read_text("utf-8").split())
    assert f"{counts['met']} are met, {counts['not met']} are not, {counts['not applicable']} do not apply" in text


def test_met_requirements_name_a_test_or_module_that_exists(rows: list[tuple[str, str, str, str]]) -> None:
    for requirement, _, status, reason in rows:
        names = re.findall(r"`([\w/.-]+\.(?:py|md|js|html)(?:::\w+)?|Makefile|src/[\w/]+)`", reason)
        assert names or status != "met", requirement
        for name in names:
            path, _, function = name.partition("::")
            files = [folder / path for folder in FOLDERS if (folder / path).exists()]
            assert files, f"{requirement}: {path}"
            if function:
                tree = ast.parse(files[0].read_text("utf-8"))
                assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name


def test_other_requirements_have_a_reason(rows: list[tuple[str, str, str, str]]) -> None:
    assert all(len(reason) >= len("none") for *_, reason in rows)
