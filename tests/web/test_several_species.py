"""A server with several bundles: red squares are cats, green ones dogs, and for blue ones there is no bundle."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from familiar.detection.detectors import DETECTORS, DetectorSpec
from familiar.web.server import make_app
from familiar.web.service import Service
from familiar.web.settings import Settings
from support import color_album
from support.colored_species import ByColor, tiny_species
from support.html import Page, post_compare, post_search, text_of
from support.mean_color_bundle import CALIBRATED, write_mean_color_bundle

COUNTS = {"red": 3, "green": 3, "blue": 1}


@pytest.fixture
def pictures(tmp_path: Path) -> dict[str, Path]:
    return {path.stem: path for path in color_album.draw_album(tmp_path / "pictures", **COUNTS)}


@pytest.fixture
def client(tmp_path: Path, pictures: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """A client of a server that has just created its gallery and enrolled the pictures."""
    pets = tiny_species(write_mean_color_bundle(tmp_path / "features.onnx", CALIBRATED), tmp_path)
    monkeypatch.setitem(DETECTORS, "by-color", DetectorSpec("by color", ByColor))
    settings = Settings(
        gallery=tmp_path / "album", models=pets.names, detector="by-color", roots=(tmp_path / "pictures",)
    )
    with TestClient(
        make_app(Service(settings)), base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5000)
    ) as client:
        files = [("files", (path.name, path.read_bytes())) for path in pictures.values()]
        job = client.post("/api/v1/photos", files=files).json()
        while job["state"] not in ("done", "failed"):
            job = client.get(f"/api/v1/jobs/{job['number']}").json()
        assert (job["photos"], job["faces"], job["skipped_count"]) == (7, 6, 1), job
        assert (job["without_face"], job["without_bundle"]) == (0, 1)
        assert "no bundle for person" in job["skipped"][0]["reason"]
        yield client


def upload(client: TestClient, operation: str, **files: Path):
    return client.post(f"/api/v1/{operation}", files={name: path.read_bytes() for name, path in files.items()})


def test_gallery_has_the_species(client: TestClient):
    state = client.get("/api/v1/gallery").json()
    assert (state["embedding_dim"], state["prefixes"]) == (27 + 48, [])
    assert {face["species"] for photo in client.get("/api/v1/photos").json()["items"] for face in photo["faces"]} == {
        "cat",
        "dog",
    }
    assert "cat" in text_of(client.get("/model"))


@pytest.mark.parametrize("url", ["/album", "/questions", "/individuals?tab=unnamed"])
def test_tabs_of_species_keep_the_rest_of_the_address(client: TestClient, url: str):
    client.post("/api/v1/cluster", json={"threshold": 0.9})
    tabs = [each["href"] for each in Page(client.get(url).text).all("a") if "species=" in each.get("href", "")]
    separator = "&" if "?" in url else "?"
    assert tabs == [f"{url}{separator}species=cat", f"{url}{separator}species=dog"]
    assert 'aria-current="page">Cat' in client.get(tabs[0]).text


def test_lists_and_search_show_one_species(client: TestClient, pictures: dict[str, Path]):
    client.post("/api/v1/cluster", json={"threshold": 0.9})
    species_of = {face["face"]: face["species"] for face in items(client, "photos", "faces")}
    for species in ("cat", "dog"):
        (individual,) = items(client, f"identities?species={species}")
        assert {species_of[face] for face in individual["best"]} == {species}
        assert [batch["identity"] for batch in client.get(f"/api/v1/batches?species={species}").json()] == [
            individual["identity"]
        ]
        for question in client.get(f"/api/v1/questions?species={species}").json():
            assert species_of[question["first_face"]] == species
        answer = client.post(
            f"/api/v1/search/photo?species={species}", files={"photo": pictures["red1"].read_bytes()}
        ).json()
        assert {species_of[hit["face"]] for hit in answer["photos"]} == ({"cat"} if species == "cat" else set())
        client.post("/api/v1/faces/reject", json={"faces": individual["best"][:1]})
        unassigned = items(client, f"faces/unassigned?species={species}")
        assert [face["species"] for face in unassigned] == [species]


def items(client: TestClient, path: str, part: str | None = None) -> list[dict[str, Any]]:
    """List the items of the first page of a list, or the parts of all of them."""
    page = client.get(f"/api/v1/{path}").json()["items"]
    return page if part is None else [each for item in page for each in item[part]]


def test_search_and_verify_compare_within_a_species(client: TestClient, pictures: dict[str, Path]):
    hits = upload(client, "search/photo", photo=pictures["red1"]).json()["photos"]
    assert len(hits) == 3
    assert hits[0]["similarity"] == pytest.approx(1.0, abs=1e-3)
    pair = upload(client, "verify", first=pictures["red1"], second=pictures["red2"]).json()
    assert (pair["same"], pair["first"]["species"], pair["second"]["species"]) == (True, "cat", "cat")
    different = upload(client, "verify", first=pictures["red1"], second=pictures["green1"]).json()
    assert (different["same"], different["similarity"]) == (False, 0.0)
    assert different["second"]["species"] == "dog"


def test_face_without_a_bundle_is_an_error_that_names_its_species(client: TestClient, pictures: dict[str, Path]):
    answer = upload(client, "search/photo", photo=pictures["blue1"])
    assert answer.status_code == 422
    assert "no bundle for person" in answer.json()["detail"]
    embedded = client.post(
        "/api/v1/embed", files=[("files", (name, pictures[name].read_bytes())) for name in ("blue1", "red1")]
    ).json()
    assert [photo["name"] for photo in embedded["photos"]] == ["red1"]
    assert "no bundle for person" in embedded["skipped"][0]
    assert embedded["photos"][0]["faces"][0]["species"] == "cat"
    assert len(embedded["photos"][0]["faces"][0]["embedding"]) == 27 + 48


def test_pages_search_and_compare(client: TestClient, pictures: dict[str, Path]):
    assert "Matching photos" in text_of(post_search(client, pictures["green1"]))
    assert "no bundle for person" in post_search(client, pictures["blue1"]).text
    assert "Matching photos" in text_of(post_search(client, pictures["green1"], species="dog"))
    assert "No cat was found." in text_of(post_search(client, pictures["green1"], species="cat"))
    assert [option["value"] for option in Page(client.get("/search").text).all("option")] == ["", "cat", "dog"]
    assert "Two different individuals" in text_of(post_compare(client, pictures["red1"], pictures["green1"]))


def test_model_is_described_by_species(client: TestClient):
    dog = client.get("/api/v1/model", params={"species": "dog"}).json()
    assert (dog["species"], dog["embedding_dim"]) == (["dog"], 48)
    assert client.get("/api/v1/model").json()["species"] == ["cat"]
    missing = client.get("/api/v1/model", params={"species": "horse"})
    assert (missing.status_code, missing.json()["detail"]) == (
        404,
        "there is no bundle for horse; there is one for cat, dog",
    )
    page = Page(client.get("/model").text)
    headings = [heading for heading in text_of(client.get("/model")).split() if heading in ("cat", "dog")]
    assert {"cat", "dog"} <= set(headings)
    parts = ["about", "trained", "results"]  # of each bundle, below the heading of its species
    assert [each["id"] for each in page.all("h3") if "id" in each] == [*parts, *(f"{part}2" for part in parts)]
    assert [each["id"] for each in page.all("h2") if "id" in each] == [
        "searched-for",
        "thresholds",
        "backup",
        "limits",
        "evaluation",
    ]


def test_merge_of_a_cat_and_a_dog_is_asked_about(client: TestClient):
    client.post("/api/v1/cluster", json={"threshold": 0.9})
    cat, dog = (items(client, f"identities?species={species}")[0]["identity"] for species in ("cat", "dog"))
    form = {"identity": [cat, dog], "into": cat}
    answer = client.post("/individuals/merge", data=form)
    assert answer.history[0].headers["location"].startswith(f"/individuals/merge?identity={cat}&identity={dog}")
    assert "They are not of one species: cat, dog." in text_of(answer)
    assert len(items(client, "identities")) == 2
    client.post("/individuals/merge", data=form | {"are_same": "true"})
    assert [each["identity"] for each in items(client, "identities")] == [cat]
