"""`familiar species`, and the router it writes as the model of `embed`, `verify` and `evaluate`."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from familiar.embedding.bundle import load_bundle
from familiar.embedding.embedder import Embedder
from familiar.embedding.model import embed_photos
from support.cli import Answer, Familiar
from support.tiny_router import mosaic_bundle, save_colored

pytestmark = pytest.mark.slow

COLORS = {"cat": (200, 30, 30), "dog": (30, 200, 30), "person": (30, 30, 200)}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Folders `cats`, `dogs` and `persons` of five identities with two photos each, told apart by color."""
    generator = np.random.default_rng(0)
    for name, rgb in COLORS.items():
        for identity in range(5):
            red, green, blue = (np.array(rgb) + generator.integers(-15, 16, 3)).tolist()
            folder = tmp_path / f"{name}s" / f"id {identity}"
            folder.mkdir(parents=True)
            for photo in range(2):
                save_colored(folder / f"{photo}.png", (red, green, blue), photo)
    return tmp_path


@pytest.fixture
def arguments(photos: Path, mean_color_bundle: Path) -> list[str]:
    features = shutil.copy(mean_color_bundle, photos / "features.onnx")
    metadata = load_bundle(features).metadata
    mosaic_bundle(photos / "cat.onnx", metadata, 48)
    run = photos / "dog run"
    run.mkdir()
    mosaic_bundle(run / "model.onnx", metadata, 64)
    return [
        *(f"{name}={photos / name}s" for name in COLORS),
        *("--model", str(features)),
        *("--bundle", f"cat={photos / 'cat.onnx'}", "--bundle", f"dog={run}"),
        *("--min-probability", "0.8"),
    ]


@pytest.fixture
def router(familiar: Familiar, photos: Path, arguments: list[str]) -> Path:
    done = familiar("species", *arguments, "--output", photos / "router.json")
    assert done.code == 0, done.err
    return photos / "router.json"


def assert_fails(answer: Answer, code: int, *texts: str) -> None:
    assert answer.code == code, answer.err
    assert "Traceback" not in answer.err
    assert code == 2 or answer.err.strip().splitlines()[-1].startswith("familiar: ")
    for text in texts:
        assert text in " ".join(answer.err.split())


def test_fits_router_and_reports_held_out_accuracy(familiar: Familiar, photos: Path, arguments: list[str]):
    (photos / "cats" / "id 0" / "fake.png").write_text("no photo")
    output = photos / "router.json"
    answer = familiar("species", *arguments, "--output", output)
    assert answer.code == 0, answer.err
    assert "cat: 10 photos of 5 identities" in answer.out
    assert "right 100.00%" in " ".join(answer.out.split())
    assert f"router: {output}" in answer.out
    assert "fake.png" in answer.err
    assert "person: has no --bundle" in answer.err
    written = output.read_bytes()

    document = json.loads(familiar("species", *arguments, "--output", output, "--json").out)
    assert output.read_bytes() == written
    assert document["fitted_on"] == {name: {"identities": 5, "photos": 10} for name in COLORS}
    assert document["held_out"]["accuracy"] == 1.0
    assert document["held_out"]["confusion"]["dog"] == {"cat": 0, "dog": 10, "person": 0, "unsure": 0}
    assert document["min_probability"] == 0.8
    assert "fake.png" in document["skipped"][0]


def test_limits_apply_to_each_species(familiar: Familiar, photos: Path, arguments: list[str]):
    limits = ("--max-identities", 3, "--max-photos", 1)
    answer = familiar("species", *arguments, *limits, "--output", photos / "r.json", "--json")
    assert json.loads(answer.out)["fitted_on"] == {name: {"identities": 3, "photos": 3} for name in COLORS}


def test_species_combines_several_sources(familiar: Familiar, photos: Path, arguments: list[str]):
    pet = [text.replace("cat=", "pet=").replace("dog=", "pet=") for text in arguments]
    del pet[5:9]  # the bundles
    answer = familiar("species", *pet, "--output", photos / "r.json", "--json")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["fitted_on"]["pet"] == {"identities": 10, "photos": 20}


def test_embed_routes_each_photo_to_the_bundle_for_its_species(familiar: Familiar, photos: Path, router: Path):
    gray = save_colored(photos / "cats" / "gray.png", (120, 120, 120))
    folders = [photos / f"{name}s" for name in COLORS]
    answer = familiar("embed", *folders, "--model", router, "--output", photos / "v.npz", "--json")
    assert answer.code == 0, answer.err
    summary = json.loads(answer.out)
    assert summary["photos"] == 20
    assert len(summary["skipped"]) == 11
    assert str(gray) in answer.err
    assert "unsure of the species" in answer.err
    assert "shows a person" in answer.err
    with np.load(photos / "v.npz") as stored:
        assert stored["species"].tolist() == ["cat"] * 10 + ["dog"] * 10
        assert stored["probability"].shape == (20,)
        assert stored["probability"].min() >= 0.8
        for name, bundle, width in (("cat", photos / "cat.onnx", 27), ("dog", photos / "dog run", 48)):
            rows = stored[f"{name}_rows"]
            assert (stored["species"][rows] == name).all()
            single = embed_photos(Embedder(bundle), [Path(path) for path in stored["paths"][rows]])
            assert stored[f"{name}_embeddings"].shape == (10, width)
            np.testing.assert_allclose(stored[f"{name}_embeddings"], single.embeddings, atol=1e-6)
            assert str(stored[f"{name}_space_id"]) == Embedder(bundle).metadata.space_id
        assert "person_embeddings" not in stored


def test_embed_rejects_species_without_bundle_and_writes_nothing(familiar: Familiar, photos: Path, router: Path):
    answer = familiar("embed", photos / "persons", "--model", router, "--output", photos / "v.npz")
    assert_fails(answer, 1, "nothing was written")
    assert not (photos / "v.npz").exists()


def test_verify_reports_species_and_requires_its_bundle(familiar: Familiar, photos: Path, router: Path):
    cat, mate, dog = photos / "cats/id 0/0.png", photos / "cats/id 0/1.png", photos / "dogs/id 0/0.png"
    same = json.loads(familiar("verify", cat, mate, "--model", router, "--json").out)
    single = json.loads(familiar("verify", cat, mate, "--model", photos / "cat.onnx", "--json").out)
    assert same["species"] == ["cat", "cat"]
    assert {key: same[key] for key in single} == single
    assert same["same"]
    text = familiar("verify", cat, mate, "--model", router).out
    assert text.startswith("cat (")
    assert ": the same identity: similarity" in text

    different = json.loads(familiar("verify", cat, dog, "--model", router, "--json").out)
    assert different["species"] == ["cat", "dog"]
    assert (different["same"], different["similarity"], different["probability"]) == (False, None, None)
    assert familiar("verify", cat, dog, "--model", router).out.strip().endswith("different species")

    person = photos / "persons/id 0/0.png"
    assert_fails(familiar("verify", cat, person, "--model", router), 1, "shows a person", "no bundle")


def test_rejects_replaced_bundle_and_damaged_or_missing_router(familiar: Familiar, photos: Path, router: Path):
    photo = photos / "cats/id 0/0.png"
    shutil.copy(photos / "dog run" / "model.onnx", photos / "cat.onnx")
    assert_fails(familiar("verify", photo, photo, "--model", router), 1, "router.json", "another bundle for cat")
    router.write_bytes(router.read_bytes()[:-9])
    assert_fails(familiar("embed", photo, "--model", router, "-o", photos / "v.npz"), 1, "router.json", "make it again")
    assert_fails(familiar("verify", photo, photo, "--model", photos / "gone.json"), 1, "gone.json")


def test_wrong_usage_exits_with_2(familiar: Familiar, photos: Path, arguments: list[str]):
    output = ("--output", photos / "r.json")
    assert_fails(familiar("species", str(photos / "cats"), *arguments[1:], *output), 2, "not SPECIES=PATH")
    assert_fails(familiar("species", arguments[0], *arguments[3:5], *output), 2, "two species")
    assert_fails(familiar("species", "a b=x", *arguments, *output), 2, "'a b'")
    assert_fails(familiar("species", *arguments, "--bundle", "horse=x.onnx", *output), 2, "horse is not one of")
    assert_fails(familiar("species", *arguments, "--bundle", "cat=x.onnx", *output), 2, "cat has two bundles")
    assert_fails(familiar("species", *arguments, "--output", photos / "r.npz"), 2, ".json", "r.npz")
    assert_fails(familiar("species", *arguments, "--output", photos / "no" / "r.json"), 2, "not a folder")
    assert_fails(familiar("species", *arguments, "--min-probability", "1.5", *output), 2, "1.5")
    assert not (photos / "r.json").exists()


def test_rejects_missing_bundle_or_data_and_too_few_identities(familiar: Familiar, photos: Path, arguments: list[str]):
    output = ("--output", photos / "r.json")
    missing = [*arguments, "--bundle", f"person={photos / 'gone.onnx'}"]
    assert_fails(familiar("species", *missing, *output), 1, "gone.onnx")
    for identity in range(1, 5):
        shutil.rmtree(photos / "dogs" / f"id {identity}")
    assert_fails(familiar("species", *arguments, *output), 1, "dog: has photos of 1 identities")
    (photos / "dogs" / "id 0" / "0.png").write_text("no photo")
    (photos / "dogs" / "id 0" / "1.png").write_text("no photo")
    assert_fails(familiar("species", *arguments, *output), 1, "dog: has photos of 0 identities")
    assert_fails(familiar("species", *arguments, "dog=nowhere", *output), 1, "nowhere")
    assert not (photos / "r.json").exists()


def test_evaluate_measures_each_species_by_its_bundle(familiar: Familiar, photos: Path, router: Path):
    folders = [photos / f"{name}s" for name in COLORS]
    suites = ("--suite", "retrieval", "--suite", "verification")
    answer = familiar("evaluate", router, *folders, "--output", photos / "out", *suites)
    assert answer.code == 0, answer.err
    out = " ".join(answer.out.split())
    assert "20 photos of 10 identities (all), compared as they are" in out
    assert "photos sent 10 to cat, 10 to dog; skipped for lack of a bundle: 10" in out
    for name in ("cat", "dog"):
        assert f"{name}, by its own bundle: 10 photos of 5 identities ROC AUC" in out
    assert "shows a person" in answer.err
    assert "for all photos together they are fixed defaults" in " ".join(answer.err.split())
    document = json.loads((photos / "out" / "eval_results.json").read_text())
    assert document["data"]["routing"] == {"photos": {"cat": 10, "dog": 10}, "without_bundle": 10}
    values = {document["figures"][f"slices.columns.routed species.{index}.value"]["value"] for index in (0, 1)}
    assert values == {"cat", "dog"}


# --- a gallery of several species -----------------------------------------------------------------------------------


def test_gallery_of_several_species(familiar: Familiar, photos: Path, router: Path):
    """Enroll, cluster, name, search and verify with a router, as with a bundle."""
    album, folders = photos / "album", [photos / f"{name}s" for name in COLORS]
    answer = familiar("gallery", "enroll", album, *folders, "--model", router)
    assert answer.code == 0, answer.err
    assert "30 new photos with 20 faces" in answer.out
    assert "10 faces were left out: there is no bundle for them" in answer.out
    assert "shows a person" in answer.err
    assert "(threshold cat 0." in familiar("gallery", "cluster", album).out
    assert familiar("gallery", "cluster", album, "--threshold", "0.5", "--rebuild").code == 0
    cat, dog = photos / "cats/id 0/0.png", photos / "dogs/id 0/0.png"
    assert familiar("gallery", "split", album, cat, "--name", "Mia").code == 0
    searched = json.loads(familiar("gallery", "search", album, cat, "--model", router, "--by", "photo", "--json").out)
    assert [Path(hit["path"]).parts[-3] for hit in searched["photos"]] == ["cats"] * 10
    assert searched["photos"][0]["path"] == str(cat)
    assert "shows Mia" in familiar("gallery", "verify", album, cat, "Mia", "--model", router).out
    assert "does not show Mia" in familiar("gallery", "verify", album, dog, "Mia", "--model", router).out
    unclustered = familiar("gallery", "enroll", photos / "new", photos / "cats", "--model", router)
    assert unclustered.code == 0, unclustered.err
    answer = familiar("gallery", "search", photos / "new", cat, "--model", router)
    assert answer.out.startswith("no match: there are no clusters of this species yet; make them with: ")
    statistics = familiar("gallery", "stats", album).out
    assert "cat: " in statistics
    assert "dog: " in statistics
    assert_fails(familiar("gallery", "search", album, photos / "persons/id 0/0.png", "--model", router), 1, "a person")
    assert_fails(
        familiar("gallery", "enroll", album, photos / "cats", "--model", photos / "cat.onnx"), 1, "gallery migrate"
    )
    done = json.loads(familiar("gallery", "migrate", album, "--model", photos / "cat.onnx", "--json").out)
    assert done["reembedded_faces"] == 20


def test_gallery_calibrates_each_species(familiar: Familiar, photos: Path, router: Path):
    album = photos / "album"
    assert familiar("gallery", "enroll", album, photos / "cats", photos / "dogs", "--model", router).code == 0
    for identity in range(5):
        faces = sorted((photos / "cats" / f"id {identity}").iterdir())
        assert familiar("gallery", "split", album, *faces, "--name", f"cat {identity}").code == 0
    assert_fails(familiar("gallery", "calibrate", album), 1, "5 pairs of confirmed faces show the same individual")
    assert familiar("gallery", "merge", album, "cat 0", "cat 1", "cat 2").code == 0
    calibrated = familiar("gallery", "calibrate", album)
    assert calibrated.code == 0, calibrated.err
    assert "cat: clustering threshold" in calibrated.out
    assert "on the confirmed faces" in calibrated.out.splitlines()[0]
    assert "dog: clustering threshold" in calibrated.out
    parts = json.loads(familiar("gallery", "calibrate", album, "--reset", "--json").out)["parts"]
    assert [(part["species"], part["own"]) for part in parts] == [(["cat"], False), (["dog"], False)]
