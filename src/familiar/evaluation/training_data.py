"""What a model was trained on, as the run folders of its bundles tell: identities to evaluate on, and photos seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from familiar.core import run_files
from familiar.core.errors import BadDataset, BadRun
from familiar.datasets.folders import DataSpec, IdentityTable
from familiar.datasets.split import Split, photo_groups


@dataclass(frozen=True, eq=False)
class EvaluationData:
    """The photos to evaluate on, and those of the same data that the model was trained on.

    `seen_identities`: every identity that the model was trained on, or that its epoch and thresholds were chosen by;
    None if unknown.
    """

    table: IdentityTable
    split: Literal["test", "all"]
    trained_on: IdentityTable | None = None
    seen_identities: frozenset[str] | None = None


def select_identities(
    table: IdentityTable, bundles: Sequence[Path], split: str | None, split_of: Path | None = None
) -> EvaluationData:
    """Select the identities to evaluate on.

    Args:
        table: the data given.
        bundles: files of the bundles that embed the photos; the split of each one's run is looked for in its folder.
            Of several, an identity is a test identity if it is one of some run and was seen by none. If one of them
            has no split, none is known.
        split: "test" or "all"; None is "test" if every identity of `table` is known to the runs.
        split_of: another run whose split it is. What the model was trained on is then unknown.

    Raises:
        BadDataset: "test" is requested and the test identities are unknown, or none of them is in the data.
    """
    files = [run_folder(model) / run_files.SPLIT for model in ([split_of] if split_of is not None else bundles)]
    missing = next((path for path in files if not path.exists()), None)
    if missing is not None and split_of is not None:
        raise BadDataset(f"{missing.parent}: is no training run: it has no split.json")
    if missing is not None:
        if split == "test":
            raise BadDataset(
                f"{missing.parent}: has no split.json, so its test identities are unknown; use --split all"
            )
        return EvaluationData(table, "all")
    run_split = _combine([Split.read(path) for path in files])
    if split is None:
        split = "test" if _knows_all(run_split, table) else "all"
    trained_on, seen = None, None
    if split_of is None and _has_groups(run_split, table):
        trained_on = run_split.select(table, "train")
        seen = frozenset(run_split.select(table, "train", "validation").names)
    if split == "all":
        return EvaluationData(table, "all", trained_on, seen)
    listed = ", ".join(map(str, files))
    if not run_split.test:
        raise BadDataset(f"{listed}: the run held out no identities to test on; use --split all")
    test_table = run_split.select(table, "test")
    if not len(test_table):
        raise BadDataset(f"{listed}: none of its test identities is in the data given; use --split all")
    return EvaluationData(test_table, "test", trained_on, seen)


def _has_groups(split: Split, table: IdentityTable) -> bool:
    """Whether the data say what the split is by: those that a run was not made of need not."""
    try:
        photo_groups(table, split.by)
    except BadDataset:
        return False
    return True


def _knows_all(split: Split, table: IdentityTable) -> bool:
    """Whether every photo is on a side of the split."""
    groups = photo_groups(table, split.by)[0] if _has_groups(split, table) else ("",)
    return {*groups} <= {*split.train, *split.validation, *split.test}


def seen_photos(bundles: Sequence[Path]) -> IdentityTable | None:
    """Read the photos that the bundles of a model were trained on and selected by.

    Args:
        bundles: their files.

    Returns:
        Those of all bundles for which they are available; None if there is no such bundle, since none is in a run
        folder, or the runs' photos have been moved.
    """
    tables = [table for bundle in bundles if (table := _seen_by(bundle)) is not None]
    if not tables:
        return None
    identities = {
        photo: table.names[label]
        for table in tables
        for photo, label in zip(table.photos, table.labels.tolist(), strict=True)
    }
    names = sorted(set(identities.values()))
    indices = {name: index for index, name in enumerate(names)}
    labels = np.array([indices[name] for name in identities.values()], np.int64)
    return IdentityTable(tuple(identities), labels, tuple(names))


def run_folder(model: Path) -> Path:
    """Return the folder that would be the run's, of a bundle or of the run folder itself."""
    return model if model.is_dir() else model.parent


def _seen_by(bundle: Path) -> IdentityTable | None:
    folder = run_folder(bundle)
    try:
        split = Split.read(folder / run_files.SPLIT)
        return split.select(DataSpec.from_run(folder).read(), "train", "validation")
    except (BadRun, BadDataset):
        return None


def _combine(splits: Sequence[Split]) -> Split:
    """Combine the splits of several runs; an identity is on the first of the three sides that it is on in any run."""
    if len({split.by for split in splits}) > 1:
        raise BadDataset("the runs of these bundles were split by different things; evaluate one of the bundles")
    train = {name for split in splits for name in split.train}
    validation = {name for split in splits for name in split.validation} - train
    test = {name for split in splits for name in split.test} - train - validation
    return Split(splits[0].seed, tuple(sorted(train)), tuple(sorted(validation)), tuple(sorted(test)), splits[0].by)
