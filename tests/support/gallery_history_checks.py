"""Check what many processes did to one gallery: their logs against the record of all commits, and the final tables."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.gallery_history import UNDONE_TABLES, Commit, History, Key, Row, State, read_state
from support.gallery_writers import read_log

READS = {"read", "search", "state", "listing", "stats", "review"}
AUTOMATIC = {"cluster", "enroll", "write", "edit", "copy", "step", "calibrate"}  # no decision about single faces
FACE_DECISIONS = {"move", "split", "reject", "confirm", "name", "different", "add_face", "page"}
SEVERAL_WRITES = {"enroll", "export_import", "write", "edit", "move_file", "copy", "delete", "step"}


@dataclass
class Operation:
    """One operation of a log. Without `end` its process was killed, or it was not acknowledged."""

    name: str
    role: str
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
                name, role = entry["op"], path.stem
                kind = f"{entry['kind']}_file" if role == "watch" and entry["kind"] == "move" else entry["kind"]
                operations[name] = Operation(name, role, kind, entry["arguments"], entry["begin"])
            elif "end" in entry:
                operation = operations[entry["op"]]
                operation.end, operation.result, operation.error = entry["end"], entry["result"], entry["error"]
    return operations


def check_history(folder: Path, operations: Mapping[str, Operation]) -> Counter[str]:
    """Check a history; return how many operations of each kind were acknowledged, refused, cut off or checked.

    Raises:
        AssertionError: something that was acknowledged is not so, or something happened that nobody asked for.
    """
    history = History.read(folder)
    by_writer = history.by_writer()
    revisions = [commit.revision for commit in history.commits]
    assert revisions == list(range(revisions[0], revisions[0] + len(revisions))), "each write has the next revision"
    for name, operation in operations.items():
        changed = any(commit.changes for commit in by_writer.get(name, []))
        assert not (changed and operation.kind in READS), f"{operation} changed something"
        refused = operation.error is not None and operation.kind not in SEVERAL_WRITES
        assert not (changed and refused), f"{operation} was refused, and changed {by_writer[name]}"
    counter = _Checker(history, operations).run()
    states = list(history.states())
    final = read_state(folder)
    assert final == states[-1][1], "the record and the tables differ"
    for operation in operations.values():
        outcome = "acknowledged" if operation.is_acknowledged else "refused" if operation.error else "cut off"
        counter[f"{operation.kind} {outcome}"] += 1
    return counter


class _Checker:
    """Walks through the states of a history."""

    def __init__(self, history: History, operations: Mapping[str, Operation]) -> None:
        self.history, self.operations, self.counter = history, operations, Counter[str]()
        self.state: State = {}
        self.before: State = {}
        self.decisions: dict[int, Commit] = {}
        self.max_face = 0
        self.forgotten_faces: set[int] = set()
        self.forgotten_photos: dict[str, float] = {}  # by SHA-256: when the call that forgot it began
        self.reads: defaultdict[int, list[Operation]] = defaultdict(list)
        self.listings: list[tuple[int, int, Operation]] = []
        for operation in operations.values():
            if operation.is_acknowledged and operation.kind in ("read", "state", "search"):
                if isinstance(operation.result, dict) and "revision" in operation.result:
                    self.reads[operation.result["revision"]].append(operation)
            elif operation.is_acknowledged and operation.kind == "listing":
                self.listings.append((*operation.result["between"], operation))

    def run(self) -> Counter[str]:
        """Check every commit and every read."""
        seen: dict[str, int] = Counter()
        tiles: dict[int, list[list[Any]]] = {}
        between = {number for first, last, _ in self.listings for number in range(first, last + 1)}
        previous: State | None = None
        for commit, state in self.history.states():
            self.state = state
            self.before = previous if previous is not None else state
            if previous is not None:
                self.check_commit(commit, self.operations.get(commit.writer))
                seen[commit.writer] += 1
            self.check_invariants(commit)
            for operation in self.reads.pop(commit.revision, []):
                self.check_read(operation)
            if commit.revision in between:
                tiles[commit.revision] = _tiles(state)
            self.max_face = max(self.max_face, *(key[0] for key in state["faces"]), 0)
            previous = {table: dict(rows) for table, rows in state.items()}
        assert not self.reads, f"reads of states that never were: {self.reads}"
        for first, last, operation in self.listings:
            listed = sorted(operation.result["tiles"])
            assert any(listed == tiles[number] for number in range(first, last + 1)), f"half a state: {operation}"
            self.counter["listings equal to a state"] += 1
        self.check_unwritten(seen)
        return self.counter

    # --- each state -------------------------------------------------------------------------------------------------

    def check_invariants(self, commit: Commit) -> None:
        """Check what is true of every state."""
        state = self.state
        identity_of = {key[0]: row[0] for key, row in state["assignments"].items()}
        photos: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for (face,), (identity, by_user) in state["assignments"].items():
            photos[identity, state["faces"][(face,)][0]].append(by_user)
        repeated = [pair for pair, by_user in photos.items() if len(by_user) > 1 and not all(by_user)]
        assert not repeated, f"{commit}: two faces of one photo in one identity, and nobody said so: {repeated}"
        for (first, second), (same,) in state["constraints"].items():
            together = identity_of.get(first) is not None and identity_of.get(first) == identity_of.get(second)
            assert same or not together, f"{commit}: faces {first} and {second} are different, and in one identity"
        for face, identity in state["rejections"]:
            assert identity_of.get(face) != identity, f"{commit}: face {face} is in {identity} despite a rejection"
        hashes = Counter(row[0] for row in state["photos"].values())
        assert not hashes or hashes.most_common(1)[0][1] == 1, f"{commit}: a photo twice"
        assert all((identity,) in state["identities"] for identity in identity_of.values()), commit
        names = Counter(row[0] for row in state["identities"].values() if row[0] is not None)
        assert not names or names.most_common(1)[0][1] == 1, f"{commit}: two identities of one name"

    # --- each commit ------------------------------------------------------------------------------------------------

    def check_commit(self, commit: Commit, operation: Operation | None) -> None:
        """Check that a commit did what its operation says, and no more."""
        kind = "open" if operation is None else operation.kind
        made = [key[0] for key, (before, after) in commit.rows_of("decisions").items() if before is None and after]
        for number in made:
            assert number > max((key[0] for key in self.before["decisions"]), default=0), commit
            self.decisions[number] = commit
        self.check_faces(commit, kind, operation)
        if kind == "undo":
            self.check_undo(commit, operation)
        else:
            removed = [key for key, (_, after) in commit.rows_of("decisions").items() if after is None]
            assert not removed or kind in ("forget", "forget_photo"), f"{commit}: decisions {removed} are lost"
        if kind in AUTOMATIC or kind == "open" or (operation is not None and operation.role == "watch"):
            self.check_nothing_decided(commit)
        if kind in FACE_DECISIONS and operation is not None:
            self.check_confirmed_stay(commit, operation)
        check = getattr(self, f"check_{kind}", None) if kind not in ("undo", "read") else None
        if check is not None and operation is not None and operation.is_acknowledged and commit.changes:
            check(commit, operation)
            self.counter[f"{kind} checked"] += 1

    def check_faces(self, commit: Commit, kind: str, operation: Operation | None) -> None:
        """Check that no forgotten face or photo comes back."""
        for (face,), (before, after) in commit.rows_of("faces").items():
            if before is None and after is not None and face <= self.max_face:
                assert kind == "undo", f"{commit}: face {face} is back"
                assert face not in self.forgotten_faces, f"{commit}: forgotten face {face} is back"
            if after is None and kind in ("forget", "forget_photo"):
                self.forgotten_faces.add(face)
        for before, after in commit.rows_of("photos").values():
            if after is None and before is not None and kind == "forget_photo" and operation is not None:
                self.forgotten_photos[before[0]] = operation.begin
            if before is None and after is not None and after[0] in self.forgotten_photos:
                begin = self.forgotten_photos.pop(after[0])
                # A watch enrolls again what is still in its folder; the calls that do so begin within an operation.
                is_late = operation is None or operation.role == "watch" or operation.begin >= begin
                assert is_late, f"{operation}: brings a forgotten photo back"

    def check_nothing_decided(self, commit: Commit) -> None:
        """Check that an automatic change left alone what users had confirmed, named and told apart."""
        for key, (before, after) in commit.rows_of("assignments").items():
            if before is not None and before[1] == 1 and key in self.state["faces"]:
                assert after == before, f"{commit}: confirmed face {key} changed from {before} to {after}"
        for key, (before, after) in commit.rows_of("identities").items():
            assert before is None or before[0] is None or after == before, f"{commit}: name of {key} changed"
        for (first, second), (before, after) in commit.rows_of("constraints").items():
            faces_exist = {(first,), (second,)} <= self.state["faces"].keys()
            assert before is None or after == before or not faces_exist, f"{commit}: {first}, {second}"
        for (face, identity), (before, after) in commit.rows_of("rejections").items():
            exist = (face,) in self.state["faces"] and (identity,) in self.state["identities"]
            assert before is None or after is not None or not exist, f"{commit}: rejection {face}, {identity}"

    def check_confirmed_stay(self, commit: Commit, operation: Operation) -> None:
        """Check that a decision about some faces moved no other confirmed one."""
        arguments = operation.arguments
        named = {*arguments.get("faces", ()), arguments.get("first"), arguments.get("second")}
        for (face,), (before, after) in commit.rows_of("assignments").items():
            if before is not None and before[1] == 1 and face not in named:
                assert after == before, f"{operation}: confirmed face {face} changed from {before} to {after}"

    # --- each kind of decision: `commit` is that of the acknowledged operation ---------------------------------------

    def check_undo(self, commit: Commit, operation: Operation | None) -> None:
        """Check that an undo took back exactly one decision: the last one, which it says it was."""
        removed = [key[0] for key, (_, after) in commit.rows_of("decisions").items() if after is None]
        if not commit.changes:
            return
        assert operation is not None
        assert len(removed) == 1, f"{commit} takes back {removed}"
        (number,) = removed
        assert number == max(key[0] for key in self.before["decisions"]), f"{commit}: {number} was not the last one"
        if operation.is_acknowledged:
            assert operation.result["number"] == number, f"{operation} took back {number}"
            assert operation.result["kind"] == self.before["decisions"][(number,)][0], operation
            assert operation.arguments["expected"] in (None, number), operation
        made = self.decisions[number]
        undone = {(table, key): before for table, key, before, _ in made.changes if table in UNDONE_TABLES}
        for (table, key), previous in undone.items():
            now = self.state[table].get(key)
            if now != previous:
                assert self.cannot_be_restored(table, key, previous), (
                    f"{commit}: {table} {key} is {now}, and was {previous} before {made}"
                )
        for table, key, _, after in commit.changes:
            if table in UNDONE_TABLES and (table, key) not in undone:
                inserted = table == "identities" and after == (None,)
                assert inserted or (after is None and self.is_orphan(table, key)), (
                    f"{commit}: {table} {key} is no part of {made}"
                )
        self.counter["undo checked"] += 1

    def cannot_be_restored(self, table: str, key: Key, previous: Row | None) -> bool:
        """Whether a row refers to what has been forgotten since, or is an identity without faces."""
        if previous is None:  # the row must go, unless it is an identity that faces need
            return table == "identities" and any(row[0] == key[0] for row in self.state["assignments"].values())
        return self.is_orphan(table, key, previous)

    def is_orphan(self, table: str, key: Key, row: Row | None = None) -> bool:
        """Whether the faces, photo or identity that a row refers to are missing."""
        faces, identities, photos = (self.state[name] for name in ("faces", "identities", "photos"))
        match table:
            case "constraints":
                return not {(key[0],), (key[1],)} <= faces.keys()
            case "rejections":
                return (key[0],) not in faces or (key[1],) not in identities
            case "assignments":
                return key not in faces or (row is not None and (row[0],) not in identities)
            case "reports":
                return key not in identities
            case "faces":
                return row is not None and ((row[0],) not in photos or key[0] in self.forgotten_faces)
            case _:
                return not any(row[0] == key[0] for row in self.state["assignments"].values())

    def check_name(self, _: Commit, operation: Operation) -> None:
        identity = operation.result["identity"]
        assert self.state["identities"][(identity,)] == (operation.arguments["name"],), operation
        reference = operation.arguments.get("reference", "#")
        assert reference.startswith("#") or self.before["identities"][(identity,)] == (reference,), operation

    def check_merge(self, _: Commit, operation: Operation) -> None:
        into, (other,) = operation.arguments["into"], operation.arguments["others"]
        if other == into:
            return
        assert (other,) not in self.state["identities"], operation
        faces = [key for key, row in self.before["assignments"].items() if row[0] == other]
        assert all(self.state["assignments"][key][0] == into for key in faces), operation
        names = [self.before["identities"][(number,)][0] for number in (into, other)]
        assert self.state["identities"][(into,)] == (names[0] or names[1],), operation

    def check_move(self, _: Commit, operation: Operation) -> None:
        for face in operation.arguments["faces"]:
            assert self.state["assignments"][(face,)] == (operation.arguments["to"], 1), operation

    def check_split(self, _: Commit, operation: Operation) -> None:
        identity = operation.result["identity"]
        assert (identity,) not in self.before["identities"], operation
        assert self.state["identities"][(identity,)] == (operation.arguments["name"],), operation
        for face in operation.arguments["faces"]:
            assert self.state["assignments"][(face,)] == (identity, 1), operation

    def check_reject(self, _: Commit, operation: Operation) -> None:
        for face in operation.arguments["faces"]:
            (identity, _by_user) = self.before["assignments"][(face,)]
            assert self.state["assignments"].get((face,), (None,))[0] != identity, operation

    def check_confirm(self, _: Commit, operation: Operation) -> None:
        for face in operation.arguments["faces"]:
            before, after = (state["assignments"].get((face,)) for state in (self.before, self.state))
            assert (None if before is None else (before[0], 1)) == after, operation

    def check_different(self, _: Commit, operation: Operation) -> None:
        first, second = sorted((operation.arguments["first"], operation.arguments["second"]))
        assert self.state["constraints"][(first, second)] == (0,), operation

    def check_answer(self, _: Commit, operation: Operation) -> None:
        question = operation.arguments["question"]
        for face, identity in (("first_face", "first"), ("second_face", "second")):
            row = self.before["assignments"].get((question[face],))
            assert (None if row is None else row[0]) == question[identity], f"{operation}: was out of date"

    def check_page(self, _: Commit, operation: Operation) -> None:
        """Check that a page's form changed what the page showed, and nothing else."""
        arguments, identity = operation.arguments, operation.arguments["identity"]
        members = {key[0] for key, row in self.before["assignments"].items() if row[0] == identity}
        name = self.before["identities"][(identity,)][0]
        assert arguments["title"] == (name or f"#{identity}"), f"{operation}: the name was {name}"
        shown = set(arguments["faces"])
        later = {face for face in members if face > arguments["last_face"]}
        assert shown == (members - later if arguments["action"] == "name" else members), f"{operation}: {members}"
        if arguments["action"] == "name":
            assert self.state["identities"][(identity,)] == (arguments["name"],), operation
        else:
            assert all(self.state["assignments"][(face,)] == (identity, 1) for face in shown), operation

    def check_forget(self, _: Commit, operation: Operation) -> None:
        identity = operation.arguments["identity"]
        assert (identity,) not in self.state["identities"], operation
        faces = [key for key, row in self.before["assignments"].items() if row[0] == identity]
        assert not any(face in self.state["faces"] for face in faces), operation

    def check_forget_photo(self, _: Commit, operation: Operation) -> None:
        paths = {row[1] for row in self.state["photos"].values()}
        assert operation.arguments["path"] not in paths, operation

    def check_report(self, _: Commit, operation: Operation) -> None:
        row = self.state["reports"][(operation.arguments["identity"],)]
        assert row == tuple(operation.arguments["row"]), operation

    def check_delete_face(self, _: Commit, operation: Operation) -> None:
        assert (operation.arguments["face"],) not in self.state["faces"], operation

    # --- reads ------------------------------------------------------------------------------------------------------

    def check_read(self, operation: Operation) -> None:
        """Compare what a read returned with the state of its revision."""
        result, state = operation.result, self.state
        if "counts" in result:
            assert result["counts"] == _counts(state), f"{operation}: {_counts(state)}"
        if "faces" in result:
            rows = [state["assignments"].get((face,)) for face in result["faces"]]
            assert result["faces"] == sorted(key[0] for key in state["faces"]), operation
            assert result["identity"] == [-1 if row is None else row[0] for row in rows], operation
            assert result["by_user"] == [row is not None and row[1] == 1 for row in rows], operation
            assert result["names"] == {
                str(key[0]): row[0] for key, row in state["identities"].items() if row[0] is not None
            }, operation
            assert result["decisions"] == sorted((key[0] for key in state["decisions"]), reverse=True)[:5], operation
        for face, identity, name in result.get("hits", ()):
            row = state["assignments"].get((face,))
            assert identity == (None if row is None else row[0]), operation
            assert name == (None if identity is None else state["identities"][(identity,)][0]), operation
        self.counter["reads equal to their state"] += 1

    def check_unwritten(self, seen: Mapping[str, int]) -> None:
        """Check that what was acknowledged is in the record, unless it had nothing to change."""
        must_write: dict[str, Callable[[Operation], bool]] = {
            "undo": lambda _: True,
            "merge": lambda operation: operation.arguments["others"] != [operation.arguments["into"]],
            "split": lambda _: True,
            "forget": lambda _: True,
            "forget_photo": lambda _: True,
            "delete_face": lambda _: True,
            "add_face": lambda _: True,
        }
        for name, operation in self.operations.items():
            if operation.is_acknowledged and operation.kind in must_write and must_write[operation.kind](operation):
                assert seen.get(name), f"{operation} was acknowledged, and is not in the gallery"


def _counts(state: State) -> dict[str, int]:
    names = [row[0] for row in state["identities"].values()]
    assigned = {row[0] for row in state["assignments"].values()}
    named = {key[0] for key, row in state["identities"].items() if row[0] is not None}
    return {
        "photos": len(state["photos"]),
        "faces": len(state["faces"]),
        "named": sum(name is not None for name in names),
        "unnamed": len(assigned - named),
        "unassigned": len(state["faces"]) - len(state["assignments"]),
    }


def _tiles(state: State) -> list[list[Any]]:
    """Return number, name, and the numbers of faces and confirmed faces, of each identity with a name or a face."""
    faces, confirmed = Counter[int](), Counter[int]()
    for identity, by_user in state["assignments"].values():
        faces[identity] += 1
        confirmed[identity] += by_user
    return sorted(
        [key[0], row[0], faces[key[0]], confirmed[key[0]]]
        for key, row in state["identities"].items()
        if row[0] is not None or faces[key[0]]
    )
