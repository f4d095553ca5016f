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


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("found = 1", ["found"]),
        ("for place, one in enumerate([]): pass", ["one", "place"]),
        ("def told(of): pass", ["of", "told"]),
        ("class Asked: said: str", ["Asked", "said"]),
        ("left = 1\n", []),  # of a module: nothing to compare with
        ("def f():\n    left = 1", ["left"]),
        ("def f():\n    left, right = 1, 2", []),
        ("import os as held", ["held"]),
        ("try: pass\nexcept OSError as gone: pass", ["gone"]),
        ("match 1:\n    case kinds: pass", ["kinds"]),
        ("self.alone = 1", ["alone"]),
        ("index = found", []),  # a use, not a binding
        ("taught_by = 1", []),  # exempt
    ],
)
def test_finds_banned_bindings(tmp_path: Path, source: str, names: list[str]):
    path = tmp_path / "module.py"
    path.write_text(source)
    assert sorted(finding.name for finding in findings(path)) == names


@pytest.mark.parametrize("name", ["left_px", "founder", "placeholder", "number_of_faces"])
def test_accepts_plain_identifiers(name: str):
    assert not is_banned(name)


@pytest.mark.parametrize("name", ["_told", "is_told_elsewhere", "of_triplets", "HOME", "ToldApart"])
def test_rejects_banned_parts(name: str):
    assert is_banned(name)
