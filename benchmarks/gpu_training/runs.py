"""A run's folder for weights that were trained on a GPU, from which they are exported like any other."""

import json
from collections.abc import Mapping
from pathlib import Path

from familiar.core.files import write_atomically
from familiar.datasets import DataSpec
from familiar.loading.crops import read_table
from familiar.models.weights import load_network_file
from familiar.training.checkpoint import save_weights
from familiar.training.data import prepare_data, record_data
from familiar.training.network import build_network
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder


def write_run(run: RunFolder, recipe: Recipe, weights: Path, spec: DataSpec, unlabeled: Mapping[str, int]) -> None:
    """Write a run.

    Args:
        run: its folder.
        recipe: of the network; the rest of it tells what the training was like, as nearly as a recipe can.
        weights: as `gpu_training.steps.save` writes them.
        spec: all individuals that were trained on. Some are recorded as validation too: exports are compared with the
            weights on their photos.
        unlabeled: photos without labels that were trained on, by the name of their collection.
    """
    recipe = recipe.with_settings(["input.normalization=symmetric"])
    network = build_network(recipe)
    load_network_file(network, weights)
    run.path.mkdir(parents=True, exist_ok=True)
    record_data(run, spec, prepare_data(recipe, read_table(spec.read(), recipe.input.preprocessing())))
    record = json.loads(run.data_json.read_text())
    for name, counts in record["validation"].items():
        record["train"][name] = {each: number + record["train"][name][each] for each, number in counts.items()}
    record["train"] |= {name: {"identities": photos, "photos": photos} for name, photos in unlabeled.items()}
    write_atomically(run.data_json, json.dumps(record, indent=1, ensure_ascii=False).encode())
    save_weights(run.embedder, network=network)
    write_atomically(run.recipe_json, recipe.to_json().encode())
