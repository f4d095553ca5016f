"""Check what many processes did to one gallery: their logs against the record of all commits, and the final tables.

What each correction does on its own, and that undo restores every row, is tested by random decisions of one process
(gallery/test_undo_log.py). Here is checked that processes do not overtake each other.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.gallery_history import Commit, Key, Row, State, read_commits, read_state
from support.gallery_writers import read_log

READS = {"read", "state", "stats", "review"}
WATCH = {"write", "edit", "move_file", "copy", "delete", "step"}
AUTOMATIC = {"cluster", "enroll", *WATCH}  # no decision about single faces
FACE_DECISIONS = {"move", "split", "reject", "confirm", "name", "mark_different", "add_face"}
SEVERAL_WRITES = {"enroll", *WATCH}
ALWAYS_WRITE = {"undo", "split", "forget", "forget_photo", "delete_face", "add_face"}


@dataclass
class Operation:
    """One operation of a log. Without `end` its process was killed, or it was not acknowledged."""

    name: str
    kind: str
    arguments: dict[str, Any]
    begin: float
    end: float | None = None
    result: Any = None
    error: str | None = None

    @property
    def is_acknowledged(self) -> bool:
        return self.end is not None and self.error is None


def read_operations(logs: Iterable[Path]) -> dict[str, Operation]:
    """Read the operations of logs, by name. AssertionError if a process crashed."""
    operations: dict[str, Operation] = {}
    for path in logs:
        for entry in read_log(path):
            assert "crash" not in entry, f"{path.stem} crashed: {entry['crash']}"
            if "kind" in entry:
                name = entry["op"]
                operations[name] = Operation(name, entry["kind"], entry["arguments"], entry["begin"])
            elif "end" in entry:
                operation = operations[entry["op"]]
                operation.end, operation.result, operation.error = entry["end"], entry["result"], entry["error"]
    return operations


def check_history(folder: Path, operations: Mapping[str, Operation]) -> Counter[str]:
    """Check a history; return how many operations of each kind were acknowledged, refused, cut off or checked.

    Raises:
        AssertionError: something that was acknowledged is not so, or something happened that nobody asked for.
    """
    checker = _Checker(operations)
    first, *commits = read_commits(folder)
    for number, commit in enumerate(commits, first.revision + 1):
        assert commit.revision == number, "each write has the next revision"
        checker.check_commit(commit)
    assert commits[-1].after == read_state(folder), "the record and the tables differ"
    for operation in operations.values():
        if operation.is_acknowledged and operation.kind in ALWAYS_WRITE:
            assert operation.name in checker.written, f"{operation} was acknowledged, and is not in the gallery"
        outcome = "acknowledged" if operation.is_acknowledged else "refused" if operation.error else "cut off"
        checker.counter[f"{operation.kind} {outcome}"] += 1
    states = {commit.revision: commit.after for commit in (first, *commits)}
    for operation in operations.values():
        if operation.is_acknowledged and operation.kind in ("read", "state"):
            check_read(operation, states[operation.result["revision"]])
            checker.counter["reads equal to their state"] += 1
    return checker.counter


class _Checker:
    """Walks through the commits of a history."""

    def __init__(self, operations: Mapping[str, Operation]) -> None:
        self.operations, self.counter = operations, Counter[str]()
        self.written: set[str] = set()
        self.decisions: dict[int, Commit] = {}
        self.max_face = 0
        self.forgotten_faces: set[Key] = set()
        self.forgotten_photos: dict[str, float] = {}  # by SHA-256: when the call that forgot it began

    def check_commit(self, commit: Commit) -> None:
        """Check that a commit did what its operation says, and no more."""
        check_invariants(commit)
        operation = self.operations.get(commit.writer)
        last = max((key[0] for key in commit.before["decisions"]), default=0)
        made = [key[0] for key, (before, _) in commit.changes_of("decisions").items() if before is None]
        assert all(number > last for number in made), f"{commit.writer}: {made} after {last}"
        self.decisions.update(dict.fromkeys(made, commit))
        if operation is None:  # a gallery was opened, or a server did a job
            self.check_faces(commit, "open", float("inf"))
            check_nothing_decided(commit)
            return
        self.written.add(operation.name)
        kind = operation.kind
        refused = operation.error is not None and kind not in SEVERAL_WRITES
        assert not (commit.changes and (refused or kind in READS)), f"{operation} changed {commit.changes}"
        self.check_faces(commit, kind, float("inf") if kind in WATCH else operation.begin)
        self.check_undo(commit, operation, last)
        if kind in AUTOMATIC:
            check_nothing_decided(commit)
        if kind in FACE_DECISIONS:
            check_confirmed_stay(commit, operation)
        if operation.is_acknowledged and commit.changes:
            check_done(commit, operation)
            self.counter[f"{kind} checked"] += 1

    def check_faces(self, commit: Commit, kind: str, begin: float) -> None:
        """Check that no forgotten face or photo comes back, except by a call that began after it was forgotten."""
        for face, (before, after) in commit.changes_of("faces").items():
            if before is None and face[0] <= self.max_face:
                assert kind == "undo", f"{commit.writer}: face {face} is back"
                assert face not in self.forgotten_faces, f"{commit.writer}: forgotten face {face} is back"
            if after is None and kind in ("forget", "forget_photo"):
                self.forgotten_faces.add(face)
        self.max_face = max(self.max_face, *(face for (face,) in commit.after["faces"]), 0)
        for before, after in commit.changes_of("photos").values():
            if before is not None and after is None and kind == "forget_photo":
                self.forgotten_photos[before[0]] = begin
            if before is None and after is not None:
                forgotten = self.forgotten_photos.pop(after[0], 0.0)
                assert begin >= forgotten, f"{commit.writer}: brings a forgotten photo back"

    def check_undo(self, commit: Commit, operation: Operation, last: int) -> None:
        """Check that an undo takes back the last decision, and that nothing else loses one."""
        removed = [key[0] for key, (_, after) in commit.changes_of("decisions").items() if after is None]
        if operation.kind != "undo":
            assert not removed or operation.kind in ("forget", "forget_photo"), f"{operation}: {removed} are lost"
        elif commit.changes:
            assert removed == [last], f"{operation} takes back {removed}"
            if operation.is_acknowledged:
                assert operation.result["number"] == last, f"{operation} took back {last}"
                assert operation.arguments["expected"] in (None, last), operation
            for (table, key), (previous, _) in self.decisions[last].changes.items():
                now = commit.after[table].get(key)
                assert now == previous or is_gone(commit.after, table, key, previous), (
                    f"{operation}: {table} {key} is {now}, and was {previous}"
                )


def is_gone(state: State, table: str, key: Key, row: Row | None) -> bool:
    """Whether a row refers to what was forgotten or replaced since, or is an identity, which stays if it has faces."""
    faces = {"assignments": key, "constraints": key, "rejections": key[:1]}.get(table, ())
    identities = {"assignments": (row or ())[:1], "rejections": key[1:]}.get(table, ())
    return (
        table in ("identities", "faces", "photos")
        or any((face,) not in state["faces"] for face in faces)
        or any((identity,) not in state["identities"] for identity in identities)
    )


def check_invariants(commit: Commit) -> None:
    """Check what is true of every state."""
    state = commit.after
    identity_of = {face: identity for (face,), (identity, _) in state["assignments"].items()}
    photos: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for (face,), (identity, by_user) in state["assignments"].items():
        photos[identity, state["faces"][(face,)][0]].append(by_user)
    assert all(len(each) == 1 or all(each) for each in photos.values()), f"{commit.writer}: twice in a photo"
    for (first, second), (same,) in state["constraints"].items():
        together = first in identity_of and identity_of[first] == identity_of.get(second)
        assert same or not together, f"{commit.writer}: faces {first} and {second} are different, and in one identity"
    for face, identity in state["rejections"]:
        assert identity_of.get(face) != identity, f"{commit.writer}: face {face} is in {identity} despite a rejection"
    assert {(identity,) for identity in identity_of.values()} <= state["identities"].keys(), commit.writer
    names = [row[0] for row in state["identities"].values() if row[0] is not None]
    hashes = [row[0] for row in state["photos"].values()]
    assert len(set(names)) == len(names), f"{commit.writer}: two identities of one name"
    assert len(set(hashes)) == len(hashes), f"{commit.writer}: a photo twice"


def check_nothing_decided(commit: Commit) -> None:
    """Check that an automatic change left alone what users had confirmed, named and told apart."""
    for (table, key), (before, after) in commit.changes.items():
        decided = {
            "assignments": before is not None and before[1:] == (1,),
            "identities": before is not None and before[0] is not None,
            "constraints": before is not None,
            "rejections": before is not None,
        }.get(table, False)
        exists = table == "identities" or not is_gone(commit.after, table, key, before)
        assert not (decided and exists), f"{commit.writer}: {table} {key} was {before}, and is {after}"


def check_confirmed_stay(commit: Commit, operation: Operation) -> None:
    """Check that a decision about some faces moved no other confirmed one."""
    arguments = operation.arguments
    meant = {*arguments.get("faces", ()), arguments.get("first"), arguments.get("second")}
    for (face,), (before, after) in commit.changes_of("assignments").items():
        assert before is None or before[1] == 0 or face in meant, f"{operation}: confirmed face {face} is {after}"


def check_done(commit: Commit, operation: Operation) -> None:
    """Check that what an acknowledged operation says is true of the state that it made."""
    arguments, before, after = operation.arguments, commit.before, commit.after
    match operation.kind:
        case "name":
            assert after["identities"][(arguments["identity"],)][0] == arguments["name"], operation
        case "merge":
            members = [key for key, row in before["assignments"].items() if row[0] in arguments["others"]]
            assert all(after["assignments"][key][0] == arguments["into"] for key in members), operation
        case "move" | "split":
            identity = arguments["to"] if operation.kind == "move" else operation.result["identity"]
            assert all(after["assignments"][(face,)] == (identity, 1) for face in arguments["faces"]), operation
        case "reject" | "confirm":
            for face in arguments["faces"]:
                (row, now) = (state["assignments"].get((face,), (None, 1)) for state in (before, after))
                assert (now[0] == row[0]) == (operation.kind == "confirm"), operation
        case "mark_different":
            assert after["constraints"][tuple(sorted(arguments.values()))] == (0,), operation
        case "answer":
            question = arguments["question"]
            for face, identity in (("first_face", "first"), ("second_face", "second")):
                row = before["assignments"].get((question[face],), (None,))
                assert row[0] == question[identity], f"{operation}: was out of date"
        case "forget":
            assert (arguments["identity"],) not in after["identities"], operation
        case "forget_photo":
            assert arguments["path"] not in {row[1] for row in after["photos"].values()}, operation
        case "delete_face":
            assert (arguments["face"],) not in after["faces"], operation
        case _:
            pass


def check_read(operation: Operation, state: State) -> None:
    """Compare what a read returned with the state of its revision."""
    result, assignments, unassigned = operation.result, state["assignments"], (-1, 0)
    names = {number: row[0] for (number,), row in state["identities"].items() if row[0] is not None}
    if "counts" in result:
        assert result["counts"] == {
            "photos": len(state["photos"]),
            "faces": len(state["faces"]),
            "named": len(names),
            "unnamed": len({row[0] for row in assignments.values()} - names.keys()),
            "unassigned": len(state["faces"]) - len(assignments),
        }, operation
    if "faces" in result:
        rows = [assignments.get((face,), unassigned) for face in result["faces"]]
        assert result["faces"] == sorted(face for (face,) in state["faces"]), operation
        assert [result["identity"], result["by_user"]] == [[row[0] for row in rows], [row[1] == 1 for row in rows]]
        assert result["names"] == {str(number): name for number, name in names.items()}, operation
        assert result["decisions"] == sorted((key[0] for key in state["decisions"]), reverse=True)[:5], operation
