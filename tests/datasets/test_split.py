import json
import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.errors import BadDataset, BadRun
from familiar.datasets.folders import IdentityTable
from familiar.datasets.split import SIDES, Split, split_by_identity, split_by_name


def table_of(**roots: int) -> IdentityTable:
    """One photo each of `roots[ROOT]` identities."""
    return named([f"{root}/{number:03d}" for root, count in roots.items() for number in range(count)])


def named(names: list[str]) -> IdentityTable:
    return IdentityTable(tuple(map(Path, names)), np.arange(len(names)), tuple(names))


def sides(split: Split) -> list[tuple[str, ...]]:
    return [getattr(split, side) for side in SIDES]


def count_in_root(side: tuple[str, ...], root: str) -> int:
    return sum(name.startswith(f"{root}/") for name in side)


identity_names = st.sets(
    st.text("abc قط🐈 \n'\"", min_size=1, max_size=6).map("root/{}".format), min_size=6, max_size=30
)
seeds = st.integers(0, 2**40)


@given(identity_names, seeds)
def test_each_identity_is_on_exactly_one_side(names: set[str], seed: int) -> None:
    split = split_by_identity(named(sorted(names)), seed)
    assert Counter(name for side in sides(split) for name in side) == Counter(names)
    assert all(list(side) == sorted(side) for side in sides(split))
    assert all(len(side) >= 2 for side in sides(split))


@given(identity_names, seeds, st.randoms(use_true_random=False))
def test_split_is_invariant_to_name_order(names: set[str], seed: int, random: Random) -> None:
    shuffled = sorted(names)
    random.shuffle(shuffled)
    assert split_by_identity(named(shuffled), seed) == split_by_identity(named(sorted(names)), seed)


def test_the_split_does_not_depend_on_the_photos() -> None:
    few = table_of(cats=20)
    many = few.select_rows(np.repeat(np.arange(20), 3))
    assert split_by_identity(few, 1) == split_by_identity(many, 1)


def test_different_seeds_give_different_splits() -> None:
    tests = {split_by_identity(table_of(cats=100), seed).test for seed in range(10)}
    assert len(tests) == 10


def test_split_test_side_is_uniform_over_seeds() -> None:
    counts = Counter(name for seed in range(500) for name in split_by_identity(table_of(cats=20), seed).test)
    # 500 draws of 2 from 20: 50 +- 6.7 each.
    assert len(counts) == 20
    assert 50 - 5 * 6.7 < min(counts.values()) <= max(counts.values()) < 50 + 5 * 6.7


@pytest.mark.parametrize(
    ("count", "validation", "test", "expected"),
    [
        (100, 0.1, 0.1, (80, 10, 10)),
        (100, 0.25, 0.15, (60, 25, 15)),
        (14, 0.1, 0.1, (10, 2, 2)),
        (6, 0.1, 0.1, (2, 2, 2)),
        (100, 0.0, 0.1, (90, 0, 10)),
        (100, 0.1, 0.0, (90, 10, 0)),
        (2, 0.0, 0.0, (2, 0, 0)),
        (100, 0.001, 0.001, (96, 2, 2)),
    ],
)
def test_sides_have_requested_shares(
    count: int, validation: float, test: float, expected: tuple[int, int, int]
) -> None:
    split = split_by_identity(table_of(cats=count), 3, validation, test)
    assert tuple(map(len, sides(split))) == expected
    assert split.seed == 3


def test_each_root_is_split_by_shares() -> None:
    split = split_by_identity(table_of(cats=60, dogs=200, people=6), 5)
    for root, expected in {"cats": [48, 6, 6], "dogs": [160, 20, 20], "people": [2, 2, 2]}.items():
        assert [count_in_root(side, root) for side in sides(split)] == expected


def test_root_split_is_invariant_to_other_roots() -> None:
    split = split_by_identity(table_of(cats=40), 2)
    split_with_dogs = split_by_identity(table_of(cats=40, dogs=40), 2)
    for side, with_dogs in zip(sides(split), sides(split_with_dogs), strict=True):
        assert side == tuple(name for name in with_dogs if name.startswith("cats/"))


def test_small_root_goes_to_train_side() -> None:
    split = split_by_identity(table_of(cats=50, dogs=3), 0)
    assert count_in_root(split.train, "dogs") == 3


# Too few identities


@pytest.mark.parametrize(
    ("count", "validation", "test", "side", "there"),
    [
        (0, 0.1, 0.1, "train", 0),
        (1, 0.0, 0.0, "train", 1),
        (5, 0.1, 0.1, "validation", 0),
        (5, 0.0, 0.1, "test", 0),
        (5, 0.4, 0.2, "test", 1),
        (6, 0.45, 0.45, "train", 0),
    ],
)
def test_rejects_too_few_identities_by_side(count: int, validation: float, test: float, side: str, there: int) -> None:
    with pytest.raises(
        BadDataset, match=f"^{count} identities are too few: the {side} side would have {there}, and needs 2"
    ):
        split_by_identity(table_of(cats=count), 0, validation, test)


@pytest.mark.parametrize(
    ("validation", "test"), [(-0.1, 0.1), (0.1, -0.1), (0.5, 0.5), (1.0, 0.0), (float("nan"), 0.1)]
)
def test_rejects_invalid_shares(validation: float, test: float) -> None:
    with pytest.raises(ValueError, match="shares"):
        split_by_identity(table_of(cats=20), 0, validation, test)


@pytest.mark.parametrize("split", [("a", "a", "b"), ("a", "b", "a"), ("b", "a", "a"), ("aa", "b", "c")])
def test_rejects_identity_on_two_sides(split: tuple[str, str, str]) -> None:
    with pytest.raises(ValueError, match="two sides"):
        Split(0, *map(tuple, split))


# File format


@given(st.sets(st.text() | st.just(os.fsdecode(b"cats/Jos\xe9")), max_size=12), seeds)
def test_json_round_trip(tmp_path_factory: pytest.TempPathFactory, names: set[str], seed: int) -> None:
    ordered = sorted(names)
    split = Split(seed, tuple(ordered[::3]), tuple(ordered[1::3]), tuple(ordered[2::3]))
    path = tmp_path_factory.mktemp("run") / "split.json"
    path.write_bytes(split.to_json().encode())
    assert Split.read(path) == split


def test_json_keeps_unicode_names() -> None:
    assert '"cats/قطة"' in Split(0, ("cats/قطة",), (), ()).to_json()


GOOD = json.loads(Split(0, ("a", "b"), ("c",), ("d",)).to_json())


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"7",
        *(json.dumps({key: value for key, value in GOOD.items() if key != left_out}).encode() for left_out in GOOD),
        *(
            json.dumps(GOOD | changes).encode()
            for changes in (
                {"seed": None},
                {"seed": "x"},
                {"train": "ab"},
                {"train": None},
                {"train": [1, 2]},
                {"train": {"a": 1}},
                {"test": ["a"]},
                {"test": ["d", "d"]},
            )
        ),
    ],
)
def test_rejects_corrupt_file_by_name(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    path.write_bytes(content)
    with pytest.raises(BadRun, match=r"split\.json: cannot be read as a split"):
        Split.read(path)


def test_rejects_missing_file_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadRun, match=r"split\.json: cannot be read as a split"):
        Split.read(tmp_path / "split.json")


def test_split_by_name_trains_listed_and_validates_others() -> None:
    split = split_by_name(named(["cats/1", "mnist/0", "mnist/1", "mnist/7", "mnist/8"]), ("1", "0"), seed=3)
    assert split == Split(3, ("cats/1", "mnist/0", "mnist/1"), ("mnist/7", "mnist/8"), ())


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (("1", "9", "nobody"), r"not in the data: 9, nobody; --set split\.train="),
        (("1",), r"leaves 1 identities to train on and 2 to validate on"),
        (("0", "1"), r"leaves 2 identities to train on and 1 to validate on"),
    ],
)
def test_split_by_name_rejects_unknown_names_and_small_sides(train: tuple[str, ...], message: str) -> None:
    with pytest.raises(BadDataset, match=message):
        split_by_name(named(["mnist/0", "mnist/1", "mnist/7"]), train)


# Split by name


def test_split_by_name_puts_listed_on_given_side() -> None:
    table = table_of(cats=5, dogs=3)
    names = [name.split("/", 1)[1] for name in table.names[:2]]
    listed = tuple(name for name in table.names if name.split("/", 1)[1] in names)
    others = tuple(name for name in table.names if name not in listed)
    trained, validated = split_by_name(table, names), split_by_name(table, names, side="validate")
    assert (trained.train, trained.validation, trained.test) == (listed, others, ())
    assert (validated.train, validated.validation, validated.test) == (others, listed, ())


@pytest.mark.parametrize("side", ["train", "validate"])
def test_split_by_name_rejects_invalid_names_for_both_sides(side: Literal["train", "validate"]) -> None:
    table = table_of(cats=5)
    folders = [name.split("/", 1)[1] for name in table.names]
    with pytest.raises(BadDataset, match=rf"^split\.{side} lists identities that are not in the data: Mia;"):
        split_by_name(table, [folders[0], "Mia"], side=side)
    counts = (4, 1) if side == "train" else (1, 4)
    with pytest.raises(BadDataset, match=rf"leaves {counts[0]} identities to train on and {counts[1]} to validate"):
        split_by_name(table, folders[:4], side=side)


def test_listed_identities_are_found_in_every_spelling():
    split = split_by_name(named(["pets/Jos\u00e9", "pets/Mia", "pets/Tom", "pets/Zoe"]), ["Jose\u0301", "Mia\u200e"])
    assert split.train == ("pets/Jos\u00e9", "pets/Mia")
