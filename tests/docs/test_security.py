"""The page on security promises what is tested: each promise names a test that exists, and it is short."""

import ast
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "explanation"
TESTS = Path(__file__).parents[1]
MAX_WORDS = 900


@pytest.mark.parametrize("page", ["security", "privacy"])
def test_page_is_short(page: str) -> None:
    assert len((DOCS / f"{page}.md").read_text("utf-8").split()) <= MAX_WORDS


def test_each_promise_names_tests_that_exist() -> None:
    section = (DOCS / "security.md").read_text("utf-8").partition("## Promises")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| ") and "**" not in line]
    promises = [(promise.strip(), re.findall(r"`([\w/.]+\.py)::(\w+)`", tests)) for promise, tests in rows[1:]]
    assert len(promises) > 20
    for promise, tests in promises:
        assert tests, promise
        for path, name in tests:
            file = TESTS / path if "/" in path else TESTS / "web" / path
            nodes = ast.parse(file.read_text("utf-8")).body
            assert any(isinstance(node, ast.FunctionDef) and node.name == name for node in nodes), f"{path}::{name}"
