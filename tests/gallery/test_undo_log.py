"""Whatever a user does in whatever order: what was said holds, and undo restores just what was before."""

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
from familiar.gallery.clustering.cluster import cluster
from familiar.gallery.clustering.review_queue import answer_question, propose_questions
from familiar.gallery.database.connection import Gallery
from familiar.gallery.editing import corrections, manual_faces
from familiar.gallery.editing.forget import forget_identity, forget_photos
from familiar.gallery.editing.undo_log import decisions, undo
from support.property_tests import expensive
from support.small_gallery import (
    DIM,
    SAID,
    SPACE,
    enrolled,
    identity_of,
    in_one_photo,
    individuals,
    looking_like,
    rows,
)

NAMES = ("Mia", "Tom", "Lia")
TABLES = (*SAID, "kinds", "faces")
LEFT = (0, 30, 100)  # of boxes drawn by hand; the first two are too close for one photo
PLACE = st.integers(0, 1000)  # modulo how many there are


class Decisions(RuleBasedStateMachine):
    """A gallery and what its user remembers of it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.gallery = Gallery.create(self.folder / "gallery", SPACE, embedding_dtype="float32")
        self.gallery._connection.execute("PRAGMA synchronous = OFF")  # no disk to wait for
        self.rng = np.random.default_rng(0)
        self.before: list[dict[str, list[Any]]] = []  # each decision that can be taken back
        self.photos = 0

    def teardown(self) -> None:
        self.gallery.close()
        shutil.rmtree(self.folder)

    # What there is

    def _column(self, query: str) -> list[Any]:
        with self.gallery.reading() as connection:
            return [row[0] for row in connection.execute(query)]

    def _face(self, place: int) -> int:
        faces = self._column("SELECT id FROM faces ORDER BY id")
        assume(faces)
        return faces[place % len(faces)]

    def _identity(self, place: int) -> int:
        numbers = self._column("SELECT id FROM identities ORDER BY id")
        assume(numbers)
        return numbers[place % len(numbers)]

    def _decide(self, does: Any, *arguments: Any, **options: Any) -> bool:
        """A decision is wholly taken, or not at all. The faces that the user spoke of stay where they are unless the
        decision is about them, and named identities stay but where they are merged."""
        before, count = rows(self.gallery, TABLES), len(decisions(self.gallery, 1000))
        try:
            does(self.gallery, *arguments, **options)
        except Contradiction:
            assert rows(self.gallery, TABLES) == before
            return False
        if len(decisions(self.gallery, 1000)) > count:
            self.before.append(before)
        after = rows(self.gallery)
        if does in (cluster, corrections.name_identity, corrections.confirm):
            assert _said(before) <= _said(after)
        if does is cluster:
            assert [row for row in before["identities"] if row[1]] == [row for row in after["identities"] if row[1]]
        elif does is not corrections.merge and does is not answer_question:
            assert {row[0] for row in before["identities"] if row[1]} <= {row[0] for row in after["identities"]}
        return True

    @contextlib.contextmanager
    def _taken_in(self) -> Iterator[None]:
        """New faces are no decision, so to take back one does not take them out."""
        known = set(self.gallery.faces().ids.tolist())
        yield
        new = [row for row in rows(self.gallery, ("faces",))["faces"] if row[0] not in known]
        for tables in self.before:
            tables["faces"] += new

    # What its user does

    @rule(sizes=st.lists(st.integers(0, 3), min_size=1, max_size=4), noise=st.sampled_from([0.05, 0.35]))
    def enroll(self, sizes: list[int], noise: float) -> None:
        embeddings = individuals(sizes, int(self.rng.integers(2**32)), noise)
        self.photos += 1
        with self._taken_in():
            enrolled(self.gallery, embeddings, f"{self.photos}")

    @rule(who=st.lists(st.integers(0, 4), min_size=2, max_size=4))
    def enroll_one_photo_of_several(self, who: list[int]) -> None:
        rows = np.eye(DIM)[who] + self.rng.normal(size=(len(who), DIM)) * 0.05
        self.photos += 1
        with self._taken_in():
            in_one_photo(self.gallery, normalize(rows.astype(np.float32)), f"{self.photos} together.jpg")

    @rule(rebuild=st.booleans())
    def group(self, rebuild: bool) -> None:
        self._decide(cluster, rebuild=rebuild)
        once = rows(self.gallery)
        assert cluster(self.gallery).changed == 0
        assert rows(self.gallery) == once

    @rule(place=PLACE, called=st.sampled_from(NAMES), confirm=st.booleans())
    def name(self, place: int, called: str, confirm: bool) -> None:
        number = self._identity(place)
        if self._decide(corrections.name_identity, number, called, confirm=confirm):
            assert (number, called) in rows(self.gallery)["identities"]

    @rule(first=PLACE, second=PLACE)
    def merge(self, first: int, second: int) -> None:
        into, other = self._identity(first), self._identity(second)
        assume(into != other)
        names = dict(rows(self.gallery)["identities"])
        held = [face for face, number, _ in rows(self.gallery)["assignments"] if number in (into, other)]
        if self._decide(corrections.merge, into, [other]):
            assert all(identity_of(self.gallery, face) == into for face in held)
            assert dict(rows(self.gallery)["identities"])[into] == (names[into] or names[other])

    @rule(places=st.lists(PLACE, min_size=1, max_size=3), to=PLACE)
    def move(self, places: list[int], to: int) -> None:
        faces, number = [self._face(place) for place in places], self._identity(to)
        if self._decide(corrections.move, faces, number):
            self._says(faces, number)

    @rule(places=st.lists(PLACE, min_size=1, max_size=3))
    def split(self, places: list[int]) -> None:
        faces = [self._face(place) for place in places]
        if self._decide(corrections.split, faces):
            (number,) = {identity_of(self.gallery, face) for face in faces}
            self._says(faces, number)

    def _says(self, faces: list[int], number: int) -> None:
        assert {(face, number, 1) for face in faces} <= set(rows(self.gallery)["assignments"])

    @rule(place=PLACE)
    def confirm(self, place: int) -> None:
        self._decide(corrections.confirm, [self._face(place)])

    @rule(place=PLACE)
    def reject(self, place: int) -> None:
        face = self._face(place)
        number = identity_of(self.gallery, face)
        if self._decide(corrections.reject, [face]):
            assert (face, number) in rows(self.gallery)["rejections"]

    @rule(first=PLACE, second=PLACE)
    def tell_apart(self, first: int, second: int) -> None:
        one, other = self._face(first), self._face(second)
        assume(one != other)
        if self._decide(corrections.mark_different, one, other):
            assert (min(one, other), max(one, other), 0) in rows(self.gallery)["constraints"]

    @rule(place=PLACE, same=st.booleans())
    def answer(self, place: int, same: bool) -> None:
        questions = propose_questions(self.gallery, 5)
        assume(questions)
        question = questions[place % len(questions)]
        assert self._decide(answer_question, question, same)  # no question whose answer cannot be
        asked = {(question.first_face, question.second_face)}
        still = {(question.first_face, question.second_face) for question in propose_questions(self.gallery, 100)}
        assert not asked & still

    @rule(place=PLACE, who=st.integers(0, 4), left=st.sampled_from(LEFT))
    def add_face(self, place: int, who: int, left: int) -> None:
        photos = self._column("SELECT id FROM photos ORDER BY id")
        assume(photos)
        with looking_like(self._someone(who)) as embedder:
            self._decide(manual_faces.add_face, embedder, photos[place % len(photos)], _box(left))

    @rule(place=PLACE, who=st.integers(0, 4), left=st.sampled_from(LEFT))
    def move_face(self, place: int, who: int, left: int) -> None:
        face = self._face(place)
        said = [row for row in rows(self.gallery)["assignments"] if row[0] == face and row[2]]
        with looking_like(self._someone(who)) as embedder:
            self._decide(manual_faces.move_face, embedder, face, _box(left))
        assert set(said) <= set(rows(self.gallery)["assignments"])

    @rule(place=PLACE)
    def delete_face(self, place: int) -> None:
        face = self._face(place)
        assert self._decide(manual_faces.delete_face, face)
        assert face not in self.gallery.faces().ids

    def _someone(self, who: int) -> np.ndarray:
        row = np.eye(DIM)[who] + self.rng.normal(size=DIM) * 0.05
        return normalize(row.astype(np.float32)[None])[0]

    @precondition(lambda self: self.before)
    @rule()
    def undo(self) -> None:
        undo(self.gallery)
        assert rows(self.gallery, TABLES) == self.before.pop()
        embeddings = [row[-1] for row in rows(self.gallery, ("faces",))["faces"]]
        assert b"".join(embeddings) == self.gallery.faces().embeddings.tobytes()  # not those of before

    @precondition(lambda self: not self.before)
    @rule()
    def undo_what_is_left_after_forgetting(self) -> None:
        if decisions(self.gallery):
            undo(self.gallery)
        else:
            with pytest.raises(NotInGallery):
                undo(self.gallery)

    @rule(place=PLACE)
    def forget_identity(self, place: int) -> None:
        number = self._identity(place)
        forget_identity(self.gallery, number)
        assert number not in dict(rows(self.gallery)["identities"])
        self.before.clear()

    @rule(place=PLACE)
    def forget_photo(self, place: int) -> None:
        paths = self._column("SELECT path FROM photos WHERE path LIKE '% together.jpg' ORDER BY id")
        assume(paths)
        path = paths[place % len(paths)]
        with self.gallery.writing() as connection:  # as if it lay where paths are looked for
            connection.execute("UPDATE photos SET path = ? WHERE path = ?", (str(Path(path).absolute()), path))
        forget_photos(self.gallery, [Path(path)])
        self.before.clear()

    # What holds after each

    @invariant()
    def a_photo_shows_nobody_twice(self) -> None:
        assert not self._column(
            "SELECT 1 FROM assignments JOIN faces ON faces.id = face_id GROUP BY photo_id, identity_id "
            "HAVING count(*) > 1"
        )

    @invariant()
    def who_was_told_apart_is_apart(self) -> None:
        assert not self._column(
            "SELECT 1 FROM constraints JOIN assignments AS one ON one.face_id = first_face "
            "JOIN assignments AS other ON other.face_id = second_face "
            "WHERE one.identity_id = other.identity_id AND NOT same"
        )

    @invariant()
    def nobody_is_whom_they_are_not(self) -> None:
        assert not self._column("SELECT 1 FROM rejections NATURAL JOIN assignments")

    @invariant()
    def the_file_is_whole(self) -> None:
        assert self._column("PRAGMA integrity_check") == ["ok"]
        assert not self._column("PRAGMA foreign_key_check")
        assert not self._column("SELECT 1 FROM gallery WHERE open_decision IS NOT NULL OR erasure_due")
        logged = self._column("SELECT DISTINCT decision_id FROM changes ORDER BY 1")
        assert self._column("SELECT id FROM decisions ORDER BY id") == logged
        once = "SELECT id FROM changes WHERE table_name = 'faces' AND before IS NOT NULL ORDER BY id"
        assert self._column("SELECT change_id FROM faces_before ORDER BY 1") == self._column(once)


def _box(left: int) -> manual_faces.Box:
    return (float(left), 0.0, left + 40.0, 40.0)


def _said(tables: dict[str, list[Any]]) -> set[tuple[int, int]]:
    return {(face, number) for face, number, by_user in tables["assignments"] if by_user}


_SETTINGS = settings(
    expensive(),
    stateful_step_count=20,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


TestDecisions = Decisions.TestCase
TestDecisions.settings = _SETTINGS
