"""Evaluation of a network that embeds a crop as its mean color, on identities that are colors."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from markupsafe import escape

from familiar.core.calibration import Calibration, Threshold
from familiar.core.errors import BadDataset
from familiar.core.species_means import SpeciesMeans
from familiar.datasets.folders import DataSpec
from familiar.datasets.split import Split
from familiar.embedding.bundle import load_bundle, network_bytes, serialize_bundle
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from familiar.evaluation.context import EvaluationOptions
from familiar.evaluation.results import read_results
from familiar.evaluation.results.document import ComparedPhotos
from familiar.evaluation.run_evaluation import evaluate
from familiar.gallery import Gallery
from familiar.metrics import roc_auc
from familiar.metrics.pairs import count_all_pairs
from support.color_folders import color_folder
from support.evaluation_results import intervals, values
from support.mean_color_bundle import CALIBRATED, write_mean_color_bundle

pytestmark = pytest.mark.slow

ONE_SUITE = EvaluationOptions(("retrieval",))  # for tests that do not depend on the suite


def spec(*roots: Path) -> DataSpec:
    return DataSpec(tuple(map(str, roots)))


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_report")
def test_pairs_file_limits_pairs_and_embedded_photos(colors: Path, mean_color_bundle: Path, tmp_path: Path):
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("2\nPerson_00\t1\t2\nPerson_01\t3\t4\nPerson_00\t1\tPerson_01\t3\nPerson_02\t1\tPerson_03\t1\n")
    results = evaluate(mean_color_bundle, spec(colors), tmp_path / "out", EvaluationOptions(pairs_file=pairs))
    assert results.value("verification.pairs") == "listed"
    assert (results.value("verification.same_pairs"), results.value("verification.different_pairs")) == (2, 2)
    assert results.data.photos == 6
    assert intervals(results) == {}  # four identities are too few for intervals


GALLERY_THRESHOLD = Threshold(0.123, 0.01, 0.9)
MEANS = SpeciesMeans(
    {"colors": (0.5, 0.5, 0.5)},
    Calibration(GALLERY_THRESHOLD, GALLERY_THRESHOLD, GALLERY_THRESHOLD, 9.0, -1.0, 0.1, 99, 99, 0.01),
)


@pytest.fixture
def bundle_with_means(tmp_path: Path) -> Path:
    return write_mean_color_bundle(tmp_path / "means.onnx", CALIBRATED, species_means=MEANS)


def test_embeddings_are_compared_as_in_a_gallery(colors: Path, bundle_with_means: Path, tmp_path: Path):
    results = evaluate(bundle_with_means, spec(colors), tmp_path / "out", EvaluationOptions(("verification",)))
    with Gallery.create(tmp_path / "album", bundle_with_means, embedding_dtype="float32") as album:
        album.enroll(colors)
        rows, names = album.embeddings(centered=True), [Path(path).parent.name for path in album.table()["path"]]
    labels = np.unique(names, return_inverse=True)[1]
    assert results.value("verification.auc") == pytest.approx(roc_auc(count_all_pairs(rows, labels)), abs=1e-5)
    assert results.value("verification.at_bundle_thresholds.balanced.similarity") == GALLERY_THRESHOLD.similarity
    assert results.model.centered
    assert results.model.thresholds_fitted
    assert "compared less the means of the photos, as a gallery" in (tmp_path / "out" / "report.html").read_text()
    assert "compared less the means of the photos, as a gallery" in results._repr_html_()
    assert read_results(tmp_path / "out" / "eval_results.json").model.centered


@pytest.mark.usefixtures("without_report")
def test_not_centered_embeddings_are_compared_as_they_are(
    colors: Path, bundle_with_means: Path, mean_color_bundle: Path, tmp_path: Path
):
    """So are those of a bundle without means of species, whatever the option."""
    options = EvaluationOptions(("verification",))
    table = spec(colors).read()
    rows = embed_photos(Embedder(mean_color_bundle), table.photos, "none").embeddings
    auc = roc_auc(count_all_pairs(rows, table.labels))
    for bundle, not_centered in ((bundle_with_means, True), (mean_color_bundle, True), (mean_color_bundle, False)):
        results = evaluate(bundle, spec(colors), tmp_path / "out", options, not_centered=not_centered)
        assert results.value("verification.auc") == pytest.approx(auc, abs=1e-6)
        assert results.value("verification.at_bundle_thresholds.balanced.similarity") == CALIBRATED.balanced.similarity
        assert not results.model.centered


@pytest.mark.usefixtures("without_report")
def test_changed_photos_are_compared_less_the_same_means(colors: Path, bundle_with_means: Path, tmp_path: Path):
    """A mirror image has the same mean color, so the same embedding."""
    results = evaluate(bundle_with_means, spec(colors), tmp_path / "out", EvaluationOptions(("robustness",)))
    flip = values(results, "robustness.corruptions.flip")
    assert (flip["similarity_drop"], flip["recall_at_1_drop"]) == (pytest.approx(0, abs=1e-6), 0)
    assert results.value("robustness.corruptions.blur.similarity_drop") < 1e-3


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_report")
def test_skips_pairs_with_unreadable_photo(colors: Path, mean_color_bundle: Path, tmp_path: Path):
    (colors / "Person_00" / "Person_00_0001.png").write_text("no photo")
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("Person_00\t1\t2\nPerson_01\t3\t4\nPerson_02\t1\tPerson_03\t1\n")
    results = evaluate(mean_color_bundle, spec(colors), tmp_path / "out", EvaluationOptions(pairs_file=pairs))
    assert results.value("verification.same_pairs") == 1
    assert "Person_00_0001" in results.data.skipped[0]


def run_with_split(folder: Path, bundle: Path, **sides: tuple[str, ...]) -> Path:
    folder.mkdir()
    shutil.copy(bundle, folder / "model.onnx")
    split = {"train": (), "validation": (), "test": ()} | sides
    (folder / "split.json").write_text(Split(0, **split).to_json())
    return folder


def test_split_selects_evaluated_identities(colors: Path, mean_color_bundle: Path, tmp_path: Path):
    names = tuple(f"colors/Person_{identity:02d}" for identity in range(12))
    run = run_with_split(tmp_path / "run", mean_color_bundle, train=names[:6], validation=names[6:8], test=names[8:])
    default = evaluate(run, spec(colors), tmp_path / "out", ONE_SUITE).data
    assert (default.split, default.identities, default.identities_seen_in_training) == ("test", 4, 0)
    everything = evaluate(run, spec(colors), tmp_path / "out", ONE_SUITE, split="all").data
    assert (everything.split, everything.identities, everything.identities_seen_in_training) == ("all", 12, 6)
    assert "6 of the 12 identities were trained on" in (tmp_path / "out" / "report.html").read_text()
    other_folder = color_folder(tmp_path / "others", identities=3)
    unknown = evaluate(run, spec(other_folder), tmp_path / "out", ONE_SUITE).data
    assert (unknown.split, unknown.identities_seen_in_training) == ("all", 0)
    same = evaluate(mean_color_bundle, spec(colors), tmp_path / "out", ONE_SUITE, split_of=run).data
    assert (same.split, same.fingerprint) == ("test", default.fingerprint)
    assert (same.identities_seen_in_training, same.identities_seen_in_validation) == (None, None)
    with pytest.raises(BadDataset, match="is no training run"):
        evaluate(mean_color_bundle, spec(colors), tmp_path / "out", ONE_SUITE, split_of=colors)
    with pytest.raises(BadDataset, match="none of its test identities"):
        evaluate(run, spec(other_folder), tmp_path / "out", split="test")
    with pytest.raises(BadDataset, match="test identities are unknown"):
        evaluate(mean_color_bundle, spec(colors), tmp_path / "out", split="test")


def test_names_collections_of_training(colors: Path, mean_color_bundle: Path, tmp_path: Path):
    bundle = load_bundle(mean_color_bundle)
    metadata = dataclasses.replace(bundle.metadata, trained_on={"colors": {"identities": 3, "photos": 9}, "dogs": {}})
    (tmp_path / "trained.onnx").write_bytes(serialize_bundle(network_bytes(bundle), metadata))
    data = evaluate(tmp_path / "trained.onnx", spec(colors), tmp_path / "out", ONE_SUITE).data
    assert data.collections_trained_on == ("colors",)
    assert read_results(tmp_path / "out" / "eval_results.json").data == data
    assert "trained on photos of the same collection" in (tmp_path / "out" / "report.html").read_text()
    other = evaluate(mean_color_bundle, spec(colors), tmp_path / "out", ONE_SUITE).data
    assert other.collections_trained_on == ()
    assert "of the same collection" not in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.exhaustive
def test_missing_metrics_are_null_with_reason(mean_color_bundle: Path, tmp_path: Path):
    single_identity = color_folder(tmp_path / "one", identities=1)
    results = evaluate(mean_color_bundle, spec(single_identity), tmp_path / "out")
    assert "verification" not in results.suites
    assert "different" in results.reasons["verification"]
    singles = color_folder(tmp_path / "singles", identities=5, photos=1)
    results = evaluate(mean_color_bundle, spec(singles), tmp_path / "out2")
    stored = json.loads((tmp_path / "out2" / "eval_results.json").read_text())
    missing = {"verification", "retrieval", "triplets", "separation", "identification"}
    assert missing <= stored["reasons"].keys()
    assert not any(path.partition(".")[0] in missing for path in stored["figures"])
    page = (tmp_path / "out2" / "report.html").read_text()
    assert all(str(escape(reason.split(": ")[-1])) in page for reason in stored["reasons"].values())


def test_rejects_unknown_suite_and_unreadable_photos(colors: Path, mean_color_bundle: Path, tmp_path: Path):
    with pytest.raises(BadDataset, match="retrieval, clustering"):
        evaluate(mean_color_bundle, spec(colors), tmp_path / "out", EvaluationOptions(("clairvoyance",)))
    broken = tmp_path / "broken" / "a"
    broken.mkdir(parents=True)
    (broken / "x.png").write_text("no photo")
    with pytest.raises(BadDataset, match=r"x\.png"):
        evaluate(mean_color_bundle, spec(broken.parent), tmp_path / "out")


def test_writes_returned_results_and_report(colors: Path, mean_color_bundle: Path, tmp_path: Path):
    options = EvaluationOptions(("verification", "retrieval"))
    results = evaluate(mean_color_bundle, spec(colors), tmp_path / "out", options, flip=True)
    stored = read_results(tmp_path / "out" / "eval_results.json")
    assert stored.replicates.keys() > {"verification.auc", "retrieval.recall_at_1"}
    assert stored == results
    assert results.model.tta == "flip"
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"{results.value('verification.auc'):.3f}" in page
    assert any(path.suffix == ".png" for path in (tmp_path / "out").iterdir())


@pytest.mark.usefixtures("without_report")
def test_runs_only_requested_suites(colors: Path, mean_color_bundle: Path, tmp_path: Path):
    results = evaluate(mean_color_bundle, spec(colors), tmp_path / "out", EvaluationOptions(("triplets", "harmonic")))
    assert results.suites == ("triplets",)
    assert not results.has_suite("retrieval")
    assert results.has_suite("harmonic")
    assert "full length" in results.reasons["harmonic"]


def test_leaks_are_listed_excluded_or_skipped(colors: Path, mean_color_bundle: Path, tmp_path: Path):
    names = tuple(f"colors/Person_{identity:02d}" for identity in range(12))
    run = run_with_split(tmp_path / "run", mean_color_bundle, train=names[:6], test=names[6:])
    (run / "data.json").write_text(json.dumps({"spec": dataclasses.asdict(spec(colors))}))
    shutil.copy(colors / "Person_00" / "Person_00_0001.png", colors / "Person_08" / "Person_08_0001.png")
    options = EvaluationOptions(("retrieval",))
    results = evaluate(run, spec(colors), tmp_path / "out", options)
    assert results.leaks.compared == ComparedPhotos(evaluated=24, seen_in_training=24)
    (leak,) = results.leaks.across_splits
    assert leak.identities == ("colors/Person_00", "colors/Person_08")
    assert (results.leaks.excluded, results.data.photos) == (0, 24)
    without = evaluate(run, spec(colors), tmp_path / "out", options, leaks="exclude")
    assert (without.leaks.excluded, without.data.photos) == (1, 23)
    assert evaluate(run, spec(colors), tmp_path / "out", options, leaks="skip").leaks is None


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_report")
def test_skips_pairs_with_leaking_photos(colors: Path, mean_color_bundle: Path, tmp_path: Path):
    shutil.copy(colors / "Person_00" / "Person_00_0001.png", colors / "Person_01" / "Person_01_0001.png")
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("Person_00\t1\t2\nPerson_02\t3\t4\nPerson_01\t2\tPerson_03\t1\n")
    results = evaluate(
        mean_color_bundle,
        spec(colors),
        tmp_path / "out",
        EvaluationOptions(("verification",), pairs_file=pairs),
        leaks="exclude",
    )
    assert results.leaks.excluded == 2
    assert (results.value("verification.same_pairs"), results.value("verification.different_pairs")) == (1, 1)


def test_rejects_invalid_csv_before_any_work(colors: Path, mean_color_bundle: Path, tmp_path: Path):
    (tmp_path / "facts.csv").write_text("name,coat\nTom,black\n")
    progress: list[str] = []
    with pytest.raises(BadDataset, match=r"facts\.csv"):
        evaluate(
            mean_color_bundle,
            spec(colors),
            tmp_path / "out",
            EvaluationOptions(slices=tmp_path / "facts.csv"),
            on_progress=progress.append,
        )
    assert not progress
    assert not (tmp_path / "out").exists()


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_report")
def test_resize_px_overrides_bundle_preprocessing(colors: Path, mean_color_bundle: Path, tmp_path: Path):
    # Only the center has the color of the identity; what is around it has a random color.
    generator = np.random.default_rng(0)
    for path in sorted(colors.rglob("*.png")):
        rgb_u8 = np.broadcast_to(generator.integers(0, 255, 3, np.uint8), (36, 36, 3)).copy()
        rgb_u8[9:27, 9:27] = np.array(PIL.Image.open(path))[9:27, 9:27]
        PIL.Image.fromarray(rgb_u8).save(path)
    options = EvaluationOptions(("verification",))
    uncropped = evaluate(mean_color_bundle, spec(colors), tmp_path / "out", options)
    cropped = evaluate(mean_color_bundle, spec(colors), tmp_path / "out", options, resize_px=64)
    aucs = [each.number("verification.auc") for each in (uncropped, cropped)]
    assert None not in aucs
    assert aucs[0] < aucs[1]
    assert cropped.model.resize_px == 64
    with pytest.raises(BadDataset, match="--resize-px"):
        evaluate(mean_color_bundle, spec(colors), tmp_path / "out", options, resize_px=20)


def test_report_escapes_folder_name(colors: Path, mean_color_bundle: Path, tmp_path: Path):
    renamed = tmp_path / "<script>alert(1)"
    colors.rename(renamed)
    evaluate(mean_color_bundle, spec(renamed), tmp_path / "out", ONE_SUITE)
    assert "<script>alert" not in (tmp_path / "out" / "report.html").read_text()
