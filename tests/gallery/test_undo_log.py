"""Random sequences of decisions: corrections are respected, and undo restores exactly the previous rows."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from familiar.core.errors import Contradiction, NotInGallery
from familiar.core.vectors import normalize
from familiar.gallery import Gallery
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits import corrections, manual_faces
from familiar.gallery.edits.forget import forget_identity, forget_photos
from familiar.gallery.review.questions import answer_question, propose_questions
from familiar.gallery.same.decisions import decisions, undo
from familiar.gallery.store.store import Store
from support.property_tests import expensive
from support.small_gallery import (
    DECISION_TABLES,
    DIM,
    SPACE,
    draw_individuals,
    embedder_returning,
    enroll_in_one_photo,
    enroll_vectors,
    identity_of,
    rows,
)

NAMES = ("Mia", "Tom", "Lia")
TABLES = (*DECISION_TABLES, "faces")
LEFT_PX = (0, 30, 100)  # of boxes drawn by hand; the first two overlap too much for one photo
INDEX = st.integers(0, 1000)  # used modulo the number of choices
RECORDS = st.dictionaries(st.sampled_from(["note", "place"]), st.text(max_size=5))


class DecisionMachine(RuleBasedStateMachine):
    """A gallery, and the rows from before each of its decisions."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.gallery = Store.create(self.folder / "gallery", SPACE, embedding_dtype="float32")
        self.gallery._connection.execute("PRAGMA synchronous = OFF")  # no disk to wait for
        self.rng = np.random.default_rng(0)
        self.before: list[dict[str, list[Any]]] = []  # the rows before each decision that can be undone
        self.photos = 0

    def teardown(self) -> None:
        self.gallery.close()
        shutil.rmtree(self.folder)

    # Choosing from the gallery

    def _names(self) -> dict[int, str | None]:
        return {number: name for number, name, _ in rows(self.gallery)["identities"]}

    def _column(self, query: str) -> list[Any]:
        with self.gallery.read() as repository:
            return [row[0] for row in repository.connection.execute(query)]

    def _face(self, index: int) -> int:
        faces = self._column("SELECT id FROM faces ORDER BY id")
        assume(faces)
        return faces[index % len(faces)]

    def _identity(self, index: int) -> int:
        numbers = self._column("SELECT id FROM identities ORDER BY id")
        assume(numbers)
        return numbers[index % len(numbers)]

    def _decide(self, action: Any, *arguments: Any, **options: Any) -> bool:
        """Make a decision, and check that it is applied as a whole or not at all.

        Confirmed faces keep their identities unless the decision is about them, and named identities stay unless they
        are merged.

        Returns:
            Whether the decision was applied.
        """
        before, count = rows(self.gallery, TABLES), len(decisions(self.gallery, 1000))
        try:
            action(self.gallery, *arguments, **options)
        except Contradiction:
            assert rows(self.gallery, TABLES) == before
            return False
        if len(decisions(self.gallery, 1000)) > count:
            self.before.append(before)
        after = rows(self.gallery)
        if action in (cluster, corrections.name_identity, corrections.confirm):
            assert _confirmed(before) <= _confirmed(after)
        if action is cluster:
            assert [row for row in before["identities"] if row[1]] == [row for row in after["identities"] if row[1]]
        elif action not in (corrections.merge, answer_question):
            assert {row[0] for row in before["identities"] if row[1]} <= {row[0] for row in after["identities"]}
        return True

    @contextlib.contextmanager
    def _adding_faces(self) -> Iterator[None]:
        """Add the new faces to the rows that undo must restore: enrolling is not a decision."""
        known = set(self.gallery.faces().ids.tolist())
        yield
        new = [row for row in rows(self.gallery, ("faces",))["faces"] if row[0] not in known]
        for tables in self.before:
            tables["faces"] += new

    # Rules: what a user may do

    @rule(sizes=st.lists(st.integers(0, 3), min_size=1, max_size=4), noise=st.sampled_from([0.05, 0.35]))
    def enroll(self, sizes: list[int], noise: float) -> None:
        embeddings = draw_individuals(sizes, int(self.rng.integers(2**32)), noise)
        self.photos += 1
        with self._adding_faces():
            enroll_vectors(self.gallery, embeddings, f"{self.photos}")

    @rule(axes=st.lists(st.integers(0, 4), min_size=2, max_size=4))
    def enroll_photo_of_several(self, axes: list[int]) -> None:
        embeddings = np.eye(DIM)[axes] + self.rng.normal(size=(len(axes), DIM)) * 0.05
        self.photos += 1
        with self._adding_faces():
            enroll_in_one_photo(self.gallery, normalize(embeddings.astype(np.float32)), f"{self.photos} together.jpg")

    @rule(rebuild=st.booleans())
    def group(self, rebuild: bool) -> None:
        self._decide(cluster, rebuild=rebuild)
        once = rows(self.gallery)
        assert cluster(self.gallery).changed == 0
        assert rows(self.gallery) == once

    @rule(index=INDEX, name=st.sampled_from(NAMES), confirm=st.booleans())
    def name_identity(self, index: int, name: str, confirm: bool) -> None:
        number = self._identity(index)
        if self._decide(corrections.name_identity, number, name, confirm=confirm):
            assert (number, name) in self._names().items()

    @rule(first=INDEX, second=INDEX)
    def merge(self, first: int, second: int) -> None:
        into, other = self._identity(first), self._identity(second)
        assume(into != other)
        names = self._names()
        faces = [face for face, number, _ in rows(self.gallery)["assignments"] if number in (into, other)]
        if self._decide(corrections.merge, into, [other]):
            assert all(identity_of(self.gallery, face) == into for face in faces)
            assert self._names()[into] == (names[into] or names[other])

    @rule(indices=st.lists(INDEX, min_size=1, max_size=3), to=INDEX)
    def move(self, indices: list[int], to: int) -> None:
        faces, number = [self._face(index) for index in indices], self._identity(to)
        if self._decide(corrections.move, faces, number):
            self._check_assigned(faces, number)

    @rule(indices=st.lists(INDEX, min_size=1, max_size=3))
    def split(self, indices: list[int]) -> None:
        faces = [self._face(index) for index in indices]
        if self._decide(corrections.split, faces):
            (number,) = {identity_of(self.gallery, face) for face in faces}
            self._check_assigned(faces, number)

    def _check_assigned(self, faces: list[int], number: int) -> None:
        assert {(face, number, 1) for face in faces} <= set(rows(self.gallery)["assignments"])

    @rule(index=INDEX)
    def confirm(self, index: int) -> None:
        self._decide(corrections.confirm, [self._face(index)])

    @rule(index=INDEX)
    def reject(self, index: int) -> None:
        face = self._face(index)
        number = identity_of(self.gallery, face)
        if self._decide(corrections.reject, [face]):
            assert (face, number) in rows(self.gallery)["rejections"]

    @rule(first=INDEX, second=INDEX)
    def mark_different(self, first: int, second: int) -> None:
        faces = self._face(first), self._face(second)
        assume(faces[0] != faces[1])
        if self._decide(corrections.mark_different, *faces):
            assert (min(faces), max(faces), 0) in rows(self.gallery)["constraints"]

    @rule(index=INDEX, same=st.booleans())
    def answer(self, index: int, same: bool) -> None:
        questions = propose_questions(self.gallery, 5)
        assume(questions)
        question = questions[index % len(questions)]
        assert self._decide(answer_question, question, same)  # no question has an impossible answer
        answered = {(question.first_face, question.second_face)}
        remaining = {(question.first_face, question.second_face) for question in propose_questions(self.gallery, 100)}
        assert not answered & remaining

    @rule(index=INDEX, record=RECORDS)
    def note(self, index: int, record: dict[str, str]) -> None:
        number = self._identity(index)
        self._decide(lambda store: Gallery(store).set_attributes(number, record))
        assert Gallery(self.gallery).attributes(number) == ([record] if record else [])

    @rule(first=INDEX, second=INDEX)
    def tell_identities_apart(self, first: int, second: int) -> None:
        numbers = self._identity(first), self._identity(second)
        faces = [face.face for face in Gallery(self.gallery).faces(identity=numbers[0])]
        assume(numbers[0] != numbers[1] and faces)
        assert self._decide(corrections.reject, faces, numbers[1])
        assert numbers[1] in Gallery(self.gallery).different_identities(numbers[0])
        assert self._decide(corrections.unmark_different, *numbers)
        assert numbers[1] not in Gallery(self.gallery).different_identities(numbers[0])

    @rule(index=INDEX, axis=st.integers(0, 4), left_px=st.sampled_from(LEFT_PX))
    def add_face(self, index: int, axis: int, left_px: int) -> None:
        photos = self._column("SELECT id FROM photos ORDER BY id")
        assume(photos)
        with embedder_returning(self._embedding(axis)) as embedder:
            self._decide(manual_faces.add_face, embedder, photos[index % len(photos)], _box(left_px))

    @rule(index=INDEX, axis=st.integers(0, 4), left_px=st.sampled_from(LEFT_PX))
    def move_face(self, index: int, axis: int, left_px: int) -> None:
        face = self._face(index)
        confirmed = [row for row in rows(self.gallery)["assignments"] if row[0] == face and row[2]]
        with embedder_returning(self._embedding(axis)) as embedder:
            self._decide(manual_faces.set_face_box, embedder, face, _box(left_px))
        assert set(confirmed) <= set(rows(self.gallery)["assignments"])

    @rule(index=INDEX)
    def delete_face(self, index: int) -> None:
        face = self._face(index)
        assert self._decide(manual_faces.delete_face, face)
        assert face not in self.gallery.faces().ids

    def _embedding(self, axis: int) -> np.ndarray:
        row = np.eye(DIM)[axis] + self.rng.normal(size=DIM) * 0.05
        return normalize(row.astype(np.float32)[None])[0]

    @precondition(lambda self: self.before)
    @rule()
    def undo(self) -> None:
        undo(self.gallery)
        assert rows(self.gallery, TABLES) == self.before.pop()
        embeddings = [row[-1] for row in rows(self.gallery, ("faces",))["faces"]]
        assert b"".join(embeddings) == self.gallery.faces().embeddings.tobytes()  # not cached ones

    @precondition(lambda self: not self.before)
    @rule()
    def undo_after_forgetting(self) -> None:
        if decisions(self.gallery):
            undo(self.gallery)
        else:
            with pytest.raises(NotInGallery):
                undo(self.gallery)

    @rule(index=INDEX)
    def forget_identity(self, index: int) -> None:
        number = self._identity(index)
        forget_identity(self.gallery, number)
        assert number not in self._names()
        self.before.clear()

    @rule(index=INDEX)
    def forget_photo(self, index: int) -> None:
        paths = self._column(
            "SELECT CAST(path AS TEXT) AS name FROM photos WHERE name LIKE '% together.jpg' ORDER BY id"
        )
        assume(paths)
        path = paths[index % len(paths)]
        with self.gallery.write() as repository:  # forgetting looks up absolute paths
            repository.connection.execute(
                "UPDATE photos SET path = ? WHERE path = ?", (bytes(Path(path).absolute()), path.encode())
            )
        forget_photos(self.gallery, [Path(path)])
        self.before.clear()

    # Invariants

    @invariant()
    def an_identity_occurs_once_per_photo(self) -> None:
        assert not self._column(
            "SELECT 1 FROM assignments JOIN faces ON faces.id = face_id GROUP BY photo_id, identity_id "
            "HAVING count(*) > 1"
        )

    @invariant()
    def different_faces_have_different_identities(self) -> None:
        assert not self._column(
            "SELECT 1 FROM constraints JOIN assignments AS first ON first.face_id = first_face "
            "JOIN assignments AS second ON second.face_id = second_face "
            "WHERE first.identity_id = second.identity_id AND NOT same"
        )

    @invariant()
    def no_face_has_a_rejected_identity(self) -> None:
        assert not self._column("SELECT 1 FROM rejections NATURAL JOIN assignments")

    @invariant()
    def the_file_is_intact(self) -> None:
        assert self._column("PRAGMA integrity_check") == ["ok"]
        assert not self._column("PRAGMA foreign_key_check")
        assert not self._column("SELECT 1 FROM gallery WHERE open_decision IS NOT NULL")
        assert not self._column("SELECT 1 FROM forgotten")
        logged = self._column("SELECT DISTINCT decision_id FROM changes ORDER BY 1")
        assert self._column("SELECT id FROM decisions ORDER BY id") == logged
        once = "SELECT id FROM changes WHERE table_name = 'faces' AND previous IS NOT NULL ORDER BY id"
        assert self._column("SELECT change_id FROM previous_faces ORDER BY 1") == self._column(once)


def _box(left_px: int) -> manual_faces.Box:
    return (float(left_px), 0.0, left_px + 40.0, 40.0)


def _confirmed(tables: dict[str, list[Any]]) -> set[tuple[int, int]]:
    return {(face, number) for face, number, by_user in tables["assignments"] if by_user}


_SETTINGS = settings(
    expensive(),
    stateful_step_count=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


TestDecisions = DecisionMachine.TestCase
TestDecisions.settings = _SETTINGS
