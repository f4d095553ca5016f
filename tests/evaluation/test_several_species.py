"""Evaluation of bundles of several species: all photos together, and those of each species by its own bundle."""

import dataclasses
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from familiar.core.calibration import Calibration, Threshold
from familiar.core.errors import BadDataset
from familiar.core.run_files import DATA, SPLIT
from familiar.core.species_means import SpeciesMeans
from familiar.core.types import Face, Photo
from familiar.datasets.folders import DataSpec, IdentityTable, scan_folders
from familiar.datasets.split import Split
from familiar.embedding.bundle import Bundle, load_bundle, network_bytes, serialize_bundle
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import stack_embeddings
from familiar.embedding.species import write_species_file
from familiar.evaluation.centering import center_on_collection
from familiar.evaluation.context import EvaluationOptions, SuiteResult, build_context
from familiar.evaluation.corruptions import Corruption
from familiar.evaluation.results import read_results
from familiar.evaluation.results.document import RoutingInfo
from familiar.evaluation.run_evaluation import evaluate
from familiar.evaluation.suites.background import background
from familiar.evaluation.suites.catalog import SUITES, SuiteResults, run_suites
from familiar.evaluation.suites.clustering import clustering
from familiar.evaluation.suites.retrieval import retrieval
from familiar.evaluation.suites.robustness import robustness
from familiar.evaluation.suites.slices import ROUTED_SPECIES, slices
from familiar.evaluation.suites.tta import tta
from familiar.evaluation.suites.verification import verification
from familiar.evaluation.training_data import seen_photos, select_identities
from familiar.neighbors.centering import Centering
from familiar.photos.decoding import save_photo
from support.colored_species import ByColor, mosaic_bundle
from support.evaluation_results import intervals, values
from support.middle_box import MiddleBox
from support.tiers import small_and_exhaustive

RED, GREEN, BLUE = (200, 30, 30), (30, 200, 30), (30, 30, 200)
COLORS = {"cats": RED, "dogs": GREEN}
SIDE_PX = 64
SPECIES = f"columns.{ROUTED_SPECIES}"


def mosaic(rgb: tuple[int, int, int], generator: np.random.Generator, spread: float = 40) -> np.ndarray:
    """Draw 4 x 4 squares of colors around one."""
    squares = np.array(rgb) + generator.normal(0, spread, (4, 4, 3))
    return np.kron(squares, np.ones((SIDE_PX // 4, SIDE_PX // 4, 1)))


def save(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return save_photo(Photo(np.clip(pixels, 0, 255).astype(np.uint8), path.name, (SIDE_PX, SIDE_PX)), path)


def draw_identities(folder: Path, rgb: tuple[int, int, int], identities: int = 10, photos: int = 3) -> Path:
    """Write photos of identities that are mosaics, which vary as much by photo as by identity."""
    generator = np.random.default_rng(rgb)
    for identity in range(identities):
        pattern = mosaic(rgb, generator)
        for photo in range(photos):
            save(folder / f"{identity:02d}" / f"{photo}.png", pattern + mosaic((0, 0, 0), generator))
    return folder


def calibrated(similarity: float) -> Calibration:
    point = Threshold(similarity, 0.1, 0.9)
    return Calibration(point, point, point, 20.0, -20 * similarity, 0.01, 99, 99)


@pytest.fixture
def bundles(mean_color_bundle: Path, tmp_path: Path) -> dict[str, Path]:
    """Bundles for cats and dogs, which differ in size, dimension and thresholds."""
    metadata = load_bundle(mean_color_bundle).metadata
    return {
        name: mosaic_bundle(tmp_path / f"{name}.onnx", replace(metadata, calibration=calibrated(limit)), size)
        for name, limit, size in (("cat", 0.97, 48), ("dog", 0.93, 64))
    }


@pytest.fixture
def pets(bundles: dict[str, Path]) -> Embedder:
    return Embedder(bundles, threads=2)


@pytest.fixture
def table(tmp_path: Path) -> IdentityTable:
    return scan_folders(*(draw_identities(tmp_path / name, rgb) for name, rgb in COLORS.items()))


@pytest.fixture
def file(bundles: dict[str, Path], tmp_path: Path) -> Path:
    write_species_file(tmp_path / "family.json", bundles)
    return tmp_path / "family.json"


class LabeledBox(MiddleBox):
    """The middle of a photo, labeled by the photo's color."""

    def detect(self, photo: Photo) -> list[Face]:
        (whole,) = ByColor().detect(photo)
        return [replace(face, label=whole.label) for face in super().detect(photo)]


def assert_close(result: dict[str, object], expected: dict[str, object]) -> None:
    """Compare metrics by their paths; batches of other sizes give embeddings that differ in the last bits."""
    assert result.keys() == expected.keys()
    for path, value in result.items():
        is_close = isinstance(value, float | tuple)
        close = pytest.approx(expected[path], rel=1e-4, abs=1e-4) if is_close else expected[path]
        assert value == close, path


def timeless(result: SuiteResult | SuiteResults) -> dict[str, Any]:
    """Return the values and intervals of figures but for measured times."""
    figures: dict[str, Any] = values(result) | {f"{path}.interval": ends for path, ends in intervals(result).items()}
    return {path: value for path, value in figures.items() if "ms_per_photo" not in path}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flip", "names"),
    small_and_exhaustive(
        (True, ("retrieval", "robustness")), (False, tuple(name for name in SUITES if name != "slices"))
    ),
)
def test_one_bundle_for_several_species_equals_that_bundle(
    pets: Embedder, table: IdentityTable, flip: bool, names: tuple[str, ...]
):
    embedder = pets.only("dog")[0]
    shared = Embedder(dict.fromkeys(("cat", "dog", "person"), embedder.bundle))
    options = EvaluationOptions(names)
    expected = run_suites(build_context(embedder, table, options, ByColor(), flip=flip), names)
    result = run_suites(build_context(shared, table, options, ByColor(), flip=flip), names)
    assert values(result, "slices") != {}
    assert result.reasons == expected.reasons
    whole = timeless(result)
    assert_close({path: value for path, value in whole.items() if not path.startswith("slices.")}, timeless(expected))


def test_species_are_measured_as_by_their_bundles_alone(pets: Embedder, table: IdentityTable):
    suites = ("retrieval", "verification", "triplets", "clustering", "separation", "identification")
    options = EvaluationOptions(suites)
    context = build_context(pets, table, options, ByColor())
    sliced = slices(context)
    names = [values(sliced)[f"{SPECIES}.{index}.value"] for index in (0, 1)]
    assert set(names) == {"cat", "dog"}
    for index, species in enumerate(names):
        rows = np.flatnonzero([table.names[label].startswith(f"{species}s/") for label in table.labels])
        single = build_context(pets.only(species)[0], table.select_rows(rows), options, ByColor())
        expected = values(run_suites(single, suites))
        result = values(sliced, f"{SPECIES}.{index}")
        assert (result.pop("value"), result.pop("photos"), result.pop("identities")) == (species, 30, 10)
        assert_close(result, {path: expected[path] for path in result})  # retrieval alone has more, of halves
        assert {path.partition(".")[0] for path in result} == set(suites)
        assert 0 < result["retrieval.recall_at_1"] < 1  # so that the comparison means something
        limit = result["verification.at_bundle_thresholds.balanced.similarity"]
        assert limit == {"cat": 0.97, "dog": 0.93}[species]
        assert result["verification.probability.calibration_error"] is not None


def test_clustering_takes_the_threshold_of_each_species(pets: Embedder, table: IdentityTable):
    """All photos together have the clusters that each bundle makes alone, and no identity is clustered twice."""
    context = build_context(pets, table, detector=ByColor())
    together = values(clustering(context), "groups")
    apart = {name: values(clustering(context.select_species(name)), "groups") for name in ("cat", "dog")}
    assert together["threshold"] is None
    assert together["groups"] == sum(groups["groups"] for groups in apart.values())
    for name, groups in apart.items():
        assert f"{name}: {groups['threshold_source']}" in together["threshold_source"]
    for name in ("precision", "recall"):  # of 30 photos each, so the mean is that of all
        mean = np.mean([groups[f"bcubed.{name}"] for groups in apart.values()])
        assert together[f"bcubed.{name}"] == pytest.approx(mean)


def test_whole_collection_has_no_calibration(pets: Embedder, table: IdentityTable):
    context = build_context(pets, table, EvaluationOptions(("verification",)), ByColor())
    metrics = values(verification(context))
    assert not metrics["thresholds_fitted"]
    assert metrics["probability"] is None
    similarity = context.embeddings @ context.embeddings.T
    cats, dogs = ([name == species for name in context.species] for species in ("cat", "dog"))
    assert (similarity[cats][:, dogs] == 0).all()


def test_misrouted_photos_are_not_found(pets: Embedder, tmp_path: Path):
    """An identity has a red photo, which goes to the cats, and a green one, which goes to the dogs."""
    generator = np.random.default_rng(0)
    for species, rgb in COLORS.items():
        for identity in range(3):
            pattern = mosaic(rgb, generator)
            for photo in range(2):
                save(tmp_path / "pets" / f"{species}{identity}" / f"{photo}.png", pattern)
    for photo, rgb in enumerate(COLORS.values()):
        save(tmp_path / "pets" / "chameleon" / f"{photo}.png", mosaic(rgb, generator))
    context = build_context(pets, scan_folders(tmp_path / "pets"), detector=ByColor())
    assert values(retrieval(context))["recall_at_1"] == pytest.approx(12 / 14)
    sliced = values(slices(context), SPECIES)
    assert [sliced[f"{index}.retrieval.recall_at_1"] for index in (0, 1)] == [1, 1]
    assert [sliced[f"{index}.retrieval.queries_without_match"] for index in (0, 1)] == [1, 1]


def test_corrupted_photos_keep_their_species(pets: Embedder, table: IdentityTable, monkeypatch: pytest.MonkeyPatch):
    def paint(rgb: tuple[int, int, int]) -> Corruption:
        return Corruption(lambda rgb_u8, _: np.full_like(rgb_u8, rgb), 1.0, "")

    corruptions = {"nothing": Corruption(lambda rgb_u8, _: rgb_u8, 1.0, ""), "green": paint(GREEN)}
    monkeypatch.setattr("familiar.evaluation.suites.robustness.CORRUPTIONS", corruptions)
    context = build_context(pets, table, detector=ByColor())
    cats = context.select_identities([name for name in table.names if name.startswith("cats/")])
    metrics = values(robustness(cats))
    assert metrics["corruptions.nothing.similarity_drop"] == pytest.approx(0, abs=1e-6)
    assert metrics["corruptions.nothing.recall_at_1_drop"] == 0
    assert 0.3 < metrics["corruptions.green.similarity_drop"] < 1  # green as the cats' bundle sees it


@pytest.mark.slow
def test_augmentation_uses_bundle_of_each_species(pets: Embedder, table: IdentityTable):
    context = build_context(pets, table, detector=ByColor())
    for species in ("cat", "dog"):
        rows = context.rows_by_species(np.arange(len(table)))[species]
        routed, single = tta(context.select_rows(rows)), tta(context.select_species(species))
        assert_close(timeless(routed), timeless(single))
    # Identities of a cat and a dog each, so that the similarity of two species matters.
    mixed = replace(context, table=IdentityTable(table.photos, table.labels % 10, table.names[:10]))
    together = values(tta(mixed))
    assert together["five_crops.recall_at_1_gain"] is not None
    assert together["plain.recall_at_1"] == pytest.approx(values(retrieval(mixed))["recall_at_1"], abs=1e-6)
    assert together["plain.auc"] == pytest.approx(values(verification(mixed))["auc"], abs=1e-4)


def run_folder(folder: Path, bundle: Path, data: Path, **sides: tuple[str, ...]) -> Path:
    folder.mkdir()
    split = {"train": (), "validation": (), "test": ()} | sides
    (folder / SPLIT).write_text(Split(0, **split).to_json())
    (folder / DATA).write_text(json.dumps({"spec": dataclasses.asdict(DataSpec((str(data),)))}))
    return Path(shutil.copy(bundle, folder / "model.onnx"))


def test_splits_of_several_runs_are_combined(mean_color_bundle: Path, table: IdentityTable, tmp_path: Path):
    cats, dogs = ([name for name in table.names if name.startswith(f"{species}/")] for species in COLORS)
    first = run_folder(
        tmp_path / "a", mean_color_bundle, tmp_path / "cats",
        train=tuple(cats[:6]), validation=tuple(cats[6:8]), test=tuple(cats[8:]),
    )  # fmt: skip
    second = run_folder(
        tmp_path / "b", mean_color_bundle, tmp_path / "dogs",
        train=(*dogs[:5], cats[8]), test=tuple(dogs[5:]),
    )  # fmt: skip
    chosen = select_identities(table, [first, second], None)
    assert (chosen.split, set(chosen.table.names)) == ("test", {cats[9], *dogs[5:]})
    assert set(chosen.trained_on.names) == {*cats[:6], *dogs[:5], cats[8]}
    assert chosen.seen_identities == {*cats[:9], *dogs[:5]}
    unknown = select_identities(table, [first, mean_color_bundle], None)
    assert (unknown.split, unknown.seen_identities) == ("all", None)
    with pytest.raises(BadDataset, match="test identities are unknown"):
        select_identities(table, [first, mean_color_bundle], "test")
    # The photos of a run are looked at even if another bundle has none.
    seen = seen_photos([first, mean_color_bundle, second, second])
    assert set(seen.names) == {*cats[:8], *dogs[:5]}
    assert len(seen) == 3 * len(seen.names)
    assert set(seen_photos([first]).names) == set(cats[:8])
    assert seen_photos([mean_color_bundle]) is None


ONE_SUITE = EvaluationOptions(("verification", "retrieval"))


@pytest.mark.slow
def test_evaluates_a_file_of_species(pets: Embedder, table: IdentityTable, file: Path, tmp_path: Path):
    people = draw_identities(tmp_path / "people", BLUE, 2, 2)
    assert len(table) == 60
    data = DataSpec(tuple(str(tmp_path / name) for name in (*COLORS, people.name)))
    results = evaluate(file, data, tmp_path / "out", ONE_SUITE, detector=ByColor())
    assert results.data.routing == RoutingInfo({"cat": 30, "dog": 30}, 4)
    assert (results.data.photos, len(results.data.skipped)) == (60, 4)
    assert results.model.space_id == pets.space[0]
    assert results.model.embedding_dim == 27 + 48
    assert results.model.size_bytes == sum(len(bundle.onnx) for bundle in pets.all_bundles)
    assert results.model.network == "cat: mean color; dog: mean color"
    assert not results.model.thresholds_fitted
    assert read_results(tmp_path / "out" / "eval_results.json") == results
    assert f"slices.{SPECIES}.1.value" in results.figures
    page = " ".join((tmp_path / "out" / "report.html").read_text().split())
    assert "By species: 30 photos of <bdi>cat</bdi>, 30 photos of <bdi>dog</bdi>" in page
    assert "skipped 4 photos of species without a bundle" in page
    assert "The thresholds of the bundles differ: use those of" in page.replace("&#39;", "'")
    assert "<h3><bdi>routed species</bdi></h3>" in page
    assert "0.970" in page
    assert "0.930" in page


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_one_bundle_for_several_species_has_its_thresholds(
    bundles: dict[str, Path], table: IdentityTable, tmp_path: Path
):
    write_species_file(tmp_path / "family.json", {"cat": bundles["cat"], "dog": bundles["cat"]})
    assert len(table) == 60
    data = DataSpec(tuple(str(tmp_path / name) for name in COLORS))
    result = evaluate(tmp_path / "family.json", data, tmp_path / "both", ONE_SUITE, detector=ByColor())
    single = evaluate(bundles["cat"], data, tmp_path / "alone", ONE_SUITE, detector=ByColor())
    assert result.model.thresholds_fitted
    assert replace(result.model, network="mean color", recipe=single.model.recipe) == single.model
    assert result.model.network == "cat, dog: mean color"
    assert single.figures.items() <= result.figures.items()
    assert single.data.routing is None
    assert replace(result.data, routing=None) == single.data


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_collections_of_every_bundle_are_known(
    bundles: dict[str, Path], table: IdentityTable, file: Path, tmp_path: Path
):
    bundle = load_bundle(bundles["dog"])
    trained = replace(bundle.metadata, trained_on={"dogs": {"identities": 3, "photos": 9}})
    bundle.path.write_bytes(serialize_bundle(network_bytes(bundle), trained))
    assert len(table) == 60
    data = DataSpec(tuple(str(tmp_path / name) for name in COLORS))
    results = evaluate(file, data, tmp_path / "out", EvaluationOptions(("retrieval",)), detector=ByColor())
    assert results.data.collections_trained_on == ("dogs",)


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_leak_check_reads_training_photos_of_every_bundle(
    bundles: dict[str, Path], table: IdentityTable, tmp_path: Path
):
    """A photo of the dog bundle's run is evaluated under another name; the other bundle is in no run."""
    trained = tmp_path / "trained"
    shutil.copytree(tmp_path / "dogs" / "00", trained / "rex")
    dog = run_folder(tmp_path / "run", bundles["dog"], trained, train=("trained/rex",))
    write_species_file(tmp_path / "family.json", {"cat": bundles["cat"], "dog": dog})
    assert len(table) == 60
    data = DataSpec(tuple(str(tmp_path / name) for name in COLORS))
    options = EvaluationOptions(("retrieval",))
    results = evaluate(tmp_path / "family.json", data, tmp_path / "out", options, leaks="exclude", detector=ByColor())
    assert results.data.split == "all"
    assert results.leaks.compared.seen_in_training == 3
    assert (len(results.leaks.across_splits), results.leaks.excluded) == (3, 3)


def with_means(embedder: Embedder, limit: float) -> Bundle:
    """Give a bundle a mean of its species, and a threshold for galleries."""
    mean = np.full(embedder.metadata.embedding_dim, 0.05)
    mean[::3] = 0.1
    means = SpeciesMeans({"pet": tuple(mean)}, calibrated(limit))
    return replace(embedder.bundle, metadata=replace(embedder.metadata, species_means=means))


def test_each_bundle_with_means_is_centered_on_its_photos(pets: Embedder, table: IdentityTable):
    cat = with_means(pets.only("cat")[0], 0.4)
    pets = Embedder({"cat": cat, "dog": pets.only("dog")[0].bundle}, threads=2)
    plain = build_context(pets, table, detector=ByColor())
    context = center_on_collection(plain)
    rows = {species: plain.rows_by_species(np.arange(len(table)))[species] for species in ("cat", "dog")}
    stored = plain.select_species("cat").embeddings
    expected = Centering.fit(stored, cat.metadata.species_means.rows()).apply(stored)
    np.testing.assert_allclose(context.select_species("cat").embeddings, expected, atol=1e-6)
    np.testing.assert_array_equal(context.embeddings[rows["dog"]], plain.embeddings[rows["dog"]])
    assert (context.embeddings[rows["cat"]] @ context.embeddings[rows["dog"]].T == 0).all()
    sliced = values(slices(context), SPECIES)
    limits = {
        sliced[f"{index}.value"]: sliced[f"{index}.verification.at_bundle_thresholds.balanced.similarity"]
        for index in (0, 1)
    }
    assert limits == {"cat": 0.4, "dog": 0.93}
    faces = context.model.embed_faces([context.face(row) for row in range(len(table))])
    np.testing.assert_allclose(stack_embeddings(faces), context.embeddings, atol=1e-5)


def test_species_of_one_space_are_centered_together(pets: Embedder, table: IdentityTable):
    bundle = with_means(pets.only("dog")[0], 0.4)
    shared, single_bundle = Embedder(dict.fromkeys(("cat", "dog"), bundle)), Embedder(bundle)
    centered, single = (
        center_on_collection(build_context(model, table, detector=ByColor())) for model in (shared, single_bundle)
    )
    np.testing.assert_allclose(centered.embeddings, single.embeddings, atol=1e-6)
    assert centered.calibration == single.calibration == calibrated(0.4)


def test_bundles_without_means_stay_as_they_are(pets: Embedder, table: IdentityTable):
    context = build_context(pets, table, detector=ByColor())
    assert center_on_collection(context) is context


@pytest.mark.slow
@pytest.mark.parametrize("centered", [False, True])
def test_faces_and_backgrounds_are_embedded_by_the_bundle_of_the_photo(
    pets: Embedder, table: IdentityTable, centered: bool
):
    if centered:
        pets = Embedder({name: with_means(pets.only(name)[0], 0.4) for name in ("cat", "dog")}, threads=2)
    context = center_on_collection(build_context(pets, table, detector=LabeledBox()))
    for species in ("cat", "dog"):
        rows = context.rows_by_species(np.arange(len(table)))[species]
        routed, single = background(context.select_rows(rows)), background(context.select_species(species))
        assert_close(timeless(routed), timeless(single))
        assert 0 < values(single)["background.recall_at_1"] < 1  # so that the comparison means something


def test_rejects_resize_px(file: Path, tmp_path: Path):
    with pytest.raises(BadDataset, match=r"--resize-px: .*family\.json has a bundle for each species"):
        evaluate(file, tmp_path, tmp_path / "out", resize_px=40)
