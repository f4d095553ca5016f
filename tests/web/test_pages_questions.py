"""The page of questions: their order, the effect of answers, and outdated questions."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from familiar.core.vectors import normalize
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits import corrections
from familiar.gallery.gallery import Gallery
from familiar.gallery.same.assignments import load_assignments
from familiar.gallery.same.decisions import decisions
from familiar.gallery.store.store import Store
from familiar.web.pages import questions
from familiar.web.settings import Settings
from support.small_gallery import DIM, SPACE, enroll_vectors, groups, identity_of
from support.web_forms import flash_of, make_client, post, redirect_of, unassign


@pytest.fixture
def doubtful(tmp_path: Path) -> Iterator[Store]:
    """Three pairs of similar groups: 1 and 2 (four and three faces), 3 and 4, 5 and 6 (two each)."""
    with Store.create(tmp_path / "doubtful", SPACE, embedding_dtype="float32") as made:
        for axis, sizes in ((0, (4, 3)), (4, (2, 2)), (8, (2, 2))):
            first, second = np.zeros((2, DIM), np.float32)
            first[axis] = 1
            second[axis], second[axis + 1] = 0.59, (1 - 0.59**2) ** 0.5
            enroll_vectors(made, normalize(np.repeat([first, second], sizes, axis=0)), f"of {axis}")
        cluster(made)
        yield made


@pytest.fixture
def batching(doubtful: Store) -> Iterator[TestClient]:
    with make_client(Settings(gallery=doubtful.folder)) as client:
        yield client


@pytest.fixture
def asking(batching: TestClient, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """As if all batches were answered: only questions about two faces are left."""
    monkeypatch.setattr(Gallery, "batches", lambda *_arguments, **_options: [])
    return batching


def question_on(page: str) -> dict[str, str]:
    """Return the fields of the question on a page."""
    return dict(
        re.findall(
            r'<input type="hidden" name="(kind|\w+_face|first|second|skipped)" value="([^"]*)">',
            page,
        )
    )


def test_asks_most_valuable_question_first(asking: TestClient):
    page = asking.get("/questions").text
    question = question_on(page)
    assert (question["kind"], question["first"], question["second"]) == ("merge", "1", "2")
    assert re.search(r'src="/api/v1/faces/\d+/image\?side=512"', page)
    assert re.search(r'href="/photos/\d+\?face=\d+"', page)
    assert "%" not in page  # a probability would sway who answers


@pytest.mark.slow
@pytest.mark.parametrize(("same", "together"), [("true", True), ("false", False)])
def test_answer_is_applied_and_next_question_shown(asking: TestClient, doubtful: Store, same: str, together: bool):
    answer = post(asking, "/questions", **question_on(asking.get("/questions").text), same=same)
    assert redirect_of(answer)[0] == "/questions"
    assert (identity_of(doubtful, 1) == identity_of(doubtful, 5)) == together
    page = asking.get(answer.headers["location"]).text
    assert {question_on(page)["first"], question_on(page)["second"]} in ({"3", "4"}, {"5", "6"})


def test_joining_two_named_identities_opens_merge_page(asking: TestClient, doubtful: Store):
    corrections.name_identity(doubtful, 1, "Bella")
    corrections.name_identity(doubtful, 2, "Rex")
    question = question_on(asking.get("/questions").text)
    answer = post(asking, "/questions", **question, same="true")
    path, query = redirect_of(answer)
    assert (path, query["identity"]) == ("/individuals/merge", "1,2")
    assert query["back"] == "/questions"
    assert load_assignments(doubtful).names == {1: "Bella", 2: "Rex"}


def test_join_reports_merged_identity(asking: TestClient, doubtful: Store):
    corrections.name_identity(doubtful, 2, "Bella")
    answer = post(asking, "/questions", **question_on(asking.get("/questions").text), same="true")
    assert flash_of(asking, answer) == "Merged into Bella."


def test_join_reports_identity_of_unassigned_face(asking: TestClient, doubtful: Store):
    unassign(doubtful, [5, 8, 10])
    fields = {"kind": "merge", "first": "", "same": "true"}
    answer = post(asking, "/questions", **fields, first_face="5", second_face="1", second="1")
    assert flash_of(asking, answer) == "1 face moved to #1."
    answer = post(asking, "/questions", **fields, first_face="8", second_face="10", second="")
    assert flash_of(asking, answer) == f"2 faces split off as #{identity_of(doubtful, 8)}."


def test_skipped_question_is_not_asked_again(asking: TestClient, doubtful: Store):
    path, seen = "/questions", []
    for _ in range(3):
        page = asking.get(path).text
        seen.append(question_on(page)["first_face"])
        (path,) = (unescape(url) for url in re.findall(r'href="([^"]*)" data-key="k "', page))
    assert len(set(seen)) == 3
    end = asking.get(path).text
    assert "except 3 questions that you skipped" in end
    assert 'href="/questions">Ask them again' in end
    assert decisions(doubtful, 1)[0].kind == "cluster"


def test_skipped_questions_stay_skipped_after_answer(asking: TestClient):
    page = asking.get("/questions?skipped=3-7").text
    answer = post(asking, "/questions", **question_on(page), same="false")
    assert redirect_of(answer) == ("/questions", {"skipped": "3-7"})


def test_address_limits_number_of_skipped_questions(asking: TestClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(questions, "MAX_SKIPPED", 2)
    assert questions.questions_url("1-2_3-4_1-2", None, "5-6") == "/questions?skipped=3-4_5-6"
    assert asking.get("/questions?skipped=1-2_x").status_code == 422


@pytest.mark.slow
def test_ignores_answer_to_changed_question(asking: TestClient, doubtful: Store):
    question = question_on(asking.get("/questions").text)
    corrections.merge(doubtful, 2, [1])
    before = groups(doubtful)
    answer = post(asking, "/questions", **question, same="true")
    assert flash_of(asking, answer) == "That question was out of date; here is the next one."
    assert groups(doubtful) == before
    assert decisions(doubtful, 1)[0].kind == "merge"


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"first_face": "999"},
        {"second": "1"},
        {"kind": "outlier"},
        {"first": ""},
        {"kind": "outlier", "first_face": "5", "second_face": "5", "first": "2"},
    ],
)
def test_ignores_answer_to_tampered_question(asking: TestClient, doubtful: Store, change: dict[str, str]):
    question = question_on(asking.get("/questions").text) | change
    for same in ("true", "false"):
        assert redirect_of(post(asking, "/questions", **question, same=same))[1]["done"] == "changed"
    assert decisions(doubtful, 1)[0].kind == "cluster"


def test_negative_answer_removes_doubted_face(asking: TestClient, doubtful: Store):
    row = np.zeros((1, DIM), np.float32)
    row[0, 12], row[0, 13] = 0.3, 0.91**0.5
    faces = enroll_vectors(doubtful, np.concatenate([np.eye(DIM, dtype=np.float32)[[12] * 5], normalize(row)]), "odd")
    corrections.split(doubtful, faces, "Tom")
    with doubtful.write() as repository:
        repository.connection.execute("UPDATE assignments SET by_user = 0")
    page = asking.get("/questions").text
    assert "Is this Tom, too?" in page
    question = question_on(page)
    assert (question["kind"], question["first_face"]) == ("outlier", str(faces[-1]))
    post(asking, "/questions", **question, same="false")
    assert identity_of(doubtful, faces[-1]) == -1


def test_asks_whether_two_faces_of_one_individual_are_the_same(asking: TestClient, doubtful: Store):
    two = np.eye(DIM, dtype=np.float32)[[12] * 4 + [14] * 4]
    faces = enroll_vectors(doubtful, two, "two")
    corrections.split(doubtful, faces, "Tom")
    with doubtful.write() as repository:
        repository.connection.execute("UPDATE assignments SET by_user = 0")
    page = asking.get("/questions").text
    assert "Both in Tom: are they the same?" in page
    assert re.search(r"\d+ questions that matter", page)
    question = question_on(page)
    assert question["kind"] == "split"
    post(asking, "/questions", **question, same="false")
    assert frozenset(faces[:4]) in groups(doubtful)
    assert frozenset(faces[4:]) in groups(doubtful)


def test_reports_when_all_questions_are_answered(asking: TestClient):
    for _ in range(3):
        post(asking, "/questions", **question_on(asking.get("/questions").text), same="false")
    page = asking.get("/questions").text
    assert "All done." in page
    assert not question_on(page)


# --- Batches ----------------------------------------------------------------------------------------------------------


def batch_on(page: str) -> dict[str, list[str]]:
    """Return the fields of the batch on a page, ticked as the page has them."""
    fields: dict[str, list[str]] = {"same": re.findall(r'name="same" value="(\d+)"[^>]* checked', page)}
    for name, value in re.findall(
        r'<input type="hidden" name="(identity|member|candidate|state)" value="([^"]*)"', page
    ):
        fields.setdefault(name, []).append(value)
    return fields


def test_first_page_asks_who_the_largest_group_is_and_what_is_open(batching: TestClient, doubtful: Store):
    page = batching.get("/questions").text
    batch = batch_on(page)
    assert (batch["identity"], set(batch["member"])) == (["1"], {"1", "2", "3", "4"})
    assert batch["same"] == batch["member"], "its faces are ticked, those of the similar group are not"
    assert [identity_of(doubtful, int(face)) for face in batch["candidate"]] == [2]
    assert "Who is this?" in page
    assert "3 faces" in page, "of the similar group"
    assert "6 groups</a> have no name" in unescape(page)


def test_batch_is_answered_at_once(batching: TestClient, doubtful: Store):
    batch = batch_on(batching.get("/questions").text)
    answer = post(batching, "/questions/batch", **batch | {"same": [*batch["member"], *batch["candidate"]]}, name="Mia")
    assert redirect_of(answer)[0] == "/questions"
    assert load_assignments(doubtful).names == {1: "Mia"}
    assert frozenset(range(1, 8)) in groups(doubtful)
    assert batch_on(batching.get("/questions").text)["identity"] != ["1"]
    assert "Undo the answer" in batching.get(answer.headers["location"]).text


def test_group_that_stays_without_a_name_is_not_asked_about_at_once_again(batching: TestClient, doubtful: Store):
    answer = post(batching, "/questions/batch", **batch_on(batching.get("/questions").text))
    assert redirect_of(answer)[1]["skipped"] == "0-1"
    assert load_assignments(doubtful).names == {}
    assert batch_on(batching.get(answer.headers["location"]).text)["identity"] != ["1"]


def test_taken_name_asks_whether_both_are_the_same(batching: TestClient, doubtful: Store):
    corrections.name_identity(doubtful, 5, "Mia", confirm=True)
    answer = post(batching, "/questions/batch", **batch_on(batching.get("/questions").text), name="mia")
    path, query = redirect_of(answer)
    assert (path, query["identity"]) == ("/individuals/merge", "5,1")


def test_answer_to_batch_that_is_out_of_date_changes_nothing(batching: TestClient, doubtful: Store):
    batch = batch_on(batching.get("/questions").text)
    corrections.merge(doubtful, 2, [1])
    before = groups(doubtful)
    assert flash_of(batching, post(batching, "/questions/batch", **batch, name="Mia")) == (
        "That question was out of date; here is the next one."
    )
    assert (groups(doubtful), load_assignments(doubtful).names) == (before, {})


def test_species_restricts_questions_individuals_and_photos(batching: TestClient, doubtful: Store):
    assert 'aria-label="Species"' not in batching.get("/questions").text
    with doubtful.write() as repository:
        repository.connection.execute("UPDATE faces SET species = iif(id <= 7, 'person', 'dog')")
    page = batching.get("/questions?species=dog").text
    assert int(batch_on(page)["member"][0]) > 7
    assert re.search(r'species=dog" aria-current="page">Dogs <span class="badge">\d', page)
    assert 'People <span class="badge">2<' in batching.get("/individuals").text
    listed = batching.get("/individuals?tab=unnamed&species=person").text
    assert re.findall(r'id="individual-(\d+)"', listed) == ["1", "2"]
    assert len(re.findall(r'id="photo-\d+"', batching.get("/album?species=dog").text)) == 8
    answer = post(batching, "/questions/batch", **batch_on(page), name="Rex", species="dog")
    assert redirect_of(answer)[1]["species"] == "dog"
