"""LFW's protocol files: pairs to verify, and the people of each fold.

View 1, to choose a model by: `pairsDevTrain.txt`, `pairsDevTest.txt`, `peopleDevTrain.txt`, `peopleDevTest.txt`.
View 2, to report by: ten folds, in `pairs.txt` and `people.txt`. The first line of each says how much follows.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from familiar.core.errors import BadDataset
from familiar.datasets.folders import IdentityTable
from familiar.metrics.pairs import Pairs


@dataclass(frozen=True, eq=False)
class FoldedPairs:
    """`fold[i]`, from 0, is the fold of pair i: nine train or choose a threshold, the tenth is judged by it."""

    pairs: Pairs
    fold: Int64[np.ndarray, " p"]


def read_lfw_pairs(path: Path, table: IdentityTable) -> Pairs:
    """Rows of `table` for each line of an LFW pairs file, of either view.

    `NAME I J` is a pair of one identity's photos, `NAME I OTHER J` one of two; photo I of NAME is the
    file `NAME_000I` of that folder. BadDataset names the line, and the photo that is missing or paired with itself,
    and tells where the first line says another number of pairs than there are; it may be left out.
    """
    return _read(path, table)[1]


def read_lfw_folds(path: Path, table: IdentityTable) -> FoldedPairs:
    """As `read_lfw_pairs`, with each pair's fold: 0 to 9 in View 2, 0 in View 1.

    The first line's numbers tell them apart, and so must be there: folds (where there are several), and pairs of
    one identity in each, as many as of two. BadDataset too where these do not come by turns.
    """
    header, pairs = _read(path, table)
    if header is None:
        raise BadDataset(f"{path}: its first line tells no number of folds and pairs; download it again")
    folds, each = header
    wrong = np.flatnonzero(pairs.same != np.tile(np.repeat([True, False], each), folds))
    if len(wrong):
        raise BadDataset(
            f"{path}: pair {wrong[0] + 1} is out of place, since a fold has {each} pairs of one identity, "
            f"then {each} of two; download it again"
        )
    return FoldedPairs(pairs, np.repeat(np.arange(folds), 2 * each))


def read_lfw_people(path: Path) -> tuple[frozenset[str], ...]:
    """The people of each fold of an LFW people file: ten folds in View 2, one in View 1.

    BadDataset where a fold has more or fewer than its first line says, or somebody stands in the file twice.
    """
    said: list[int] = []
    folds: list[list[str]] = []
    for number, line in enumerate(_lines(path), start=1):
        match line.split("\t"):
            case [count] if count.strip().isdecimal():
                said.append(int(count))
                folds.append([])
            case [name, photos] if photos.isdecimal() and folds:
                folds[-1].append(name)
            case [blank] if not blank.strip():
                continue
            case _:
                raise BadDataset(f"{path}:{number}: neither a number of people nor NAME PHOTOS: {line!r}")
    expected = len(folds)
    if len(folds) > 1 and not folds[0]:  # of several folds, their number comes first
        expected, said, folds = said[0], said[1:], folds[1:]
    found = [len(fold) for fold in folds]
    if not any(found) or (expected, said) != (len(folds), found):
        raise BadDataset(
            f"{path}: {len(folds)} folds of {found} people where it says {expected} of {said}; download it again"
        )
    [(name, times)] = Counter(name for fold in folds for name in fold).most_common(1)
    if times > 1:
        raise BadDataset(f"{path}: {name} stands in it {times} times; download it again")
    return tuple(map(frozenset, folds))


def _read(path: Path, table: IdentityTable) -> tuple[tuple[int, ...] | None, Pairs]:
    """The folds and pairs a side that the first line tells, if it does, and the pairs."""
    rows = {
        (table.names[label].split("/", 1)[1], photo.stem): row
        for row, (photo, label) in enumerate(zip(table.photos, table.labels, strict=True))
        if isinstance(photo, Path)
    }

    def row_of(name: str, number: str, line: int) -> int:
        photo = f"{name}_{int(number):04d}"
        if (name, photo) not in rows:
            raise BadDataset(f"{path}:{line}: photo {name}/{photo} is not in the data")
        return rows[name, photo]

    header: tuple[int, ...] | None = None
    pairs: list[tuple[int, int, bool]] = []
    for number, line in enumerate(_lines(path), start=1):
        match line.split("\t"):
            case [name, first, second] if first.isdecimal() and second.isdecimal():
                pair = row_of(name, first, number), row_of(name, second, number), True
            case [name, first, other, second] if first.isdecimal() and second.isdecimal():
                pair = row_of(name, first, number), row_of(other, second, number), False
            case [*_] if not line.strip():
                continue
            case [*counts] if header is None and not pairs and len(counts) < 3 and _numbers(counts):
                header = (1, *map(int, counts))[-2:]  # one number alone tells of one fold
                continue
            case _:
                raise BadDataset(f"{path}:{number}: neither NAME I J nor NAME I OTHER J: {line!r}")
        if pair[0] == pair[1]:
            raise BadDataset(f"{path}:{number}: a photo paired with itself: {line!r}")
        pairs.append(pair)
    if not pairs:
        raise BadDataset(f"{path}: holds no pair")
    left, right, same = zip(*pairs, strict=True)
    if header is not None and (sum(same), len(same) - sum(same)) != (header[0] * header[1],) * 2:
        raise BadDataset(
            f"{path}: its first line says {header[0]} x {header[1]} pairs of one identity, and of two; it holds "
            f"{sum(same)} and {len(same) - sum(same)}. Download it again, or take that line out"
        )
    return header, Pairs(np.array(left, np.int64), np.array(right, np.int64), np.array(same, bool))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadDataset(f"{path}: cannot be read ({error})") from error


def _numbers(words: Iterable[str]) -> bool:
    return all(word.strip().isdecimal() for word in words)
