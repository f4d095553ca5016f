import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from string import ascii_letters
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from familiar.core.errors import BadBundle, BadRecipe, BadRun, CannotWrite, GateRefused
from familiar.core.types import Crop
from familiar.embedding.bundle import load_bundle, network_bytes, serialize_bundle
from familiar.embedding.embedder import Embedder
from familiar.embedding.species.classifier import SpeciesClassifier
from familiar.embedding.species.routed_embeddings import RoutedEmbeddings
from familiar.embedding.species.router import RoutedEmbedder
from familiar.embedding.species.router_file import load_router, write_router
from familiar.embedding.species.verification import verify_routed
from familiar.export import export_router
from familiar.export import run_export as run_export_module
from familiar.export.router_export import ROUTER
from support.mean_color_bundle import CALIBRATED, write_mean_color_bundle
from support.tiny_router import NAMES, color_classifier, colored, mosaic_bundle, save_colored, tiny_router

COLORS = {"cat": (200, 20, 20), "dog": (20, 200, 20), "person": (20, 20, 200)}
MakeRouter = Callable[..., Path]


@pytest.fixture
def original(mean_color_bundle: Path, tmp_path: Path) -> Path:
    """A router whose bundles lie in several folders."""
    features = tmp_path / "made" / "features.onnx"
    bundles = tmp_path / "elsewhere" / "bundles"
    features.parent.mkdir()
    bundles.mkdir(parents=True)
    shutil.copy(mean_color_bundle, features)
    path = tmp_path / "made" / "mine.json"
    write_router(path, tiny_router(features, bundles))
    return path


def embed(router: RoutedEmbedder) -> RoutedEmbeddings:
    colors = [*COLORS.values(), *COLORS.values(), (120, 120, 120)]
    return router.embed([Crop(colored(rgb, str(row), 64, row).rgb_u8, str(row)) for row, rgb in enumerate(colors)])


def assert_same_embeddings(actual: RoutedEmbeddings, expected: RoutedEmbeddings) -> None:
    assert list(map(str, actual.skipped)) == list(map(str, expected.skipped))
    assert actual.by_species.keys() == expected.by_species.keys()
    for species, each in expected.by_species.items():
        for name in ("rows", "probabilities", "embeddings"):
            np.testing.assert_array_equal(getattr(actual.by_species[species], name), getattr(each, name))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_moved_folder_embeds_and_verifies_as_the_original(original: Path, tmp_path: Path):
    expected = embed(load_router(original))
    first, second = (save_colored(tmp_path / f"{seed}.png", COLORS["cat"], seed) for seed in range(2))
    verified = verify_routed(load_router(original), first, second)
    exported = export_router(original, tmp_path / "out" / "shipped")
    assert_same_embeddings(embed(exported), expected)
    moved = (tmp_path / "out").rename(tmp_path / "moved") / "shipped"
    shutil.rmtree(tmp_path / "made")
    shutil.rmtree(tmp_path / "elsewhere")
    assert_same_embeddings(embed(load_router(moved / ROUTER)), expected)
    assert verify_routed(load_router(moved / ROUTER), first, second) == verified
    assert set(contents(moved)) == {ROUTER, "cat.onnx", "dog.onnx", "classifier.onnx"}
    references = json.loads((moved / ROUTER).read_bytes())["species_bundles"]
    assert {name: reference["path"] for name, reference in references.items()} == {
        "cat": "cat.onnx",
        "dog": "dog.onnx",
    }
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_each_different_bundle_is_copied_once(mean_color_bundle: Path, tmp_path: Path):
    features = Embedder(mean_color_bundle)
    same = Embedder(Path(shutil.copy(mean_color_bundle, tmp_path / "same content.onnx")))
    router = RoutedEmbedder(features, color_classifier(), {"cat": features, "dog": same})
    write_router(tmp_path / "r.json", router)
    exported = export_router(tmp_path / "r.json", tmp_path / "shipped")
    assert set(contents(tmp_path / "shipped")) == {ROUTER, "cat+dog.onnx"}
    assert exported.embedders["cat"] is exported.embedders["dog"] is exported.feature_embedder
    assert_same_embeddings(embed(exported), embed(router))


def test_bundles_of_one_network_with_other_calibrations_are_kept_apart(mean_color_bundle: Path, tmp_path: Path):
    bundle = load_bundle(mean_color_bundle)
    calibration = replace(CALIBRATED, slope=3.0)
    other = tmp_path / "other.onnx"
    other.write_bytes(serialize_bundle(network_bytes(bundle), replace(bundle.metadata, calibration=calibration)))
    assert load_bundle(other).file_id == bundle.file_id
    router = RoutedEmbedder(Embedder(bundle), color_classifier(), {"cat": Embedder(other)})
    write_router(tmp_path / "r.json", router)
    exported = export_router(tmp_path / "r.json", tmp_path / "shipped")
    assert exported.embedders["cat"].metadata.calibration == calibration
    assert exported.feature_embedder.metadata.calibration == CALIBRATED


@given(
    names=st.lists(
        st.text(ascii_letters + "ÄäßéЖ_-0", min_size=1, max_size=90) | st.sampled_from(["router", "classifier", "Cat"]),
        min_size=3,
        max_size=3,
        unique=True,
    ),
    bundles=st.lists(st.integers(0, 2), max_size=3),
    features=st.integers(0, 2),
)
@example(names=["Ä" * 90, "Ж" * 90, "a" * 90], bundles=[0, 0, 0], features=1)
@example(names=["cat", "Cat", "classifier"], bundles=[0, 1, 1], features=2)
def test_any_species_and_any_shared_bundles_survive(names: list[str], bundles: list[int], features: int):
    """Species with the same number have one bundle; the names of files stay different on every file system."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        embedders = [
            Embedder(write_mean_color_bundle(folder / f"{number}.onnx", replace(CALIBRATED, slope=5.0 + number)))
            for number in range(3)
        ]
        classifier = color_classifier(names=(names[0], names[1], names[2]))
        species = dict(zip(names, (embedders[number] for number in bundles), strict=False))
        router = RoutedEmbedder(embedders[features], classifier, species)
        write_router(folder / "r.json", router)
        exported = export_router(folder / "r.json", folder / "shipped")
        files = contents(folder / "shipped")
        assert len(files) == 1 + len({features, *bundles})
        assert len({name.casefold() for name in files}) == len(files)
        for name, embedder in species.items():
            assert exported.embedders[name].bundle.onnx == embedder.bundle.onnx
        assert exported.feature_embedder.bundle.onnx == embedders[features].bundle.onnx
        assert_same_embeddings(embed(exported), embed(router))


def test_accepts_empty_or_same_folder_and_rejects_others(original: Path, tmp_path: Path):
    output = tmp_path / "shipped"
    output.mkdir()
    export_router(original, output)
    before = {path: path.stat().st_mtime_ns for path in output.iterdir()}
    export_router(original, output)
    assert {path: path.stat().st_mtime_ns for path in output.iterdir()} == before
    (output / "cat.onnx").write_bytes((output / "dog.onnx").read_bytes())
    changed = contents(output)
    with pytest.raises(CannotWrite, match="shipped: exists and is not this router; name a new folder, or remove it"):
        export_router(original, output)
    assert contents(output) == changed
    for name in ("notes", "a file"):
        (tmp_path / name).mkdir() if name == "notes" else (tmp_path / name).write_text("")
        (tmp_path / "notes" / "n.txt").write_text("")
        with pytest.raises(CannotWrite, match="exists and is not this router"):
            export_router(original, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_rejects_replaced_bundle_and_writes_nothing(original: Path, tmp_path: Path):
    bundles = tmp_path / "elsewhere" / "bundles"
    shutil.copy(bundles / "dog.onnx", bundles / "cat.onnx")
    with pytest.raises(BadBundle, match="another bundle for cat"):
        export_router(original, tmp_path / "shipped")
    assert not (tmp_path / "shipped").exists()


def test_failed_write_leaves_nothing(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    before = set(tmp_path.iterdir())

    def fail(*_: object) -> None:
        raise CannotWrite("no space")

    monkeypatch.setattr("familiar.export.router_export.write_router", fail)
    with pytest.raises(CannotWrite, match="no space"):
        export_router(original, tmp_path / "shipped")
    assert set(tmp_path.iterdir()) == before


@pytest.fixture
def router_of_runs(shared_bundle: Path, tmp_path: Path) -> MakeRouter:
    """Make a router whose classifier and cats have the bundle of a run, dogs another bundle."""

    def make(dog: Path | None = None, classifier: Path = shared_bundle) -> Path:
        features = Embedder(classifier)
        dim = features.metadata.embedding_dim
        weights = np.random.default_rng(0).normal(size=(3, dim)) * 9
        fitted = color_classifier()
        routes = SpeciesClassifier(
            NAMES,
            weights,
            np.zeros(3),
            1.0,
            features.metadata.space_id,
            fitted.training_counts,
            fitted.held_out,
            min_probability=0.0,
        )
        embedders = {"cat": Embedder(shared_bundle)} | ({} if dog is None else {"dog": Embedder(dog)})
        path = tmp_path / "r.json"
        write_router(path, RoutedEmbedder(features, routes, embedders))
        return path

    return make


@pytest.mark.slow
@pytest.mark.exhaustive
def test_species_are_exported_in_precision_and_classifier_keeps_its_bundle(
    router_of_runs: MakeRouter, shared_bundle: Path, tmp_path: Path
):
    path = router_of_runs(dog=shared_bundle)
    exported = export_router(path, tmp_path / "shipped", precisions=("float16",))
    assert set(contents(tmp_path / "shipped")) == {ROUTER, "cat+dog.onnx", "classifier.onnx"}
    assert exported.feature_embedder.bundle.onnx == shared_bundle.read_bytes()
    metadata = exported.embedders["cat"].metadata
    original = load_bundle(shared_bundle).metadata
    assert (metadata.precision, metadata.space_id, metadata.license) == ("float16", original.space_id, original.license)
    assert exported.columns == load_router(path).columns
    actual, expected = (embed(router).by_species for router in (exported, load_router(path)))
    for species, each in expected.items():
        np.testing.assert_array_equal(actual[species].rows, each.rows)
        np.testing.assert_array_equal(actual[species].probabilities, each.probabilities)
        assert (actual[species].embeddings * each.embeddings).sum(axis=1) == pytest.approx(1, abs=1e-2)
    with pytest.raises(CannotWrite, match="exists and is not this router"):
        export_router(path, tmp_path / "shipped")


@pytest.mark.slow
def test_rejects_bundle_that_is_of_no_run(
    router_of_runs: MakeRouter, shared_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_export_module, "export_bundle", None)  # is not reached
    for dog in (tmp_path / "dog.onnx", tmp_path / "no run" / "model.onnx"):
        dog.parent.mkdir(exist_ok=True)
        mosaic_bundle(dog, load_bundle(shared_bundle).metadata, 64)
        path = router_of_runs(dog)
        with pytest.raises(
            BadRun, match=rf"{dog.name}: the bundle for dog is not the model.onnx of a run folder.*again"
        ):
            export_router(path, tmp_path / "shipped", precisions=("float16",))
    assert not (tmp_path / "shipped").exists()
    export_router(path, tmp_path / "shipped")  # a copy needs no run


@pytest.mark.slow
def test_rejects_components_that_are_no_prefix(
    router_of_runs: MakeRouter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_export_module, "export_bundle", None)
    with pytest.raises(BadRecipe, match="the bundle for cat has 16 components, not 8"):
        export_router(router_of_runs(), tmp_path / "shipped", components=8)
    assert not (tmp_path / "shipped").exists()


@pytest.mark.slow
def test_refused_gate_writes_nothing(router_of_runs: MakeRouter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise GateRefused("loses too much; nothing was written")

    monkeypatch.setattr(run_export_module, "export_bundle", refuse)
    path = router_of_runs()
    before = set(tmp_path.iterdir())
    with pytest.raises(GateRefused):
        export_router(path, tmp_path / "new" / "shipped", precisions=("int8",))
    assert set(tmp_path.iterdir()) == before
