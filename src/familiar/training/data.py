"""The photos a run trains on and validates on, and the record of them in the run's folder."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from familiar.core.errors import BadDataset, BadRun
from familiar.core.files import write_atomically
from familiar.datasets.folders import DataSpec, IdentityTable
from familiar.datasets.split import Split, split_by_name, split_photos
from familiar.loading.blends import BlendedDataset
from familiar.loading.cache import CropCache
from familiar.loading.crops import Crops, CropTable, crops_by
from familiar.loading.dataset import FaceDataset
from familiar.training.backward_compatibility import embed_with_reference_bundle
from familiar.training.distillation import BundleEmbeddings, embed_with_teachers
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder


@dataclass(frozen=True, eq=False)
class TrainingData:
    """All photos of a run and their split into training and validation photos.

    Attributes:
        split: the groups of photos of each side.
        photos: all readable photos.
        train: the photos to train on, with augmentation.
        validation: the photos to validate on, without augmentation.
        reference_embeddings: of the training photos by an old bundle, if the network must be compatible with one.
        teacher_embeddings: of the training photos by teachers, if the recipe names any.
    """

    split: Split
    photos: CropTable
    train: FaceDataset
    validation: FaceDataset
    reference_embeddings: BundleEmbeddings | None
    teacher_embeddings: BundleEmbeddings | None

    def bundle_records(self) -> dict[str, Any]:
        """Return what the run's `data.json` stores about the old bundle and the teachers."""
        reference, teachers = self.reference_embeddings, self.teacher_embeddings
        return {
            "compatible": reference
            and {"space_id": reference.space_ids[0], "components": reference.embeddings.shape[1]},
            "distilled": teachers and {"space_ids": list(teachers.space_ids)},
        }


def split_data(recipe: Recipe, table: IdentityTable) -> Split:
    """Split the photos as the recipe says. BadDataset if a side would have too few identities."""
    settings = recipe.split
    if settings.train:
        return split_by_name(table, settings.train, recipe.seed)
    if settings.validate:
        return split_by_name(table, settings.validate, recipe.seed, side="validate")
    by = settings.by if settings.by != "auto" else "split" if "split" in table.columns else "identity"
    return split_photos(table, by, recipe.seed, settings.validation, settings.test)


def prepare_data(
    recipe: Recipe,
    photos: CropTable,
    teachers_npz: Path | None = None,
    on_teacher: Callable[[int, int], None] = lambda _done, _total: None,
    cache: CropCache | None = None,
    on_photo: Callable[[int, int], None] = lambda _done, _total: None,
) -> TrainingData:
    """Split the photos and embed the training photos with the old bundle and the teachers, if the recipe names any.

    Args:
        recipe: how to train.
        photos: of all sides.
        teachers_npz: keeps the teachers' embeddings; read if it has those of this recipe and these photos.
        on_teacher: called with the numbers of crops that the teachers have embedded and will embed.
        cache: of the training crops, where these are not the same as for validation.
        on_photo: called with the numbers of photos cropped for training and of all these, where that is needed.

    Raises:
        BadDataset: there are too few identities, or no validation identity has two photos.
    """
    table = photos.table
    split = split_data(recipe, table)
    train = split.select(table, "train").with_min_photos(recipe.split.min_photos)
    validation = split.select(table, "validation")
    if len(train.names) < 2:
        raise BadDataset(
            f"training needs two identities with {recipe.split.min_photos} photos or more, got {len(train.names)}"
        )
    if recipe.batches_by_identity and len(train.names) < recipe.sampler.identities:
        raise BadDataset(
            f"{len(train.names)} training identities are too few to fill a batch; lower sampler.identities "
            f"from {recipe.sampler.identities}"
        )
    if validation.photos_per_identity.max() < 2:
        raise BadDataset("no validation identity has two photos, so there is no pair to validate on")
    whole = None
    if recipe.input.crops_whole_in_training:
        whole = crops_by(train, recipe.input.training_preprocessing(), cache, on_photo)
    dataset = _training_dataset(recipe, train, photos.crops.select(train), whole)
    return TrainingData(
        split,
        photos,
        dataset,
        FaceDataset(validation, photos.crops.select(validation)),
        embed_with_reference_bundle(recipe, train),
        embed_with_teachers(recipe, dataset, photos.contents, teachers_npz, on_teacher),
    )


def _training_dataset(recipe: Recipe, table: IdentityTable, crops: Crops, whole: Crops | None) -> FaceDataset:
    if rounds := recipe.distill.blends:
        return BlendedDataset(table, crops, recipe.augmentation, recipe.seed, blends=rounds * len(table))
    return FaceDataset(table, crops, recipe.augmentation, recipe.seed, whole)


def record_data(run: RunFolder, spec: DataSpec, data: TrainingData, initial: RunFolder | None = None) -> None:
    """Write `split.json` and `data.json`.

    Args:
        run: the folder to write to.
        spec: the sources of the photos.
        data: the photos.
        initial: the run that the initial weights are from, if any: what it has learned from is known to this one.
    """
    sides = {"train": data.train.table, "validation": data.validation.table}
    record = {
        "spec": dataclasses.asdict(spec),
        "contents": data.photos.contents,
        **data.bundle_records(),
        "initial": None if initial is None else {"train": initial.trained_on(), "space_ids": initial.taught_by()},
        **{side: _counts_by_root(table) for side, table in sides.items()},
    }
    if not spec.sources and data.photos.table.write_csv(
        run.photos_csv
    ):  # which is where a table in memory is from now on
        spec = DataSpec((str(run.photos_csv.absolute()),))
        record["spec"] = dataclasses.asdict(spec)
    write_atomically(run.split_json, data.split.to_json().encode())
    write_atomically(
        run.data_json, json.dumps(record, indent=1, ensure_ascii=False).encode("utf-8", "backslashreplace")
    )


def check_same_recipe(run: RunFolder, recipe: Recipe) -> None:
    """Raise BadRun, listing the settings that differ, if the run was started with another recipe."""
    before, now = _by_path(run.recipe()), _by_path(recipe)
    if changes := [
        f"{name} was {before[name]}, is {now.get(name)}" for name in before if before[name] != now.get(name)
    ]:
        raise BadRun(f"{run.path}: the run was started with another recipe: {', '.join(changes)}")


def check_same_data(run: RunFolder, data: TrainingData) -> None:
    """Raise BadRun if the run was started with other photos, another old bundle or other teachers."""
    record = run.data()
    if record["contents"] != data.photos.contents:
        raise BadRun(
            f"{run.path}: the run was started with other photos: files were added, removed or changed since then"
        )
    for part, what in (("compatible", "another bundle in loss.compatible_with"), ("distilled", "other teachers")):
        if record[part] != data.bundle_records()[part]:
            raise BadRun(f"{run.path}: the run was started with {what}")


def _by_path(recipe: Recipe) -> dict[str, Any]:
    """Return the settings by their dotted paths."""
    groups = {name: value if isinstance(value, dict) else {"": value} for name, value in recipe.to_primitive().items()}
    return {f"{group}.{name}".rstrip("."): groups[group][name] for group in groups for name in groups[group]}


def _counts_by_root(table: IdentityTable) -> dict[str, dict[str, int]]:
    """Count identities and photos of each root folder."""
    roots: dict[str, dict[str, int]] = {}
    for name, photos in zip(table.names, table.photos_per_identity, strict=True):
        root = roots.setdefault(name.split("/", 1)[0], {"identities": 0, "photos": 0})
        root["identities"] += 1
        root["photos"] += int(photos)
    return roots
