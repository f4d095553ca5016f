"""The pages search, compare and model."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from familiar.core.calibration import Calibration, Threshold
from familiar.core.species_means import SpeciesMeans
from familiar.embedding.bundle import load_bundle, network_bytes, serialize_bundle
from familiar.evaluation.results import Figure, write_results
from familiar.gallery.edits.corrections import merge, name_identity, split
from familiar.gallery.store.connection import DATABASE
from familiar.gallery.store.store import Store
from familiar.web.middleware.headers import SANDBOX_POLICY
from familiar.web.pages import compare
from familiar.web.service import Service
from support import color_album
from support.evaluation_results import full_results, with_figures
from support.html import Page, post_compare, post_search, text_of

HOSTILE = "<img src=x onerror=alert(1)>'&.png"


# --- Search -----------------------------------------------------------------------------------------------------------


def test_search_names_known_identity_with_matching_photos(client: TestClient, folder: Path, photos: list[Path]):
    with Store.open(folder) as gallery:
        name_identity(gallery, 1, "Ruby")
    answer = post_search(client, photos[0])
    text = text_of(answer)
    assert text.startswith("Who is on query.png ? Answer The face that was compared Ruby ")
    probability = client.post("/api/v1/search/photo", files={"photo": photos[0].read_bytes()}).json()["known"][
        "probability"
    ]
    assert f": {probability:.0%}".replace("%", " %") in text
    meter = Page(answer.text).all("meter")[0]
    assert float(meter["value"]) == pytest.approx(probability)
    matching = answer.text[answer.text.index("Matching photos") : answer.text.index("Other similar faces")]
    assert sorted(re.findall(r'href="/photos/(\d)\?face=\d"', matching)) == ["1", "2", "3", "4"]
    assert matching.count('href="/individuals/1"') == 4
    assert 'src="data:image/png;base64,' in answer.text


def test_search_reports_unknown_identity(client: TestClient, tmp_path: Path):
    stranger = color_album.draw_photo(tmp_path / "stranger.png", "green")
    blend = color_album.RGB_U8 | {"gray": (150, 150, 150)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(color_album, "RGB_U8", blend)
        color_album.draw_photo(stranger, "gray")
    text = text_of(post_search(client, stranger))
    assert "No known individual The most likely one is #" in text
    assert "Matching photos" not in text
    assert "Most similar faces" in text


def test_search_shows_matching_photo_in_mixed_cluster(client: TestClient, folder: Path, photos: list[Path]):
    """Half of a group is another individual, so its mean is similar to neither."""
    with Store.open(folder) as gallery:
        merge(gallery, 1, [2, 3])
        name_identity(gallery, 1, "Ruby")
    text = text_of(post_search(client, photos[0]))
    assert "No known individual for sure There is a photo of the same individual, " in text
    assert ", in the group of Ruby : look at it ." in text
    assert "As a whole, the most likely group is Ruby , but not similar enough: " in text


def test_search_offers_every_face_and_preselects_first(client: TestClient, service: Service, tmp_path: Path):
    service.inference.detector = color_album.SquareDetector()
    answer = post_search(client, color_album.draw_photo(tmp_path / "three.png", "blue", "red", "green"))
    page = Page(answer.text)
    buttons = [button for button in page.all("button") if "aria-controls" in button]
    assert [button["aria-pressed"] for button in buttons] == ["true", "false", "false"]
    assert "3 faces. Choose one." in text_of(answer)
    assert {button["aria-controls"] for button in buttons} == {"answer-1", "answer-2", "answer-3"}
    assert {"#1", "#2", "#3"} == set(re.findall(r'class="answer"><a href="/individuals/\d"><bdi>(#\d)', answer.text))


def test_reports_photo_without_face_and_rejects_invalid_file(client: TestClient, service: Service, photos: list[Path]):
    class Blind:
        def detect(self, _: object) -> list[object]:
            return []

    service.inference.detector = Blind()  # pyright: ignore[reportAttributeAccessIssue]
    assert "No face was found. Try a photo" in text_of(post_search(client, photos[0]))
    refused = post_compare(client, photos[0], photos[1], "mine.png")
    assert refused.status_code == 422
    assert "mine.png: no face found" in refused.json()["detail"]
    broken = client.post("/search", files={"photo": ("x.png", b"no photo")})
    assert broken.status_code == 415
    assert broken.json()["detail"].startswith("x.png: ")


def test_search_and_compare_store_nothing(client: TestClient, folder: Path, photos: list[Path]):
    before = (folder / DATABASE).read_bytes()
    post_search(client, photos[0])
    post_compare(client, photos[0], photos[1])
    with Store.open(folder) as gallery:
        assert len(gallery.faces().ids) == 9
    assert (folder / DATABASE).read_bytes() == before
    assert not (folder / "photos").exists()


def test_search_reports_empty_gallery(serving: Callable[..., TestClient], tmp_path: Path, photos: list[Path]):
    client = serving(gallery=tmp_path / "new")
    assert "The album is empty" in text_of(client.get("/"))
    assert "The album has no faces yet, so there is nothing to compare with" in text_of(post_search(client, photos[0]))


# --- Compare ----------------------------------------------------------------------------------------------------------


def test_compare_shows_verdict_and_similarity(client: TestClient, photos: list[Path]):
    same, different = post_compare(client, photos[0], photos[1]), post_compare(client, photos[0], photos[4])
    for answer, verdict in ((same, "The same individual"), (different, "Two different individuals")):
        api = client.post(
            "/api/v1/verify",
            files={
                "first": photos[0].read_bytes(),
                "second": photos[1 if answer is same else 4].read_bytes(),
            },
        ).json()
        text = text_of(answer)
        assert text.startswith(verdict)
        assert f"Similarity {api['similarity']:.3f}" in text
        assert "high precision 0.900 0.00 % 100.00 %" in text
        assert "Two photos count as the same individual from a similarity of 0.900" in text
        assert len(re.findall(r'src="data:image/png', answer.text)) == 2
        assert Page(answer.text).all("circle")[-1]["cx"] == f"{compare.Mark('', api['similarity']).position}%"


def test_answers_are_less_what_the_album_has_in_common(
    serving: Callable[..., TestClient], tmp_path: Path, mean_color_bundle: Path, photos: list[Path]
):
    bundle = load_bundle(mean_color_bundle)
    means = SpeciesMeans({"colors": (0.5,) * bundle.metadata.embedding_dim}, bundle.metadata.calibration)
    with_means = tmp_path / "means.onnx"
    with_means.write_bytes(serialize_bundle(network_bytes(bundle), replace(bundle.metadata, species_means=means)))
    with color_album.create_gallery(tmp_path / "centered", with_means, photos) as gallery:
        stored, centered = gallery.stored_faces().unit_rows(), gallery.faces().unit_rows()
    assert float(centered[0] @ centered[4]) < float(stored[0] @ stored[4]) - 0.1
    client = serving(gallery=tmp_path / "centered", models=(with_means,))
    both = {"first": photos[0].read_bytes(), "second": photos[4].read_bytes()}
    similarity = client.post("/api/v1/verify", files=both).json()["similarity"]
    assert similarity == pytest.approx(float(centered[0] @ centered[4]), abs=1e-3)
    assert f"Similarity {similarity:.3f}".replace("-", "−") in text_of(post_compare(client, photos[0], photos[4]))
    for query in ({"face": 1}, {"embedding": stored[0].tolist()}):
        hits = client.post("/api/v1/search", json={**query, "by": "photo", "k": 9}).json()["photos"]
        similarities = {hit["face"]: hit["similarity"] for hit in hits}
        assert similarities[5] == pytest.approx(float(centered[0] @ centered[4]), abs=1e-3), query
    assert "starts from the means of colors" in text_of(client.get("/model"))


def test_scale_positions_match_thresholds():
    def threshold_at(similarity: float) -> Threshold:
        return Threshold(similarity, None, None)

    means = Calibration(threshold_at(0.7), threshold_at(0.4), threshold_at(0.1), None, None, None, 0, 0)
    assert [(mark.name, mark.position) for mark in compare.threshold_marks(means)] == [
        ("high recall", 25.0),  # (0.1 + 0.2) / 1.2
        ("balanced", 50.0),
        ("high precision", 75.0),
    ]
    assert [compare.Mark("", similarity).position for similarity in (-1.0, -0.2, 1.0)] == [0.0, 0.0, 100.0]


@pytest.mark.slow
def test_pages_warn_about_uncalibrated_model(
    serving: Callable[..., TestClient], tmp_path: Path, uncalibrated_bundle: Path, photos: list[Path]
):
    color_album.create_gallery(tmp_path / "plain", uncalibrated_bundle, photos).close()
    client = serving(gallery=tmp_path / "plain", models=(uncalibrated_bundle,))
    compared = text_of(post_compare(client, photos[0], photos[1]))
    assert compared.startswith("No verdict This model was never calibrated, so there is only a similarity")
    assert "Similarity 1.000" in compared
    assert "balanced" not in compared
    model = text_of(client.get("/model"))
    assert "This model was never calibrated, so there are no verdicts and no probabilities" in model
    assert "grouped from 0.550 on, a guess: the model was never calibrated" in model
    assert "is a guess: this model was never calibrated" in text_of(client.get("/individuals?tab=unassigned"))
    assert "No face of the album is in a group yet" in text_of(post_search(client, photos[0]))


@pytest.mark.slow
def test_api_gives_no_verdict_without_a_calibration(
    serving: Callable[..., TestClient], tmp_path: Path, uncalibrated_bundle: Path, photos: list[Path]
):
    with color_album.create_gallery(tmp_path / "plain", uncalibrated_bundle, photos) as gallery:
        split(gallery, [1])
    client = serving(gallery=tmp_path / "plain", models=(uncalibrated_bundle,))
    both = {"first": photos[0].read_bytes(), "second": photos[1].read_bytes()}
    for answer in (
        client.post("/api/v1/verify", files=both).json(),
        client.post("/api/v1/identities/1/verify", files={"photo": photos[0].read_bytes()}).json(),
    ):
        assert answer["similarity"] > 0.9
        assert (answer["same"], answer["threshold"], answer["probability"]) == (None, None, None)
    assert client.get("/api/v1/gallery").json()["thresholds"]["is_guess"] is True


# --- About and its report ---------------------------------------------------------------------------------------------


def evaluated(folder: Path, file_id: str = "another") -> Path:
    """Write results of `familiar evaluate` with hostile names."""
    folder.mkdir()
    results = full_results()
    results = replace(
        results,
        model=replace(results.model, file_id=file_id),
        data=replace(results.data, sources=(f"/somewhere/{HOSTILE}",), identities=12, photos=3456),
        figures={
            path: figure
            for path, figure in results.figures.items()
            if not path.startswith(("retrieval.", "verification.tar_at_far."))
        },
        reasons={"retrieval": "no identity has two photos"},
        replicates={},
    )
    results = with_figures(
        results, verification={"auc": Figure(0.9876, 0.91, 0.99), "tar_at_far": {"1e-2": 0.5, "1e-4": None}}
    )
    write_results(folder / "eval_results.json", results)
    (folder / "report.html").write_text("<style>p { color: red }</style><p>The report</p>")
    return folder


def test_model_page_shows_metadata(client: TestClient, service: Service):
    text = text_of(client.get("/model"))
    bundle = service.inference.embedder.bundle
    for part in (
        bundle.file_id,
        bundle.metadata.space_id,
        bundle.metadata.license,
        "faces of 32 × 32 pixels",
    ):
        assert part in text
    assert "No evaluation is shown here" in text
    assert client.get("/model/report").status_code == 404


def test_model_page_shows_evaluation_and_report(serving: Callable[..., TestClient], tmp_path: Path):
    client = serving(report=evaluated(tmp_path / "report"))
    page = client.get("/model")
    text = text_of(page)
    assert "Evaluated on 12 individuals, 3,456 photos" in text
    assert (
        "ROC AUC probability that a same pair is more similar than a different pair 98.76 % 91.00 % to 99.00 %" in text
    )
    assert "same pairs accepted where 0.01 % of different pairs are too few pairs" in text
    assert "TAR at FAR 1e-3" not in text
    assert "Another model was evaluated" in text
    assert "<img src=x" not in page.text
    link = next(element for element in Page(page.text).all("a") if element["href"] == "/model/report")
    assert link["target"] == "_blank"  # htmx lets it be
    report = client.get("/model/report")
    assert "The report" in report.text
    assert report.headers.get_list("Content-Security-Policy") == [SANDBOX_POLICY]
    assert SANDBOX_POLICY.startswith("sandbox; default-src 'none'; ")
    assert "script-src" not in SANDBOX_POLICY


@pytest.mark.slow
def test_evaluation_of_served_model_shows_no_warning(
    serving: Callable[..., TestClient], tmp_path: Path, service: Service
):
    file_id = service.inference.embedder.bundle.file_id
    client = serving(report=evaluated(tmp_path / "report", file_id=file_id))
    assert "Another model was evaluated" not in client.get("/model").text


def test_model_page_reports_unreadable_results(serving: Callable[..., TestClient], tmp_path: Path):
    folder = evaluated(tmp_path / "report")
    (folder / "eval_results.json").write_text("{")
    client = serving(report=folder)
    answer = client.get("/model")
    assert answer.status_code == 200
    assert "no results can be read from it" in text_of(answer)
    shutil.rmtree(folder)
    assert client.get("/model").status_code == 200
    assert client.get("/model/report").status_code == 404
