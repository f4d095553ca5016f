import io
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from familiar.core.types import Photo
from familiar.datasets.duplicates import (
    DuplicateGroup,
    assign_leaders,
    find_duplicates,
    fine_structure,
    perceptual_hash,
    thumbnail,
)
from familiar.datasets.folders import DataSpec, sort_by_hash
from familiar.datasets.inspection import DUPLICATE_KINDS, inspect_table
from familiar.datasets.synthetic import SyntheticPhoto

ALL_BITS = 2**64 - 1


def noise(seed: int, side_px: int = 32) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side_px, side_px), np.uint8)


# The hash and the fine structure


def test_rising_ramp_hashes_to_ones_falling_to_zeros() -> None:
    ramp = np.tile(np.arange(0, 256, 8, dtype=np.uint8), (32, 1))
    assert perceptual_hash(ramp) == ALL_BITS
    assert perceptual_hash(np.ascontiguousarray(ramp[:, ::-1])) == 0
    assert perceptual_hash(np.full((32, 32), 90, np.uint8)) == 0


def test_first_hash_bits_are_top_row() -> None:
    ramp = np.tile(np.arange(0, 256, 8, dtype=np.uint8), (32, 1))
    ramp[4:] = 0
    assert perceptual_hash(ramp) == 0xFF << 56


def test_fine_structure_equals_photo_minus_blur() -> None:
    gray = noise(1).astype(np.float32)
    fine = gray - cv2.GaussianBlur(gray, (0, 0), 3.0)
    expected = (fine - fine.mean()) / fine.std()
    assert np.abs(fine_structure(noise(1)) / 16 - expected.ravel()).max() <= 0.5 / 16 + 1e-4


def test_fine_structure_is_invariant_to_exposure_and_ramp() -> None:
    gray = (noise(2) // 4).astype(np.float32)
    # Away from the border, blurring does not change a ramp.
    ramp = np.arange(32, dtype=np.float32)[:, None] * 3
    plain, changed = (
        fine_structure(np.rint(picture).astype(np.uint8)).reshape(32, 32)[10:-10, 10:-10].ravel()
        for picture in (gray, 1.5 * gray + 20 + ramp)
    )
    assert np.corrcoef(plain, changed)[0, 1] > 0.99


@pytest.mark.parametrize("lightness", [0, 128, 255])
def test_featureless_photo_has_zero_fine_structure(lightness: int) -> None:
    gray = np.full((32, 32), lightness, np.uint8)
    gray[::7, ::5] ^= 1
    assert not fine_structure(gray).any()


# assign_leaders


def slow_leaders(hashes: np.ndarray, structures: np.ndarray, max_bits: int, least: float) -> list[int]:
    leaders: list[int] = []
    for row in range(len(hashes)):
        leader = row
        for earlier in range(row):
            a, b = structures[row].astype(float), structures[earlier].astype(float)
            if leaders[earlier] != earlier or not a.any() or not b.any():
                continue
            bits = (int(hashes[row]) ^ int(hashes[earlier])).bit_count()
            if bits <= max_bits and a @ b / np.sqrt((a @ a) * (b @ b)) >= least:
                leader = earlier
                break
        leaders.append(leader)
    return leaders


@st.composite
def rows_of_few_pictures(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = draw(st.integers(0, 40))
    pictures = rng.integers(0, max(1, count // 4) + 1, count)
    hashes = rng.integers(0, 2**64, 12, np.uint64)[pictures]
    for _ in range(4):
        hashes = hashes ^ (np.uint64(1) << rng.integers(0, 64, count, np.uint64))
    structures = rng.normal(0, 30, (12, 16))[pictures] + rng.normal(0, 12, (count, 16))
    structures[rng.random(count) < 0.1] = 0
    return hashes, structures.clip(-127, 127).astype(np.int8)


@pytest.mark.slow
@given(rows_of_few_pictures(), st.sampled_from([1, 2, 7, 1000]), st.integers(0, 10))
def test_leaders_match_slow_reference(rows: tuple[np.ndarray, np.ndarray], block_rows: int, max_bits: int) -> None:
    hashes, structures = rows
    leaders, similarity = assign_leaders(hashes, structures, max_bits, 0.8, block_rows)
    assert leaders.tolist() == slow_leaders(hashes, structures, max_bits, 0.8)
    for row, leader in enumerate(leaders):
        if leader == row:
            assert similarity[row] == 1
        else:
            a, b = structures[row].astype(float), structures[leader].astype(float)
            assert similarity[row] == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-6)


def turned(degrees: float) -> list[float]:
    return [127 * np.cos(np.radians(degrees)), 127 * np.sin(np.radians(degrees))]


def test_similar_frames_do_not_chain_into_one_leader() -> None:
    structures = np.array([turned(20 * frame) for frame in range(9)]).astype(np.int8)  # cos 20° = .94
    leaders, similarity = assign_leaders(np.zeros(9, np.uint64), structures)
    assert leaders.tolist() == [0, 0, 2, 2, 4, 4, 6, 6, 8]
    assert similarity[1] == pytest.approx(np.cos(np.radians(20)), abs=0.01)


def test_duplicate_needs_similar_hash_and_structure() -> None:
    structure, different_structure = noise(3).ravel()[:64].astype(np.int8), noise(4).ravel()[:64].astype(np.int8)
    hash_, distant_hash = np.uint64(0), np.uint64(2**9 - 1)
    assert assign_leaders(np.array([hash_, hash_]), np.stack([structure, structure]))[0].tolist() == [0, 0]
    assert assign_leaders(np.array([hash_, distant_hash]), np.stack([structure, structure]))[0].tolist() == [0, 1]
    assert assign_leaders(np.array([hash_, hash_]), np.stack([structure, different_structure]))[0].tolist() == [0, 1]


def test_copies_share_leader_but_featureless_rows_do_not() -> None:
    structures = np.tile(noise(5).ravel().astype(np.int8), (1000, 1))
    seen: list[int] = []
    leaders, _ = assign_leaders(np.zeros(1000, np.uint64), structures, block_rows=300, on_rows=seen.append)
    assert not leaders.any()
    assert seen == [300, 600, 900, 1000]
    leaders, _ = assign_leaders(np.zeros(1000, np.uint64), structures * 0)
    assert leaders.tolist() == list(range(1000))


# find_duplicates


def test_returns_exact_and_near_duplicates() -> None:
    patches = [cv2.resize(noise(seed, 8), (32, 32)) for seed in range(4)]
    grain = np.random.default_rng(0).integers(0, 3, (32, 32), np.uint8)
    again = cv2.add(patches[1], grain)
    grays = [patches[0], patches[1], patches[2], again, patches[1], patches[2], patches[3]]
    groups = find_duplicates(
        [gray.tobytes() for gray in grays],
        np.array([perceptual_hash(gray) for gray in grays], np.uint64),
        np.stack([fine_structure(gray) for gray in grays]),
    )
    assert [(group.rows, group.exact) for group in groups] == [
        ((1, 4), True),
        ((1, 4, 3), False),
        ((2, 5), True),
    ]
    assert groups[0].similarity == groups[2].similarity == 1
    assert 0.99 < groups[1].similarity < 1


def test_empty_input_returns_no_duplicates() -> None:
    assert find_duplicates([], np.empty(0, np.uint64), np.empty((0, 16), np.int8)) == ()


# Photos


def saved_again(photo: np.ndarray) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(photo).save(file, "JPEG", quality=30)
    return np.asarray(Image.open(file))


CHANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "saved again": saved_again,
    "half the size": lambda rgb: cv2.resize(rgb, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA),
    "larger": lambda rgb: cv2.resize(rgb, None, fx=1.7, fy=1.7, interpolation=cv2.INTER_CUBIC),
    "darker": lambda rgb: (rgb * 0.6).astype(np.uint8),
    "brighter": lambda rgb: np.rint(255 * (rgb / 255) ** 0.7).astype(np.uint8),
    "without color": lambda rgb: np.repeat(rgb.mean(axis=2, keepdims=True), 3, axis=2).astype(np.uint8),
    "cropped": lambda rgb: rgb[2:-2, 2:-2],
}


def duplicates_among(*pictures: np.ndarray) -> tuple[DuplicateGroup, ...]:
    photos = [Photo(np.ascontiguousarray(rgb), "drawn", (rgb.shape[1], rgb.shape[0])) for rgb in pictures]
    grays = [cv2.cvtColor(thumbnail(photo), cv2.COLOR_RGB2GRAY) for photo in photos]
    return find_duplicates(
        [photo.rgb_u8.tobytes() for photo in photos],
        np.array([perceptual_hash(gray) for gray in grays], np.uint64),
        np.stack([fine_structure(gray) for gray in grays]),
    )


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_edited_photo_is_near_duplicate(change: str) -> None:
    for identity in range(5):
        rgb = SyntheticPhoto("cats", identity, 0).draw().rgb_u8
        assert [(group.rows, group.exact) for group in duplicates_among(rgb, CHANGES[change](rgb))] == [((0, 1), False)]


def test_distinct_photos_with_same_identity_are_not_duplicates() -> None:
    photos = [SyntheticPhoto("cats", identity, index).draw().rgb_u8 for identity in (0, 1) for index in range(6)]
    assert duplicates_among(*photos) == ()


LFW_FAULTS = [
    ("Bart_Hendricks", "Ricky_Ray"),
    ("Carlos_Beltran", "Raul_Ibanez"),
    ("Emmy_Rossum", "Eva_Amurri"),
    ("Gabrielle_Rose", "Martha_Bowen"),
]


@pytest.mark.exhaustive
@pytest.mark.shared_data
def test_lfw_duplicates_across_identities_match_known_faults(shared_data: Path) -> None:
    root = shared_data / "lfw_112"
    others = sort_by_hash(path.name for path in root.iterdir() if path.is_dir())[:600]
    names = {name for pair in LFW_FAULTS for name in pair} | set(others)
    inspection = inspect_table(DataSpec((str(root),), identities=tuple(names)).read())
    across = [
        tuple(inspection.identity_names(group.rows))
        for kind in DUPLICATE_KINDS
        if kind.across
        for group in inspection.duplicates_of_kind(kind)
    ]
    assert sorted(across) == [tuple(f"lfw_112/{name}" for name in pair) for pair in LFW_FAULTS]
    similarity = [
        group.similarity for kind in DUPLICATE_KINDS if kind.across for group in inspection.duplicates_of_kind(kind)
    ]
    assert all(first >= second for first, second in pairwise(similarity))
