"""Robustness to corruptions of a network that embeds a crop as its mean color."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from familiar.core.types import Photo
from familiar.datasets.folders import DataSpec, scan_folders
from familiar.embedding.embedder import Embedder
from familiar.evaluation import perturbation
from familiar.evaluation.context import EvaluationContext, build_context
from familiar.evaluation.corruptions import CORRUPTIONS
from familiar.evaluation.suites.robustness import robustness
from familiar.photos.decoding import save_photo
from support.evaluation_results import intervals, values


def patches(root: Path, identities: int, photos: int, side: int = 36) -> Path:
    """Write photos of a ring around a center, in two colors of the identity that vary a little by photo."""
    generator = np.random.default_rng(1)
    for identity in range(identities):
        colors = generator.integers(20, 230, (2, 3))
        folder = root / f"p{identity:02d}"
        folder.mkdir(parents=True)
        for photo in range(photos):
            ring, middle = np.clip(colors + generator.normal(0, 15, (2, 3)), 1, 255).astype(np.uint8)
            pixels = np.broadcast_to(ring, (side, side, 3)).copy()
            quarter = side // 4
            pixels[quarter : side - quarter, quarter : side - quarter] = middle
            save_photo(Photo(pixels, "drawn", (side, side)), folder / f"{photo}.png")
    return root


@pytest.fixture
def embedder(mean_color_bundle: Path) -> Embedder:
    return Embedder(mean_color_bundle, threads=2)


def corrupted_embedding(context: EvaluationContext, row: int, name: str, severity: float | None) -> np.ndarray:
    mean = CORRUPTIONS[name].apply(context.crop(row).rgb_u8, severity).reshape(-1, 3).mean(axis=0)
    return mean / np.linalg.norm(mean)


@pytest.mark.slow
def test_drops_match_slow_reference(embedder: Embedder, tmp_path: Path):
    context = build_context(embedder, scan_folders(patches(tmp_path / "data", 9, 3)))
    outcome = robustness(context)
    labels = context.labels
    clean = context.embeddings.astype(np.float64)
    different_rows = [(i, j) for i in range(len(labels)) for j in range(i + 1, len(labels))]
    same = [bool(labels[i] == labels[j]) for i, j in different_rows]

    def slow_metrics(queries: np.ndarray) -> tuple[float, float]:
        hits = []
        for row in range(len(labels)):
            others = [(float(queries[row] @ clean[j]), j) for j in range(len(labels)) if j != row]
            hits.append(labels[max(others)[1]] == labels[row])
        return float(np.mean(hits)), float(roc_auc_score(same, [queries[i] @ clean[j] for i, j in different_rows]))

    recall, auc = slow_metrics(clean)
    assert values(outcome, "clean") == {"recall_at_1": pytest.approx(recall), "auc": pytest.approx(auc, abs=1e-4)}
    lost = 0.0
    for name, corruption in CORRUPTIONS.items():
        for severity in dict.fromkeys([corruption.severity, *corruption.sweep]):
            queries = np.stack([corrupted_embedding(context, row, name, severity) for row in range(len(labels))])
            similarity_drop = 1 - float(np.einsum("kd,kd->k", queries, clean).mean())
            corrupted_recall, corrupted_auc = slow_metrics(queries)
            step = {
                "similarity_drop": pytest.approx(similarity_drop, abs=1e-6),
                "recall_at_1": pytest.approx(corrupted_recall, abs=1e-9),
                "auc": pytest.approx(corrupted_auc, abs=1e-4),
            }
            if severity == corruption.severity:
                part = values(outcome, f"corruptions.{name}")
                assert part["similarity_drop"] == step["similarity_drop"]
                assert part["recall_at_1_drop"] == pytest.approx(recall - corrupted_recall, abs=1e-9)
                assert part["auc_drop"] == pytest.approx(auc - corrupted_auc, abs=1e-4)
                lost += part["recall_at_1_drop"]
            if corruption.sweep:
                index = CORRUPTIONS[name].sweep.index(severity)
                assert values(outcome, f"sweeps.{name}.{index}") == {"severity": severity, **step}
    assert lost > 0.1  # so that the comparison says something


@pytest.mark.exhaustive
@pytest.mark.slow
def test_flip_and_brightness_cost_mean_color_model_nothing(embedder: Embedder, tmp_path: Path):
    outcome = robustness(build_context(embedder, scan_folders(patches(tmp_path / "data", 10, 2))))
    # Mirrored, the mean stays; brightness keeps its direction but for what is cut off at white.
    flip, interval = values(outcome, "corruptions.flip"), intervals(outcome, "corruptions.flip")
    assert flip["similarity_drop"] == pytest.approx(0, abs=1e-6)
    assert (flip["recall_at_1_drop"], flip["auc_drop"]) == (0, 0)
    assert interval["recall_at_1_drop"] == (0, 0)
    assert interval["auc_drop"] == pytest.approx((0, 0), abs=1e-6)  # replicate by replicate
    assert values(outcome)["sweeps.brightness.0.similarity_drop"] < 1e-4
    assert values(outcome, "sweeps.flip") == {}


def test_saturated_brightness_drop_equals_closed_form(embedder: Embedder, tmp_path: Path):
    for name, color in (("a", (200, 100, 50)), ("b", (50, 100, 200))):
        (tmp_path / "data" / name).mkdir(parents=True)
        pixels = np.broadcast_to(np.array(color, np.uint8), (32, 32, 3)).copy()
        save_photo(Photo(pixels, "drawn", (32, 32)), tmp_path / "data" / name / "0.png")
    metrics = values(robustness(build_context(embedder, scan_folders(tmp_path / "data"))))
    clean, bright = np.array([200, 100, 50.0]), np.array([255, 150, 75.0])
    cosine = clean @ bright / np.linalg.norm(clean) / np.linalg.norm(bright)
    assert metrics["corruptions.brightness.similarity_drop"] == pytest.approx(1 - cosine, abs=1e-6)
    # A black middle takes as much of each channel.
    assert metrics["corruptions.occlusion.similarity_drop"] == pytest.approx(0, abs=1e-6)


@pytest.mark.exhaustive
def test_intervals_contain_their_drops(embedder: Embedder, tmp_path: Path):
    outcome = robustness(build_context(embedder, scan_folders(patches(tmp_path / "data", 12, 3))))
    drops = intervals(outcome, "corruptions")
    assert drops.keys() == {
        f"{name}.{drop}" for name in CORRUPTIONS for drop in ("similarity_drop", "recall_at_1_drop", "auc_drop")
    }
    for path, (low, high) in drops.items():
        assert low - 1e-9 <= values(outcome, "corruptions")[path] <= high + 1e-9
    low, high = drops["occlusion.similarity_drop"]
    assert low < high


@pytest.mark.slow
@pytest.mark.parametrize(
    ("identities", "photos", "missing"),
    [(1, 1, {"recall_at_1", "auc"}), (1, 3, {"auc"}), (4, 1, {"recall_at_1", "auc"})],
)
def test_undefined_metrics_are_none(
    embedder: Embedder, tmp_path: Path, identities: int, photos: int, missing: set[str]
):
    outcome = robustness(build_context(embedder, scan_folders(patches(tmp_path / "data", identities, photos))))
    assert {name for name, value in values(outcome, "clean").items() if value is None} == missing
    for corruption in CORRUPTIONS:
        part = values(outcome, f"corruptions.{corruption}")
        undefined = {name for name, value in part.items() if value is None}
        assert undefined - {"severity"} == {f"{name}_drop" for name in missing}
        assert part["similarity_drop"] >= 0
    assert intervals(outcome) == {}
    assert values(outcome)["sweeps.blur.0.auc"] is None


@pytest.mark.slow
def test_single_photos_have_only_similarity_interval(embedder: Embedder, tmp_path: Path):
    outcome = robustness(build_context(embedder, scan_folders(patches(tmp_path / "data", 10, 1))))
    assert intervals(outcome, "corruptions.noise").keys() == {"similarity_drop"}


def test_accepts_photos_smaller_than_crop(embedder: Embedder, tmp_path: Path):
    metrics = values(robustness(build_context(embedder, scan_folders(patches(tmp_path / "data", 3, 2, side=5)))))
    assert metrics["photos"] == 6
    assert metrics["corruptions.blur.similarity_drop"] < 0.1


@pytest.mark.exhaustive
@pytest.mark.slow
def test_is_invariant_to_threads_and_other_photos(mean_color_bundle: Path, tmp_path: Path):
    table = scan_folders(patches(tmp_path / "data", 4, 3))
    single_thread = values(robustness(build_context(Embedder(mean_color_bundle, threads=1), table)))
    three_threads = values(robustness(build_context(Embedder(mean_color_bundle, threads=3), table)))
    assert single_thread == three_threads
    # The noise of a photo does not depend on the other photos.
    together = values(robustness(build_context(Embedder(mean_color_bundle), table.select_rows(np.arange(3)))))
    separately = [
        values(robustness(build_context(Embedder(mean_color_bundle), table.select_rows(np.array([row])))))
        for row in range(3)
    ]
    assert together["corruptions.noise.similarity_drop"] == pytest.approx(
        np.mean([metrics["corruptions.noise.similarity_drop"] for metrics in separately])
    )


@pytest.mark.slow
def test_probed_photos_are_searched_among_all_photos(
    embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    context = build_context(embedder, scan_folders(patches(tmp_path / "data", 12, 3)))
    monkeypatch.setattr("familiar.evaluation.suites.robustness.MAX_PHOTOS", 10)
    opened: set[int] = set()
    monkeypatch.setattr(
        EvaluationContext, "face", lambda self, row, face=EvaluationContext.face: opened.add(row) or face(self, row)
    )
    outcome = robustness(context)
    metrics = values(outcome)
    rows = context.sample_rows(10)
    assert (metrics["photos"], metrics["identities"], metrics["seed"]) == (10, 5, 0)
    assert opened == set(rows.tolist())
    similarity = context.embeddings @ context.embeddings.T
    np.fill_diagonal(similarity, -2)
    hits = context.labels[similarity.argmax(axis=1)] == context.labels
    assert metrics["clean.recall_at_1"] == pytest.approx(hits[rows].mean())
    assert intervals(outcome) == {}  # five identities


def test_flip_applies_to_corrupted_photos(embedder: Embedder, tmp_path: Path):
    table = scan_folders(patches(tmp_path / "data", 3, 2))
    seen: list[np.ndarray] = []

    def left_half(crops_u8: np.ndarray) -> np.ndarray:
        seen.append(crops_u8)
        return embedder.run(crops_u8)

    robustness(build_context(Embedder(embedder.bundle, threads=1, network=left_half), table, flip=True))
    for plain, mirrored in zip(seen[::2], seen[1::2], strict=True):
        np.testing.assert_array_equal(plain, mirrored[:, :, ::-1])


def test_ties_count_against_model(embedder: Embedder, tmp_path: Path):
    context = build_context(embedder, scan_folders(patches(tmp_path / "data", 4, 2)))
    one_point = replace(context, embeddings=np.tile(context.embeddings[:1], (8, 1)))
    setup = perturbation.make_setup(one_point.labels, np.arange(8))
    metrics = perturbation.run_setup(setup, one_point.embeddings, one_point.embeddings)
    assert (metrics.recall_at_1, metrics.auc) == (0.0, 0.5)


@pytest.mark.slow
@pytest.mark.shared_data
def test_stronger_noise_increases_similarity_drop_on_real_cats(shared_data: Path, embedder: Embedder):
    table = DataSpec((str(shared_data / "cats23_gpriamo"),), max_photos=1).read()
    sweep = values(robustness(build_context(embedder, table)), "sweeps.noise")
    drops = [value for path, value in sweep.items() if path.endswith("similarity_drop")]
    assert drops == sorted(drops)
    assert all(0 <= drop < 0.1 for drop in drops)
