import json
import shutil
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import familiar
from familiar.core.errors import BadBundle, BadRecipe, BadRun, GateRefused, ParityFailed, TooLarge
from familiar.core.vectors import normalize
from familiar.datasets.folders import DataSpec
from familiar.embedding import bundle as bundle_format
from familiar.embedding.bundle import load_bundle, serialize_bundle
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from familiar.export import gate as gate_module
from familiar.export import run_export as export
from familiar.export.gate import Gate, GateMetrics
from familiar.export.onnx import onnx_bytes
from familiar.export.precision import PRECISIONS
from familiar.export.run_export import UNKNOWN_LICENSE, export_bundle
from familiar.loading.batches import PhotoBatches
from familiar.loading.crops import read_table
from familiar.loading.dataset import FaceDataset, sequential_batches
from familiar.metrics import pairs as pairs_module
from familiar.metrics.calibration import calibrate
from familiar.metrics.retrieval import retrieval_metrics
from familiar.neighbors import Centering
from familiar.training.checkpoint import load_weights, save_weights
from familiar.training.network import build_network
from familiar.training.run import RunFolder
from familiar.training.validation import embed_dataset

pytestmark = pytest.mark.slow

ANYTHING = Gate(1, 1)
BEFORE = GateMetrics(0.98, 0.05, 0.9, 0.96, {"1e-2": 0.5, "1e-3": None, "1e-4": None})
WORSE = replace(BEFORE, auc=0.96)


@pytest.fixture(scope="module")
def run(shared_run):
    return shared_run


@pytest.fixture(scope="module")
def cats(run):
    return Path(run.data_spec().sources[0])


@pytest.fixture(scope="module")
def exported(shared_bundle):
    return load_bundle(shared_bundle)


@pytest.fixture(scope="module")
def onnx_model(run):
    network = build_network(run.recipe())
    load_weights(run.embedder, network=network)
    return onnx_bytes(network, run.recipe().input.size_px)


@pytest.fixture
def known_model(onnx_model, monkeypatch):
    """Convert the network once for all tests, since torch's exporter takes seconds."""
    monkeypatch.setattr(export, "onnx_bytes", lambda *_: onnx_model)
    return onnx_model


@pytest.fixture
def set_exported_metrics(monkeypatch):
    """Set the metrics of the successive exports, instead of measuring them; those of the source are BEFORE."""

    def set_metrics(*exported_metrics):
        results = iter([metrics for after in exported_metrics for metrics in (BEFORE, after)])
        monkeypatch.setattr(export, "gate_metrics", lambda *_: next(results))

    return set_metrics


def _sealed_metadata(content):
    """Return the last field of a bundle: key, length, then the metadata JSON after its own key and lengths."""
    start = content.rindex(b"familiar", 0, content.rindex(b'{"calibration"'))
    return content[content.rindex(b"\x72", 0, start) :]


@pytest.mark.usefixtures("known_model")
def test_export_writes_one_file(run, tmp_path):
    made = export_bundle(run.path, tmp_path / "cats.onnx")
    assert list(tmp_path.iterdir()) == [made.path]
    assert made.path.read_bytes() == made.onnx
    assert load_bundle(made.path) == made


@pytest.mark.exhaustive
def test_float16_keeps_space_at_half_size(run, exported, tmp_path):
    half = export_bundle(run.path, tmp_path / "half.onnx", precisions=("float16",))
    assert load_bundle(half.path).metadata.precision == "float16"
    assert len(half.onnx) < 0.52 * len(exported.onnx)
    assert half.metadata.space_id == exported.metadata.space_id
    assert half.file_id != exported.file_id
    assert 0 < half.metadata.parity["max_difference"] < 1e-2
    photos = DataSpec((str(run.data_spec().sources[0]),)).read().photos
    halved, whole = (embed_photos(Embedder(each), photos).embeddings for each in (half, exported))
    assert (halved * whole).sum(axis=1).min() > 0.999  # of 96 photos; the parity check needs .995


def test_embeddings_match_run(run, exported, cats):
    network = build_network(run.recipe())
    load_weights(run.embedder, network=network)
    read = read_table(DataSpec((str(cats),)).read(), run.recipe().input.preprocessing())
    expected = embed_dataset(network, FaceDataset(read.table, read.crops))
    report = embed_photos(Embedder(exported), read.table.photos)
    assert not report.skipped
    np.testing.assert_allclose(report.embeddings, expected, atol=1e-4)


def test_metadata_matches_run(run, exported):
    metadata = exported.metadata
    assert metadata.preprocessing == run.recipe().input.preprocessing()
    assert (metadata.recipe, metadata.network) == ("tiny", "simple_v2")
    assert (metadata.embedding_dim, metadata.prefixes, metadata.precision) == (16, (16,), "float32")
    assert metadata.trained_on == {"my cats": {"identities": 5, "photos": 40}}
    assert metadata.license == UNKNOWN_LICENSE
    assert metadata.parity["crops"] == 40
    assert metadata.parity["max_difference"] < 1e-4
    assert 0.99999 < metadata.parity["min_cosine"] <= metadata.parity["mean_cosine"] < 1 + 1e-6


def test_results_and_calibration_match_validation_identities(run, exported, cats):
    table = DataSpec((str(cats),)).read().select_identities(run.split().validation)
    embeddings = embed_photos(Embedder(exported), table.photos).embeddings
    results, calibration = exported.metadata.results, exported.metadata.calibration
    assert (results["identities"], results["photos"]) == (5, 40)
    assert results["recall_at_1"] == pytest.approx(retrieval_metrics(embeddings, table.labels).recall_at_k[1])
    same = table.labels[:, None] == table.labels[None]
    above = np.triu(np.ones_like(same), 1)
    scores = embeddings @ embeddings.T
    positive, negative = scores[same & above], scores[~same & above]
    auc = np.mean([(p > n) + 0.5 * (p == n) for p in positive for n in negative])
    assert results["auc"] == pytest.approx(auc, abs=1e-3)
    thresholds = [*scores[above], np.inf]
    errors = np.array([((positive < t).mean(), (negative >= t).mean()) for t in thresholds])
    assert results["best_accuracy"] == pytest.approx(1 - errors.mean(axis=1).min(), abs=2e-3)
    assert results["eer"] == pytest.approx(errors.max(axis=1).min(), abs=1e-2)
    assert results["tar_at_far"] == {"1e-2": None, "1e-3": None, "1e-4": None}, "640 pairs are too few"
    source = exported.metadata.parity["source"]
    assert source == {name: pytest.approx(results[name], abs=1e-2) for name in source}
    assert (calibration.pairs_same, calibration.pairs_different) == (len(positive), len(negative))
    for point in (calibration.high_precision, calibration.balanced, calibration.high_recall):
        # Similarities of another batch size may fall on the other side of a threshold that is one of them.
        assert point.tar == pytest.approx((positive >= point.similarity).mean(), abs=1.01 / len(positive))
        assert point.far == pytest.approx((negative >= point.similarity).mean(), abs=1.01 / len(negative))
    assert calibration.slope > 0


@pytest.mark.usefixtures("known_model")
def test_centered_bundle_has_means_of_collections_and_their_calibration(run, exported, cats, tmp_path):
    copy = RunFolder(shutil.copytree(run.path, tmp_path / "run"))
    copy.recipe_json.write_text(copy.recipe().with_settings(["model.centered=true"]).to_json())
    made = export_bundle(copy.path, tmp_path / "centered.onnx")
    means = made.metadata.species_means
    assert exported.metadata.species_means is None
    table = DataSpec((str(cats),)).read()
    train, held_out = (table.select_identities(names) for names in (run.split().train, run.split().validation))
    embedder = Embedder(made)
    mean = embed_photos(embedder, train.photos).embeddings.mean(axis=0)
    assert list(means.means) == [cats.name]
    np.testing.assert_allclose(means.rows()[0], mean, atol=1e-3)
    embeddings = embed_photos(embedder, held_out.photos).embeddings
    centered = Centering.fit(embeddings, means.rows()).apply(embeddings)
    expected = calibrate(centered, held_out.labels)
    assert means.calibration.slope == pytest.approx(expected.slope, rel=0.05)
    assert means.calibration.balanced.similarity == pytest.approx(expected.balanced.similarity, abs=0.01)
    assert means.calibration.balanced != made.metadata.calibration.balanced


@pytest.fixture
def nested(run, tmp_path):
    """The run, as if it had been trained with a prefix of 8 components."""
    copy = RunFolder(shutil.copytree(run.path, tmp_path / "nested"))
    settings = ["loss.prefixes=8,16", "loss.prefix_weights=0.5,0.5"]
    copy.recipe_json.write_text(copy.recipe().with_settings(settings).to_json())
    return copy


def test_truncated_bundle_is_comparable_smaller_and_calibrated_at_its_length(nested, exported, cats, tmp_path):
    whole = export_bundle(nested.path, tmp_path / "whole.onnx")
    short = export_bundle(nested.path, tmp_path / "short.onnx", components=8)
    assert whole.metadata.space == (short.metadata.space_id, 16, (8, 16))
    assert short.metadata.space == (exported.metadata.space_id, 8, (8,))
    assert len(short.onnx) < len(whole.onnx)
    photos = DataSpec((str(cats),)).read().select_identities(nested.split().validation)
    embeddings = embed_photos(Embedder(whole), photos.photos).embeddings
    truncated = embed_photos(Embedder(short), photos.photos).embeddings
    np.testing.assert_allclose(truncated, normalize(embeddings[:, :8]), atol=1e-4)
    expected = calibrate(normalize(embeddings[:, :8]), photos.labels)
    assert short.metadata.prefix_calibrations == {}
    assert short.metadata.calibration.slope == pytest.approx(expected.slope, rel=1e-3)
    assert whole.metadata.prefix_calibrations[8].slope == pytest.approx(expected.slope, rel=1e-3)
    assert whole.metadata.calibration.slope != pytest.approx(expected.slope, rel=1e-3)
    assert short.metadata.results["auc"] == pytest.approx(
        export.gate_metrics(normalize(embeddings[:, :8]), photos.labels).auc,
        abs=0.01,  # so few pairs that rounding may change the order of some
    )


@pytest.mark.usefixtures("known_model")
def test_rejects_lengths_that_were_not_trained(run, nested, tmp_path):
    with pytest.raises(
        BadRecipe, match=r"have 16 components, not 8; shorter ones must be trained: --set loss.prefixes"
    ):
        export_bundle(run.path, tmp_path / "short.onnx", components=8)
    with pytest.raises(BadRecipe, match="have 8, 16 components, not 4"):
        export_bundle(nested.path, tmp_path / "short.onnx", components=4)
    assert not (tmp_path / "short.onnx").exists()


@pytest.mark.exhaustive
def test_centered_prefixes_are_calibrated_less_their_means(nested, cats, tmp_path):
    nested.recipe_json.write_text(nested.recipe().with_settings(["model.centered=true"]).to_json())
    made = export_bundle(nested.path, tmp_path / "centered.onnx")
    photos = DataSpec((str(cats),)).read().select_identities(nested.split().validation)
    short = normalize(embed_photos(Embedder(made), photos.photos).embeddings[:, :8])
    centered = Centering.fit(short, made.metadata.species_means.rows()[:, :8]).apply(short)
    expected = calibrate(centered, photos.labels)
    assert made.metadata.prefix_calibrations[8].slope == pytest.approx(expected.slope, rel=0.05)


def test_thresholds_are_fixed_when_pairs_are_too_few():
    generator = np.random.default_rng(0)
    rows = normalize(generator.normal(size=(40, 8)).astype(np.float32))
    known = calibrate(rows, np.arange(40) // 4)
    assert known.fitted
    assert known.target_far == pytest.approx(10 / known.pairs_different)  # ten false accepts, of 720 pairs
    assert known.high_precision.similarity >= known.balanced.similarity >= known.high_recall.similarity
    for labels in (np.arange(40), np.arange(40) // 2 * (np.arange(40) < 8) + 40 * (np.arange(40) >= 8)):
        few = calibrate(rows[:9], labels[:9])  # no same pair, then four
        assert not few.fitted
        points = (few.high_precision, few.balanced, few.high_recall)
        assert [point.similarity for point in points] == [0.65, 0.55, 0.40]
        assert {(point.far, point.tar) for point in points} == {(None, None)}
        assert (few.calibration_error, few.intercept, few.target_far) == (None, None, None)


def test_calibration_reports_full_pair_count_above_limit(monkeypatch):
    generator = np.random.default_rng(0)
    rows = normalize(generator.normal(size=(60, 8)).astype(np.float32))
    labels = np.arange(60) // 20
    monkeypatch.setattr(pairs_module, "MAX_SAME_PAIRS", 500)
    few = calibrate(rows, labels)
    assert few.fitted
    assert few.pairs_same == 570


def test_reads_bundle_without_fitted_calibration(exported, tmp_path):
    fixed = calibrate(np.eye(3, 16, dtype=np.float32), np.arange(3))
    path = tmp_path / "fixed.onnx"
    network, _ = bundle_format._verify_metadata(exported.onnx, exported.path)
    path.write_bytes(serialize_bundle(network, replace(exported.metadata, calibration=fixed)))
    assert load_bundle(path).metadata.calibration == fixed


def test_bundle_contains_no_local_paths(run, exported, cats):
    package = Path(familiar.__file__).parent
    for folder in (package, package.parents[1], Path(sys.prefix), run.path, cats.parent, exported.path.parent):
        assert str(folder).encode() not in exported.onnx, folder
    assert b"site-packages" not in exported.onnx
    assert json.dumps(str(cats.parent)).encode() not in json.dumps(asdict(exported.metadata)).encode()


@pytest.mark.usefixtures("known_model")
def test_repeated_export_has_same_space_and_file_id(run, exported, tmp_path):
    again = export_bundle(run.path, tmp_path / "again.onnx", license="Apache-2.0")
    assert again.metadata.space_id == exported.metadata.space_id
    assert again.file_id == exported.file_id
    assert again.metadata.license == "Apache-2.0"


@pytest.mark.exhaustive
@pytest.mark.usefixtures("known_model")
def test_changed_weights_change_space(run, exported, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    other = RunFolder(tmp_path / "run")
    network = build_network(run.recipe())
    load_weights(run.embedder, network=network)
    with torch.no_grad():
        network.head.project.weight[0, 0] += 1e-7
    save_weights(other.embedder, network=network)
    assert export_bundle(other.path, tmp_path / "other.onnx").metadata.space_id != exported.metadata.space_id


@pytest.mark.usefixtures("known_model")
def test_accepts_new_location_of_moved_photos(run, exported, cats, tmp_path):
    shutil.copytree(cats, tmp_path / "elsewhere" / "my cats")
    moved = DataSpec((str(tmp_path / "elsewhere" / "my cats"),))
    shutil.copytree(run.path, tmp_path / "run")
    described = json.loads((tmp_path / "run" / "data.json").read_text())
    described["spec"]["sources"] = [str(tmp_path / "gone")]
    (tmp_path / "run" / "data.json").write_text(json.dumps(described))
    bundle = export_bundle(tmp_path / "run", tmp_path / "cats.onnx", moved)
    assert bundle.metadata == exported.metadata
    with pytest.raises(BadRun, match=r"give their new folders with --data.*gone: no such folder"):
        export_bundle(tmp_path / "run", tmp_path / "other.onnx")
    assert not (tmp_path / "other.onnx").exists()


@pytest.mark.usefixtures("known_model")
def test_rejects_photos_of_other_identities(run, tmp_path):
    with pytest.raises(BadRun, match="none of the run's validation identities"):
        export_bundle(run.path, tmp_path / "cats.onnx", DataSpec(("synthetic:cats:12x8",)))
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("known_model")
def test_skips_unreadable_validation_photo(run, cats, tmp_path):
    shutil.copytree(cats, tmp_path / "my cats")
    spoilt = run.split().validation[0].split("/")[1]
    (tmp_path / "my cats" / spoilt / "0.png").write_bytes(b"no photo")
    bundle = export_bundle(run.path, tmp_path / "cats.onnx", DataSpec((str(tmp_path / "my cats"),)))
    assert bundle.metadata.parity["crops"] == 39


def test_parity_failure_writes_nothing(run, tmp_path, monkeypatch):
    """An earlier file at the output path is not touched either."""

    source = np.tile(np.eye(5, 16, dtype=np.float32), (8, 1))
    monkeypatch.setattr(export, "onnx_bytes", lambda *_: b"")
    monkeypatch.setattr(export, "take_pixels", lambda *_: None)
    monkeypatch.setattr(export, "embed_with_source", lambda *_: source)
    monkeypatch.setattr(export, "embed_with_export", lambda *_: -source)
    output = tmp_path / "cats.onnx"
    with pytest.raises(ParityFailed, match="nothing was written"):
        export_bundle(run.path, output)
    assert not list(tmp_path.iterdir())
    output.write_bytes(b"an earlier bundle")
    with pytest.raises(ParityFailed):
        export_bundle(run.path, output)
    assert output.read_bytes() == b"an earlier bundle"


@pytest.mark.parametrize("missing", ["recipe.json", "embedder.safetensors", "split.json", "data.json"])
def test_rejects_incomplete_run(run, tmp_path, missing):
    shutil.copytree(run.path, tmp_path / "run")
    (tmp_path / "run" / missing).unlink()
    with pytest.raises(BadRun, match=missing.replace(".", r"\.")):
        export_bundle(tmp_path / "run", tmp_path / "cats.onnx")
    assert not (tmp_path / "cats.onnx").exists()


@pytest.mark.usefixtures("known_model")
def test_creates_output_folder(run, tmp_path):
    assert export_bundle(run.path, tmp_path / "new" / "folder" / "cats.onnx").path.exists()


def test_rejects_changed_byte(exported, tmp_path):
    for offset in (100, len(exported.onnx) // 2, len(exported.onnx) - 100):
        content = bytearray(exported.onnx)
        content[offset] ^= 1
        (tmp_path / "changed.onnx").write_bytes(content)
        with pytest.raises(BadBundle):
            load_bundle(tmp_path / "changed.onnx")


@pytest.mark.one_case
@pytest.mark.usefixtures("known_model")
@pytest.mark.parametrize(("precision", "most"), [("int8-weights", 0.35), ("int8", 0.45), ("int4-weights", 0.25)])
def test_8_bit_bundle_loads_and_reports_its_loss(run, exported, tmp_path, precision, most):
    bundle = export_bundle(run.path, tmp_path / "cats.onnx", precisions=(precision,), gate=ANYTHING)
    assert bundle == load_bundle(tmp_path / "cats.onnx")
    assert bundle.metadata.precision == precision
    assert len(bundle.onnx) < most * len(exported.onnx)
    table = DataSpec((str(run.data_spec().sources[0]),)).read().select_identities(run.split().validation)
    quantized, whole = (embed_photos(Embedder(each), table.photos).embeddings for each in (bundle, exported))
    parity, results = bundle.metadata.parity, bundle.metadata.results
    cosines = (quantized * whole).sum(axis=1)
    assert parity["crops"] == 40
    assert parity["mean_cosine"] == pytest.approx(cosines.mean(), abs=2e-2)
    assert parity["min_cosine"] < parity["mean_cosine"] < 0.99999
    assert parity["max_difference"] > 1e-4
    before = exported.metadata.results
    assert parity["source"] == {name: pytest.approx(before[name], abs=1e-2) for name in parity["source"]}
    assert results["auc"] == pytest.approx(gate_module.gate_metrics(quantized, table.labels).auc, abs=2e-2)
    assert results["auc"] != before["auc"]
    assert bundle.metadata.calibration != exported.metadata.calibration


@pytest.mark.exhaustive
@pytest.mark.usefixtures("known_model")
def test_mixed_bundle_is_smaller_and_close_to_source(run, exported, tmp_path):
    bundle = export_bundle(run.path, tmp_path / "cats.onnx", precisions=("mixed",), gate=ANYTHING)
    assert bundle.metadata.precision == "mixed"
    assert len(bundle.onnx) < 0.45 * len(exported.onnx)
    photos = run.data_spec().read().photos
    quantized, whole = (embed_photos(Embedder(each), photos).embeddings for each in (bundle, exported))
    assert (quantized * whole).sum(axis=1).mean() > 0.97


@pytest.mark.exhaustive
@pytest.mark.usefixtures("known_model")
def test_8_bit_calibration_uses_training_photos(run, tmp_path, monkeypatch):
    seen = {}

    def quantize_all(model, photos):
        seen["photos"] = photos
        return model

    monkeypatch.setattr(export, "quantize_all", quantize_all)
    export_bundle(run.path, tmp_path / "cats.onnx", precisions=("int8",))
    trained = run.data_spec().read().select_identities(run.split().train)
    read = read_table(trained, run.recipe().input.preprocessing())
    batch = next(
        iter(PhotoBatches(FaceDataset(read.table, read.crops), sequential_batches(range(40), 40), torch.device("cpu")))
    )
    assert seen["photos"].shape == (40, 3, 32, 32)
    np.testing.assert_array_equal(seen["photos"], batch.images.numpy())
    monkeypatch.setattr(export, "CALIBRATION_PHOTOS", 33)
    first = seen["photos"]
    export_bundle(run.path, tmp_path / "cats.onnx", precisions=("int8",))
    assert len(seen["photos"]) == 33
    assert {photo.tobytes() for photo in seen["photos"]} < {photo.tobytes() for photo in first}
    again = seen["photos"]
    export_bundle(run.path, tmp_path / "cats.onnx", precisions=("int8",))
    np.testing.assert_array_equal(seen["photos"], again)


@pytest.mark.usefixtures("known_model")
def test_weights_are_rounded_with_the_given_photos(run, tmp_path, monkeypatch):
    counts = []
    monkeypatch.setattr(export, "quantize_weights", lambda model, photos: counts.append(len(photos)) or model)
    for photos in (None, "synthetic:cats:5x7"):
        export_bundle(run.path, tmp_path / "cats.onnx", precisions=("int8-weights",), rounding_photos=photos)
    assert counts == [40, 35]


@pytest.mark.one_case
@pytest.mark.usefixtures("known_model")
@pytest.mark.parametrize("photos_per_identity", [0, 6])
def test_rejects_too_few_calibration_photos(run, cats, tmp_path, photos_per_identity):
    """Even though all validation photos are there."""
    shutil.copytree(cats, tmp_path / "my cats")
    for name in run.split().train:
        for photo in sorted((tmp_path / "my cats" / name.split("/")[1]).iterdir())[photos_per_identity:]:
            photo.unlink()
        if not photos_per_identity:
            (tmp_path / "my cats" / name.split("/")[1]).rmdir()
    moved, output = DataSpec((str(tmp_path / "my cats"),)), tmp_path / "cats.onnx"
    for precision in ("int8", "int8-weights", "mixed"):
        with pytest.raises(BadRun, match=rf"trained on: {5 * photos_per_identity} of them can be read, .* with --data"):
            export_bundle(run.path, output, moved, precisions=(precision,))
    assert not output.exists()
    assert export_bundle(run.path, output, moved, precisions=("float16", "int8")).metadata.precision == "float16"


@pytest.mark.exhaustive
@pytest.mark.usefixtures("known_model")
def test_counts_only_readable_calibration_photos(run, cats, tmp_path, caplog):
    shutil.copytree(cats, tmp_path / "my cats")
    spoilt = [photo for name in run.split().train for photo in (tmp_path / name).iterdir()]
    moved = DataSpec((str(tmp_path / "my cats"),))
    spoilt[0].write_bytes(b"no photo")
    two = ("int8-weights", "int8")
    with pytest.raises(TooLarge):
        export_bundle(run.path, tmp_path / "cats.onnx", moved, precisions=two, max_bytes=1, gate=ANYTHING)
    assert [record.getMessage() for record in caplog.records if "skipped" in record.getMessage()] == [
        f"skipped {spoilt[0]}: not a photo (supported: JPEG, HEIC, AVIF, PNG, WebP, BMP, TIFF, GIF, PPM)"
    ]
    for photo in spoilt[:20]:
        photo.write_bytes(b"no photo")
    with pytest.raises(BadRun, match="trained on: 20 of them can be read"):
        export_bundle(run.path, tmp_path / "cats.onnx", moved, precisions=("int8",))
    for photo in spoilt[20:]:
        photo.write_bytes(b"no photo")
    with pytest.raises(BadRun, match="trained on: 0 of them can be read"):
        export_bundle(run.path, tmp_path / "cats.onnx", moved, precisions=("int8",))


@pytest.mark.one_case
@pytest.mark.usefixtures("known_model")
@pytest.mark.parametrize("precision", ["float16", "int8-weights"])
def test_gate_refusal_writes_nothing(run, tmp_path, set_exported_metrics, precision):
    """An earlier file at the output path is not touched either."""
    output = tmp_path / "new" / "cats.onnx"
    set_exported_metrics(WORSE)
    with pytest.raises(GateRefused, match=rf"tiny in {precision} loses too much: ROC AUC 0\.9800 -> 0\.9600"):
        export_bundle(run.path, output, precisions=(precision,))
    assert not output.parent.exists()
    output.parent.mkdir()
    output.write_bytes(b"an earlier bundle")
    set_exported_metrics(WORSE)
    with pytest.raises(GateRefused):
        export_bundle(run.path, output, precisions=(precision,))
    assert [path.read_bytes() for path in output.parent.iterdir()] == [b"an earlier bundle"]


@pytest.mark.exhaustive
@pytest.mark.usefixtures("known_model")
def test_only_passing_export_shares_space_with_run(run, exported, tmp_path, set_exported_metrics):
    """Also if the gate lets everything through."""
    spaces = {}
    for name, loss in {"passes": replace(BEFORE, auc=0.97), "lost": WORSE, "again": WORSE}.items():
        set_exported_metrics(loss)
        bundle = export_bundle(run.path, tmp_path / "cats.onnx", precisions=("float16",), gate=ANYTHING)
        assert bundle.metadata.results["auc"] == loss.auc
        assert bundle.metadata.parity["source"] == asdict(BEFORE)
        spaces[name] = bundle.metadata.space_id
    assert spaces["passes"] == exported.metadata.space_id
    assert spaces["lost"] == spaces["again"] != spaces["passes"]
    set_exported_metrics(WORSE)
    other = export_bundle(run.path, tmp_path / "cats.onnx", precisions=("int8-weights",), gate=ANYTHING)
    assert other.metadata.space_id not in spaces.values()
    set_exported_metrics(replace(BEFORE, auc=0.975))
    with pytest.raises(GateRefused, match=r"may drop by 0\.001 at most"):
        export_bundle(run.path, tmp_path / "cats.onnx", gate=Gate(0.001, 0.02))


@pytest.mark.one_case
@pytest.mark.parametrize(("cosine", "same"), [(0.96, True), (0.94, False)])
def test_low_mean_cosine_changes_space(run, exported, tmp_path, monkeypatch, set_exported_metrics, cosine, same):
    """However good it is by itself: no metric of the gate compares its embeddings with its source's."""
    source = np.tile(np.eye(5, 16, dtype=np.float32), (8, 1))
    elsewhere = np.float32(cosine) * source + np.float32(np.sqrt(1 - cosine**2)) * np.roll(source, 5, axis=1)
    monkeypatch.setattr(export, "onnx_bytes", lambda *_: exported.onnx)
    monkeypatch.setattr(export, "quantize_all", lambda *_: b"")
    monkeypatch.setattr(export, "take_pixels", lambda *_: None)
    monkeypatch.setattr(export, "embed_with_source", lambda *_: source)
    monkeypatch.setattr(export, "embed_with_export", lambda *_: elsewhere)
    set_exported_metrics(BEFORE)
    bundle = export_bundle(run.path, tmp_path / "cats.onnx", precisions=("int8",)).metadata
    assert bundle.parity["mean_cosine"] == pytest.approx(cosine)
    assert (bundle.space_id == exported.metadata.space_id) is same


@pytest.mark.usefixtures("known_model")
def test_compatible_run_keeps_old_space_only_if_gate_passes(run, tmp_path, set_exported_metrics):
    shutil.copytree(run.path, tmp_path / "run")
    described = json.loads((tmp_path / "run" / "data.json").read_text())
    described["compatible"] = {"space_id": "of another", "components": 8}
    (tmp_path / "run" / "data.json").write_text(json.dumps(described))
    set_exported_metrics(BEFORE, WORSE)
    passing, failing = (
        export_bundle(tmp_path / "run", tmp_path / "cats.onnx", gate=ANYTHING).metadata for _ in range(2)
    )
    assert passing.space_id == "of another" != failing.space_id
    assert passing.prefixes == failing.prefixes == (8, 16)


@pytest.mark.usefixtures("known_model")
def test_metadata_lists_teacher_spaces(run, exported, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    described = json.loads((tmp_path / "run" / "data.json").read_text())
    described["distilled"] = {"space_ids": ["of one", "of another"]}
    (tmp_path / "run" / "data.json").write_text(json.dumps(described))
    bundle = export_bundle(tmp_path / "run", tmp_path / "cats.onnx").metadata
    assert exported.metadata.taught_by == ()
    assert bundle == replace(exported.metadata, taught_by=("of one", "of another"))


@pytest.mark.usefixtures("known_model")
def test_without_validation_pairs_8_bit_export_is_rejected(run, cats, exported, tmp_path):
    """The loss from 8 bits cannot be measured; in float16 the parity check is enough."""
    shutil.copytree(cats, tmp_path / "my cats")
    for name in run.split().validation:
        for photo in sorted((tmp_path / name).iterdir())[1:]:
            photo.unlink()
    moved, output = DataSpec((str(tmp_path / "my cats"),)), tmp_path / "cats.onnx"
    for precision in ("int8-weights", "int8"):
        with pytest.raises(BadRun, match=f"the loss from {precision} cannot be measured"):
            export_bundle(run.path, output, moved, precisions=(precision,))
    assert not output.exists()
    bundle = export_bundle(run.path, output, moved, precisions=("float16",)).metadata
    assert bundle.parity["source"] is None
    assert bundle.results == {
        "on": "the run's validation identities",
        "identities": 5,
        "photos": 5,
        **dict.fromkeys(("auc", "eer", "best_accuracy", "recall_at_1", "tar_at_far")),
    }
    assert bundle.space_id == exported.metadata.space_id
    assert not bundle.calibration.fitted


@pytest.mark.exhaustive
@pytest.mark.usefixtures("known_model")
def test_takes_first_precision_within_max_bytes(run, exported, tmp_path):
    three = ("float32", "float16", "int8-weights")
    sizes = {}
    for precision in three:
        made = export_bundle(run.path, tmp_path / "cats.onnx", precisions=(precision,), gate=ANYTHING)
        sizes[precision] = len(made.onnx)
    assert sizes["float32"] == len(exported.onnx)
    for precision, max_bytes in [
        ("float32", None),
        ("float32", sizes["float32"]),
        ("float16", sizes["float32"] - 1),
        ("float16", sizes["float16"]),
        ("int8-weights", sizes["float16"] - 1),
        ("int8-weights", sizes["int8-weights"]),
    ]:
        bundle = export_bundle(run.path, tmp_path / "cats.onnx", precisions=three, max_bytes=max_bytes, gate=ANYTHING)
        assert bundle.metadata.precision == precision
        assert len(bundle.onnx) == (tmp_path / "cats.onnx").stat().st_size <= (max_bytes or 10**9)
    smallest = sizes["int8-weights"]
    message = rf"tiny: the smallest bundle has {smallest:,} bytes \(in int8-weights\), more than the {smallest - 1:,}"
    with pytest.raises(TooLarge, match=message):
        export_bundle(run.path, tmp_path / "none.onnx", precisions=three, max_bytes=smallest - 1, gate=ANYTHING)
    assert not (tmp_path / "none.onnx").exists()


@pytest.mark.exhaustive
@pytest.mark.usefixtures("known_model")
def test_stops_at_first_precision_that_fits(run, tmp_path, monkeypatch):
    tried = []

    def sealed(_source, precision, *_):
        tried.append(precision)
        return made

    made = export_bundle(run.path, tmp_path / "cats.onnx").onnx
    monkeypatch.setattr(export, "_build_bundle", sealed)
    export_bundle(run.path, tmp_path / "cats.onnx", precisions=PRECISIONS, max_bytes=10**9)
    assert tried == ["float32"]


@pytest.mark.exhaustive
@pytest.mark.usefixtures("known_model")
def test_skips_precision_refused_by_gate(run, tmp_path, set_exported_metrics):
    """If all are refused or too large, the error gives the reason."""
    two, output = ("float32", "float16"), tmp_path / "cats.onnx"
    set_exported_metrics(WORSE, BEFORE)
    assert export_bundle(run.path, output, precisions=two).metadata.precision == "float16"
    whole = output.stat().st_size
    output.unlink()
    set_exported_metrics(BEFORE, WORSE)
    with pytest.raises(TooLarge, match=r"the smallest bundle that passes has [\d,]+ bytes \(in float32\)"):
        export_bundle(run.path, output, precisions=two, max_bytes=whole)
    set_exported_metrics(WORSE, replace(WORSE, auc=0.9))
    with pytest.raises(GateRefused, match=r"in float16 loses too much: ROC AUC 0\.9800 -> 0\.9000"):
        export_bundle(run.path, output, precisions=two, max_bytes=whole)
    assert not output.exists()


@pytest.mark.usefixtures("known_model")
def test_skips_float16_when_weights_overflow(run, tmp_path, monkeypatch):
    def too_far(_):
        raise ParityFailed("the weight reaches 1e+05")

    monkeypatch.setattr(export, "to_float16", too_far)
    output = tmp_path / "cats.onnx"
    with pytest.raises(ParityFailed, match="reaches"):
        export_bundle(run.path, output, precisions=("float16",))
    assert not output.exists()
    assert export_bundle(run.path, output, precisions=("float16", "float32")).metadata.precision == "float32"
