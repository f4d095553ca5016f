"""Immich's machine-learning contract: requests as its server builds them, and what it reads from the answers."""

import contextlib
import json
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from familiar.core.errors import FamiliarError
from familiar.core.vectors import normalize
from familiar.detection import faces
from familiar.embedding.bundle import load_bundle
from familiar.embedding.verification import verify_embeddings
from familiar.integrations.immich.entries import ImmichError, parse_entries
from familiar.integrations.immich.recognition import MIN_SCORE, immich_score
from familiar.integrations.immich.service import parse_models
from familiar.integrations.immich.vectors import STORED_NUMBERS, Block, make_blocks
from familiar.neighbors import Comparison
from familiar.web.immich import ImmichSettings, make_immich_app
from support.color_album import draw_album
from support.mean_color_bundle import CALIBRATED, write_mean_color_bundle

FACES = {
    "facial-recognition": {
        "detection": {"modelName": "buffalo_l", "options": {"minScore": 0.7}},
        "recognition": {"modelName": "buffalo_l"},
    }
}
CLIP = {"clip": {"textual": {"modelName": "ViT-B-32__openai", "options": {"language": "en"}}}}

Serve = Callable[..., TestClient]


@pytest.fixture
def serve(mean_color_bundle: Path) -> Iterator[Serve]:
    """Start a server with the mean-color model, which takes a photo for a face."""
    running: list[TestClient] = []

    def start(**changes: Any) -> TestClient:
        settings = ImmichSettings(**{"models": {"": [mean_color_bundle]}, "detector": "none"} | changes)
        client = TestClient(make_immich_app(settings), base_url="http://127.0.0.1:3003", client=("127.0.0.1", 5000))
        running.append(client.__enter__())
        return client

    yield start
    for client in running:
        client.__exit__(None, None, None)


@pytest.fixture
def photo(tmp_path: Path) -> bytes:
    return draw_album(tmp_path / "album", red=1)[0].read_bytes()


def ask(client: TestClient, entries: Any, photo: bytes | None = None, text: str | None = None) -> Any:
    """Send a request as Immich does: the photo is a blob without a name of its own."""
    parts: dict[str, Any] = {"entries": (None, entries if isinstance(entries, str) else json.dumps(entries))}
    if text is not None:
        parts["text"] = (None, text)
    if photo is not None:
        parts["image"] = ("blob", photo, "application/octet-stream")
    return client.post("/predict", files=parts)


def test_health_checks(serve: Serve):
    client = serve()
    assert (client.get("/ping").status_code, client.get("/ping").text) == (200, "pong")
    assert list(client.get("/").json()) == ["message"]


def test_faces_of_a_photo(serve: Serve, photo: bytes):
    answer = ask(serve(), FACES, photo)
    assert answer.status_code == 200
    body = answer.json()
    assert set(body) == {"facial-recognition", "imageHeight", "imageWidth"}
    (face,) = body["facial-recognition"]
    assert face["boundingBox"] == {"x1": 0, "y1": 0, "x2": body["imageWidth"], "y2": body["imageHeight"]}
    assert all(type(value) is int for value in face["boundingBox"].values())
    assert isinstance(face["embedding"], str)
    numbers = json.loads(face["embedding"])
    assert len(numbers) == STORED_NUMBERS
    assert np.linalg.norm(numbers) == pytest.approx(1, abs=1e-5)
    assert 0.7 <= face["score"] <= 1


def test_a_photo_without_faces(serve: Serve, photo: bytes):
    demanding = json.loads(json.dumps(FACES))
    demanding["facial-recognition"]["detection"]["options"]["minScore"] = 1
    client = serve(detector="auto")
    assert ask(client, FACES, photo).json()["facial-recognition"] == []
    assert ask(client, demanding, photo).json()["facial-recognition"] == []


def distance(first: str, second: str) -> float:
    """Compute what Immich's database compares with its limit."""
    return 1 - float(np.dot(json.loads(first), json.loads(second)))


def test_two_spaces_never_match(serve: Serve, photo: bytes, tmp_path: Path, mean_color_bundle: Path):
    other = write_mean_color_bundle(tmp_path / "other.onnx", CALIBRATED, space_id="other")
    client = serve(models={"people": [mean_color_bundle], "pets": [other]})
    named = [json.loads(json.dumps(FACES).replace("buffalo_l", name)) for name in ("people", "pets")]
    first, second = (ask(client, each, photo).json()["facial-recognition"][0]["embedding"] for each in named)
    assert distance(first, second) == pytest.approx(1)
    assert distance(first, first) == pytest.approx(0, abs=1e-5)
    unknown = ask(client, FACES, photo)
    assert unknown.status_code == 500
    assert "people, pets" in unknown.json()["detail"]


@given(st.floats(0.01, 0.5), st.floats(-1, 1), st.integers(2, 400), st.integers(0, 100))
def test_a_low_threshold_becomes_a_distance_of_one_half_exactly(threshold: float, cosine: float, dim: int, start: int):
    block = Block(start, dim, threshold)
    first, second = np.zeros((2, dim), np.float32)
    first[0], second[0], second[1] = 1, cosine, math.sqrt(1 - cosine**2)
    stored = block.store(first), block.store(second)
    assert all(np.linalg.norm(each) == pytest.approx(1, abs=1e-5) for each in stored)
    mapped = float(stored[0] @ stored[1])
    assert (mapped >= 0.5 - 1e-5) if cosine >= threshold else (mapped <= 0.5 + 1e-5)
    assert mapped == pytest.approx(1 - (1 - cosine) * 0.5 / (1 - threshold), abs=1e-5)
    assert not stored[0][: block.start].any()
    assert not stored[0][block.end :].any()


@given(st.floats(0.51, 0.95), st.integers(0, 1000))
def test_a_high_threshold_becomes_a_distance_of_about_one_half(threshold: float, seed: int):
    generator = np.random.default_rng(seed)
    rows = normalize(generator.normal(size=(2, 100)).astype(np.float32))
    across = normalize((rows[1] - (rows[1] @ rows[0]) * rows[0])[None])[0]
    near = (threshold * rows[0] + math.sqrt(1 - threshold**2) * across).astype(np.float32)
    block = Block(7, 100, threshold)
    assert float(block.store(rows[0]) @ block.store(near)) == pytest.approx(
        0.5, abs=5 * (1 - 0.5 / threshold) / math.sqrt(80)
    )
    assert float(block.store(near) @ block.store(near)) == pytest.approx(1, abs=1e-5)


@given(st.floats(0.51, 0.8), st.floats(0.05, 0.2), st.integers(0, 1000))
def test_a_high_threshold_is_lowered_by_the_mean_of_the_species(threshold: float, longer: float, seed: int):
    """Exactly, for two embeddings whose similarity to the mean is the average."""
    generator = np.random.default_rng(seed)
    axes = np.linalg.qr(generator.normal(size=(20, 3)))[0].T
    square = 2 * threshold - 1 + longer
    mean = math.sqrt(square) * axes[0]
    cosine = (threshold - square) / (1 - square)  # of what two embeddings have besides the mean
    rest = axes[1], cosine * axes[1] + math.sqrt(1 - cosine**2) * axes[2]
    first, second = ((mean + math.sqrt(1 - square) * each).astype(np.float32) for each in rest)
    assert float(first @ second) == pytest.approx(threshold, abs=1e-6)
    block = Block(3, 20, threshold, np.stack([mean, -mean]))
    assert block.end == 23
    assert float(block.store(first) @ block.store(second)) == pytest.approx(0.5, abs=1e-5)
    too_short = Block(3, 20, threshold, 0.1 * mean[None])
    assert too_short.end == 103


def test_shipped_models_for_people_and_pets_fit_together():
    blocks = make_blocks([load_bundle("person-mobile"), load_bundle("pet-nano"), load_bundle("person-mobile")])
    (people, pets) = blocks.values()
    assert people.start == 0
    assert people.end == pets.start < pets.end <= STORED_NUMBERS
    with pytest.raises(FamiliarError, match=r"pet-mobile.* 640 numbers do not fit .*pet-nano"):
        make_blocks([load_bundle("pet-mobile")])


def test_threshold_is_that_of_a_pair_of_faces(monkeypatch: pytest.MonkeyPatch):
    bundle = load_bundle("person-mobile")
    expected = bundle.metadata.calibration.balanced.similarity
    assert [block.threshold for block in make_blocks([bundle]).values()] == [expected]
    monkeypatch.setattr(Comparison, "pair_threshold", 0.3)  # which `verify` asks too
    assert [block.threshold for block in make_blocks([bundle]).values()] == [0.3]
    faces = np.array([[1, 0], [0.31, math.sqrt(1 - 0.31**2)], [0.29, math.sqrt(1 - 0.29**2)]], np.float32)
    decisions = [verify_embeddings(faces[0], each, bundle.metadata.calibration) for each in faces[1:]]
    assert [decision.same for decision in decisions] == [True, False]


@given(st.floats(0, 1), st.floats(0, 1))
def test_scores_keep_their_order(first: float, second: float):
    assert (immich_score(first) <= immich_score(second)) == (first <= second) or immich_score(first) == immich_score(
        second
    )
    assert 0 <= immich_score(first) <= 1


@pytest.mark.parametrize(
    ("entries", "status"),
    [
        ("{", 422),
        ("[" * 100_000, 422),
        ("[]", 422),
        ("{}", 422),
        ({"faces": {}}, 422),
        ({"facial-recognition": []}, 422),
        ({"facial-recognition": {"detection": {}}}, 422),
        ({"facial-recognition": {"detection": {"modelName": 3}}}, 422),
        ({"facial-recognition": {"detection": {"modelName": "a"}}}, 400),
        (json.loads(json.dumps(FACES).replace("0.7", '"high"')), 422),
        (json.loads(json.dumps(FACES).replace("0.7", "7")), 422),
    ],
)
def test_malformed_entries(serve: Serve, photo: bytes, entries: Any, status: int):
    assert ask(serve(), entries, photo).status_code == status


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["facial-recognition", "clip", "detection", "recognition", "modelName", "options", "x"]
                ),
                inner,
                max_size=3,
            )
        ),
        max_leaves=12,
    )
)
def test_any_entries_are_parsed_or_refused(entries: Any):
    with contextlib.suppress(ImmichError):
        parse_entries(json.dumps(entries))


def test_malformed_requests(serve: Serve, photo: bytes):
    client = serve()
    assert ask(client, FACES).status_code == 400
    assert ask(client, FACES, text="a cat").status_code == 400
    assert client.post("/predict", files={"image": ("blob", photo)}).status_code == 422
    assert client.post("/predict", content=b"x", headers={"content-type": "multipart/form-data"}).status_code == 400
    assert ask(client, FACES, b"no photo").status_code == 415
    assert ask(client, FACES, photo[: len(photo) // 2]).status_code == 422
    assert client.get("/predict").status_code == 405
    assert client.get("/api/v1/photos").status_code == 404


def test_concurrent_requests_get_their_own_faces(serve: Serve, tmp_path: Path):
    client = serve()
    photos = [path.read_bytes() for path in draw_album(tmp_path / "several", red=4, green=4, blue=4)]
    one_by_one = [ask(client, FACES, photo).json() for photo in photos]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda photo: ask(client, FACES, photo).json(), photos * 4))
    assert together == one_by_one * 4


def test_other_tasks_go_upstream(serve: Serve, photo: bytes, upstream: tuple[str, list[bytes]]):
    url, bodies = upstream
    client = serve(upstream=url)
    assert ask(client, CLIP, text="a cat").json()["clip"] == "[0.5]"
    assert b"a cat" in bodies[0]
    assert b"facial-recognition" not in bodies[0]
    both = ask(client, FACES | {"clip": {"visual": {"modelName": "ViT"}}}, photo).json()
    assert both["clip"] == "[0.5]"
    assert len(both["facial-recognition"]) == 1
    assert both["imageHeight"] > 1
    assert photo in bodies[1]
    assert ask(client, CLIP, text="broken").status_code == 500
    ask(client, FACES, photo)
    assert len(bodies) == 3
    for text in ("proxy", "moved", "deep"):  # statuses and answers that nobody knows
        assert ask(client, CLIP, text=text).status_code == 502


def test_without_an_upstream_other_tasks_are_refused(serve: Serve, photo: bytes):
    refused = ask(serve(), CLIP, text="a cat")
    assert refused.status_code == 501
    assert "--upstream" in refused.json()["detail"]
    unreachable = ask(serve(upstream="http://127.0.0.1:9"), CLIP, text="a cat")
    assert unreachable.status_code == 502
    assert ask(serve(upstream="http://127.0.0.1:9"), FACES, photo).status_code == 200


def test_a_token_is_needed_off_this_machine(serve: Serve, photo: bytes):
    with pytest.raises(FamiliarError, match="can be reached by others"):
        ImmichSettings(address="0.0.0.0")
    token = "t" * 16
    client = serve(token=token)
    assert client.get("/ping").status_code == 200, "Immich's health check sends no token"
    assert ask(client, FACES, photo).status_code == 401
    client.headers["Authorization"] = f"Bearer {token}"
    assert ask(client, FACES, photo).status_code == 200
    trusted = serve(address="0.0.0.0", trusted_network=True, hosts=("familiar",))
    assert ask(trusted, FACES, photo).status_code == 200
    trusted.headers["Host"] = "familiar:3003"
    assert ask(trusted, FACES, photo).status_code == 200
    trusted.headers["Host"] = "elsewhere.example"
    assert ask(trusted, FACES, photo).status_code == 421


def test_a_page_of_another_site_cannot_use_it(serve: Serve, photo: bytes):
    client = serve()
    client.headers["Origin"] = "https://elsewhere.example"
    assert ask(client, FACES, photo).status_code == 403


def test_models_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("a=b.onnx").touch()
    assert parse_models(["x=a", "b", "x=c", "a=b.onnx"]) == {
        "x": [Path("a"), Path("c")],
        "": [Path("b"), Path("a=b.onnx")],
    }


def test_scale_of_scores_begins_at_the_lowest_score_of_the_detectors():
    assert MIN_SCORE == faces.MIN_SCORE
