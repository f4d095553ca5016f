"""Identities into train, validation and test: whoever is in one is in no other."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from familiar.core.errors import BadDataset, BadRun
from familiar.datasets.folders import IdentityTable, by_hash

MIN_IDENTITIES_A_SIDE = 2  # with one there is no pair of strangers: nothing to learn from, nothing to measure


SIDES = ("train", "validation", "test")


@dataclass(frozen=True)
class Split:
    """Identity names (`ROOT/IDENTITY`) of the three sides, each sorted, and the seed that made them."""

    seed: int
    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]

    def __post_init__(self) -> None:
        sides = (self.train, self.validation, self.test)
        if len(set().union(*sides)) != sum(map(len, sides)):
            raise ValueError("an identity stands on two sides of the split")

    def to_json(self) -> str:
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False)
        # A folder's name may be no UTF-8; Python's escape of such a character is JSON's too.
        return text.encode("utf-8", "backslashreplace").decode()

    @staticmethod
    def read(path: Path) -> "Split":
        """BadRun where the file is missing or damaged."""
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            return Split(int(stored["seed"]), *(_names(stored[side]) for side in SIDES))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadRun(f"{path}: no split can be read from it ({error})") from error


def split_by_identity(table: IdentityTable, seed: int = 0, validation: float = 0.1, test: float = 0.1) -> Split:
    """Shares of the identities, root by root, so that each root stands on each side in its share.

    Depends on `seed` and the names alone. BadDataset where a side that was asked for would have fewer
    than two identities.
    """
    if not (validation >= 0 and test >= 0 and validation + test < 1):
        raise ValueError(f"shares are at least 0 and together below 1: {validation}, {test}")
    sides: dict[str, list[str]] = {side: [] for side in SIDES}
    roots: dict[str, list[str]] = {}
    for name in table.names:
        roots.setdefault(name.split("/", 1)[0], []).append(name)
    for names in roots.values():
        shuffled = by_hash(names, seed)
        held = _share(len(names), validation)
        tested = _share(len(names), test)
        sides["validation"] += shuffled[:held]
        sides["test"] += shuffled[held : held + tested]
        sides["train"] += shuffled[held + tested :]
    for side, share in (("train", 1.0), ("validation", validation), ("test", test)):
        if share and len(sides[side]) < MIN_IDENTITIES_A_SIDE:
            raise BadDataset(
                f"{len(table.names)} identities are too few: the {side} side would have {len(sides[side])}, "
                f"and needs {MIN_IDENTITIES_A_SIDE}. Add identities, or change split.validation and split.test"
            )
    return Split(seed, *(tuple(sorted(sides[side])) for side in SIDES))


def split_by_name(
    table: IdentityTable, names: Sequence[str], seed: int = 0, side: Literal["train", "validate"] = "train"
) -> Split:
    """The identities whose folders are listed in `names` on one side, all others on the other.

    BadDataset where a listed one is missing, or a side would have fewer than two identities.
    """
    folders = {name: name.split("/", 1)[1] for name in table.names}
    if missing := sorted(set(names) - set(folders.values())):
        raise BadDataset(
            f"split.{side} lists identities that are not in the data: {', '.join(missing)}; "
            f"--set split.{side}= splits by shares instead"
        )
    listed = tuple(name for name in table.names if folders[name] in names)
    others = tuple(name for name in table.names if folders[name] not in names)
    train, validation = (listed, others) if side == "train" else (others, listed)
    if min(len(train), len(validation)) < MIN_IDENTITIES_A_SIDE:
        raise BadDataset(
            f"split.{side} leaves {len(train)} identities to train on and {len(validation)} to validate on; each "
            f"side needs {MIN_IDENTITIES_A_SIDE}"
        )
    return Split(seed, train, validation, ())


def _names(stored: object) -> tuple[str, ...]:
    if not isinstance(stored, list) or not all(isinstance(name, str) for name in stored):
        raise ValueError(f"not a list of identities: {stored!r:.80}")
    return tuple(stored)


def _share(count: int, share: float) -> int:
    """The nearest whole number, but two where there is enough to give two."""
    if share == 0:
        return 0
    return max(round(count * share), MIN_IDENTITIES_A_SIDE if count >= 3 * MIN_IDENTITIES_A_SIDE else 0)
