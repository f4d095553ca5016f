"""Processes that change and read one gallery at the same time, at random: the server, commands, a watch, the library.

Each logs every operation to its own file, before it begins and when it has ended.
"""

import contextlib
import faulthandler
import json
import os
import random
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from click.testing import CliRunner

from familiar.cli.main import familiar
from familiar.client.client import Client
from familiar.client.connection import ServerError
from familiar.core.errors import FamiliarError
from familiar.core.gallery_types import Question
from familiar.core.types import Photo
from familiar.detection.detectors import WholePhoto
from familiar.embedding.embedder import Embedder
from familiar.gallery.enroll.enroll import enroll
from familiar.gallery.gallery import Gallery
from familiar.gallery.same import decisions
from familiar.gallery.same.assignments import load_assignments
from familiar.gallery.search.listing import counts
from familiar.gallery.store import automatic_copies, store
from familiar.gallery.store.connection import DATABASE, Connection, connect
from familiar.gallery.store.store import Store
from familiar.integrations.watch.watch import FolderWatch, WatchSettings, watch_lock
from familiar.photos.decoding import save_photo
from familiar.web.settings import Settings
from support.color_album import SquareDetector
from support.gallery_history import set_writer
from support.server import running_server

SIDE_PX = 32
COLORS = ((200, 20, 20), (20, 200, 20), (20, 20, 200), (190, 190, 20), (20, 190, 190), (190, 20, 190))
MAX_PHOTOS = 60  # more are forgotten rather than enrolled
SETTLE_SECONDS = 2.0
STUCK_SECONDS = 60.0  # after which an operation counts as one that never ends
CORRECTIONS = {
    "name": 8, "merge": 5, "move": 8, "split": 6, "reject": 5, "confirm": 6, "cluster": 4, "undo": 8, "enroll": 8,
}  # fmt: skip


@dataclass(frozen=True)
class Task:
    """What one process does.

    Attributes:
        role: one of `ROLES`.
        root: has the gallery, the model and the folders of photos.
        seed: of the operations; which of them meet in time is another matter in each run.
        first: number of the first operation.
        last: of the last one.
    """

    role: str
    root: Path
    seed: int
    first: int
    last: int

    @property
    def log(self) -> Path:
        return self.root / f"{self.role}.log"

    @property
    def stacks(self) -> Path:
        """Where the process writes its stacks if an operation never ends."""
        return self.root / f"{self.role}.stacks"


class Choice:
    """Random faces, identities and photos, of those that the gallery has at the moment."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.rng = rng
        with contextlib.closing(connect(folder / DATABASE)) as connection:
            connection.run("BEGIN")
            self.identity_of = dict(connection.rows("SELECT face_id, identity_id FROM assignments"))
            self.faces = [row[0] for row in connection.rows("SELECT id FROM faces")]
            self.identities = dict(connection.rows("SELECT id, name FROM identities"))
            self.photos = connection.rows("SELECT id, CAST(path AS TEXT) FROM photos")
            self.last_decision = connection.value("SELECT max(id) FROM decisions")

    def face(self) -> int:
        return self.rng.choice(self.faces or [1])

    def some_faces(self) -> list[int]:
        """Choose one to three faces, mostly of one identity."""
        face = self.face()
        same = [other for other in self.faces if self.identity_of.get(other) == self.identity_of.get(face)]
        return self.rng.sample(same, min(len(same), self.rng.choice([1, 1, 2, 3]))) or [face]

    def identity(self) -> int:
        return self.rng.choice(list(self.identities) or [1])

    def photo(self) -> tuple[int, str]:
        return self.rng.choice(self.photos or [(1, "missing.png")])

    def name(self) -> str:
        """Mostly a new name, now and then that of another identity."""
        known = [name for name in self.identities.values() if name]
        return self.rng.choice(known) if known and self.rng.random() < 0.1 else f"name {self.rng.random():.9f}"

    def box(self) -> tuple[float, float, float, float]:
        x, y = self.rng.uniform(0, 8), self.rng.uniform(0, 8)
        return x, y, x + self.rng.uniform(12, 24), y + self.rng.uniform(12, 24)


ARGUMENTS: dict[str, Callable[[Choice], dict[str, Any]]] = {  # those of a method of Gallery and Client in its order
    "name": lambda choice: {"identity": choice.identity(), "name": choice.name()},
    "merge": lambda choice: {"into": choice.identity(), "others": [choice.identity()]},
    "move": lambda choice: {"faces": choice.some_faces(), "to": choice.identity()},
    "split": lambda choice: {"faces": choice.some_faces(), "name": choice.name()},
    "reject": lambda choice: {"faces": choice.some_faces()},
    "confirm": lambda choice: {"faces": choice.some_faces()},
    "cluster": lambda choice: {"rebuild": choice.rng.random() < 0.5},
    "undo": lambda choice: {"expected": choice.rng.choice([None, choice.last_decision])},
    "mark_different": lambda choice: {"first": choice.face(), "second": choice.face()},
    "add_face": lambda choice: {"photo": choice.photo()[0], "box": choice.box()},
    "set_face_box": lambda choice: {"face": choice.face(), "box": choice.box()},
    "delete_face": lambda choice: {"face": choice.face()},
    "forget": lambda choice: {"identity": choice.identity()},
    "forget_photo": lambda choice: {"path": choice.photo()[1]},
}


def draw(path: Path, rng: random.Random, squares: int = 1) -> Path:
    """Save a photo that no other process draws, of one or more individuals."""
    chosen = [np.array(rng.choice(COLORS)) for _ in range(squares)]
    sharp = np.indices((SIDE_PX, SIDE_PX)).sum(axis=0)[..., None] % 2 * 30
    noise = np.random.default_rng(rng.getrandbits(32))
    pixels = np.concatenate([color + sharp + noise.integers(0, 20, (SIDE_PX, SIDE_PX, 3)) for color in chosen], axis=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    return save_photo(Photo(pixels.astype(np.uint8), "drawn", (SIDE_PX * squares, SIDE_PX)), path)


class Writer:
    """The operations of one role, by the weights that they are drawn with."""

    weights: ClassVar[dict[str, int]]

    def __init__(self, task: Task) -> None:
        self.task, self.folder, self.rng = task, task.root / "gallery", random.Random(0)
        self.model_file = task.root / "model.onnx"
        self.running = contextlib.ExitStack()
        self.number = 0

    def operation(self, number: int) -> tuple[str, dict[str, Any]]:
        """Choose an operation and its arguments."""
        self.number, self.rng = number, random.Random(f"{self.task.role} {self.task.seed} {number}")
        kind = self.rng.choices(list(self.weights), list(self.weights.values()))[0]
        choice = Choice(self.folder, self.rng)
        if kind == "enroll" and len(choice.photos) > MAX_PHOTOS and "forget_photo" in self.weights:
            kind = "forget_photo"
        return kind, self.arguments(kind, choice)

    def arguments(self, kind: str, choice: Choice) -> dict[str, Any]:
        """Draw the arguments of an operation; those of a correction in the order of `Gallery` and `Client`."""
        if kind == "enroll":
            path = self.task.root / self.task.role / f"{self.number}.png"
            return {"path": str(draw(path, self.rng, self.rng.choice([1, 1, 2])))}
        return ARGUMENTS[kind](choice) if kind in ARGUMENTS else {}

    def run(self, kind: str, arguments: dict[str, Any]) -> Any:
        """Do an operation; return what it returned."""
        raise NotImplementedError

    def correct(self, album: Any, kind: str, arguments: dict[str, Any]) -> Any:
        """Call the method of an album that an operation is named after."""
        if kind == "cluster":
            return album.cluster(**arguments)
        if kind == "answer":
            return album.answer(Question(**arguments["question"]), arguments["same"])
        return getattr(album, kind)(*arguments.values())

    def answer(self, album: Gallery | Client) -> dict[str, Any]:
        """Choose a question, and the answer that is given some time later."""
        questions = album.questions(3)
        return {"question": asdict(self.rng.choice(questions)), "same": self.rng.random() < 0.6} if questions else {}


class LibraryWriter(Writer):
    """Uses the Python API."""

    weights: ClassVar[dict[str, int]] = CORRECTIONS | {
        "answer": 6, "forget": 1, "forget_photo": 2, "read": 14,
    }  # fmt: skip

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.model = Embedder(self.model_file, threads=1)
        self.gallery = self.running.enter_context(Gallery.open(self.folder, self.model))

    def arguments(self, kind: str, choice: Choice) -> dict[str, Any]:
        return self.answer(self.gallery) if kind == "answer" else super().arguments(kind, choice)

    def run(self, kind: str, arguments: dict[str, Any]) -> Any:
        match kind:
            case "answer" if not arguments:
                return None
            case "enroll":
                return enroll(self.gallery.store, self.model, [Path(arguments["path"])], SquareDetector())
            case "forget":
                return self.gallery.forget(identity=arguments["identity"])
            case "forget_photo":
                return self.gallery.forget(photos=arguments["path"])
            case "read":
                return read_all(self.gallery.store)
            case _:
                return self.correct(self.gallery, kind, arguments)


def read_all(gallery: Store) -> dict[str, Any]:
    """Read what pages list, in one snapshot."""
    with gallery.read():
        assignments = load_assignments(gallery)
        return {
            "revision": gallery.revision,
            "faces": assignments.faces.ids.tolist(),
            "identity": assignments.identity.tolist(),
            "by_user": assignments.by_user.tolist(),
            "names": {str(number): name for number, name in assignments.names.items()},
            "counts": asdict(counts(gallery)),
            "decisions": [decision.number for decision in decisions.decisions(gallery, 5)],
        }


class CommandWriter(Writer):
    """Uses the command line, in this process."""

    weights: ClassVar[dict[str, int]] = CORRECTIONS | {
        "forget": 1, "forget_photo": 2, "stats": 8, "review": 4,
    }  # fmt: skip

    def command(self, name: str, *arguments: object) -> Any:
        """Run `familiar gallery NAME` with --json."""
        words = ["gallery", name, str(self.folder), *map(str, arguments), "--json"]
        result = CliRunner().invoke(familiar, words)
        if result.exception is not None:
            raise result.exception
        return json.loads(result.stdout or "null")

    def run(self, kind: str, arguments: dict[str, Any]) -> Any:
        if kind == "enroll":
            return self.command("enroll", arguments["path"], "--model", self.model_file)
        return self.command(kind.removesuffix("_photo"), *WORDS[kind](arguments) if kind in WORDS else ())


WORDS: dict[str, Callable[[dict[str, Any]], list[Any]]] = {  # of commands
    "name": lambda arguments: [f"#{arguments['identity']}", arguments["name"]],
    "merge": lambda arguments: [f"#{arguments['into']}", f"#{arguments['others'][0]}"],
    "move": lambda arguments: [*arguments["faces"], "--to", f"#{arguments['to']}"],
    "split": lambda arguments: [*arguments["faces"], "--name", arguments["name"]],
    "reject": lambda arguments: arguments["faces"],
    "confirm": lambda arguments: arguments["faces"],
    "cluster": lambda arguments: ["--rebuild"] if arguments["rebuild"] else [],
    "undo": lambda arguments: [] if arguments["expected"] is None else ["--change", arguments["expected"]],
    "forget": lambda arguments: ["--identity", f"#{arguments['identity']}", "--yes"],
    "forget_photo": lambda arguments: ["--photo", arguments["path"], "--yes"],
}


class ApiWriter(Writer):
    """Uses the HTTP API of a real server, which runs in this process."""

    weights: ClassVar[dict[str, int]] = CORRECTIONS | {
        "answer": 6, "mark_different": 5, "add_face": 3, "set_face_box": 2, "delete_face": 2, "state": 12,
    }  # fmt: skip

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        settings = Settings(gallery=self.folder, models=(self.model_file,), roots=(task.root,))
        self.client = self.running.enter_context(Client(self.running.enter_context(running_server(settings))))

    def arguments(self, kind: str, choice: Choice) -> dict[str, Any]:
        return self.answer(self.client) if kind == "answer" else super().arguments(kind, choice)

    def run(self, kind: str, arguments: dict[str, Any]) -> Any:
        match kind:
            case "answer" if not arguments:
                return None
            case "enroll":
                *_, last = self.client.watch(self.client.enroll([arguments["path"]]))
                assert last.state == "done", last
                return last
            case "state":
                state = self.client.gallery()
                return {"revision": state.revision, "counts": state.counts}
            case _:
                return self.correct(self.client, kind, arguments)


class WatchWriter(Writer):
    """Changes a watched folder, and lets the watch do what is to be done."""

    weights: ClassVar[dict[str, int]] = {"write": 8, "edit": 2, "move_file": 4, "copy": 2, "delete": 4, "step": 2}

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.photos = task.root / "watched"
        self.photos.mkdir(exist_ok=True)
        (self.photos / "never empty.txt").touch()
        gallery = self.running.enter_context(Gallery.open(self.folder, Embedder(self.model_file, threads=1)))
        self.running.enter_context(watch_lock(self.folder))
        self.seconds = 0.0
        settings = WatchSettings(SETTLE_SECONDS, poll_seconds=10.0)
        self.watch = FolderWatch(
            gallery, WholePhoto(), [self.photos], settings, on_event=lambda _: None, clock=lambda: self.seconds
        )

    def arguments(self, kind: str, choice: Choice) -> dict[str, Any]:
        files = sorted(self.photos.glob("*.png"))
        new = self.photos / f"{self.number}.png"
        if kind == "write" and len(files) < MAX_PHOTOS // 3:
            files = [new]
        return {"path": str(choice.rng.choice(files or [new])), "new": str(new)}

    def run(self, kind: str, arguments: dict[str, Any]) -> Any:
        path, new = Path(arguments["path"]), Path(arguments["new"])
        if kind in ("write", "edit"):
            draw(path, self.rng)
        elif path.exists() and kind == "move_file":
            path.rename(new)
        elif path.exists() and kind == "copy":
            new.write_bytes(path.read_bytes())
        elif kind == "delete":
            path.unlink(missing_ok=True)
        for _ in range(3):
            self.seconds += 10.1
            self.watch.step()


WRITERS: dict[str, type[Writer]] = {
    "api": ApiWriter,
    "cli": CommandWriter,
    "python": LibraryWriter,
    "watch": WatchWriter,
}
ROLES = tuple(WRITERS)


def work(task: Task) -> None:
    """Do the operations of a task, and log them. To be run in a process of its own."""
    current = f"{task.role}-open"

    def writer_of_thread() -> str:
        """Tell the jobs of a server apart: after a kill, it goes on with them while it does the next operations."""
        return f"{task.role}-job" if threading.current_thread().name.startswith("job") else current

    def connect_as_writer(path: Path, **settings: bool) -> Connection:
        connection = connect(path, **settings)
        set_writer(connection, writer_of_thread)
        return connection

    store.connect = automatic_copies.connect = connect_as_writer
    log = os.open(task.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(entry: dict[str, Any]) -> None:
        os.write(log, (json.dumps(entry, default=_plain) + "\n").encode())

    try:
        with task.stacks.open("w") as stacks, contextlib.ExitStack() as running:
            writer = WRITERS[task.role](task)
            running.enter_context(writer.running)
            running.callback(faulthandler.cancel_dump_traceback_later)
            for number in range(task.first, task.last):
                current = f"{task.role}-{number}"
                faulthandler.dump_traceback_later(STUCK_SECONDS, file=stacks, exit=True)
                kind, arguments = writer.operation(number)
                write({"op": current, "kind": kind, "arguments": arguments, "begin": time.time()})
                try:
                    result, error = writer.run(kind, arguments), None
                except (FamiliarError, ServerError) as refusal:
                    if isinstance(refusal, ServerError) and refusal.status == 500:
                        raise
                    result, error = None, f"{type(refusal).__name__}: {refusal}"
                write({"op": current, "end": time.time(), "result": result, "error": error})
            current = f"{task.role}-close"
            write({"done": True})
    except BaseException:
        write({"crash": traceback.format_exc()})
        raise


def _plain(value: Any) -> Any:
    """Return what JSON can have for a result."""
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """Iterate over what a process logged; the last line may be cut off by a kill."""
    if path.exists():
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield json.loads(line)
