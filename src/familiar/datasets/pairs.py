"""Pairs to verify, from LFW's pairs files."""

from pathlib import Path

import numpy as np

from familiar.core.errors import BadDataset
from familiar.datasets.folders import IdentityTable
from familiar.metrics.pairs import Pairs


def read_lfw_pairs(path: Path, table: IdentityTable) -> Pairs:
    """Rows of `table` for each line of an LFW pairs file.

    `NAME I J` is a pair of one identity's photos, `NAME I OTHER J` one of two; photo I of NAME is the
    file `NAME_000I` of that folder. BadDataset names the line, and the photo that is missing or paired with itself.
    """
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

    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadDataset(f"{path}: cannot be read ({error})") from error
    pairs: list[tuple[int, int, bool]] = []
    for number, line in enumerate(lines, start=1):
        match line.split("\t"):
            case [name, first, second] if first.isdecimal() and second.isdecimal():
                pair = row_of(name, first, number), row_of(name, second, number), True
            case [name, first, other, second] if first.isdecimal() and second.isdecimal():
                pair = row_of(name, first, number), row_of(other, second, number), False
            case [*counts] if all(count.strip().isdecimal() or not count.strip() for count in counts):
                continue  # the header: pairs a side, or folds and pairs a side
            case _:
                raise BadDataset(f"{path}:{number}: neither NAME I J nor NAME I OTHER J: {line!r}")
        if pair[0] == pair[1]:
            raise BadDataset(f"{path}:{number}: a photo paired with itself: {line!r}")
        pairs.append(pair)
    if not pairs:
        raise BadDataset(f"{path}: holds no pair")
    left, right, same = zip(*pairs, strict=True)
    return Pairs(np.array(left, np.int64), np.array(right, np.int64), np.array(same, bool))
