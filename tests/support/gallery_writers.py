"""Processes that change and read one gallery at the same time, at random: the server, commands, a watch, the library.

Each logs every operation to its own file, before it begins and when it has ended.
"""

import contextlib
import faulthandler
import io
import json
import os
import random
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import httpx2
import numpy as np

from familiar.cli import main as command_line
from familiar.client.client import Client
from familiar.client.connection import ServerError
from familiar.core.errors import FamiliarError
from familiar.core.gallery_types import Question
from familiar.core.types import Photo
from familiar.embedding.embedder import Embedder
from familiar.gallery.clustering.assignments import load_assignments
from familiar.gallery.editing import corrections, manual_faces, undo_log
from familiar.gallery.editing.identity_state import IdentityState
from familiar.gallery.enrollment.enroll import enroll
from familiar.gallery.gallery import Gallery
from familiar.gallery.lost_pets import register
from familiar.gallery.lost_pets.reports import STATUSES, Report
from familiar.gallery.search.listing import counts
from familiar.gallery.store import automatic_copies, store
from familiar.gallery.store.connection import DATABASE, Connection, connect
from familiar.gallery.store.store import Store
from familiar.gallery.watching.settings import WatchSettings, watch_lock
from familiar.gallery.watching.watch import FolderWatch
from familiar.photos.decoding import save_photo
from familiar.web.settings import Settings
from support.color_album import SquareDetector
from support.gallery_history import set_writer
from support.server import running_server

ROLES = ("api", "cli", "python", "watch")
SIDE_PX = 32
COLORS = ((200, 20, 20), (20, 200, 20), (20, 20, 200), (190, 190, 20), (20, 190, 190), (190, 20, 190))
MAX_PHOTOS = 60  # more are forgotten rather than enrolled
SETTLE_SECONDS = 2.0
STUCK_SECONDS = 60.0  # after which an operation counts as one that never ends


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

    def name(self, number: int) -> str:
        """Mostly a new name, now and then that of another identity."""
        known = [name for name in self.identities.values() if name]
        return self.rng.choice(known) if known and self.rng.random() < 0.1 else f"name {number} {self.rng.random():.6f}"

    def box(self) -> tuple[float, float, float, float]:
        x, y = self.rng.uniform(0, 8), self.rng.uniform(0, 8)
        return x, y, x + self.rng.uniform(12, 24), y + self.rng.uniform(12, 24)


def draw(path: Path, rng: random.Random, squares: int = 1) -> Path:
    """Save a photo that no other process draws, of one or more individuals."""
    chosen = [np.array(rng.choice(COLORS)) for _ in range(squares)]
    sharp = np.indices((SIDE_PX, SIDE_PX)).sum(axis=0)[..., None] % 2 * 30
    noise = np.random.default_rng(rng.getrandbits(32))
    pixels = np.concatenate([color + sharp + noise.integers(0, 20, (SIDE_PX, SIDE_PX, 3)) for color in chosen], axis=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    return save_photo(Photo(pixels.astype(np.uint8), "drawn", (SIDE_PX * squares, SIDE_PX)), path)


Operation = Callable[[], Any]


class Writer:
    """The operations of one role. Each `op_` method draws arguments and returns what to log, and what to call."""

    weights: ClassVar[dict[str, int]]

    def __init__(self, task: Task) -> None:
        self.task, self.folder, self.rng = task, task.root / "gallery", random.Random(0)
        self.number = 0

    @property
    def choice(self) -> Choice:
        return Choice(self.folder, self.rng)

    def draw(self, squares: int = 1) -> Path:
        return draw(self.task.root / self.task.role / f"{self.number}.png", self.rng, squares)

    def operation(self, number: int) -> tuple[str, dict[str, Any], Operation]:
        """Choose an operation and its arguments."""
        self.number, self.rng = number, random.Random(f"{self.task.role} {self.task.seed} {number}")
        kind = self.rng.choices(list(self.weights), list(self.weights.values()))[0]
        if kind == "enroll" and len(self.choice.photos) > MAX_PHOTOS and "forget_photo" in self.weights:
            kind = "forget_photo"
        arguments, call = getattr(self, f"op_{kind}")()
        return kind, arguments, call

    def close(self) -> None:
        """End what runs."""


class LibraryWriter(Writer):
    """Uses the Python API."""

    weights: ClassVar[dict[str, int]] = {
        "name": 8, "merge": 5, "move": 8, "split": 6, "reject": 5, "confirm": 6, "different": 5, "cluster": 4,
        "answer": 6, "undo": 8, "add_face": 3, "set_box": 2, "delete_face": 2, "enroll": 8, "forget": 1,
        "forget_photo": 2, "report": 3, "dismiss": 2, "reconsider": 1, "reunite": 2, "calibrate": 1,
        "export_import": 2, "read": 14, "search": 4,
    }  # fmt: skip

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.model = Embedder(task.root / "model.onnx", threads=1)
        self.gallery = Gallery.open(self.folder, self.model)

    def close(self) -> None:
        self.gallery.close()

    def op_name(self):
        identity, name, confirm = self.choice.identity(), self.choice.name(self.number), self.rng.random() < 0.3

        def call() -> Any:
            return asdict(self.gallery.name(identity, name, confirm=confirm))

        return {"identity": identity, "name": name, "confirm": confirm}, call

    def op_merge(self):
        into, other = self.choice.identity(), self.choice.identity()
        return {"into": into, "others": [other]}, lambda: asdict(self.gallery.merge(into, [other]))

    def op_move(self):
        faces, to = self.choice.some_faces(), self.choice.identity()
        return {"faces": faces, "to": to}, lambda: asdict(self.gallery.move(faces, to))

    def op_split(self):
        faces = self.choice.some_faces()
        name = self.choice.name(self.number) if self.rng.random() < 0.5 else None
        return {"faces": faces, "name": name}, lambda: asdict(self.gallery.split(faces, name))

    def op_reject(self):
        faces = self.choice.some_faces()
        return {"faces": faces}, lambda: asdict(self.gallery.reject(faces))

    def op_confirm(self):
        faces = self.choice.some_faces()
        return {"faces": faces}, lambda: self.gallery.confirm(faces)

    def op_different(self):
        first, second = self.choice.face(), self.choice.face()

        def call() -> Any:
            return corrections.mark_different(self.gallery.database, first, second)

        return {"first": first, "second": second}, call

    def op_cluster(self):
        rebuild = self.rng.random() < 0.5
        return {"rebuild": rebuild}, lambda: asdict(self.gallery.cluster(rebuild=rebuild))

    def op_answer(self):
        questions, same = self.gallery.questions(3), self.rng.random() < 0.6
        if not questions:
            return self.op_read()
        question = self.rng.choice(questions)
        return {"question": asdict(question), "same": same}, lambda: self.gallery.answer(question, same)

    def op_undo(self):
        last = self.gallery.changes(1)
        expected = last[0].number if last and self.rng.random() < 0.6 else None
        return {"expected": expected}, lambda: asdict(undo_log.undo(self.gallery.database, expected))

    def op_add_face(self):
        (photo, _), box = self.choice.photo(), self.choice.box()

        def call() -> Any:
            return manual_faces.add_face(self.gallery.database, self.model, photo, box)

        return {"photo": photo, "box": box}, call

    def op_set_box(self):
        face, box = self.choice.face(), self.choice.box()

        def call() -> Any:
            return manual_faces.set_face_box(self.gallery.database, self.model, face, box)

        return {"face": face, "box": box}, call

    def op_delete_face(self):
        face = self.choice.face()
        return {"face": face}, lambda: manual_faces.delete_face(self.gallery.database, face)

    def op_enroll(self):
        squares = self.rng.choice([1, 1, 2])
        paths = [self.draw(squares)]
        if self.rng.random() < 0.3:  # known ones again, or ones that another process has forgotten
            paths.append(Path(self.choice.photo()[1]))

        def call() -> Any:
            return _counts(enroll(self.gallery.database, self.model, paths, SquareDetector()))

        return {"paths": [str(path) for path in paths]}, call

    def op_forget(self):
        identity = self.choice.identity()
        return {"identity": identity}, lambda: asdict(self.gallery.forget(identity=identity))

    def op_forget_photo(self):
        _, path = self.choice.photo()
        return {"path": path}, lambda: asdict(self.gallery.forget(photos=path))

    def op_report(self):
        identity, status = self.choice.identity(), self.rng.choice(STATUSES[:2])
        report = Report(status, "cat", f"street {self.number}")

        def call() -> Any:
            return register.set_reports(self.gallery.database, {identity: report})

        return {"identity": identity, "row": report.row}, call

    def op_dismiss(self):
        first, second = self.choice.identity(), self.choice.identity()
        return {"first": first, "second": second}, lambda: register.dismiss(self.gallery.database, first, second)

    def op_reconsider(self):
        first, second = self.choice.identity(), self.choice.identity()
        return {"first": first, "second": second}, lambda: register.reconsider(self.gallery.database, first, second)

    def op_reunite(self):
        lost, other = self.choice.identity(), self.choice.identity()
        return {"lost": lost, "other": other}, lambda: register.reunite(self.gallery.database, lost, other)

    def op_calibrate(self):
        return {}, lambda: bool(self.gallery.calibrate())

    def op_export_import(self):
        table = self.task.root / f"{self.task.role}.csv"

        def call() -> dict[str, Any]:
            self.gallery.export(table)
            time.sleep(self.rng.random() * 0.05)
            return _counts(self.gallery.import_labels(table))

        return {}, call

    def op_read(self):
        return {}, lambda: read_all(self.gallery.database)

    def op_search(self):
        face = self.choice.face()

        def call() -> dict[str, Any]:
            with self.gallery.database.read():
                faces = self.gallery.database.faces()
                rows = np.flatnonzero(faces.ids == face)
                if not len(rows):
                    return {"revision": self.gallery.database.revision, "hits": []}
                hits = self.gallery.search(faces.unit_rows(rows)[0], 5)
                hit_rows = [[hit.face, hit.identity, hit.name] for hit in hits]
                return {"revision": self.gallery.database.revision, "hits": hit_rows}

        return {"face": face}, call


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
            "decisions": [decision.number for decision in undo_log.decisions(gallery, 5)],
        }


def _counts(result: Any) -> dict[str, int]:
    return {key: value for key, value in asdict(result).items() if isinstance(value, int)}


class CommandError(Exception):
    """A command refused to do something, in one line."""


class CommandWriter(Writer):
    """Uses the command line, in this process."""

    weights: ClassVar[dict[str, int]] = {
        "name": 8, "merge": 5, "move": 8, "split": 6, "reject": 5, "confirm": 6, "cluster": 4, "undo": 8,
        "enroll": 8, "forget": 1, "forget_photo": 2, "register": 3, "calibrate": 1, "export_import": 2,
        "stats": 8, "search": 2, "review": 4,
    }  # fmt: skip

    def run(self, command: str, *arguments: object) -> Any:
        """Run `familiar gallery COMMAND` with --json. CommandError if it refuses."""
        argv, before = ["familiar", "gallery", command, str(self.folder), *map(str, arguments), "--json"], sys.argv
        out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
        sys.argv = argv
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                command_line.main()
        except SystemExit as stopped:
            if stopped.code not in (0, None):
                if stopped.code != 1 or "Traceback" in err.getvalue():
                    raise RuntimeError(f"{argv}: exit {stopped.code}: {err.getvalue()}") from stopped
                raise CommandError(err.getvalue()) from None
        finally:
            sys.argv = before
        out.seek(0)
        return json.loads(out.read() or "null")

    def op_name(self):
        choice = self.choice
        identity, name = choice.identity(), choice.name(self.number)
        reference = choice.identities.get(identity) or f"#{identity}"
        by_name = self.rng.random() < 0.5
        arguments = [
            reference if by_name else f"#{identity}",
            name,
            *(["--confirm"] if self.rng.random() < 0.3 else []),
        ]
        logged = {"identity": None if by_name and reference[0] != "#" else identity, "name": name}
        return logged | {"reference": arguments[0]}, lambda: self.run("name", *arguments)

    def op_merge(self):
        into, other = self.choice.identity(), self.choice.identity()
        return {"into": into, "others": [other]}, lambda: self.run("merge", f"#{into}", f"#{other}")

    def op_move(self):
        faces, to = self.choice.some_faces(), self.choice.identity()
        return {"faces": faces, "to": to}, lambda: self.run("move", *faces, "--to", f"#{to}")

    def op_split(self):
        faces, name = self.choice.some_faces(), self.choice.name(self.number)
        return {"faces": faces, "name": name}, lambda: self.run("split", *faces, "--name", name)

    def op_reject(self):
        faces = self.choice.some_faces()
        return {"faces": faces}, lambda: self.run("reject", *faces)

    def op_confirm(self):
        faces = self.choice.some_faces()
        return {"faces": faces}, lambda: self.run("confirm", *faces)

    def op_cluster(self):
        rebuild = self.rng.random() < 0.5
        return {"rebuild": rebuild}, lambda: self.run("cluster", *(["--rebuild"] if rebuild else []))

    def op_undo(self):
        return {"expected": None}, lambda: self.run("undo")

    def op_enroll(self):
        path = self.draw()
        arguments = [path, "--model", self.task.root / "model.onnx"]
        return {"paths": [str(path)]}, lambda: self.run("enroll", *arguments)

    def op_forget(self):
        identity = self.choice.identity()
        return {"identity": identity}, lambda: self.run("forget", "--identity", f"#{identity}", "--yes")

    def op_forget_photo(self):
        _, path = self.choice.photo()
        return {"path": path}, lambda: self.run("forget", "--photo", path, "--yes")

    def op_register(self):
        identity, table = self.choice.identity(), self.task.root / "register.csv"
        table.write_text(f"name,status,place\n#{identity},{self.rng.choice(['lost', 'found'])},street {self.number}\n")
        return {"identity": identity}, lambda: self.run("register", table)

    def op_calibrate(self):
        return {}, lambda: self.run("calibrate", *(["--reset"] if self.rng.random() < 0.5 else []))

    def op_export_import(self):
        table = self.task.root / f"{self.task.role}.csv"

        def call() -> Any:
            self.run("export", "--output", table)
            time.sleep(self.rng.random() * 0.05)
            return self.run("import", table)

        return {}, call

    def op_stats(self):
        return {}, lambda: self.run("stats")

    def op_search(self):
        _, path = self.choice.photo()
        return {"path": path}, lambda: len(self.run("search", path, "--model", self.task.root / "model.onnx"))

    def op_review(self):
        return {}, lambda: len(self.run("review"))


class ApiWriter(Writer):
    """Uses the HTTP API and the forms of the pages of a real server, which runs in this process."""

    weights: ClassVar[dict[str, int]] = {
        "name": 8, "merge": 5, "move": 8, "split": 6, "reject": 5, "confirm": 6, "different": 5, "cluster": 4,
        "answer": 6, "undo": 8, "add_face": 3, "set_box": 2, "delete_face": 2, "enroll": 7, "page": 12,
        "state": 8, "listing": 8,
    }  # fmt: skip

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.running = contextlib.ExitStack()
        settings = Settings(gallery=self.folder, model=task.root / "model.onnx", roots=(task.root,))
        self.url = self.running.enter_context(running_server(settings))
        self.client = self.running.enter_context(Client(self.url))
        self.browser = self.running.enter_context(httpx2.Client(base_url=self.url, timeout=60))

    def close(self) -> None:
        self.running.close()

    def op_name(self):
        identity, name, confirm = self.choice.identity(), self.choice.name(self.number), self.rng.random() < 0.3

        def call() -> Any:
            return asdict(self.client.name(identity, name, confirm=confirm))

        return {"identity": identity, "name": name, "confirm": confirm}, call

    def op_merge(self):
        into, other = self.choice.identity(), self.choice.identity()
        return {"into": into, "others": [other]}, lambda: asdict(self.client.merge(into, [other]))

    def op_move(self):
        faces, to = self.choice.some_faces(), self.choice.identity()
        return {"faces": faces, "to": to}, lambda: asdict(self.client.move(faces, to))

    def op_split(self):
        faces = self.choice.some_faces()
        name = self.choice.name(self.number) if self.rng.random() < 0.5 else None
        return {"faces": faces, "name": name}, lambda: asdict(self.client.split(faces, name))

    def op_reject(self):
        faces = self.choice.some_faces()
        return {"faces": faces}, lambda: asdict(self.client.reject(faces))

    def op_confirm(self):
        faces = self.choice.some_faces()
        return {"faces": faces}, lambda: self.client.confirm(faces)

    def op_different(self):
        first, second = self.choice.face(), self.choice.face()
        return {"first": first, "second": second}, lambda: self.client.mark_different(first, second)

    def op_cluster(self):
        rebuild = self.rng.random() < 0.5
        return {"rebuild": rebuild}, lambda: asdict(self.client.cluster(rebuild=rebuild))

    def op_answer(self):
        questions, same = self.client.questions(3), self.rng.random() < 0.6
        if not questions:
            return self.op_state()
        question: Question = self.rng.choice(questions)
        return {"question": asdict(question), "same": same}, lambda: self.client.answer(question, same)

    def op_undo(self):
        last = self.client.decisions(1)
        expected = last[0].number if last and self.rng.random() < 0.6 else None
        return {"expected": expected}, lambda: asdict(self.client.undo(expected))

    def op_add_face(self):
        (photo, _), box = self.choice.photo(), self.choice.box()
        return {"photo": photo, "box": box}, lambda: self.client.add_face(photo, box)

    def op_set_box(self):
        face, box = self.choice.face(), self.choice.box()
        return {"face": face, "box": box}, lambda: self.client.set_face_box(face, box)

    def op_delete_face(self):
        face = self.choice.face()
        return {"face": face}, lambda: self.client.delete_face(face)

    def op_enroll(self):
        path = self.draw()

        def call() -> dict[str, Any]:
            *_, last = self.client.watch(self.client.enroll([path]))
            if last.state != "done":
                raise RuntimeError(f"a job ended as {last}")
            return {"photos": last.photos, "faces": last.faces}

        return {"paths": [str(path)]}, call

    def op_page(self):
        """Look at an individual's page, and correct what it shows some time later."""
        identity, action = self.choice.identity(), self.rng.choice(["name", "confirm"])
        page = self.browser.get(f"/individuals/{identity}")
        if page.status_code == 404:
            return self.op_state()
        state = re.search(r'name="state" value="([^"]+)"', page.text)
        token = re.search(r'<meta name="csrf" content="([^"]*)"', page.text)
        total = re.search(r'name="faces" value="(\d+)"', page.text)
        shown = sorted(map(int, re.findall(r'name="face" value="(\d+)" form="selected"', page.text)))
        assert state is not None, page.text
        assert token is not None, page.text
        if action == "confirm" and total is None:
            action = "name"
        fields = {"state": state[1]} | (
            {"name": f"page {self.number}"} if action == "name" else {"faces": total[1] if total else ""}
        )
        title = re.search(r"<h1[^>]*>(.*?)</h1>", page.text)

        def call() -> str:
            time.sleep(self.rng.random() * 0.2)
            answer = self.browser.post(
                f"/individuals/{identity}/{action}",
                data=fields,
                headers={"X-CSRF-Token": token[1], "HX-Request": "true"},
                follow_redirects=False,
            )
            if answer.status_code == 303:
                return answer.headers["location"]
            if answer.status_code in (404, 409):
                raise FamiliarError(answer.text)
            raise RuntimeError(f"{answer.status_code}: {answer.text}")

        arguments = {"identity": identity, "action": action, "name": fields.get("name"), "faces": shown}
        last_face = IdentityState.parse(state[1]).last_face
        return arguments | {"title": title[1] if title else "", "last_face": last_face}, call

    def op_state(self):
        def call() -> dict[str, Any]:
            state = self.client.gallery()
            return {"revision": state.revision, "counts": asdict(state.counts)}

        return {}, call

    def op_listing(self):
        def call() -> dict[str, Any]:
            before = self.client.gallery().revision
            listed = self.browser.get("/api/v1/identities?limit=500").json()["items"]
            after = self.client.gallery().revision
            tiles = [[tile["identity"], tile["name"], tile["faces"], tile["confirmed"]] for tile in listed]
            return {"between": [before, after], "tiles": tiles}

        return {}, call


class WatchWriter(Writer):
    """Changes a watched folder, and lets the watch do what is to be done."""

    weights: ClassVar[dict[str, int]] = {
        "write": 8, "edit": 2, "move": 4, "copy": 2, "delete": 4, "step": 2,
    }  # fmt: skip

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.photos = task.root / "watched"
        self.photos.mkdir(exist_ok=True)
        (self.photos / "never empty.txt").touch()
        self.running = contextlib.ExitStack()
        gallery = self.running.enter_context(Store.open(self.folder))
        self.running.enter_context(watch_lock(self.folder))
        self.seconds, self.events = 0.0, list[str]()
        settings = WatchSettings(SETTLE_SECONDS, poll_seconds=10.0)
        model = Embedder(task.root / "model.onnx", threads=1)
        self.watch = FolderWatch(
            gallery,
            model,
            None,
            [self.photos],
            settings,
            on_event=lambda event: self.events.append(event.kind),
            clock=lambda: self.seconds,
        )
        self.watch.start()

    def close(self) -> None:
        self.running.close()

    def settle(self) -> list[str]:
        self.events.clear()
        for _ in range(3):
            self.seconds += 10.1
            self.watch.step()
        return [*self.events]

    def path(self) -> Path | None:
        files = sorted(self.photos.glob("*.png"))
        return self.rng.choice(files) if files else None

    def op_write(self):
        path = self.photos / f"{self.number}.png"
        if len(list(self.photos.glob("*.png"))) > MAX_PHOTOS // 3:
            return self.op_delete()
        return {"path": str(path)}, lambda: (draw(path, self.rng), self.settle())[1]

    def op_edit(self):
        path = self.path() or self.photos / "edited.png"
        return {"path": str(path)}, lambda: (draw(path, self.rng), self.settle())[1]

    def op_move(self):
        path, target = self.path(), self.photos / f"moved {self.number}.png"
        if path is None:
            return self.op_step()
        return {"path": str(path), "target": str(target)}, lambda: (path.rename(target), self.settle())[1]

    def op_copy(self):
        path, target = self.path(), self.photos / f"copy {self.number}.png"
        if path is None:
            return self.op_step()
        content = path.read_bytes()
        return {"path": str(path), "target": str(target)}, lambda: (target.write_bytes(content), self.settle())[1]

    def op_delete(self):
        path = self.path()
        if path is None:
            return self.op_step()
        return {"path": str(path)}, lambda: (path.unlink(), self.settle())[1]

    def op_step(self):
        return {}, self.settle


WRITERS: dict[str, type[Writer]] = {
    "api": ApiWriter,
    "cli": CommandWriter,
    "python": LibraryWriter,
    "watch": WatchWriter,
}
REFUSALS = (FamiliarError, ServerError, CommandError)


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
    stacks = task.stacks.open("w")

    def write(entry: dict[str, Any]) -> None:
        os.write(log, (json.dumps(entry) + "\n").encode())

    writer: Writer | None = None
    try:
        writer = WRITERS[task.role](task)
        for number in range(task.first, task.last):
            current = f"{task.role}-{number}"
            faulthandler.dump_traceback_later(STUCK_SECONDS, file=stacks, exit=True)
            kind, arguments, call = writer.operation(number)
            write({"op": current, "kind": kind, "arguments": arguments, "begin": time.time()})
            try:
                result, error = call(), None
            except REFUSALS as refusal:
                if isinstance(refusal, ServerError) and refusal.status == 500:
                    raise
                result, error = None, f"{type(refusal).__name__}: {refusal}"
            write({"op": current, "end": time.time(), "result": result, "error": error})
        current = f"{task.role}-close"
        write({"done": True})
    except BaseException:
        write({"crash": traceback.format_exc()})
        raise
    finally:
        faulthandler.cancel_dump_traceback_later()
        if writer is not None:
            writer.close()


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """Iterate over what a process logged; the last line may be cut off by a kill."""
    if path.exists():
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield json.loads(line)
