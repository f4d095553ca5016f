"""Which photos a run trains on and which it validates on, and the record of it in the run."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from familiar.core.errors import BadDataset, BadRun
from familiar.core.files import write_atomically
from familiar.datasets.folders import DataSpec, IdentityTable
from familiar.datasets.split import Split, split_by_identity, split_by_name
from familiar.loading.crops import ReadTable
from familiar.loading.dataset import FaceDataset
from familiar.training.backward_compatibility import OldSpace, old_space
from familiar.training.distillation import Lessons, lessons
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder


@dataclass(frozen=True, eq=False)
class Fold:
    """The photos to train on, augmented, and those to validate on, as they are."""

    split: Split
    read: ReadTable
    train: FaceDataset
    validation: FaceDataset
    old: OldSpace | None
    lessons: Lessons | None


def split_of(recipe: Recipe, table: IdentityTable) -> Split:
    """The sides the recipe asks for. BadDataset where one would have too few identities."""
    settings = recipe.split
    if settings.train:
        return split_by_name(table, settings.train, recipe.seed)
    if settings.validate:
        return split_by_name(table, settings.validate, recipe.seed, side="validate")
    return split_by_identity(table, recipe.seed, settings.validation, settings.test)


def make_fold(recipe: Recipe, read: ReadTable) -> Fold:
    """BadDataset where there are too few identities, or no pair to validate on."""
    table = read.table
    split = split_of(recipe, table)
    train = table.of_identities(split.train).with_at_least(recipe.split.min_photos)
    validation = table.of_identities(split.validation)
    if len(train.names) < 2:
        raise BadDataset(
            f"{len(train.names)} identities have {recipe.split.min_photos} photos or more; training needs two"
        )
    if recipe.by_identities and len(train.names) < recipe.sampler.identities:
        raise BadDataset(
            f"{len(train.names)} identities to train on do not fill a batch; lower sampler.identities "
            f"from {recipe.sampler.identities}"
        )
    if validation.photos_per_identity.max() < 2:
        raise BadDataset("no held-out identity has two photos, so there is no pair to validate on")
    return Fold(
        split,
        read,
        FaceDataset(train, read.crops.of(train), recipe.augmentation, recipe.seed),
        FaceDataset(validation, read.crops.of(validation)),
        old_space(recipe, train),
        lessons(recipe, train),
    )


def record_data(run: RunFolder, data: DataSpec, fold: Fold) -> None:
    """Write `split.json` and `data.json`."""
    sides = {"train": fold.train.table, "validation": fold.validation.table}
    described = {
        "spec": dataclasses.asdict(data),
        "contents": fold.read.contents,
        "compatible": None if fold.old is None else fold.old.described(),
        "distilled": None if fold.lessons is None else fold.lessons.described(),
        **{side: _counts(table) for side, table in sides.items()},
    }
    write_atomically(run.split_json, fold.split.to_json().encode())
    write_atomically(
        run.data_json, json.dumps(described, indent=1, ensure_ascii=False).encode("utf-8", "backslashreplace")
    )


def check_same_recipe(run: RunFolder, recipe: Recipe) -> None:
    """BadRun, with the settings that differ, where the run was begun with another recipe."""
    if changed := _differences(run.recipe().to_primitive(), recipe.to_primitive()):
        raise BadRun(f"{run.path}: was begun with another recipe: {', '.join(changed)}")


def check_same_data(run: RunFolder, fold: Fold) -> None:
    """BadRun where the run was begun with other photos, another old bundle or other teachers."""
    if run.data()["contents"] != fold.read.contents:
        raise BadRun(f"{run.path}: was begun with other photos: files were added, removed or changed since")
    if fold.old is not None and run.data()["compatible"] != fold.old.described():
        raise BadRun(f"{run.path}: was begun with another bundle to be compatible with")
    if fold.lessons is not None and run.data()["distilled"] != fold.lessons.described():
        raise BadRun(f"{run.path}: was begun with other teachers")


def _differences(then: dict[str, Any], now: dict[str, Any], prefix: str = "") -> list[str]:
    """Every setting that changed: `optimizer.lr was 0.001, is 0.002`."""
    changed: list[str] = []
    for name, was in then.items():
        if isinstance(was, dict):
            changed += _differences(was, now[name], f"{prefix}{name}.")
        elif was != now.get(name):
            changed.append(f"{prefix}{name} was {was}, is {now.get(name)}")
    return changed


def _counts(table: IdentityTable) -> dict[str, dict[str, int]]:
    """Identities and photos, by root."""
    roots: dict[str, dict[str, int]] = {}
    for name, photos in zip(table.names, table.photos_per_identity, strict=True):
        root = roots.setdefault(name.split("/", 1)[0], {"identities": 0, "photos": 0})
        root["identities"] += 1
        root["photos"] += int(photos)
    return roots
