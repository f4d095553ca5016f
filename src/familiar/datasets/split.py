"""Splits of photos into train, validation and test sides: by identity, date, encounter, or a column that says so."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np
from jaxtyping import Int64

from familiar.core.errors import BadDataset, BadRun
from familiar.core.json_codec import DOCUMENTS
from familiar.core.json_text import parse_json
from familiar.datasets.identity_table import IdentityTable, sort_by_hash
from familiar.datasets.photo_references import photo_path
from familiar.datasets.spellings import unify_identity

MIN_IDENTITIES_PER_SIDE = 2  # with one there are no negative pairs to learn from or to evaluate

Side: TypeAlias = Literal["train", "validation", "test"]
SIDES: tuple[Side, ...] = get_args(Side)
SplitBy: TypeAlias = Literal["identity", "date", "encounter", "split"]
SIDE_NAMES: dict[str, Side] = {  # in a column `split`, in lower case
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "val", "valid", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}


@dataclass(frozen=True)
class Split:
    """The groups of photos on each of the three sides, each sorted.

    Attributes:
        seed: of the shuffle; without effect if the identities of a side were listed by name, or by date.
        train: groups to train on.
        validation: groups to choose the best epoch and to fit thresholds on.
        test: groups held out for the evaluation; may be empty.
        by: what a group is: an identity (`ROOT/IDENTITY`), a date, an encounter or the rows of a side in the column
            `split` (`ROOT/IDENTITY`, a space, and which). Only by identity the sides have no identity in common.
    """

    seed: int
    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]
    by: SplitBy = "identity"

    def __post_init__(self) -> None:
        sides = (self.train, self.validation, self.test)
        if len(set().union(*sides)) != sum(map(len, sides)):
            raise ValueError("an identity is on two sides of the split")

    def select(self, table: IdentityTable, *sides: Side) -> IdentityTable:
        """Select the photos of some sides.

        Args:
            table: of the photos that were split, or others of the same groups.
            sides: one or more.

        Raises:
            BadDataset: the table does not say to which groups its photos belong.
        """
        groups, codes = photo_groups(table, self.by)
        chosen = {group for side in sides for group in getattr(self, side)}
        return table.select_rows(np.flatnonzero(np.array([group in chosen for group in groups], bool)[codes]))

    def to_json(self) -> str:
        """Format the split as JSON."""
        text = json.dumps(DOCUMENTS.to_json(self), indent=1, ensure_ascii=False)
        # A folder's name may be invalid UTF-8; Python's escape of such a character is valid in JSON too.
        return text.encode("utf-8", "backslashreplace").decode()

    @staticmethod
    def read(path: Path) -> "Split":
        """Read a split from a file.

        Args:
            path: of a run's `split.json`.

        Raises:
            BadRun: the file is missing or damaged.
        """
        try:
            return DOCUMENTS.from_json(Split, parse_json(path.read_text(encoding="utf-8")), "the split")
        except (OSError, ValueError) as error:
            raise BadRun(f"{path}: cannot be read as a split ({error})") from error


def photo_groups(table: IdentityTable, by: SplitBy) -> tuple[tuple[str, ...], Int64[np.ndarray, " n"]]:
    """Return the groups of photos that stay on one side of a split, and the index among them of each photo's.

    An encounter is what the column `encounter` says, or else an identity's photos of one day.

    Args:
        table: the photos.
        by: what makes a group.

    Raises:
        BadDataset: the table has no such column, or a photo has no value in it.
    """
    if by == "identity":
        return table.names, table.labels
    column = "date" if by == "encounter" and "encounter" not in table.columns else by
    values = table.columns.get(column)
    if values is None:
        listed = ", ".join(table.columns) or "none"
        raise BadDataset(
            f"splitting by {by} needs a column {column}; beside paths and identities the data have {listed}"
        )
    missing = np.flatnonzero(np.isnat(values) if column == "date" else [value is None for value in values])
    if len(missing):
        first = photo_path(table.photos[missing[0]])
        raise BadDataset(
            f"{len(missing):,} photos have no {column}, the first {first}; fill it in, or split by identity"
        )
    distinct, codes = np.unique(values, return_inverse=True)
    texts = tuple(str(value) for value in distinct)
    if by == "date":
        return texts, codes.astype(np.int64)
    pairs, codes = np.unique(table.labels * len(texts) + codes, return_inverse=True)
    return tuple(f"{table.names[pair // len(texts)]} {texts[pair % len(texts)]}" for pair in pairs.tolist()), codes


def split_photos(
    table: IdentityTable, by: SplitBy = "identity", seed: int = 0, validation: float = 0.1, test: float = 0.1
) -> Split:
    """Split photos.

    By identity and by encounter, at random, separately for each root, so that each root has the same shares; the result
    depends only on `seed` and the names. By date, the past is for training, the latest photos are for the test, and
    those before them for validation. By the column `split` as it says; where no row is for validation, a share of the
    training identities is.

    Args:
        table: the photos.
        by: what stays on one side.
        seed: of the shuffle.
        validation: share of the groups, or by date of the photos, to validate on, in [0, 1).
        test: likewise to test on, in [0, 1).

    Raises:
        BadDataset: a side with a share above 0 would have fewer than two identities; or as in `photo_groups`.
        ValueError: the shares are negative or add up to 1 or more.
    """
    if not (validation >= 0 and test >= 0 and validation + test < 1):
        raise ValueError(f"shares must be at least 0 and add up to less than 1, got {validation} and {test}")
    groups, codes = photo_groups(table, by)
    if by == "date":
        sides = _sides_by_date(groups, codes, validation, test)
    elif by == "split":
        sides = _sides_as_stated(groups, seed, validation)
    else:
        sides = _random_sides(groups, seed, validation, test)
    split = Split(seed, *(tuple(sorted(sides[side])) for side in SIDES), by=by)
    shares: dict[Side, float] = {"train": 1.0, "validation": validation, "test": 0 if by == "split" else test}
    for side, share in shares.items():
        count = len(sides[side]) if by == "identity" else len(split.select(table, side).names)
        if share and count < MIN_IDENTITIES_PER_SIDE:
            raise BadDataset(
                f"{len(table.names)} identities are too few: the {side} side would have {count}, "
                f"and needs {MIN_IDENTITIES_PER_SIDE}. Add identities, or change split.validation and split.test"
            )
    return split


def split_by_identity(table: IdentityTable, seed: int = 0, validation: float = 0.1, test: float = 0.1) -> Split:
    """Split identities at random, as `split_photos` does.

    Args:
        table: the photos.
        seed: of the shuffle.
        validation: share of the identities to validate on, in [0, 1).
        test: share of the identities to test on, in [0, 1).
    """
    return split_photos(table, "identity", seed, validation, test)


def _random_sides(groups: Sequence[str], seed: int, validation: float, test: float) -> dict[str, list[str]]:
    sides: dict[str, list[str]] = {side: [] for side in SIDES}
    by_root: dict[str, list[str]] = {}
    for group in groups:
        by_root.setdefault(group.split("/", 1)[0], []).append(group)
    for names in by_root.values():
        shuffled = sort_by_hash(names, seed)
        validation_size = _share_size(len(names), validation)
        test_size = _share_size(len(names), test)
        sides["validation"] += shuffled[:validation_size]
        sides["test"] += shuffled[validation_size : validation_size + test_size]
        sides["train"] += shuffled[validation_size + test_size :]
    return sides


def _sides_by_date(
    dates: Sequence[str], codes: Int64[np.ndarray, " n"], validation: float, test: float
) -> dict[str, list[str]]:
    photos = np.bincount(codes, minlength=len(dates))
    earlier = (np.cumsum(photos) - photos) / max(photos.sum(), 1)  # share of the photos before each date
    is_test = earlier >= 1 - test
    is_validation = (earlier >= 1 - test - validation) & ~is_test
    masks = {"train": ~(is_test | is_validation), "validation": is_validation, "test": is_test}
    return {side: [date for date, chosen in zip(dates, mask, strict=True) if chosen] for side, mask in masks.items()}


def _sides_as_stated(groups: Sequence[str], seed: int, validation: float) -> dict[str, list[str]]:
    sides: dict[str, list[str]] = {side: [] for side in SIDES}
    for group in groups:
        stated = group.rpartition(" ")[2]
        if (side := SIDE_NAMES.get(stated.lower())) is None:
            raise BadDataset(f"the column split says {stated!r} of {group.rpartition(' ')[0]}, not train, val or test")
        sides[side].append(group)
    if not sides["validation"]:
        parts = _random_sides(sides["train"], seed, validation, 0)
        sides |= {"train": parts["train"], "validation": parts["validation"]}
    return sides


def split_by_name(
    table: IdentityTable, names: Sequence[str], seed: int = 0, side: Literal["train", "validate"] = "train"
) -> Split:
    """Split identities into those whose folders are listed in `names` and all others.

    Args:
        table: the photos.
        names: of folders.
        seed: recorded in the split.
        side: the side of the listed identities.

    Raises:
        BadDataset: a listed identity is missing, or a side would have fewer than two identities.
    """
    names = [unify_identity(name) for name in names]
    folders = {name: name.split("/", 1)[1] for name in table.names}
    if missing := sorted(set(names) - set(folders.values())):
        raise BadDataset(
            f"split.{side} lists identities that are not in the data: {', '.join(missing)}; "
            f"--set split.{side}= splits by shares instead"
        )
    listed = tuple(name for name in table.names if folders[name] in names)
    others = tuple(name for name in table.names if folders[name] not in names)
    train, validation = (listed, others) if side == "train" else (others, listed)
    if min(len(train), len(validation)) < MIN_IDENTITIES_PER_SIDE:
        raise BadDataset(
            f"split.{side} leaves {len(train)} identities to train on and {len(validation)} to validate on; each "
            f"side needs {MIN_IDENTITIES_PER_SIDE}"
        )
    return Split(seed, train, validation, ())


def _share_size(count: int, share: float) -> int:
    """Round a share to a whole number of identities, at least two if there are six or more in all."""
    if share == 0:
        return 0
    return max(round(count * share), MIN_IDENTITIES_PER_SIDE if count >= 3 * MIN_IDENTITIES_PER_SIDE else 0)
