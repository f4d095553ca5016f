"""Identifiers of the package, its tests, benchmarks and examples are plain words: see CONTRIBUTING.md."""

from pathlib import Path

import pytest

from support.naming import CHECKED, ROOT, findings, is_banned, python_files


@pytest.mark.parametrize("folder", CHECKED)
def test_no_banned_identifiers(folder: str):
    lines = [
        f"{finding.path.relative_to(ROOT)}:{finding.line}: {finding.name}"
        for path in python_files(folder)
        for finding in findings(path)
    ]
    assert lines == [], "name what it is: index, result, text, ..."


BANNED_SOURCE = """
found = taught_by = 1  # the second is exempt
for place, one in enumerate([found]): pass
def told(of): left = 1
class Asked: said: str
import os as held
try: pass
except OSError as gone: pass
match 1:
    case kinds: pass
self.alone = 1
left = 1  # of a module: nothing to compare with
def f(): left, right = 1, 2
"""


def test_finds_banned_bindings(tmp_path: Path):
    path = tmp_path / "module.py"
    path.write_text(BANNED_SOURCE)
    expected = ["found", "one", "place", "left", "of", "told", "Asked", "said", "held", "gone", "kinds", "alone"]
    assert [finding.name for finding in findings(path)] == expected


@pytest.mark.parametrize("name", ["left_px", "founder", "placeholder", "number_of_faces"])
def test_accepts_plain_identifiers(name: str):
    assert not is_banned(name)


@pytest.mark.parametrize("name", ["_told", "is_told_elsewhere", "of_triplets", "HOME", "ToldApart"])
def test_rejects_banned_parts(name: str):
    assert is_banned(name)
