"""Measure the power of the tests: change the source at random and see which changes the tests catch.

    python -m support.mutation draw --count 60 --seed 22 --output mutations.json
    python -m support.mutation judge mutations.json --output caught.json [--pytest "-m 'not slow'"]

A mutation is judged by the tests of its own package and the doctests in it. With `--contexts .coverage`, the data of
`pytest --cov=familiar --cov-branch --cov-context=test` (pytest-cov), only the tests that reach the changed lines are
run: no other can catch it.
"""

import argparse
import ast
import copy
import json
import math
import os
import random
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from queue import Queue
from typing import Any

REPOSITORY = Path(__file__).parents[2]
SOURCE = Path("src/familiar")
TIMEOUT_SECONDS = 900  # a test that never ends has caught the mutation

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


@dataclass(frozen=True)
class Mutation:
    """One change of one file: characters `start` to `end` (offsets in the file) become `replacement`."""

    path: str
    line: int
    last_line: int
    start: int
    end: int
    original: str
    replacement: str

    @property
    def package(self) -> str:
        return Path(self.path).relative_to(SOURCE).parts[0].removesuffix(".py")


# Drawing


def draw(count: int, seed: int) -> list[Mutation]:
    """Draw mutations from all those possible in the source, each with the same probability."""
    sources = {path: path.read_text(encoding="utf-8") for path in sorted((REPOSITORY / SOURCE).rglob("*.py"))}
    possible = [(path, node) for path, source in sources.items() for node in _mutable_nodes(source)]
    return [
        _mutation(path.relative_to(REPOSITORY), sources[path], node)
        for path, node in random.Random(seed).sample(possible, count)
    ]


def mutations_of(path: Path, source: str) -> list[Mutation]:
    """List every possible mutation of one file."""
    return [_mutation(path, source, node) for node in _mutable_nodes(source)]


def _mutable_nodes(source: str) -> list[Any]:
    return [node for node in _nodes(ast.parse(source)) if _is_mutable(node)]


def _mutation(path: Path, source: str, node: Any) -> Mutation:
    lines = [0, *accumulate(len(line.encode()) for line in source.splitlines(keepends=True))]
    start = lines[node.lineno - 1] + node.col_offset
    end = lines[node.end_lineno - 1] + node.end_col_offset
    changed = _changed(node)
    text = ast.unparse(changed)
    return Mutation(
        path=str(path),
        line=node.lineno,
        last_line=node.end_lineno,
        start=start,
        end=end,
        original=source.encode()[start:end].decode(),
        replacement=f"({text})" if isinstance(changed, ast.expr) else text,
    )


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Walk the syntax tree, leaving out annotations, decorators, texts, and what only type checkers read."""
    yield node
    skipped: set[str] = set()
    match node:
        case ast.JoinedStr():
            return  # Python 3.11 gives no positions inside f-strings
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            skipped = {"decorator_list", "returns"}
        case ast.AnnAssign() | ast.arg():
            skipped = {"annotation"}
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and field not in skipped:
                yield from _nodes(child)


def _is_mutable(node: ast.AST) -> bool:
    match node:
        case ast.Compare():
            return type(node.ops[0]) in COMPARISONS
        case ast.BinOp() | ast.AugAssign():
            return type(node.op) in OPERATORS
        case ast.Constant():
            return isinstance(node.value, int | float)
        case ast.Return():
            return not isinstance(node.value, ast.Constant | None)
        case ast.Expr():
            return isinstance(node.value, ast.Call)
        case ast.UnaryOp():
            return isinstance(node.op, ast.Not | ast.USub)
        case _:
            return isinstance(node, ast.BoolOp | ast.IfExp)


def _changed(node: Any) -> ast.AST:
    changed = copy.deepcopy(node)
    match changed:
        case ast.Compare():
            changed.ops[0] = COMPARISONS[type(node.ops[0])]()
        case ast.BinOp() | ast.AugAssign():
            changed.op = OPERATORS[type(node.op)]()
        case ast.BoolOp():
            changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.UnaryOp():
            changed = changed.operand
        case ast.Constant():
            changed.value = not node.value if isinstance(node.value, bool) else node.value + 1
        case ast.IfExp():
            changed.test = ast.UnaryOp(ast.Not(), changed.test)
        case ast.Return():
            changed.value = ast.Constant(None)
        case _:
            changed = ast.Pass()
    return ast.fix_missing_locations(changed)


# Judging


@dataclass(frozen=True)
class Verdict:
    """Whether tests caught a mutation, and which did first."""

    mutation: Mutation
    caught: bool
    caught_by: str
    tests_run: int


def judge(
    mutations: list[Mutation],
    arguments: list[str],
    contexts: Path | None,
    seconds: dict[str, float],
    first: dict[str, str],
    jobs: int,
) -> Iterator[Verdict]:
    """Run the tests of each mutation's package until one fails.

    Args:
        mutations: what `draw` gave.
        arguments: of pytest, such as marks and a profile of hypothesis.
        contexts: data of `coverage`, one context per test.
        seconds: how long each test takes; the fastest are run first.
        first: by a mutation's key, the test to be run before all others.
        jobs: mutations judged at the same time, each in a copy of the repository.
    """
    with tempfile.TemporaryDirectory() as folder:
        checkouts: Queue[Path] = Queue()
        for job in range(jobs):
            checkouts.put(_copy_repository(Path(folder) / str(job)))

        def judge_one(mutation: Mutation) -> Verdict:
            checkout = checkouts.get()
            try:
                verdict = _judge(mutation, checkout, arguments, contexts, seconds, first.get(_key(mutation), ""))
            finally:
                checkouts.put(checkout)
            sys.stderr.write(f"{_key(mutation)} {mutation.original!r} -> {mutation.replacement!r}: ")
            sys.stderr.write(f"{verdict.caught_by or 'NOT CAUGHT'} ({verdict.tests_run} tests)\n")
            return verdict

        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(judge_one, mutations)


def _key(mutation: Mutation) -> str:
    return f"{mutation.path}:{mutation.start}-{mutation.end}"


def _copy_repository(folder: Path) -> Path:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in listed.stdout.splitlines():
        if (REPOSITORY / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, folder / name)
    return folder


def _judge(
    mutation: Mutation,
    checkout: Path,
    arguments: list[str],
    contexts: Path | None,
    seconds: dict[str, float],
    first: str,
) -> Verdict:
    path = checkout / mutation.path
    sound, times = path.read_bytes(), path.stat()
    if sound[mutation.start : mutation.end].decode() != mutation.original:
        raise SystemExit(f"{_key(mutation)}: the source has changed since the mutation was drawn")
    path.write_bytes(sound[: mutation.start] + mutation.replacement.encode() + sound[mutation.end :])
    os.utime(path, (time.time(), mutation.start))  # a time of its own, by which Python knows compiled files
    try:
        folders = [
            name for name in (f"tests/{mutation.package}", str(SOURCE / mutation.package)) if (checkout / name).exists()
        ]
        tests = folders if contexts is None else _tests_reaching(mutation, contexts, tuple(folders))
        tests = sorted(tests, key=lambda test: seconds.get(test, math.inf))
        if first:
            tests = [first, *(test for test in tests if test != first)]
        return _run(mutation, checkout, arguments, tests) if tests else Verdict(mutation, False, "", 0)
    finally:
        path.write_bytes(sound)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _run(mutation: Mutation, checkout: Path, arguments: list[str], tests: list[str]) -> Verdict:
    listed = checkout / "judged-tests.txt"
    listed.write_text("\n".join(tests), encoding="utf-8")
    report = checkout / "judged-tests.json"
    report.unlink(missing_ok=True)
    shared_data = os.environ.get("FAMILIAR_SHARED_DATA", str(REPOSITORY.parent / "shared" / "data"))
    command = [sys.executable, "-m", "pytest", f"@{listed}", *arguments, "-x", "-p", "no:cacheprovider"]
    command += ["-p", "support.durations", "--durations-file", str(report)]
    environment = os.environ | {
        "PYTHONPATH": f"{checkout / 'src'}:{checkout / 'tests'}", "FAMILIAR_SHARED_DATA": shared_data,
        "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "",
    }  # fmt: skip
    try:
        done = subprocess.run(
            command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return Verdict(mutation, True, "the time limit", 0)
    count = len(json.loads(report.read_text())["tests"]) if report.exists() else 0
    if "ERROR: not found:" in done.stderr:  # the mutation changed a parameter that stands in a test's name
        without_parameters = list(dict.fromkeys(test.partition("[")[0] for test in tests))
        if without_parameters == tests:
            raise SystemExit(f"{_key(mutation)}: {done.stderr[-1000:]}")
        return _run(mutation, checkout, arguments, without_parameters)
    if done.returncode in (0, 5):  # passed, or none selected
        return Verdict(mutation, False, "", count)
    failed = [
        line.partition(" ")[2].partition(" - ")[0]
        for line in done.stdout.splitlines()
        if line.startswith(("FAILED ", "ERROR "))
    ]
    return Verdict(mutation, True, failed[0] if failed else f"exit {done.returncode}: {done.stderr[-300:]}", count)


def _tests_reaching(mutation: Mutation, contexts: Path, folders: tuple[str, ...]) -> list[str]:
    """List the tests in `folders` that ran a changed line.

    A line that ran when its file was imported, such as a constant, may matter to all code of the file and of those
    in its package that import it. `folders` themselves, where no test ran the line: another process may have.
    """
    changed = range(mutation.line, mutation.last_line + 1)
    arcs = _arcs(contexts, mutation.path)
    contexts_of_lines = {context for context, *lines in arcs if any(abs(line) in changed for line in lines)}
    if "" in contexts_of_lines:
        readers = [mutation.path, *_files_importing(mutation.path)]
        contexts_of_lines = {context for path in readers for context, _, _ in _arcs(contexts, path)}
    tests: set[str] = set()
    for context in contexts_of_lines:
        name, _, phase = context.rpartition("|")
        if name.startswith(folders):  # what a fixture computed is seen by every test that shares it
            tests.add(name.partition("::")[0] if phase == "setup" else name)
    return sorted(tests) or list(folders)


def _arcs(contexts: Path, path: str) -> list[tuple[str, int, int]]:
    with closing(sqlite3.connect(contexts)) as connection:
        return connection.execute(
            "SELECT context.context, arc.fromno, arc.tono FROM arc JOIN context ON context.id = arc.context_id"
            " JOIN file ON file.id = arc.file_id WHERE file.path LIKE ?",
            (f"%/{path}",),
        ).fetchall()


def _files_importing(path: str) -> list[str]:
    """List the files of the same package that import the one at `path`."""
    module = Path(path).with_suffix("").relative_to("src")
    package = REPOSITORY / SOURCE / module.parts[1]
    parent, name = ".".join(module.parent.parts), module.name
    statement = re.compile(rf"from {parent}\.{name} import|from {parent} import [^\n]*\b{name}\b")
    return [
        str(file.relative_to(REPOSITORY))
        for file in sorted(package.rglob("*.py"))
        if statement.search(file.read_text(encoding="utf-8"))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw")
    drawing.add_argument("--count", type=int, default=60)
    drawing.add_argument("--seed", type=int, default=0)
    drawing.add_argument("--output", type=Path, required=True)
    judging = commands.add_parser("judge")
    judging.add_argument("mutations", type=Path)
    judging.add_argument("--pytest", default="", help="arguments of pytest, such as '-m \"not slow\"'")
    judging.add_argument("--contexts", type=Path)
    judging.add_argument(
        "--durations", type=Path, help="what `pytest --durations-file` wrote: the fastest tests run first"
    )
    judging.add_argument("--first", type=Path, help="verdicts of an earlier run: the tests that caught are run first")
    judging.add_argument("--jobs", type=int, default=2)
    judging.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.command == "draw":
        rows = [asdict(mutation) for mutation in draw(arguments.count, arguments.seed)]
    else:
        earlier = json.loads(arguments.first.read_text()) if arguments.first else []
        first = {_key(Mutation(**row["mutation"])): row["caught_by"] for row in earlier if "::" in row["caught_by"]}
        done = json.loads(arguments.output.read_text()) if arguments.output.exists() else []
        finished = {_key(Mutation(**row["mutation"])) for row in done}
        drawn = [Mutation(**row) for row in json.loads(arguments.mutations.read_text())]
        mutations = [mutation for mutation in drawn if _key(mutation) not in finished]
        durations = json.loads(arguments.durations.read_text())["tests"] if arguments.durations else {}
        seconds = {name: test.get("call", 0.0) for name, test in durations.items()}
        pytest_arguments = shlex.split(arguments.pytest)
        rows = done
        for verdict in judge(mutations, pytest_arguments, arguments.contexts, seconds, first, arguments.jobs):
            rows.append(asdict(verdict))
            arguments.output.write_text(json.dumps(rows, indent=1), encoding="utf-8")  # a later call goes on from here
        sys.stderr.write(f"{sum(row['caught'] for row in rows)} of {len(rows)} caught\n")
    arguments.output.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
