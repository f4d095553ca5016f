"""Plots: both themes, the layout of the map, photos as tiles and contact sheets, for any data."""

import io

import numpy as np
import pytest
from PIL import Image

from familiar.core.errors import UnreadablePhoto
from familiar.core.types import Crop
from familiar.evaluation.plots.bars import chart_label, robustness_bars, share_bars, sizes_chart, sweep_chart
from familiar.evaluation.plots.chart import DARK, LIGHT, TEXT_PT, WIDTH_IN, Chart, chart, legend_below
from familiar.evaluation.plots.curves import (
    accuracy_chart,
    det_chart,
    reliability_chart,
    roc_chart,
    similarity_chart,
)
from familiar.evaluation.plots.map import (
    MAX_LABELED_IDENTITIES,
    MAX_PHOTOS,
    MAX_PHOTOS_PER_IDENTITY,
    MIN_PHOTOS_FOR_TSNE,
    labeled_identities,
    layout,
    map_chart,
    principal_components,
    sample_rows,
)
from familiar.evaluation.plots.photos import TILE_PX, Tile, contact_sheet, example_queries, jpeg, read_tile
from familiar.metrics.roc import RocCounts, roc_counts, roc_counts_all_pairs

pytestmark = pytest.mark.slow

THRESHOLDS = {"high precision": 0.7, "balanced": 0.5, "high recall": -0.1}


def decode(picture: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(picture)).convert("RGB"))


def rgb(color: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(color[1:]))


def share_of(picture: bytes, color: str) -> float:
    return float((decode(picture) == rgb(color)).all(axis=-1).mean())


def check(rendered: Chart) -> None:
    """Check that both themes have the same size, their own background, and something drawn on it."""
    for picture, theme in ((rendered.light, LIGHT), (rendered.dark, DARK)):
        pixels = decode(picture)
        assert (pixels.shape[1], pixels.shape[0]) == rendered.size_px
        assert 0.3 < share_of(picture, theme.paper) < 1
        assert tuple(pixels[0, 0]) == rgb(theme.paper)


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def normal_counts() -> RocCounts:
    generator = np.random.default_rng(0)
    return roc_counts(generator.normal(0.7, 0.1, 500), generator.normal(0.2, 0.15, 3000))


def all_pairs_counts() -> RocCounts:
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 4)
    return roc_counts_all_pairs(unit(generator.normal(size=(12, 5))[labels] + generator.normal(size=(48, 5))), labels)


COUNTS = {
    "listed": normal_counts(),
    "all pairs": all_pairs_counts(),
    "one of each": roc_counts(np.array([0.5]), np.array([0.4])),
    "all equal": roc_counts(np.ones(3), np.ones(4)),
    "all wrong": roc_counts(np.array([-1.0, -0.9]), np.array([0.9, 1.0])),
}


@pytest.mark.one_case
@pytest.mark.parametrize("name", COUNTS)
def test_curves_render_for_any_pairs(name: str):
    counts = COUNTS[name]
    check(similarity_chart(counts, THRESHOLDS))
    check(roc_chart(counts))
    check(det_chart(counts))
    check(accuracy_chart(counts, THRESHOLDS))


@pytest.mark.parametrize("bins", [1, 9])
def test_reliability_chart_renders(bins: int):
    predicted = np.linspace(0.05, 0.95, bins)
    check(reliability_chart(predicted.tolist(), (predicted**2).tolist(), [1 / bins] * bins))


def test_bar_length_is_proportional_to_value():
    def accented(value: float) -> float:
        return share_of(share_bars([("a", value, None), ("b", 1.0, None)], "recall@1").light, LIGHT.accent)

    full, half = accented(1.0), accented(0.5)
    assert half / full == pytest.approx(0.75, abs=0.01)
    check(share_bars([("gained", -0.1, (-0.2, 0.0)), ("lost", 0.3, (0.1, 0.5))], "recall@1 lost", reference=0.1))


def test_robustness_bars_show_both_losses():
    """Each panel has a scale of its own: a bar that is the longest of its panel is as long whatever its value."""

    def accented(recall: float, similarity: float) -> float:
        recalls, similarities = [("a", recall, None), ("b", 0.2, None)], [("a", similarity, None), ("b", 0.1, None)]
        return share_of(robustness_bars(recalls, similarities).light, LIGHT.accent)

    both = accented(0.2, 0.1)
    assert accented(0.0, 0.1) / both == pytest.approx(0.75, abs=0.01)
    assert accented(0.2, 0.0) / both == pytest.approx(0.75, abs=0.01)
    drops = [("blur", 0.1, (0.05, 0.2)), ("mirrored", -0.01, None)]
    check(robustness_bars(drops, drops))
    check(robustness_bars([], drops))
    check(robustness_bars(drops[:1], drops))


def test_escapes_and_shortens_names_for_charts():
    assert chart_label("a$b$") == r"a\$b\$"
    assert chart_label("قطة x") == "??? x"
    assert chart_label("x" * 40) == "x" * 17 + "…"
    assert len(chart_label("ab")) == 2
    check(share_bars([(r"$\frac{1}$", 0.5, None), ("猫 \udcff \n", 0.4, None)], "recall@1"))


@pytest.mark.one_case
@pytest.mark.parametrize("panels", [1, 2, 7])
def test_sweep_chart_renders_for_any_panel_count(panels: int):
    points = [(severity, 0.9 / severity) for severity in (1.0, 2.0, 4.0)]
    check(sweep_chart({f"blur_{panel}": points for panel in range(panels)}, {"blur_0": "sigma, px"}, 0.95))


@pytest.mark.parametrize("photos", [[1], [3, 3, 3], [1, 2, 500], list(range(1, 40))])
def test_sizes_chart_renders_for_any_photo_counts(photos: list[int]):
    check(sizes_chart(np.array(photos)))


def test_text_is_at_least_11_px_on_phone():
    # 390 px minus the page's margins leave 358 px; 9 points are 12 px.
    assert (TEXT_PT - 1) / 72 * 358 / WIDTH_IN >= 11
    assert TEXT_PT / 72 * 358 / WIDTH_IN >= 12


def test_legend_below_draws_legend():
    def draw(axes, theme):
        axes.plot([0, 1], [0, 1], label="line")
        legend_below(axes, theme)

    def bare(axes, _):
        axes.plot([0, 1], [0, 1], label="line")

    with_legend, without_legend = (decode(chart(panel, bottom_in=1.2).light) for panel in (draw, bare))
    assert (with_legend[-60:] != rgb(LIGHT.paper)).any()
    assert (without_legend[-60:] == rgb(LIGHT.paper)).all()


@pytest.mark.parametrize("photos", [1, 2, MIN_PHOTOS_FOR_TSNE - 1, MIN_PHOTOS_FOR_TSNE, 90])
def test_map_layout_is_deterministic(photos: int):
    rows = unit(np.random.default_rng(0).normal(size=(photos, 8)))
    positions = layout(rows, 0)
    assert positions.shape == (photos, 2)
    assert np.isfinite(positions).all()
    assert (layout(rows, 0) == positions).all()


def test_map_separates_distant_identities():
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 15)
    rows = unit(5 * generator.normal(size=(6, 32))[labels] + generator.normal(size=(90, 32)))
    positions = layout(rows, 0)
    distance = np.linalg.norm(positions[:, None] - positions[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    assert (labels[distance.argmin(1)] == labels).mean() > 0.95


@pytest.mark.parametrize("photos", [3, 60])
def test_collapsed_embeddings_make_map(photos: int):
    rows = np.tile(np.array([[0.6, 0.8, 0]], np.float32), (photos, 1))
    positions = layout(rows, 0)
    assert positions == pytest.approx(np.zeros((photos, 2)))
    check(map_chart(positions, np.arange(photos), [0, 1]))


def test_principal_components_keep_planar_distances():
    generator = np.random.default_rng(0)
    plane = generator.normal(size=(30, 2)) @ generator.normal(size=(2, 7))
    positions = principal_components(plane.astype(np.float32))
    between = np.linalg.norm(plane[:, None] - plane[None], axis=2)
    assert np.linalg.norm(positions[:, None] - positions[None], axis=2) == pytest.approx(between, abs=1e-4)
    assert principal_components(np.ones((4, 1), np.float32)).tolist() == [[0, 0]] * 4


def test_identities_with_most_photos_are_labeled():
    labels = np.repeat(np.arange(30), np.arange(30) % 7 + 1)
    labeled = labeled_identities(labels)
    photos = np.bincount(labels)
    assert len(labeled) == MAX_LABELED_IDENTITIES
    assert photos[labeled].min() >= np.delete(photos, labeled).max()
    assert labeled_identities(np.array([4, 4, 2])).tolist() == [4, 2]


def test_map_limits_photos_per_identity():
    photos = np.array([530, 2, 30, 31, *[10] * 300])
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(len(photos)), photos))
    rows = sample_rows(labels, 0)
    shown = np.bincount(labels[rows], minlength=len(photos))
    assert shown[:4].tolist() == [MAX_PHOTOS_PER_IDENTITY, 0, 30, MAX_PHOTOS_PER_IDENTITY]
    assert set(shown[4:].tolist()) == {0, 10}
    assert MAX_PHOTOS - 10 < len(rows) <= MAX_PHOTOS
    assert (np.diff(rows) > 0).all()
    assert (sample_rows(labels, 0) == rows).all()
    assert sample_rows(np.array([1, 0, 1]), 0).tolist() == [0, 1, 2]


def color(value: int, side_px: int = 36) -> np.ndarray:
    return np.full((side_px, side_px, 3), (value, 20, 30), np.uint8)


def test_tiles_are_small_or_none_when_unreadable():
    def crop(row: int) -> Crop:
        if row == 2:
            raise UnreadablePhoto("gone")
        return Crop(color(row, 300 if row else 36), "x")

    tiles = [read_tile(row, crop) for row in range(3)]
    assert tiles[2] is None
    assert tiles[0] is not None
    assert tiles[1] is not None
    assert (tiles[0].shape[0], tiles[1].shape[0]) == (36, TILE_PX)
    assert np.abs(decode(jpeg(color(200))).astype(int) - color(200)).max() <= 4


def test_contact_sheet_frames_correct_and_wrong_tiles():
    def with_tiles(*correct: bool | None) -> bytes:
        return contact_sheet([[Tile(color(200), "0.50", mark) for mark in correct], [Tile(None, "gone")]])

    assert share_of(with_tiles(True, True), LIGHT.same) > 0
    assert share_of(with_tiles(True, True), LIGHT.different) == 0
    assert share_of(with_tiles(False, None), LIGHT.different) > 0
    assert share_of(with_tiles(None, None), LIGHT.same) == 0
    picture = decode(with_tiles(True, False))
    assert (picture == (200, 20, 30)).all(axis=-1).sum() > 2 * (TILE_PX - 8) ** 2


def test_example_queries_have_positives_and_distinct_identities():
    labels = np.array([0, 0, 1, 2, 2, 2, 3, 3], np.int64)
    chosen = example_queries(labels, 10, seed=0)
    assert sorted(labels[chosen].tolist()) == [0, 2, 3]
    assert len(example_queries(labels, 2, seed=0)) == 2
    assert example_queries(labels, 10, seed=0).tolist() == chosen.tolist()
