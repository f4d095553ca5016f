"""Reader for the protocol files of LFW: verification pairs, and the people of each fold.

View 1, for model selection: `pairsDevTrain.txt`, `pairsDevTest.txt`, `peopleDevTrain.txt`, `peopleDevTest.txt`.
View 2, for reporting: ten folds, in `pairs.txt` and `people.txt`. The first line of each is the number of entries.
The fields of a line are separated by tabs, or, in a line without tabs, by spaces: names with spaces need tabs.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from familiar.core.errors import BadDataset
from familiar.datasets.identity_table import IdentityTable
from familiar.datasets.spellings import unify_identity
from familiar.metrics.pairs import Pairs

MAX_DIGITS = 9  # of a number in a file


@dataclass(frozen=True, eq=False)
class FoldedPairs:
    """Pairs in folds for cross-validation; `fold[i]`, from 0, is the fold of pair i.

    Nine folds serve to train or to choose a threshold, and the tenth is evaluated with it.
    """

    pairs: Pairs
    fold: Int64[np.ndarray, " p"]


def read_lfw_pairs(path: Path, table: IdentityTable) -> Pairs:
    """Read the pairs of an LFW pairs file of either view.

    `NAME I J` is a pair of one identity's photos, `NAME I OTHER J` a pair of two identities; photo I of NAME is the
    file `NAME_000I` in that folder. The first line, the number of pairs, may be missing.

    Args:
        path: the file, such as `pairs.txt` or `pairsDevTrain.txt`.
        table: the photos that the pairs refer to; identities are found by the names of their folders.

    Returns:
        Pairs of rows of `table`, in the order of the file.

    Raises:
        BadDataset: a line is invalid, a photo is missing or paired with itself, or the number of pairs differs from
            the first line. The message names the line and the photo.
    """
    return _read_pairs(path, table)[1]


def read_lfw_folds(path: Path, table: IdentityTable) -> FoldedPairs:
    """Read the pairs of an LFW pairs file with the fold of each: 0 to 9 in View 2, 0 in View 1.

    The first line is required: the number of folds (if there are several), then the number of pairs of one identity
    per fold, which is also that of pairs of two.

    Args:
        path: the file, such as `pairs.txt`.
        table: the photos that the pairs refer to; identities are found by the names of their folders.

    Returns:
        Pairs of rows of `table`, in the order of the file, and their folds.

    Raises:
        BadDataset: as in `read_lfw_pairs`; also if the first line is missing, or if a fold does not have its pairs
            of one identity before those of two.
    """
    header, pairs = _read_pairs(path, table)
    if header is None:
        raise BadDataset(f"{path}: the first line must contain the number of folds and pairs; download it again")
    folds, pairs_per_class = header
    misplaced = np.flatnonzero(pairs.same != np.tile(np.repeat([True, False], pairs_per_class), folds))
    if len(misplaced):
        raise BadDataset(
            f"{path}: pair {misplaced[0] + 1} is in the wrong position: a fold has {pairs_per_class} pairs of "
            f"one identity, then {pairs_per_class} of two; download it again"
        )
    return FoldedPairs(pairs, np.repeat(np.arange(folds), 2 * pairs_per_class))


def read_lfw_people(path: Path) -> tuple[frozenset[str], ...]:
    """Read the people of each fold of an LFW people file: ten folds in View 2, one in View 1.

    Args:
        path: the people file; each line has a name and the person's number of photos.

    Returns:
        One set of names per fold, in the order of the file.

    Raises:
        BadDataset: the file cannot be read, a line is invalid, a fold has more or fewer people than its first line
            says, or a name occurs twice.
    """
    expected_sizes: list[int] = []
    folds: list[list[str]] = []
    for number, line in enumerate(_lines(path), start=1):
        match _fields(line):
            case [count] if _is_number(count.strip()):
                expected_sizes.append(int(count.strip()))
                folds.append([])
            case [name, photos] if _is_number(photos) and folds:
                folds[-1].append(unify_identity(name))
            case [*_] if not line.strip():
                continue
            case _:
                raise BadDataset(f"{path}:{number}: neither a number of people nor NAME PHOTOS: {line!r}")
    expected_folds = len(folds)
    if len(folds) > 1 and not folds[0]:  # a file of several folds begins with their number
        expected_folds, expected_sizes, folds = expected_sizes[0], expected_sizes[1:], folds[1:]
    sizes = [len(fold) for fold in folds]
    if not any(sizes) or (expected_folds, expected_sizes) != (len(folds), sizes):
        raise BadDataset(
            f"{path}: {len(folds)} folds of {sizes} people, but its header lines "
            f"say {expected_folds} of {expected_sizes}; download it again"
        )
    [(name, occurrences)] = Counter(name for fold in folds for name in fold).most_common(1)
    if occurrences > 1:
        raise BadDataset(f"{path}: {name} occurs {occurrences} times; download it again")
    return tuple(map(frozenset, folds))


def _read_pairs(path: Path, table: IdentityTable) -> tuple[tuple[int, ...] | None, Pairs]:
    """Read the first line's numbers of folds and of pairs per class, None if it is missing, and the pairs."""
    rows: dict[tuple[str, str], list[int]] = {}
    for row, (photo, label) in enumerate(zip(table.photos, table.labels, strict=True)):
        if isinstance(photo, Path):
            rows.setdefault((table.names[label].split("/", 1)[1], unify_identity(photo.stem)), []).append(row)

    def row_of(spelling: str, number: str, line: int) -> int:
        name = unify_identity(spelling)
        photo = f"{name}_{int(number):04d}"
        matching = rows.get((name, photo), [])
        if len(matching) != 1:
            problem = f"is in the data {len(matching)} times; rename all but one" if matching else "is not in the data"
            raise BadDataset(f"{path}:{line}: photo {name}/{photo} {problem}")
        return matching[0]

    header: tuple[int, ...] | None = None
    pairs: list[tuple[int, int, bool]] = []
    for number, line in enumerate(_lines(path), start=1):
        match _fields(line):
            case [name, first, second] if _is_number(first) and _is_number(second):
                pair = row_of(name, first, number), row_of(name, second, number), True
            case [name, first, second_name, second] if _is_number(first) and _is_number(second):
                pair = row_of(name, first, number), row_of(second_name, second, number), False
            case [*_] if not line.strip():
                continue
            case [*counts] if header is None and not pairs and len(counts) < 3 and _all_numbers(counts):
                header = (1, *(int(count.strip()) for count in counts))[-2:]  # a single number means one fold
                continue
            case _:
                raise BadDataset(
                    f"{path}:{number}: expected NAME NUMBER NUMBER or NAME NUMBER OTHER_NAME NUMBER, got {line!r}"
                )
        if pair[0] == pair[1]:
            raise BadDataset(f"{path}:{number}: a photo paired with itself: {line!r}")
        pairs.append(pair)
    if not pairs:
        raise BadDataset(f"{path}: contains no pair")
    left, right, same = zip(*pairs, strict=True)
    if header is not None and (sum(same), len(same) - sum(same)) != (header[0] * header[1],) * 2:
        raise BadDataset(
            f"{path}: the first line says {header[0]} x {header[1]} pairs each of one identity and of two; the file "
            f"has {sum(same)} and {len(same) - sum(same)}. Download it again, or delete that line"
        )
    return header, Pairs(np.array(left, np.int64), np.array(right, np.int64), np.array(same, bool))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadDataset(f"{path}: cannot be read ({error})") from error


def _fields(line: str) -> list[str]:
    # Only plain spaces separate: a name may have a wide one.
    return line.split("\t") if "\t" in line else [word for word in line.split(" ") if word]


def _all_numbers(words: Iterable[str]) -> bool:
    return all(_is_number(word.strip()) for word in words)


def _is_number(word: str) -> bool:
    return word.isdecimal() and len(word) <= MAX_DIGITS
