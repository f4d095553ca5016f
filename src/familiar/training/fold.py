"""Which photos a run trains on and which it validates on, and the record of it in the run."""

import dataclasses
import json
from dataclasses import dataclass

from familiar.core.errors import BadDataset, BadRun
from familiar.core.files import write_atomically
from familiar.datasets.folders import DataSpec, IdentityTable
from familiar.datasets.split import Split, split_by_identity
from familiar.loading.dataset import FaceDataset
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder


@dataclass(frozen=True, eq=False)
class Fold:
    """The photos to train on, augmented, and those to validate on, as they are."""

    split: Split
    fingerprint: str
    train: FaceDataset
    validation: FaceDataset


def make_fold(recipe: Recipe, table: IdentityTable) -> Fold:
    """BadDataset where there are too few identities, or no pair to validate on."""
    split = split_by_identity(table, recipe.seed, recipe.split.validation, recipe.split.test)
    train = table.of_identities(split.train).with_at_least(recipe.split.min_photos)
    validation = table.of_identities(split.validation)
    if len(train.names) < 2:
        raise BadDataset(
            f"{len(train.names)} identities have {recipe.split.min_photos} photos or more; training needs two"
        )
    if recipe.sampler.name == "identities" and len(train.names) < recipe.sampler.identities:
        raise BadDataset(
            f"{len(train.names)} identities to train on do not fill a batch; lower sampler.identities "
            f"from {recipe.sampler.identities}"
        )
    if validation.photos_per_identity.max() < 2:
        raise BadDataset("no held-out identity has two photos, so there is no pair to validate on")
    preprocessing = recipe.input.preprocessing()
    return Fold(
        split,
        table.fingerprint,
        FaceDataset(train, preprocessing, recipe.augmentation, recipe.seed),
        FaceDataset(validation, preprocessing),
    )


def record_data(run: RunFolder, data: DataSpec, fold: Fold) -> None:
    """Write `split.json` and `data.json`."""
    sides = {"train": fold.train.table, "validation": fold.validation.table}
    described = {
        "spec": dataclasses.asdict(data),
        "fingerprint": fold.fingerprint,
        **{side: _counts(table) for side, table in sides.items()},
    }
    write_atomically(run.split_json, fold.split.to_json().encode())
    write_atomically(run.data_json, json.dumps(described, indent=1, ensure_ascii=False).encode())


def check_same_run(run: RunFolder, recipe: Recipe, fold: Fold) -> None:
    """BadRun where the run in that folder was begun with another recipe or with other photos."""
    if run.recipe() != recipe:
        raise BadRun(f"{run.path}: was begun with another recipe; see {run.recipe_json.name}")
    if run.data()["fingerprint"] != fold.fingerprint:
        raise BadRun(f"{run.path}: was begun with other photos: files were added, removed or changed since")


def _counts(table: IdentityTable) -> dict[str, dict[str, int]]:
    """Identities and photos, by root."""
    roots: dict[str, dict[str, int]] = {}
    for name, photos in zip(table.names, table.photos_per_identity, strict=True):
        root = roots.setdefault(name.split("/", 1)[0], {"identities": 0, "photos": 0})
        root["identities"] += 1
        root["photos"] += int(photos)
    return roots
