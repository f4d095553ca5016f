"""The API over a gallery of red, green and blue: responses and errors."""

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from familiar.gallery.edits import corrections
from familiar.gallery.search import listing
from familiar.gallery.store.store import Store
from familiar.web.server import make_app
from familiar.web.service import Service
from familiar.web.settings import Settings

RED, GREEN, BLUE = 1, 2, 3
REDS, GREENS, BLUES = [1, 2, 3, 4], [5, 6, 7], [8, 9]


# Right but for one number.
QUESTION = b"""{"same": true, "question": {"kind": "merge", "first_face": 1, "second_face": 5, "first": 1, "second": 2,
"similarity": 0.5, "probability": 0.5, "expected_gain": NaN}}"""


@pytest.fixture
def gallery(folder: Path) -> Iterator[Store]:
    """A second connection to the server's gallery."""
    with Store.open(folder) as opened:
        yield opened


def get(client: TestClient, path: str, status: int = 200, **query: Any) -> Any:
    answer = client.get(f"/api/v1/{path}", params=query)
    assert answer.status_code == status, answer.text
    return answer.json()


def post(client: TestClient, path: str, status: int = 200, **body: Any) -> Any:
    answer = client.post(f"/api/v1/{path}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


def every(client: TestClient, path: str, **query: Any) -> list[Any]:
    """Return the items of all pages of a list."""
    page = get(client, path, **query)
    items = page["items"]
    while page["next"]:
        page = get(client, path, **query, cursor=page["next"])
        assert page["items"], "a part that is announced holds something"
        items += page["items"]
    return items


def identities_of(gallery: Store, faces: list[int]) -> list[int | None]:
    return [listing.face(gallery, face).identity for face in faces]


def test_gallery_endpoint_reports_counts_space_and_thresholds(client: TestClient, gallery: Store):
    state = get(client, "gallery")
    assert state["counts"] == {"photos": 9, "faces": 9, "named": 0, "unnamed": 3, "unassigned": 0}
    assert (state["space_id"], state["embedding_dim"], state["prefixes"]) == ("mean-color", 3, [3])
    assert state["thresholds"]["balanced"] == 0.9
    assert (state["revision"], state["read_only"], state["has_model"]) == (gallery.revision, False, True)


def test_model_endpoint_matches_bundle_metadata(client: TestClient, service: Service):
    model = get(client, "model")
    metadata = service.inference.embedder.metadata
    assert model["calibration"] == dataclasses.asdict(metadata.calibration)
    assert (model["network"], model["license"]) == (metadata.network, metadata.license)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 2, 4, 9, 500])
def test_paginated_list_is_complete_for_any_limit(client: TestClient, limit: int):
    assert [photo["photo"] for photo in every(client, "photos", limit=limit)] == list(range(1, 10))
    assert [item["identity"] for item in every(client, "identities", limit=limit)] == [RED, GREEN, BLUE]
    post(client, "faces/reject", faces=[1, 5])
    assert [face["face"] for face in every(client, "faces/unassigned", limit=limit)] == [1, 5]


def test_identities_are_filtered_by_named(client: TestClient):
    client.patch(f"/api/v1/identities/{GREEN}", json={"name": "Mia"})
    assert [item["name"] for item in every(client, "identities", named=True)] == ["Mia"]
    assert [item["identity"] for item in every(client, "identities", named=False, limit=1)] == [RED, BLUE]


def test_rejects_malformed_cursor_or_cursor_from_another_list(client: TestClient):
    photos_cursor = get(client, "photos", limit=1)["next"]
    identities_cursor = get(client, "identities", limit=1)["next"]
    for path, cursor, query in [
        ("identities", photos_cursor, {}),
        ("photos", identities_cursor, {}),
        ("identities", identities_cursor, {"named": False}),
        ("identities/2/faces", get(client, "identities/1/faces", limit=1)["next"], {}),
        ("photos", "WyJwaG90b3MiLCAtMV0", {}),  # ["photos", -1]
        ("photos", "WyJwaG90b3MiLCB0cnVlXQ", {}),  # ["photos", true]
        ("photos", "W" * 300, {}),
        ("photos", "ä", {}),
        ("photos", "", {}),
    ]:
        problem = get(client, path, 422, cursor=cursor, **query)
        assert problem["type"] == "urn:familiar:problem:invalid-cursor", (path, cursor)


def test_identity_faces_are_sorted_by_similarity(client: TestClient, gallery: Store):
    results = every(client, f"identities/{RED}/faces", limit=3)
    assert [item["face"]["face"] for item in results] == [
        item.face.face for item in listing.face_confidences(gallery, RED)
    ]
    assert [item["similarity"] for item in results] == sorted((item["similarity"] for item in results), reverse=True)
    item = get(client, f"identities/{RED}")
    assert (item["faces"], item["confirmed"]) == (4, 0)
    assert set(item["best"]) == set(REDS)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["photos", "faces", "identities"])
@pytest.mark.parametrize(
    ("number", "status"), [("99", 404), (2**53 - 1, 404), (2**53, 422), (2**63, 422), (0, 422), ("x", 422)]
)
def test_missing_number_returns_404_and_invalid_number_422(client: TestClient, path: str, number: Any, status: int):
    assert get(client, f"{path}/{number}", status)["status"] == status


def test_name_is_stored_completed_and_unique(client: TestClient):
    named = client.patch(f"/api/v1/identities/{RED}", json={"name": " Mia ", "confirm": True})
    assert named.json() == {"identity": RED, "propagated_faces": 0}
    item = get(client, f"identities/{RED}")
    assert (item["name"], item["confirmed"]) == ("Mia", 4)
    assert get(client, "names", prefix="mI") == ["Mia"]
    assert get(client, "names", prefix="x") == []
    taken = client.patch(f"/api/v1/identities/{GREEN}", json={"name": "Mia"})
    assert (taken.status_code, taken.json()["type"]) == (409, "urn:familiar:problem:contradiction")


def test_a_name_is_known_by_any_spelling(client: TestClient):
    for typed, name in (("Jose\u0301", "Jos\u00e9"), ("\u202eMi\u00ada\u3000Maus", "Mia Maus"), ("\ue000", "\ue000")):
        assert client.patch(f"/api/v1/identities/{RED}", json={"name": typed}).status_code == 200
        assert get(client, f"identities/{RED}")["name"] == name
        assert get(client, "names", prefix=typed) == [name]
        assert client.patch(f"/api/v1/identities/{GREEN}", json={"name": name}).status_code == 409
        assert client.patch(f"/api/v1/identities/{GREEN}", json={"name": typed}).status_code == 409
    refused = client.patch(f"/api/v1/identities/{RED}", json={"name": "Mia\a"}).json()
    assert "it has the control character U+0007 (bell)" in refused["detail"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "status"),
    [("\0", 409), ("Mia\n", 200), ("M\nia", 409), ("#12", 409), (" ", 409), ("\u200b", 409), ("", 422)],
)
def test_rejects_invalid_names_but_accepts_trailing_newline(client: TestClient, name: str, status: int):
    assert client.patch(f"/api/v1/identities/{RED}", json={"name": name}).status_code == status


def test_rejects_invalid_json_values(client: TestClient):
    head = {"content-type": "application/json"}
    for path, body in [
        ("faces/split", b'{"faces": [1], "name": "\\ud800"}'),
        ("faces/split", b'{"faces": [1], "\\udfff": 1}'),
        ("cluster", b'{"threshold": NaN}'),
        ("cluster", b'{"threshold": Infinity}'),
        ("search", b'{"embedding": [NaN, 0, 0]}'),
        ("search", b'{"embedding": [1e999, 0, 0]}'),
        ("questions/answer", QUESTION),
        ("search", b'{"face": 1' + b"0" * 5000 + b"}"),
        ("search", b"[" * 100_000),
        ("search", b'{"face": "1"}'),
        ("search", b'{"face": true}'),
        ("search", b'{"face": 1, "wit": 2}'),
    ]:
        answer = client.post(f"/api/v1/{path}", content=body, headers=head)
        assert answer.status_code in (400, 422), (path, body[:60], answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
    assert client.post("/api/v1/search", content=b'{"face": 1.0}', headers=head).status_code == 200


def test_validation_error_names_field_without_its_value(client: TestClient):
    problem = post(client, "faces/split", 422, faces=[1], name=["a secret"])
    assert "body/name" in problem["detail"]
    assert "secret" not in json.dumps(problem)


def test_corrections_update_gallery(client: TestClient, gallery: Store):
    post(client, "faces/confirm", 204, faces=[1, 1, 2])
    assert [listing.face(gallery, face).by_user for face in (1, 2, 3)] == [True, True, False]
    assert post(client, "faces/move", faces=[9], identity=GREEN)["identity"] == GREEN
    assert identities_of(gallery, [9]) == [GREEN]
    new = post(client, "faces/split", faces=[9], name="Ida")["identity"]
    assert identities_of(gallery, [8, 9]) == [BLUE, new]
    assert post(client, "faces/reject", faces=[9])["identity"] == new
    assert identities_of(gallery, [9]) == [None]
    assert post(client, f"identities/{RED}/merge", identities=[GREEN]) == {"identity": RED, "propagated_faces": 0}
    assert identities_of(gallery, [*REDS, *GREENS]) == [RED] * 7
    post(client, "faces/mark-different", 204, first_face=1, second_face=8)
    assert post(client, "faces/mark-different", 409, first_face=1, second_face=1)["status"] == 409
    post(client, "faces/move", 404, faces=[99], identity=RED)
    post(client, "faces/move", 404, faces=[1], identity=99)


def test_one_identity_twice_in_a_photo_needs_a_word(client: TestClient, gallery: Store):
    with gallery.write(faces_change=True) as repository:
        repository.connection.execute("UPDATE faces SET photo_id = 1 WHERE id = 5")
    corrections_of_photo: list[tuple[str, dict[str, Any]]] = [
        ("faces/move", {"faces": [5], "identity": RED}),
        ("faces/split", {"faces": [1, 5]}),
        (f"identities/{RED}/merge", {"identities": [GREEN]}),
    ]
    for path, body in corrections_of_photo:
        assert post(client, path, 409, **body)["type"] == "urn:familiar:problem:shared-photo"
        identity = post(client, path, **body, same_photo=True)["identity"]
        assert identities_of(gallery, [1, 5]) == [identity, identity]
        post(client, "undo")


def test_undo_reverts_last_decision(client: TestClient, gallery: Store):
    post(client, f"identities/{RED}/merge", identities=[GREEN])
    assert [item["kind"] for item in get(client, "decisions")] == ["merge", "cluster"]
    number = client.get("/api/v1/decisions").json()[0]["number"]
    assert "merge" in post(client, f"undo?decision={number - 1}", 409)["detail"], "another was the last"
    assert post(client, f"undo?decision={number}")["kind"] == "merge"
    assert identities_of(gallery, GREENS) == [GREEN] * 3
    assert post(client, "undo")["kind"] == "cluster"
    assert post(client, "undo", 404)["type"] == "urn:familiar:problem:not-in-gallery"


def test_cluster_assigns_unassigned_faces(client: TestClient, gallery: Store):
    post(client, "undo")
    assert identities_of(gallery, REDS) == [None] * 4
    grouped = post(client, "cluster", threshold=0.9)
    assert (grouped["identities"], grouped["faces"], grouped["unassigned"]) == (3, 9, 0)
    assert len(set(identities_of(gallery, REDS))) == 1
    post(client, "cluster", 422, threshold=1.5)


def test_answered_question_is_not_asked_again(client: TestClient, gallery: Store):
    question = get(client, "questions", limit=1)[0]
    assert question["kind"] == "outlier"
    post(client, "questions/answer", 204, question=question, same=True)
    assert listing.face(gallery, question["first_face"]).by_user
    assert question not in get(client, "questions", limit=100)


def test_rejects_answer_to_outdated_question(client: TestClient, gallery: Store):
    question = get(client, "questions", limit=1)[0]
    corrections.split(gallery, [question["first_face"]])
    before = gallery.revision
    problem = post(client, "questions/answer", 409, question=question, same=False)
    assert "changed since" in problem["detail"]
    assert gallery.revision == before
    post(client, "questions/answer", 404, question=question | {"first_face": 99}, same=True)


def test_answered_batch_names_its_individual_and_takes_out_the_others(client: TestClient, gallery: Store):
    batch = get(client, "batches", limit=1)[0]
    assert (batch["identity"], set(batch["members"]), batch["candidates"]) == (RED, set(REDS), [])
    post(client, "batches/answer", 204, batch=batch, same=[1, 2, 3], name="Mia")
    assert (listing.face(gallery, 1).name, listing.face(gallery, 1).by_user) == ("Mia", True)
    assert identities_of(gallery, [3, 4]) == [RED, None]
    assert "changed since" in post(client, "batches/answer", 409, batch=batch, same=[1])["detail"]
    green = get(client, "batches", limit=1)[0]
    assert post(client, "batches/answer", 409, batch=green, same=GREENS, name="Mia")["status"] == 409, "taken"
    post(client, "batches/answer", 404, batch=green | {"members": [99]}, same=[])
    post(client, "batches/answer", 422, batch=green | {"members": [0]}, same=[])
    post(client, "undo")
    assert identities_of(gallery, [4]) == [RED]


def test_search_returns_photos_identities_and_known_identity(client: TestClient):
    answers = post(client, "search", embedding=[1.0, 0.0, 0.0], k=4)
    assert {hit["identity"] for hit in answers["photos"]} == {RED}
    assert answers["identities"][0]["identity"] == RED
    assert answers["known"]["identity"] == RED
    assert post(client, "search", embedding=[-1.0, 0.0, 0.0])["known"] is None
    same = post(client, "search", face=5)
    assert same["known"]["identity"] == GREEN
    assert {same["photos"][0]["face"], same["photos"][1]["face"]} <= set(GREENS)


def test_search_respects_by_only_and_prefix_options(client: TestClient):
    photos = post(client, "search", face=1, by="photo")
    assert (photos["known"], photos["identities"], len(photos["photos"])) == (None, [], 9)
    identities = post(client, "search", face=1, by="identity")
    assert (identities["photos"], len(identities["identities"])) == ([], 3)
    only = post(client, "search", face=1, filter={"identities": [GREEN, BLUE]})
    assert {hit["identity"] for hit in only["photos"]} == {GREEN, BLUE}
    assert {match["identity"] for match in only["identities"]} == {GREEN, BLUE}
    assert post(client, "search", face=1, filter={"identities": []})["photos"] == []
    assert post(client, "search", face=1, filter={"species": "cat", "since": "2024-06"})["photos"] == []
    assert len(post(client, "search", face=1, prefix=3)["photos"]) == 9


def test_search_takes_embeddings_of_any_valid_length(client: TestClient, settings: Settings):
    with Store.open(settings.gallery) as gallery:
        embedding = gallery.faces().unit_rows()[4]
        with gallery.write() as repository:
            repository.settings.replace_space(dataclasses.replace(gallery.space, prefixes=(2, 3)))
    whole = post(client, "search", embedding=embedding.tolist())
    short = embedding[:2] / np.linalg.norm(embedding[:2])
    answer = post(client, "search", embedding=short.tolist())
    assert answer["photos"][0]["similarity"] == pytest.approx(1, abs=1e-3)
    assert whole["photos"][0]["face"] in {hit["face"] for hit in answer["photos"][:3]}
    assert post(client, "search", 422, embedding=[1.0])["type"] == "urn:familiar:problem:invalid-embedding"
    assert "2 or 3 dimensions, got 4" in post(client, "search", 422, embedding=[1.0, 0.0, 0.0, 0.0])["detail"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({}, "invalid"),
        ({"face": 1, "embedding": [1.0, 0.0, 0.0]}, "invalid"),
        ({"embedding": [1.0, 1.0, 0.0]}, "invalid-embedding"),
        ({"embedding": [0.0, 0.0, 0.0]}, "invalid-embedding"),
        ({"embedding": [1.0, 0.0]}, "invalid-embedding"),
        ({"embedding": [1e30, 0.0, 0.0]}, "invalid"),
        ({"face": 1, "prefix": 2}, "invalid-prefix"),
        ({"face": 1, "k": 0}, "invalid"),
        ({"face": 1, "k": 1001}, "invalid"),
        ({"face": 1, "filter": {"since": "yesterday"}}, "invalid"),
        ({"face": 1, "filter": {"since": "٢٠٢٤"}}, "invalid"),
    ],
)
def test_rejects_invalid_search(client: TestClient, body: dict[str, Any], kind: str):
    assert post(client, "search", 422, **body)["type"] == f"urn:familiar:problem:{kind}"


def test_read_only_server_rejects_writes(settings: Settings):
    app = make_app(Service(dataclasses.replace(settings, read_only=True)))
    with TestClient(app, base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5000)) as client:
        assert get(client, "gallery")["read_only"] is True
        assert len(post(client, "search", face=1)["photos"]) == 9
        for method, path, body in [
            ("POST", "faces/confirm", {"faces": [1]}),
            ("POST", "undo", None),
            ("POST", "cluster", {}),
            ("PATCH", "identities/1", {"name": "Mia"}),
            ("DELETE", "faces/1", None),
            ("PUT", "faces/1/box", {"box_xyxy_px": [0, 0, 16, 16]}),
            ("POST", "photos/folder", {"folder": "."}),
        ]:
            answer = client.request(method, f"/api/v1/{path}", json=body)
            assert (answer.status_code, answer.json()["type"][-9:]) == (403, "read-only"), path


def test_without_model_rejects_only_requests_that_need_it(settings: Settings, photos: list[Path]):
    app = make_app(Service(dataclasses.replace(settings, models=())))
    with TestClient(app, base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5000)) as client:
        assert get(client, "gallery")["has_model"] is False
        get(client, "model", 409)
        sent = [("files", ("red.png", photos[0].read_bytes()))]
        assert client.post("/api/v1/detect", files=sent).status_code == 200
        for path in ("embed", "photos"):
            answer = client.post(f"/api/v1/{path}", files=sent)
            assert (answer.status_code, answer.json()["type"]) == (409, "urn:familiar:problem:no-model")
        post(client, "photos/1/faces", 409, box_xyxy_px=[0, 0, 16, 16])
        post(client, "faces/confirm", 204, faces=[1])


def test_unsupported_method_returns_405_with_allow_header(client: TestClient):
    for path, allowed in [("photos", "GET, POST"), ("faces/confirm", "POST"), ("faces/1", "DELETE, GET")]:
        answer = client.request("PROPFIND", f"/api/v1/{path}")
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert client.get("/api/v1/faces/confirm").status_code == 405


def test_openapi_describes_every_operation(client: TestClient):
    document = get(client, "openapi.json")
    ids: list[str] = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            ids.append(operation["operationId"])
            assert operation["description"], path
            assert len(operation["tags"]) == 1, path
            refusals = {code: body for code, body in operation["responses"].items() if code[0] in "45"}
            assert {"400", "401", "403", "413", "422", "429", "503"} <= set(refusals), path
            assert all(list(body["content"]) == ["application/problem+json"] for body in refusals.values())
            assert ("507" in refusals) == (method != "get" and "409" in refusals), path
            assert ("{" not in path) or "404" in refusals, path
    assert len(set(ids)) == len(ids) == 41
    shapes = document["components"]["schemas"]
    assert set(re.findall('#/components/schemas/([^"]+)', json.dumps(document))) <= set(shapes)
    assert set(shapes["Problem"]["properties"]) == {"type", "title", "status", "detail"}
    assert all(name.isidentifier() for name in ids)
