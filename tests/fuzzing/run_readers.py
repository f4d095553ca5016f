"""Readers of what a training or an evaluation leaves, and of answers of a server."""

import json
from functools import partial
from pathlib import Path

from fuzzing.mutators import json_mutator
from fuzzing.reader import Read, Reader, reading_file


def _prepare_recipe(_: Path) -> Read:
    from familiar.training.recipe import Recipe

    def read(data: bytes) -> None:
        recipe = Recipe.from_json(data.decode("utf-8", "replace"))
        Recipe.from_json(recipe.to_json())

    return read


def _recipes() -> list[bytes]:
    from familiar.recipes import RECIPES

    return [make().to_json().encode() for make in list(RECIPES.values())[:4]]


def _prepare_run(folder: Path) -> Read:
    """The three JSON files of a run; which, tells the content."""
    from familiar.datasets.split import Split
    from familiar.training.run import RunFolder

    def read(data: bytes) -> None:
        (folder / "split.json").write_bytes(data)
        (folder / "data.json").write_bytes(data)
        (folder / "recipe.json").write_bytes(data)
        from familiar.core.errors import FamiliarError

        run = RunFolder(folder)
        for part in (
            partial(Split.read, folder / "split.json"),
            partial(_read_spec, folder),
            run.recipe,
            run.trained_on,
            run.taught_by,
        ):
            try:
                part()
            except FamiliarError:
                continue

    return read


def _read_spec(run: Path) -> None:
    from familiar.datasets.folders import DataSpec

    spec = DataSpec.from_run(run)
    assert all(isinstance(text, str) for text in (*spec.sources, *spec.leave_out, *(spec.identities or ())))
    assert all(isinstance(limit, int | None) for limit in (spec.max_identities, spec.max_photos))


def _run_files() -> list[bytes]:
    spec = {"sources": ["cats"], "identities": ["Mia"], "max_identities": None, "max_photos": 3, "leave_out": []}
    counts = {"cats": {"identities": 3, "photos": 9}}
    spaces = {"space_ids": ["s"]}
    initial = {"train": counts, **spaces}
    data = {"spec": spec, "contents": "0", "train": counts, "validation": counts, "initial": initial}
    split = {"seed": 0, "train": ["cats/a", "cats/b"], "validation": ["cats/c"], "test": []}
    return [
        json.dumps(data | {"compatible": None, "distilled": spaces}).encode(),
        json.dumps(split).encode(),
        *_recipes()[:1],
    ]


def _prepare_results(folder: Path) -> Read:
    from familiar.evaluation.results import read_results

    return reading_file(folder / "eval_results.json", read_results)


def _results() -> list[bytes]:
    from support.evaluation_results import STORED, empty_results

    document = json.loads(STORED.read_bytes())
    document["replicates"] = dict(list(document["replicates"].items())[:2])
    return [
        json.dumps(document).encode(),
        json.dumps(empty_results().to_json(with_replicates=False) | {"replicates": {}}).encode(),
    ]


READERS = {
    "recipe": Reader(_prepare_recipe, _recipes, json_mutator),
    "run": Reader(_prepare_run, _run_files, json_mutator),
    "results": Reader(_prepare_results, _results, json_mutator),
}
