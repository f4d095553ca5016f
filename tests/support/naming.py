"""Find identifiers that a reader who knows the field, but not this project, would stop at.

`python -m support.naming [PATH ...]`, run in `tests/`, lists them (default: the package, tests, benchmarks, examples).
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
CHECKED = ("src/familiar", "tests", "benchmarks", "examples")

# Function words, participles and house words: a name is a noun or a verb of the field. The first are banned as a part
# of a longer name too: `is_told_elsewhere`, `whose_faces`.
BANNED_PARTS = re.compile("told|said|asked|whose|whom|beside|anew|afresh|nobody|strangers|mates|taught|alike")
BANNED = re.compile(
    "asks|who|one|ones|found|place|places|kept|held|alone|kinds|home|some|these|those|own|mine|theirs|at|settled"
    "|meanwhile|looked|looks|somebody|wanted|given|gone|judged|measured"
)

# Names that others decide.
EXEMPT = {
    "taught_by": "a field of the bundle's format",
}


class Finding(NamedTuple):
    """A banned identifier and where it is bound."""

    path: Path
    line: int
    name: str


def findings(path: Path) -> list[Finding]:
    """List the banned identifiers that a Python file binds, by line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return sorted(
        Finding(path, line, name) for name, line in {*_bindings(tree), *_one_sided(tree)} if name not in EXEMPT
    )


def is_banned(name: str) -> bool:
    """Tell whether an identifier is banned.

    >>> is_banned("told"), is_banned("_whose_faces"), is_banned("of_triplets"), is_banned("HOME")
    (True, True, True, True)
    >>> is_banned("index"), is_banned("number_of_faces"), is_banned("placeholder")
    (False, False, False)
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_").split("_")
    return words[0] == "of" or any(map(BANNED_PARTS.fullmatch, words)) or bool(BANNED.fullmatch("_".join(words)))


def _bindings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        name = _bound_name(node)
        if name is not None and is_banned(name) and not name.startswith("test_"):
            yield name, getattr(node, "lineno", 1)


def _bound_name(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()):
            return name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
            return name
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return name
        case _:
            return None


def _one_sided(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each `left` that has no `right` beside it in its function or class: it is no side, but a remainder."""
    scopes = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    for scope in scopes:
        bound = {(_bound_name(node) or "").strip("_"): node for node in ast.walk(scope)}
        if "left" in bound and "right" not in bound:
            yield "left", getattr(bound["left"], "lineno", scope.lineno)


def python_files(*paths: str) -> list[Path]:
    """List the Python files below `paths`, which are relative to the checkout."""
    roots = (ROOT / path for path in paths or CHECKED)
    return sorted(file for path in roots for file in ([path] if path.is_file() else path.rglob("*.py")))


if __name__ == "__main__":
    everything = [finding for path in python_files(*sys.argv[1:]) for finding in findings(path)]
    for finding in everything:
        print(f"{finding.path.relative_to(ROOT)}:{finding.line}: {finding.name}")
    print(f"{len(everything)} banned identifiers")
