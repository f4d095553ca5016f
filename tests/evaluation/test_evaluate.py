"""Evaluation of a network that embeds a crop as its mean colour, on identities that are colours."""

import json
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from familiar.core.errors import BadDataset
from familiar.core.types import Photo
from familiar.datasets.folders import DataSpec, scan_folders
from familiar.datasets.split import Split
from familiar.evaluation.evaluate import evaluate
from familiar.evaluation.plots import example_queries
from familiar.evaluation.report import render
from familiar.evaluation.suites import measure, retrieval_suite, verification_suite, verify
from familiar.faces.embedder import Embedder
from familiar.faces.photo import save_photo


def colour_folder(root: Path, identities: int = 12, photos: int = 4, spread: float = 25.0) -> Path:
    generator = np.random.default_rng(1)
    for identity in range(identities):
        base = generator.integers(20, 230, 3)
        folder = root / f"Person_{identity:02d}"
        folder.mkdir(parents=True)
        for photo in range(1, photos + 1):
            rgb_u8 = np.clip(base + generator.normal(0, spread, 3), 1, 255).astype(np.uint8)
            pixels = np.broadcast_to(rgb_u8, (36, 36, 3)).copy()
            save_photo(Photo(pixels, "drawn", (36, 36)), folder / f"{folder.name}_{photo:04d}.png")
    return root


@pytest.fixture
def colours(tmp_path: Path) -> Path:
    return colour_folder(tmp_path / "colours")


def spec(*roots: Path) -> DataSpec:
    return DataSpec(tuple(map(str, roots)))


def slow_pairs(embeddings: np.ndarray, labels: np.ndarray) -> tuple[list[float], list[bool]]:
    scores, same = [], []
    for left in range(len(labels)):
        for right in range(left + 1, len(labels)):
            scores.append(float(embeddings[left].astype(np.float64) @ embeddings[right].astype(np.float64)))
            same.append(bool(labels[left] == labels[right]))
    return scores, same


def test_figures_agree_with_a_slow_reference(colours: Path, mean_colour_bundle: Path):
    measured = measure(Embedder(mean_colour_bundle), scan_folders(colours))
    scores, same = slow_pairs(measured.embeddings, measured.table.labels)
    found = verification_suite(measured, verify(measured))
    assert found["auc"] == pytest.approx(roc_auc_score(same, scores), abs=1e-6)
    assert (found["same_pairs"], found["different_pairs"]) == (sum(same), len(same) - sum(same))
    at_balanced = found["at_bundle_thresholds"]["balanced"]
    accepted = np.array(scores) >= at_balanced["similarity"]
    tar, far = accepted[np.array(same)].mean(), accepted[~np.array(same)].mean()
    assert (at_balanced["tar"], at_balanced["far"]) == (pytest.approx(tar), pytest.approx(far))
    assert at_balanced["accuracy"] == pytest.approx((tar + 1 - far) / 2)
    low, high = found["interval"]["auc"]
    assert low <= found["auc"] <= high

    similarity = measured.embeddings @ measured.embeddings.T
    np.fill_diagonal(similarity, -2)
    hits = measured.table.labels[similarity.argmax(1)] == measured.table.labels
    assert retrieval_suite(measured)["recall_at_1"] == pytest.approx(hits.mean())


def test_a_pairs_file_is_judged_and_only_its_photos_are_embedded(
    colours: Path, mean_colour_bundle: Path, tmp_path: Path
):
    pairs = tmp_path / "pairs.txt"
    pairs.write_text(
        "2\nPerson_00\t1\t2\nPerson_01\t3\t4\nPerson_00\t1\tPerson_01\t3\nPerson_02\t1\tPerson_03\t1\n"
    )
    results = evaluate(mean_colour_bundle, spec(colours), tmp_path / "out", pairs_file=pairs)
    assert results["verification"]["pairs"] == "listed"
    assert (results["verification"]["same_pairs"], results["verification"]["different_pairs"]) == (2, 2)
    assert results["data"]["photos"] == 6
    assert results["verification"]["interval"] == {}  # four identities say nothing about others


def test_pairs_of_an_unreadable_photo_are_left_out(colours: Path, mean_colour_bundle: Path, tmp_path: Path):
    (colours / "Person_00" / "Person_00_0001.png").write_text("no photo")
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("Person_00\t1\t2\nPerson_01\t3\t4\nPerson_02\t1\tPerson_03\t1\n")
    results = evaluate(mean_colour_bundle, spec(colours), tmp_path / "out", pairs_file=pairs)
    assert results["verification"]["same_pairs"] == 1
    assert "Person_00_0001" in results["data"]["skipped"][0]


def run_with_split(folder: Path, bundle: Path, **sides: tuple[str, ...]) -> Path:
    folder.mkdir()
    shutil.copy(bundle, folder / "model.onnx")
    whole = {"train": (), "validation": (), "test": ()} | sides
    (folder / "split.json").write_text(Split(0, **whole).to_json())
    return folder


def test_which_identities_are_judged(colours: Path, mean_colour_bundle: Path, tmp_path: Path):
    names = tuple(f"colours/Person_{identity:02d}" for identity in range(12))
    run = run_with_split(
        tmp_path / "run", mean_colour_bundle, train=names[:6], validation=names[6:8], test=names[8:]
    )
    unasked = evaluate(run, spec(colours), tmp_path / "out")["data"]
    assert (unasked["split"], unasked["identities"], unasked["identities_seen_in_training"]) == ("test", 4, 0)
    whole = evaluate(run, spec(colours), tmp_path / "out", split="all")["data"]
    assert (whole["split"], whole["identities"], whole["identities_seen_in_training"]) == ("all", 12, 6)
    assert "6 of these identities were trained on" in (tmp_path / "out" / "report.html").read_text()
    other = colour_folder(tmp_path / "others", identities=3)
    strangers = evaluate(run, spec(other), tmp_path / "out")["data"]
    assert (strangers["split"], strangers["identities_seen_in_training"]) == ("all", 0)
    with pytest.raises(BadDataset, match="none of its test identities"):
        evaluate(run, spec(other), tmp_path / "out", split="test")
    with pytest.raises(BadDataset, match="no test side"):
        evaluate(mean_colour_bundle, spec(colours), tmp_path / "out", split="test")


def test_what_cannot_be_computed_is_null_with_a_reason(mean_colour_bundle: Path, tmp_path: Path):
    lonely = colour_folder(tmp_path / "one", identities=1)
    results = evaluate(mean_colour_bundle, spec(lonely), tmp_path / "out")
    assert results["verification"] is None
    assert "different" in results["reasons"]["verification"]
    singles = colour_folder(tmp_path / "singles", identities=5, photos=1)
    results = evaluate(mean_colour_bundle, spec(singles), tmp_path / "out2")
    assert results["verification"] is None
    assert results["retrieval"] is None
    stored = json.loads((tmp_path / "out2" / "eval_results.json").read_text())
    assert stored["reasons"].keys() == {"verification", "retrieval"}
    page = (tmp_path / "out2" / "report.html").read_text()
    assert "could not be computed" in page


def test_nothing_readable_and_unknown_suites(colours: Path, mean_colour_bundle: Path, tmp_path: Path):
    with pytest.raises(BadDataset, match="retrieval, verification"):
        evaluate(mean_colour_bundle, spec(colours), tmp_path / "out", suites=["clairvoyance"])
    broken = tmp_path / "broken" / "a"
    broken.mkdir(parents=True)
    (broken / "x.png").write_text("no photo")
    with pytest.raises(BadDataset, match=r"x\.png"):
        evaluate(mean_colour_bundle, spec(broken.parent), tmp_path / "out")


def test_results_and_pictures_are_written_and_are_what_was_returned(
    colours: Path, mean_colour_bundle: Path, tmp_path: Path
):
    results = evaluate(mean_colour_bundle, spec(colours), tmp_path / "out", flip=True)
    assert json.loads((tmp_path / "out" / "eval_results.json").read_text()) == json.loads(json.dumps(results))
    for name in ("roc.png", "similarity.png", "neighbours.png"):
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")
    assert results["model"]["tta"] == "flip"


def test_the_report_needs_nothing_else_and_escapes_names(
    colours: Path, mean_colour_bundle: Path, tmp_path: Path
):
    odd = tmp_path / "<script>alert(1)"
    colours.rename(odd)
    results = evaluate(mean_colour_bundle, spec(odd), tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    links: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert tag != "script"
            links.extend(value or "" for name, value in attrs if name in ("src", "href"))

    Reader().feed(page)
    assert len(links) == 3
    assert all(link.startswith("data:image/png;base64,") for link in links)
    assert f"{results['verification']['auc']:.4f}" in page
    assert "<table>" in render(results, {})


def test_example_queries_have_a_mate_and_differ():
    labels = np.array([0, 0, 1, 2, 2, 2, 3, 3], np.int64)
    chosen = example_queries(labels, 10, seed=0)
    assert sorted(labels[chosen].tolist()) == [0, 2, 3]
    assert len(example_queries(labels, 2, seed=0)) == 2
    assert example_queries(labels, 10, seed=0).tolist() == chosen.tolist()
