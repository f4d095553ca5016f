import subprocess
import sys
import zlib
from collections.abc import Callable

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.errors import BadDataset
from familiar.datasets.synthetic import SyntheticPhoto, SyntheticSource, is_synthetic
from familiar.datasets.synthetic.face import render_face
from familiar.datasets.synthetic.species import SPECIES, Species
from familiar.datasets.synthetic.traits import identity_vector
from support.tiers import small_and_exhaustive

Feature = Callable[[np.ndarray], np.ndarray]


def pixels(species: Species = "cats", identity: int = 3, index: int = 1, **changes: float) -> np.ndarray:
    return SyntheticPhoto(species, identity, index, **changes).draw().rgb_u8  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("species", SPECIES)
@pytest.mark.parametrize("size_px", [32, 96, 224])
def test_drawn_photo_is_square_with_name(species: Species, size_px: int) -> None:
    photo = SyntheticPhoto(species, 12, 3, size_px=size_px).draw()
    assert photo.rgb_u8.shape == (size_px, size_px, 3)
    assert photo.rgb_u8.dtype == np.uint8
    assert photo.source == f"synthetic:{species}/000012/0003"
    assert photo.source_size_px == (size_px, size_px)
    assert photo.rgb_u8.std() > 10


def test_seed_and_difficulty_change_name() -> None:
    photos = [
        SyntheticPhoto("cats", 1, 2),
        SyntheticPhoto("cats", 1, 2, 3),
        SyntheticPhoto("cats", 1, 2, 3, 0.7),
    ]
    assert len({photo.name for photo in photos}) == 3


def test_drawing_is_independent_from_previous_draws() -> None:
    first = pixels(size_px=96)
    for identity in (7, 3, 8, 9, 10, 11, 12):  # more than the size of the cache of faces
        for index in (0, 2):
            pixels(identity=identity, index=index, size_px=96)
    assert np.array_equal(pixels(size_px=96), first)
    render_face.cache_clear()
    assert np.array_equal(pixels(size_px=96), first)


def test_drawing_does_not_modify_cached_face() -> None:
    face = render_face(0, "dogs", 5, 0.5, 96)
    before = [plane.copy() for plane in (face.rgb, face.cover, face.head, face.slope_x, face.slope_y)]
    for index in range(6):
        pixels("dogs", 5, index, size_px=96)
    after = (face.rgb, face.cover, face.head, face.slope_x, face.slope_y)
    assert render_face(0, "dogs", 5, 0.5, 96) is face
    assert all(np.array_equal(left, right) for left, right in zip(before, after, strict=True))


@pytest.mark.slow
def test_drawing_is_deterministic_across_processes() -> None:
    code = (
        "import zlib; from familiar.datasets.synthetic import SyntheticPhoto\n"
        "for species in ('dogs', 'cats'):\n"
        "    print(zlib.crc32(SyntheticPhoto(species, 3, 1, 4, 0.8).draw().rgb_u8.tobytes()))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = [zlib.crc32(pixels(species, seed=4, difficulty=0.8).tobytes()) for species in ("dogs", "cats")]
    assert [int(line) for line in result.stdout.split()] == here


def test_drawing_is_invariant_to_thread_count() -> None:
    threads = cv2.getNumThreads()
    try:
        cv2.setNumThreads(1)
        with_one_thread = pixels(difficulty=1.0)
        cv2.setNumThreads(4)
        render_face.cache_clear()
        assert np.array_equal(pixels(difficulty=1.0), with_one_thread)
    finally:
        cv2.setNumThreads(threads)


def test_each_parameter_changes_pixels() -> None:
    drawn = [
        pixels(size_px=64),
        pixels(identity=4, size_px=64),
        pixels(index=2, size_px=64),
        pixels(seed=1, size_px=64),
        pixels(difficulty=0.6, size_px=64),
        pixels("dogs", size_px=64),
    ]
    assert len({picture.tobytes() for picture in drawn}) == len(drawn)


@pytest.mark.parametrize("difficulty", [0.0, 1.0])
def test_identity_vectors_are_unique(difficulty: float) -> None:
    vectors = [identity_vector(0, species, identity, difficulty) for species in SPECIES for identity in range(200)]
    assert len({vector.tobytes() for vector in vectors}) == 400


@pytest.mark.parametrize("difficulty", [0.0, 0.5, 1.0])
def test_identity_spread_matches_difficulty(difficulty: float) -> None:
    vectors = np.stack([identity_vector(5, "cats", identity, difficulty) for identity in range(300)])
    spread = 1 - 0.85 * difficulty
    # The identity's share is the variation around the vector that the species has in common.
    assert vectors.std(axis=0).mean() == pytest.approx(spread, abs=0.01)


def test_identity_vector_has_zero_mean_and_unit_variance() -> None:
    over_seeds = np.stack([identity_vector(seed, "dogs", 0, 0.9) for seed in range(200)])
    assert over_seeds.mean() == pytest.approx(0.0, abs=0.02)
    assert over_seeds.std() == pytest.approx(1.0, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("species", SPECIES)
def test_sizes_show_same_picture(species: Species) -> None:
    for identity in range(3):
        large = pixels(species, identity, 0, size_px=224, difficulty=0.0)
        small = pixels(species, identity, 0, size_px=96, difficulty=0.0)
        shrunk = cv2.resize(large, (96, 96), interpolation=cv2.INTER_AREA)
        assert np.abs(small.astype(float) - shrunk).mean() < 8


def _center(rgb_u8: np.ndarray) -> np.ndarray:
    """Return the center of the face, 12 by 12, normalized for the light's color and strength."""
    side = rgb_u8.shape[0]
    middle = rgb_u8[side // 4 : side * 4 // 5, side // 4 : side * 3 // 4]
    small = cv2.resize(middle, (12, 12), interpolation=cv2.INTER_AREA).astype(np.float32)
    return ((small - small.mean((0, 1))) / small.std()).ravel()


def _border(rgb_u8: np.ndarray) -> np.ndarray:
    """Return the color histogram of the upper edge, which is mostly background."""
    edge = rgb_u8[: rgb_u8.shape[0] // 9].reshape(-1, 3)
    return np.concatenate([np.sqrt(np.histogram(edge[:, channel], 16, (0, 256))[0]) for channel in range(3)])


def _roc_auc(species: Species, difficulty: float, feature: Feature) -> float:
    """Compute the area under the ROC: how often a positive pair is nearer than a negative one."""
    rows = np.stack(
        [feature(pixels(species, i, j, size_px=96, difficulty=difficulty)) for i in range(30) for j in range(4)]
    )
    distances = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    identity = np.repeat(np.arange(30), 4)
    same = identity[:, None] == identity[None]
    positives = distances[same & ~np.eye(len(rows), dtype=bool)]
    negatives = np.sort(distances[~same])
    return float(1 - np.searchsorted(negatives, positives).mean() / len(negatives))


@pytest.mark.slow
@pytest.mark.parametrize("species", small_and_exhaustive(*SPECIES))
def test_difficulty_reduces_identity_separation(species: Species) -> None:
    easy, middle, hard = (_roc_auc(species, difficulty, _center) for difficulty in (0.0, 0.5, 1.0))
    assert easy > 0.85
    assert easy > middle + 0.05
    assert middle > hard + 0.05
    assert hard < 0.7


@pytest.mark.slow
def test_background_does_not_reveal_identity() -> None:
    assert _roc_auc("dogs", 0.5, _border) == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"difficulty": -0.1}, "difficulty"),
        ({"difficulty": 1.1}, "difficulty"),
        ({"difficulty": float("nan")}, "difficulty"),
        ({"size_px": 31}, "size_px"),
        ({"size_px": 513}, "size_px"),
        ({"seed": -1}, "seed"),
        ({"identity": 2**32}, "identity"),
        ({"index": -1}, "index"),
    ],
)
def test_rejects_values_out_of_range(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pixels(**changes)  # pyright: ignore[reportArgumentType]


@given(
    st.sampled_from(SPECIES),
    st.integers(1, 10**6),
    st.integers(1, 10**4),
    st.integers(0, 2**32 - 1),
    st.floats(0, 1),
)
def test_source_string_round_trip(
    species: Species, identities: int, photos_each: int, seed: int, difficulty: float
) -> None:
    source = SyntheticSource(species, identities, photos_each, seed, difficulty)
    assert SyntheticSource.parse(str(source)) == source


def test_parse_accepts_options_in_any_order() -> None:
    expected = SyntheticSource("cats", 20, 6, seed=3, difficulty=0.7)
    assert SyntheticSource.parse("synthetic:cats:20x6:seed=3:difficulty=.7") == expected
    assert SyntheticSource.parse("synthetic:cats:20x6:difficulty=.7:seed=3") == expected
    assert SyntheticSource.parse("synthetic:cats:20x6") == SyntheticSource("cats", 20, 6)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cats:20x6",
        "synthetic:",
        "synthetic:cats",
        "synthetic:cows:20x6",
        "synthetic:cats:0x6",
        "synthetic:cats:20x0",
        "synthetic:cats:20",
        "synthetic:cats:20x6x2",
        "synthetic:cats:-20x6",
        "synthetic:cats:20x6:",
        "synthetic:cats:20x6:seed",
        "synthetic:cats:20x6:seed=x",
        "synthetic:cats:20x6:seed=-1",
        "synthetic:cats:20x6:seed=1:seed=2",
        "synthetic:cats:20x6:size=96",
        "synthetic:cats:20x6:difficulty=2",
        "synthetic:cats:20x6:difficulty=nan",
    ],
)
def test_rejects_invalid_source_with_example(text: str) -> None:
    with pytest.raises(BadDataset, match="synthetic:cats:20000x6"):
        SyntheticSource.parse(text)


def test_is_synthetic_requires_prefix() -> None:
    assert is_synthetic("synthetic:cats:20x6")
    assert not is_synthetic("photos/synthetic:cats")


def test_source_lists_photos_by_identity() -> None:
    source = SyntheticSource("dogs", 5, 3, seed=2, difficulty=0.1)
    assert source.photos(4) == tuple(SyntheticPhoto("dogs", 4, index, 2, 0.1) for index in range(3))
    for identity in (-1, 5):
        with pytest.raises(IndexError, match="no identity"):
            source.photos(identity)
