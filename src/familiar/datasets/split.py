"""Splits of identities into train, validation and test sides, which have no identity in common."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from familiar.core.errors import BadDataset, BadRun
from familiar.core.json_codec import DOCUMENTS
from familiar.core.json_text import parse_json
from familiar.datasets.folders import IdentityTable, sort_by_hash
from familiar.datasets.spellings import unify_identity

MIN_IDENTITIES_PER_SIDE = 2  # with one there are no negative pairs to learn from or to evaluate

SIDES = ("train", "validation", "test")


@dataclass(frozen=True)
class Split:
    """Identity names (`ROOT/IDENTITY`) of the three sides, each sorted.

    Attributes:
        seed: of the shuffle; without effect if the identities of a side were listed by name.
        train: identities to train on.
        validation: identities to choose the best epoch and to fit thresholds on.
        test: identities held out for the evaluation; may be empty.
    """

    seed: int
    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]

    def __post_init__(self) -> None:
        sides = (self.train, self.validation, self.test)
        if len(set().union(*sides)) != sum(map(len, sides)):
            raise ValueError("an identity is on two sides of the split")

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


def split_by_identity(table: IdentityTable, seed: int = 0, validation: float = 0.1, test: float = 0.1) -> Split:
    """Split identities at random, separately for each root, so that each root has the same shares.

    The result depends only on `seed` and the names.

    Args:
        table: the photos.
        seed: of the shuffle.
        validation: share of the identities to validate on, in [0, 1).
        test: share of the identities to test on, in [0, 1).

    Raises:
        BadDataset: a side with a share above 0 would have fewer than two identities.
        ValueError: the shares are negative or add up to 1 or more.
    """
    if not (validation >= 0 and test >= 0 and validation + test < 1):
        raise ValueError(f"shares must be at least 0 and add up to less than 1, got {validation} and {test}")
    sides: dict[str, list[str]] = {side: [] for side in SIDES}
    names_by_root: dict[str, list[str]] = {}
    for name in table.names:
        names_by_root.setdefault(name.split("/", 1)[0], []).append(name)
    for names in names_by_root.values():
        shuffled = sort_by_hash(names, seed)
        validation_size = _share_size(len(names), validation)
        test_size = _share_size(len(names), test)
        sides["validation"] += shuffled[:validation_size]
        sides["test"] += shuffled[validation_size : validation_size + test_size]
        sides["train"] += shuffled[validation_size + test_size :]
    for side, share in (("train", 1.0), ("validation", validation), ("test", test)):
        if share and len(sides[side]) < MIN_IDENTITIES_PER_SIDE:
            raise BadDataset(
                f"{len(table.names)} identities are too few: the {side} side would have {len(sides[side])}, "
                f"and needs {MIN_IDENTITIES_PER_SIDE}. Add identities, or change split.validation and split.test"
            )
    return Split(seed, *(tuple(sorted(sides[side])) for side in SIDES))


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
