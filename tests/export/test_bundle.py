import json
import shutil
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import familiar
from familiar.core.errors import BadBundle, BadRun, ParityFailed
from familiar.core.vectors import normalise
from familiar.datasets.folders import DataSpec, open_photo
from familiar.export import bundle as export
from familiar.export.bundle import UNKNOWN_LICENCE, calibrate, export_run
from familiar.faces import bundle as bundle_format
from familiar.faces.bundle import load_bundle, seal
from familiar.faces.embedder import Embedder, embed_photos
from familiar.loading.crops import read_table
from familiar.loading.dataset import FaceDataset
from familiar.metrics.retrieval import retrieval
from familiar.training import loop
from familiar.training.checkpoint import load_weights, save_weights
from familiar.training.fit import fit
from familiar.training.network import build_network
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder
from familiar.training.validation import embed_dataset

RECIPE = Recipe(name="tiny").with_settings(
    [
        *("model.name=mobilenetv3_small_050", "model.initial_weights=none", "model.embedding_dim=16"),
        *(
            "input.size_px=32",
            "input.resize_px=32",
            "sampler.batch_size=16",
        ),
        *("optimizer.lr=3e-3", "optimizer.backbone_lr=3e-3", "budget.epochs=2", "split.validation=0.4"),
    ]
)


@pytest.fixture(scope="module")
def cats(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos") / "my cats"
    table = DataSpec(("synthetic:cats:12x4",)).read()
    for photo, label in zip(table.photos, table.labels, strict=True):
        (root / f"cat {label}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(open_photo(photo, min_side_px=32).rgb_u8).save(
            root / f"cat {label}" / f"{photo.index}.png"
        )
    return root


@pytest.fixture(scope="module")
def run(tmp_path_factory, cats):
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "draw_curves", lambda *_: None)
        fit(RECIPE, DataSpec((str(cats),)), folder.path)
    return folder


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    return export_run(run.path, tmp_path_factory.mktemp("exported") / "cats.onnx")


@pytest.fixture
def known_model(exported, monkeypatch):
    """The network's ONNX, taken from the first export: the exporter takes seconds."""
    model = exported.onnx[: -len(_sealed_metadata(exported.onnx))]
    monkeypatch.setattr(export, "onnx_bytes", lambda *_: model)
    return model


def _sealed_metadata(content):
    """The last field of a bundle: key, length, then our JSON behind its own key and lengths."""
    start = content.rindex(b"familiar", 0, content.rindex(b'{"calibration"'))
    return content[content.rindex(b"\x72", 0, start) :]


def test_one_file_and_nothing_beside_it(exported):
    assert [path.name for path in exported.path.parent.iterdir()] == ["cats.onnx"]
    assert exported.path.read_bytes() == exported.onnx
    assert load_bundle(exported.path).metadata == exported.metadata


def test_in_float16_it_is_the_same_space_in_half_the_bytes(run, exported, tmp_path):
    half = export_run(run.path, tmp_path / "half.onnx", precision="float16")
    assert load_bundle(half.path).metadata.precision == "float16"
    assert len(half.onnx) < 0.52 * len(exported.onnx)
    assert half.metadata.space_id == exported.metadata.space_id
    assert half.file_id != exported.file_id
    assert 0 < half.metadata.parity["max_difference"] < 1e-2
    photos = DataSpec((str(run.data_spec().sources[0]),)).read().photos
    found, whole = (embed_photos(Embedder(bundle), photos).embeddings for bundle in (half, exported))
    assert (found * whole).sum(axis=1).min() > 0.9995


def test_it_embeds_photos_as_the_run_does(run, exported, cats):
    network = build_network(run.recipe())
    load_weights(run.embedder, network=network)
    read = read_table(DataSpec((str(cats),)).read(), run.recipe().input.preprocessing())
    expected = embed_dataset(network, FaceDataset(read.table, read.crops))
    found = embed_photos(Embedder(exported), read.table.photos)
    assert not found.skipped
    np.testing.assert_allclose(found.embeddings, expected, atol=1e-4)


def test_the_metadata_is_that_of_the_run(run, exported):
    metadata = exported.metadata
    assert metadata.preprocessing == run.recipe().input.preprocessing()
    assert (metadata.recipe, metadata.network) == ("tiny", "mobilenetv3_small_050")
    assert (metadata.embedding_dim, metadata.prefixes, metadata.precision) == (16, (16,), "float32")
    assert metadata.trained_on == {"my cats": {"identities": 5, "photos": 20}}
    assert metadata.licence == UNKNOWN_LICENCE
    assert metadata.parity["crops"] == 20
    assert metadata.parity["max_difference"] < 1e-4


def test_the_figures_are_those_of_the_validation_identities(run, exported, cats):
    table = DataSpec((str(cats),)).read().of_identities(run.split().validation)
    embeddings = embed_photos(Embedder(exported), table.photos).embeddings
    results, calibration = exported.metadata.results, exported.metadata.calibration
    assert (results["identities"], results["photos"]) == (5, 20)
    assert results["recall_at_1"] == pytest.approx(retrieval(embeddings, table.labels).recall_at_k[1])
    same = table.labels[:, None] == table.labels[None]
    above = np.triu(np.ones_like(same), 1)
    scores = embeddings @ embeddings.T
    positive, negative = scores[same & above], scores[~same & above]
    auc = np.mean([(p > n) + 0.5 * (p == n) for p in positive for n in negative])
    assert results["auc"] == pytest.approx(auc, abs=1e-3)
    assert (calibration.pairs_same, calibration.pairs_different) == (len(positive), len(negative))
    for point in (calibration.high_precision, calibration.balanced, calibration.high_recall):
        # Similarities of another batch size may fall on the other side of a threshold that is one of them.
        assert point.tar == pytest.approx((positive >= point.similarity).mean(), abs=1.01 / len(positive))
        assert point.far == pytest.approx((negative >= point.similarity).mean(), abs=1.01 / len(negative))
    assert calibration.slope > 0


def test_thresholds_are_fitted_to_pairs_or_fixed_where_these_are_too_few():
    generator = np.random.default_rng(0)
    rows = normalise(generator.normal(size=(40, 8)).astype(np.float32))
    known = calibrate(rows, np.arange(40) // 4)
    assert known.fitted
    assert known.target_far == pytest.approx(10 / known.pairs_different)  # ten false accepts, of 720 pairs
    assert known.high_precision.similarity >= known.balanced.similarity >= known.high_recall.similarity
    for labels in (np.arange(40), np.arange(40) // 2 * (np.arange(40) < 8) + 40 * (np.arange(40) >= 8)):
        few = calibrate(rows[:9], labels[:9])  # no same pair; four of them
        assert not few.fitted
        points = (few.high_precision, few.balanced, few.high_recall)
        assert [point.similarity for point in points] == [0.65, 0.55, 0.40]
        assert {(point.far, point.tar) for point in points} == {(None, None)}
        assert (few.calibration_error, few.intercept, few.target_far) == (None, None, None)


def test_more_same_pairs_than_fit_are_sampled(monkeypatch):
    generator = np.random.default_rng(0)
    rows = normalise(generator.normal(size=(60, 8)).astype(np.float32))
    labels = np.arange(60) // 20
    monkeypatch.setattr(export, "MAX_SAME_PAIRS", 500)
    few = calibrate(rows, labels)
    assert few.fitted
    assert few.pairs_same == 570


def test_a_bundle_that_was_never_calibrated_can_be_read(exported, tmp_path):
    fixed = calibrate(np.eye(3, 16, dtype=np.float32), np.arange(3))
    path = tmp_path / "fixed.onnx"
    network, _ = bundle_format._open_seals(exported.onnx, exported.path)
    path.write_bytes(seal(network, replace(exported.metadata, calibration=fixed)))
    assert load_bundle(path).metadata.calibration == fixed


def test_no_place_of_this_machine_is_inside(run, exported, cats):
    package = Path(familiar.__file__).parent
    for place in (package, package.parents[1], Path(sys.prefix), run.path, cats.parent, exported.path.parent):
        assert str(place).encode() not in exported.onnx, place
    assert b"site-packages" not in exported.onnx
    assert json.dumps(str(cats.parent)).encode() not in json.dumps(asdict(exported.metadata)).encode()


@pytest.mark.usefixtures("known_model")
def test_the_same_run_is_the_same_space_and_file(run, exported, tmp_path):
    again = export_run(run.path, tmp_path / "again.onnx", licence="Apache-2.0")
    assert again.metadata.space_id == exported.metadata.space_id
    assert again.file_id == exported.file_id
    assert again.metadata.licence == "Apache-2.0"


@pytest.mark.usefixtures("known_model")
def test_another_network_is_another_space(run, exported, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    other = RunFolder(tmp_path / "run")
    network = build_network(run.recipe())
    load_weights(run.embedder, network=network)
    with torch.no_grad():
        network.head.project.weight[0, 0] += 1e-7
    save_weights(other.embedder, network=network)
    assert export_run(other.path, tmp_path / "other.onnx").metadata.space_id != exported.metadata.space_id


@pytest.mark.usefixtures("known_model")
def test_photos_that_moved(run, exported, cats, tmp_path):
    shutil.copytree(cats, tmp_path / "elsewhere" / "my cats")
    moved = DataSpec((str(tmp_path / "elsewhere" / "my cats"),))
    shutil.copytree(run.path, tmp_path / "run")
    described = json.loads((tmp_path / "run" / "data.json").read_text())
    described["spec"]["sources"] = [str(tmp_path / "gone")]
    (tmp_path / "run" / "data.json").write_text(json.dumps(described))
    found = export_run(tmp_path / "run", tmp_path / "cats.onnx", moved)
    assert found.metadata == exported.metadata
    with pytest.raises(BadRun, match=r"say where they moved.*gone: no such folder"):
        export_run(tmp_path / "run", tmp_path / "other.onnx")
    assert not (tmp_path / "other.onnx").exists()


@pytest.mark.usefixtures("known_model")
def test_photos_of_others(run, tmp_path):
    with pytest.raises(BadRun, match="none of its validation identities"):
        export_run(run.path, tmp_path / "cats.onnx", DataSpec(("synthetic:cats:12x4",)))
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("known_model")
def test_a_photo_that_cannot_be_read_is_left_out(run, cats, tmp_path):
    shutil.copytree(cats, tmp_path / "my cats")
    spoilt = run.split().validation[0].split("/")[1]
    (tmp_path / "my cats" / spoilt / "0.png").write_bytes(b"no photo")
    found = export_run(run.path, tmp_path / "cats.onnx", DataSpec((str(tmp_path / "my cats"),)))
    assert found.metadata.parity["crops"] == 19


def test_a_network_that_computes_something_else_is_not_written(run, tmp_path, monkeypatch):
    """Neither is what lay there before touched."""

    def otherwise(*_):
        source = np.tile(np.eye(5, 16, dtype=np.float32), (4, 1))
        return source, -source

    monkeypatch.setattr(export, "onnx_bytes", lambda *_: b"")
    monkeypatch.setattr(export, "embed_with_both", otherwise)
    output = tmp_path / "cats.onnx"
    with pytest.raises(ParityFailed, match="nothing was written"):
        export_run(run.path, output)
    assert not list(tmp_path.iterdir())
    output.write_bytes(b"an earlier bundle")
    with pytest.raises(ParityFailed):
        export_run(run.path, output)
    assert output.read_bytes() == b"an earlier bundle"


@pytest.mark.parametrize("missing", ["recipe.json", "embedder.safetensors", "split.json", "data.json"])
def test_a_run_that_is_not_whole(run, tmp_path, missing):
    shutil.copytree(run.path, tmp_path / "run")
    (tmp_path / "run" / missing).unlink()
    with pytest.raises(BadRun, match=missing.replace(".", r"\.")):
        export_run(tmp_path / "run", tmp_path / "cats.onnx")
    assert not (tmp_path / "cats.onnx").exists()


@pytest.mark.usefixtures("known_model")
def test_the_folder_to_write_to_is_made(run, tmp_path):
    assert export_run(run.path, tmp_path / "new" / "folder" / "cats.onnx").path.exists()


def test_a_changed_byte_is_refused(exported, tmp_path):
    for place in (100, len(exported.onnx) // 2, len(exported.onnx) - 100):
        content = bytearray(exported.onnx)
        content[place] ^= 1
        (tmp_path / "changed.onnx").write_bytes(content)
        with pytest.raises(BadBundle):
            load_bundle(tmp_path / "changed.onnx")
