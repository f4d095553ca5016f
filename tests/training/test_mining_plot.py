import re
from collections import Counter

import numpy as np
import pytest
import torch
from matplotlib.image import AxesImage
from matplotlib.text import Text
from PIL import Image
from torch import nn
from torch.nn.functional import normalize

from familiar.core.errors import CannotWrite, UnreadablePhoto
from familiar.loading.augment.settings import AUGMENTATIONS
from familiar.loading.batches import PhotoBatches
from familiar.loading.crops import read_table
from familiar.loading.dataset import FaceDataset, sequential_batches
from familiar.losses.mining import MINERS
from familiar.photos.preprocessing import Preprocessing
from familiar.training import get_triplets, mining_plot
from familiar.training.mining_plot import MINER_DESCRIPTIONS, draw_triplets, plot_mining
from familiar.training.mining_summary import (
    DIFFICULTIES,
    EASY,
    SEMI_HARD,
    VIOLATING,
    sample_batch,
    summarize_miners,
)
from familiar.training.network import build_network
from support.tiers import small_and_exhaustive
from support.tiny_run import TINY, save_photos
from support.triplet_reference import chosen_triplets, distance_table

pytestmark = pytest.mark.slow

TEN_OF_FOUR = torch.arange(10).repeat(4)
SIDE = 16


def unit_rows(count, dim=8, seed=0):
    return normalize(torch.randn(count, dim, generator=torch.Generator().manual_seed(seed)))


def flat_crops(count):
    """Return crops of one color each, which occurs nowhere else in a picture."""
    rows = torch.arange(count, dtype=torch.uint8)
    colors = torch.stack((rows + 1, 254 - rows, torch.full_like(rows, 7)), dim=1)
    return colors[:, None, None].expand(-1, SIDE, SIDE, -1).contiguous()


def as_vectors(images):
    return normalize(images.flatten(1))


@pytest.fixture(scope="module")
def dataset(cats):
    read = read_table(cats.read(), Preprocessing(size_px=32, resize_px=32))
    return FaceDataset(read.table, read.crops)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return build_network(TINY).train()


@pytest.mark.parametrize(("method", "count"), [("batch_all", 4320), ("batch_hard", 40), ("hard_negative", 120)])
def test_triplet_counts_match_closed_form(method, count):
    assert len(get_triplets((unit_rows(40), TEN_OF_FOUR), as_vectors, method)) == count


@pytest.mark.parametrize("method", MINERS)
@pytest.mark.parametrize("margin", [0.2, 1.0])
def test_triplets_match_reference_for_each_method(method, margin):
    images = torch.rand(40, 3, 4, 4, generator=torch.Generator().manual_seed(1)) - 0.5
    triplets = get_triplets((images, TEN_OF_FOUR), as_vectors, method, margin=margin)
    assert triplets == chosen_triplets(method, as_vectors(images), TEN_OF_FOUR, margin)
    assert triplets
    assert type(triplets) is list
    assert all(type(triplet) is tuple and [type(row) for row in triplet] == [int] * 3 for triplet in triplets)


def test_default_is_semi_hard_with_facenet_margin():
    batch = unit_rows(40), TEN_OF_FOUR
    assert get_triplets(batch, as_vectors) == get_triplets(batch, as_vectors, "semi_hard", margin=0.2)
    assert get_triplets(batch, as_vectors) != get_triplets(batch, as_vectors, margin=0.3)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_accepts_either_batch_order_and_any_integer_labels(dtype):
    images, labels = unit_rows(40), TEN_OF_FOUR.to(dtype)
    expected = list(MINERS["batch_hard"](images, TEN_OF_FOUR, 0.2))
    for batch in ((images, labels), (labels, images), [labels, images], (images, labels.tolist())):
        assert get_triplets(batch, as_vectors, "batch_hard") == expected


def test_accepts_loaded_photo_batch(dataset, network):
    (batch,) = PhotoBatches(dataset, sequential_batches(range(12), 12), torch.device("cpu"))
    with torch.no_grad():
        embeddings = network.eval()(batch.images)
    network.train()
    expected = chosen_triplets("hard_negative", embeddings, batch.labels, 0.2)
    assert get_triplets(batch, network, "hard_negative") == expected


def test_returns_empty_list_for_batch_without_triplets():
    assert get_triplets((torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64)), as_vectors) == []
    assert get_triplets((unit_rows(5), torch.arange(5)), as_vectors, "batch_all") == []


def test_rejects_unknown_method():
    with pytest.raises(ValueError, match=f"'hardest'.*{', '.join(MINERS)}"):
        get_triplets((unit_rows(40), TEN_OF_FOUR), as_vectors, "hardest")


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((), "nothing"),
        ((unit_rows(3),), "(3, 8) of torch.float32"),
        ((torch.arange(3),), "(3,) of torch.int64"),
        ((unit_rows(3), torch.zeros(3)), "(3,) of torch.float32"),
        ((unit_rows(3), torch.arange(4)), "(3, 8) of torch.float32, (4,) of torch.int64"),
    ],
)
def test_rejects_malformed_batch(batch, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        get_triplets(batch, as_vectors)


def modes(model):
    return [part.training for part in model.modules()]


def test_model_and_random_state_are_unchanged():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.BatchNorm1d(8))
    model[3].eval()  # frozen
    before, states = modes(model), {name: state.clone() for name, state in model.state_dict().items()}
    draws = torch.get_rng_state()
    calls = []
    model.register_forward_hook(lambda _module, _input, output: calls.append((modes(model), output.requires_grad)))
    first, again = (get_triplets((unit_rows(40), TEN_OF_FOUR), model) for _ in range(2))
    assert first == again, "no dropout"
    assert calls == [([False] * 5, False)] * 2
    assert modes(model) == before == [True, True, True, True, False]
    assert all(torch.equal(state, states[name]) for name, state in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), draws)
    assert torch.is_grad_enabled()
    with pytest.raises(RuntimeError):
        get_triplets((unit_rows(40, dim=7), TEN_OF_FOUR), model)
    assert modes(model) == before


def test_every_miner_has_an_explanation():
    assert MINER_DESCRIPTIONS.keys() == MINERS.keys()


@pytest.mark.parametrize("margin", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_summaries_match_reference_counts_and_difficulties(margin, seed):
    embeddings, labels = unit_rows(20, seed=seed), torch.arange(5).repeat(4)
    summaries = summarize_miners(embeddings, labels, margin, 3, seed)
    assert [summary.name for summary in summaries] == list(MINERS)
    d = distance_table(embeddings)
    for summary in summaries:
        triplets = chosen_triplets(summary.name, embeddings, labels, margin)
        counts = Counter(
            VIOLATING if d[a][n] < d[a][p] else SEMI_HARD if d[a][n] < d[a][p] + margin else EASY
            for a, p, n in triplets
        )
        assert summary.counts == tuple(counts[index] for index in range(len(DIFFICULTIES)))
        assert summary.total == len(triplets)
        for example in summary.examples:
            a, p, n = example.rows
            assert example.rows in triplets
            assert (example.to_positive, example.to_negative) == pytest.approx((d[a][p], d[a][n]), abs=1e-6)
            expected = VIOLATING if d[a][n] < d[a][p] else SEMI_HARD if d[a][n] < d[a][p] + margin else EASY
            assert example.difficulty == expected


@pytest.mark.parametrize("seed", range(5))
def test_examples_have_same_anchors_from_distinct_identities(seed):
    labels = torch.arange(5).repeat(4)
    summaries = summarize_miners(unit_rows(20, seed=seed), labels, 1.0, 5, seed)
    anchors = [[example.rows[0] for example in summary.examples] for summary in summaries]
    assert all(rows == anchors[0] for rows in anchors)
    assert sorted(labels[anchors[0]].tolist()) == [0, 1, 2, 3, 4]
    again, other = (
        summarize_miners(unit_rows(20, seed=seed), labels, 1.0, 5, other_seed) for other_seed in (seed, seed + 1)
    )
    assert again == summaries
    assert other != summaries


def test_examples_use_anchors_of_most_selective_miner():
    embeddings, margin = unit_rows(40), 0.01
    assert len({anchor for anchor, *_ in MINERS["semi_hard"](embeddings, TEN_OF_FOUR, margin)}) < 20
    semi_hard, *others = summarize_miners(embeddings, TEN_OF_FOUR, margin, 3, 0)
    for summary in others:
        assert [example.rows[0] for example in summary.examples] == [example.rows[0] for example in semi_hard.examples]


@pytest.mark.parametrize(("margin", "difficulty"), [(2.0, EASY), (2.1, SEMI_HARD)])
def test_negative_is_semi_hard_only_inside_margin(margin, difficulty):
    for summary in summarize_miners(torch.eye(3).repeat(2, 1), torch.arange(3).repeat(2), margin, 3, 0):
        assert {example.difficulty for example in summary.examples} <= {difficulty}
        assert summary.counts[difficulty] == summary.total


@pytest.mark.parametrize(("margin", "difficulty"), [(0.0, EASY), (0.1, VIOLATING)])
def test_equal_distances_violate_unless_margin_is_zero(margin, difficulty):
    *_, summary = summarize_miners(unit_rows(1).expand(6, -1), torch.arange(3).repeat(2), margin, 3, 0)
    assert summary.counts[difficulty] == summary.total == 24


def draw(path, labels, embeddings, **settings):
    draw_triplets(path, flat_crops(len(labels)), labels, embeddings, **settings)
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        return np.asarray(picture.convert("RGB"))


@pytest.fixture
def figures(monkeypatch):
    """The figures that are drawn."""
    drawn, draw_page = [], mining_plot.draw_page

    def record_figure(*arguments):
        drawn.append(draw_page(*arguments))
        return drawn[-1]

    monkeypatch.setattr(mining_plot, "draw_page", record_figure)
    return drawn


def texts(figure):
    """The lines of text in a figure."""
    return [line for text in figure.findobj(Text) for line in text.get_text().splitlines()]


@pytest.mark.exhaustive
def test_picture_shows_crops_of_every_miner(tmp_path, figures):
    labels, embeddings = torch.arange(5).repeat(4), unit_rows(20)
    pixels = draw(tmp_path / "triplets.png", labels, embeddings, margin=1.0, examples=2, seed=3)
    summaries = summarize_miners(embeddings, labels, 1.0, 2, 3)
    expected = [row for summary in summaries for example in summary.examples for row in example.rows]
    shown = [image.get_array() for image in figures[0].findobj(AxesImage)]
    crops = flat_crops(20).numpy()
    assert all(np.array_equal(image, crops[row]) for image, row in zip(shown, expected, strict=True))
    for row, (color, *_) in enumerate(crops[:, 0]):
        assert (pixels == color).all(axis=-1).any() == (row in expected), "pixels are not mixed"
    assert len(expected) == 4 * 2 * 3


@pytest.mark.parametrize("side", small_and_exhaustive(8, 112, 224))
def test_picture_accepts_crops_of_any_size(tmp_path, side):
    rgb_u8 = np.full((8, side, side, 3), 99, np.uint8)
    draw_triplets(tmp_path / "triplets.png", rgb_u8, torch.arange(4).repeat(2), unit_rows(8), examples=1)
    with Image.open(tmp_path / "triplets.png") as picture:
        shown = (np.asarray(picture.convert("RGB")) == 99).all(axis=-1)
    assert shown.sum() > 12 * 100**2


def test_picture_reports_miners_margin_and_counts(tmp_path, figures):
    embeddings = unit_rows(40)
    draw(tmp_path / "triplets.png", TEN_OF_FOUR, embeddings)
    written = texts(figures[0])
    semi_hard, batch_hard, *_ = summarize_miners(embeddings, TEN_OF_FOUR, 0.2, 3, 0)
    assert [text for text in written if text.startswith(tuple(MINERS))] == [
        f"{name}: {MINER_DESCRIPTIONS[name]}" for name in MINERS
    ]
    assert "40 photos of 10 identities" in written[0]
    assert "the margin is 0.2" in written[1]
    assert f"{semi_hard.total} of 4,320 valid triplets: 0 violating, {semi_hard.total} semi-hard, 0 easy" in written
    violating, between, easy = batch_hard.counts
    assert f"40 of 4,320 valid triplets: {violating} violating, {between} semi-hard, {easy} easy" in written
    assert f"{semi_hard.examples[0].to_negative:.3f} semi-hard" in written
    assert all(f"{difficulty.name}: {difficulty.meaning}" in written for difficulty in DIFFICULTIES)


@pytest.mark.exhaustive
def test_picture_reports_miner_without_triplets(tmp_path, figures):
    identities = torch.eye(5).repeat(4, 1)  # perfect: every negative is farther by 2
    pixels = draw(tmp_path / "triplets.png", torch.arange(5).repeat(4), identities)
    written = texts(figures[0])
    assert "0 of 960 valid triplets: no negative lies in the band" in written
    assert "960 of 960 valid triplets: 0 violating, 0 semi-hard, 960 easy" in written
    assert pixels.shape[0] < draw(tmp_path / "full.png", TEN_OF_FOUR, unit_rows(40)).shape[0]


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ([4] * 6, "all photos are of one identity, so there is no negative"),
        ([0, 1, 2], "no identity has two photos, so there is no positive"),
        ([], "no identity has two photos, so there is no positive"),
    ],
)
def test_picture_gives_reason_for_batch_without_triplets(tmp_path, figures, labels, why):
    draw(tmp_path / "triplets.png", torch.tensor(labels, dtype=torch.int64), unit_rows(len(labels)))
    assert texts(figures[0]).count(f"0 of 0 valid triplets: {why}") == len(MINERS)


@pytest.mark.parametrize("wrong", [{"examples": 0}, {"embeddings": 2 * unit_rows(40)}])
def test_rejects_invalid_input_without_writing_file(tmp_path, wrong):
    with pytest.raises(ValueError, match=r"examples must be 1 or more|not unit vectors"):
        draw(tmp_path / "triplets.png", TEN_OF_FOUR, **{"embeddings": unit_rows(40), **wrong})
    assert not list(tmp_path.iterdir())


def test_rejects_path_in_missing_folder(tmp_path):
    with pytest.raises(CannotWrite):
        draw(tmp_path / "gone" / "triplets.png", TEN_OF_FOUR, unit_rows(40))


def test_sample_batch_has_requested_identities_and_photos(dataset):
    batch = sample_batch(dataset, identities=5, photos=3, seed=2)
    assert Counter(batch.labels.tolist()).most_common()[-1][1] == 3
    assert len(set(batch.labels.tolist())) == 5
    assert len(set(batch.rows.tolist())) == 15
    assert batch.labels.tolist() == dataset.table.labels[batch.rows.numpy()].tolist()
    for rgb_u8, row in zip(batch.rgb_u8.numpy(), batch.rows.tolist(), strict=True):
        assert np.array_equal(rgb_u8, dataset.crops[row])
    again, other = (sample_batch(dataset, identities=5, photos=3, seed=seed) for seed in (2, 3))
    assert torch.equal(again.rows, batch.rows)
    assert not torch.equal(other.rows, batch.rows)


def test_sample_batch_takes_every_photo_once_when_few(dataset):
    assert sorted(sample_batch(dataset, identities=99, photos=99).rows.tolist()) == list(range(len(dataset)))


@pytest.mark.parametrize("seed", range(4))
def test_sample_batch_prefers_identities_with_two_photos(dataset, seed):
    table = dataset.table.select_rows(np.array([0, 1, *np.flatnonzero(np.arange(len(dataset)) % 4 == 0)[1:], 5]))
    subset = FaceDataset(table, dataset.crops.select(table))
    assert Counter(sample_batch(subset, identities=2, seed=seed).labels.tolist()) == {0: 2, 1: 2}


def test_error_names_missing_photo(tmp_path):
    read = read_table(
        save_photos(tmp_path / "cats", "synthetic:cats:2x2").read(), Preprocessing(size_px=32, resize_px=32)
    )
    read.table.photos[2].unlink()
    with pytest.raises(UnreadablePhoto, match=re.escape(str(read.table.photos[2]))):
        sample_batch(FaceDataset(read.table, read.crops))


@pytest.mark.exhaustive
def test_plot_mining_ignores_augmentation(tmp_path, dataset, network, figures):
    first, other, augmented = (tmp_path / f"{name}.png" for name in range(3))
    plot_mining(network, dataset, first, margin=0.001)
    written = texts(figures[0])
    assert "40 photos of 10 identities" in written[0]
    assert any(text.startswith("40 of 4,320 valid triplets") for text in written)
    assert network.training
    plot_mining(network, dataset, other, margin=0.001, seed=1)
    assert other.read_bytes() != first.read_bytes()
    plot_mining(network, FaceDataset(dataset.table, dataset.crops, AUGMENTATIONS["pet"]), augmented, margin=0.001)
    assert augmented.read_bytes() == first.read_bytes()


def test_plot_mining_accepts_one_identity(tmp_path, dataset, network, figures):
    table = dataset.table.select_rows(np.arange(3))
    plot_mining(network, FaceDataset(table, dataset.crops.select(table)), tmp_path / "triplets.png")
    reason = "0 of 0 valid triplets: all photos are of one identity, so there is no negative"
    assert texts(figures[0]).count(reason) == len(MINERS)
