import dataclasses
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from familiar.embedding import zoo
from familiar.embedding.bundle import load_bundle
from familiar.models import catalog
from familiar.models.catalog import NETWORKS
from support.cli import Familiar
from support.color_folders import color_folder

pytestmark = pytest.mark.slow

KEYS = ["name", "input_px", "embedding_dim", "trainable", "total", "flops"]


@pytest.fixture
def our_zoo(mean_color_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zoo with one bundle, `color`, and a working directory of its own."""
    folder, here = tmp_path / "zoo", tmp_path / "here"
    folder.mkdir()
    here.mkdir()
    shutil.copy(mean_color_bundle, folder / "color.onnx")
    (folder / "color.md").write_text("# color\n\nSees the mean color of a 🐈.\n", encoding="utf-8")
    monkeypatch.setattr(zoo, "FOLDER", folder)
    monkeypatch.chdir(here)
    return folder


@pytest.mark.exhaustive
def test_json_lists_every_network_with_its_sizes(familiar: Familiar):
    rows = {row["name"]: row for row in json.loads(familiar("models", "--json").out)}
    assert list(rows) == list(NETWORKS)
    assert all(list(row) == KEYS for row in rows.values())
    rebuilt = rows["efficientnet_b0_rebuilt"]
    assert (rebuilt["input_px"], rebuilt["embedding_dim"]) == (112, 128)
    assert (rebuilt["trainable"], rebuilt["total"]) == (4_189_948, 4_231_971)
    assert rows["facenet_nn1"]["flops"] == pytest.approx(1.6e9, rel=0.02)


def test_text_list_matches_json_and_adds_summaries(familiar: Familiar, monkeypatch: pytest.MonkeyPatch):
    few = {name: NETWORKS[name] for name in ("simple", "digits", "facenet_nns2")}
    monkeypatch.setattr(catalog, "NETWORKS", few)
    rows = {row["name"]: row for row in json.loads(familiar("models", "--json").out)}
    assert list(rows) == list(few)
    head, *lines = familiar("models").out.splitlines()
    assert head.split() == ["name", "input", "dim", "trainable", "total", "flops"]
    for line, (name, spec) in zip(lines, few.items(), strict=True):
        assert line.endswith(f"  {spec.summary}")
        values = line.removesuffix(spec.summary).split()
        assert values == [name, *(f"{rows[name][key]:,}" for key in KEYS[1:])]


def test_single_network_prints_layer_table_and_totals(familiar: Familiar):
    answer = familiar("models", "simple")
    assert answer.code == 0
    first, empty, head, *lines = answer.out.splitlines()
    assert first == f"simple: {NETWORKS['simple'].summary}"
    assert empty == ""
    assert head.split() == ["layer", "kind", "output", "parameters"]
    assert [line.split() for line in lines[:2]] == [
        ["trunk.layers.0", "Conv2d", "32x112x112", "2,400"],
        ["trunk.layers.1", "BatchNorm2d", "32x112x112", "128"],
    ]
    assert lines[-6].split() == ["unit", "length", "128", "0"]
    assert len({len(line) for line in [head, *lines[:-5]]}) == 1, "columns stand under each other"
    assert re.sub(" +", " ", "\n".join(lines[-4:])) == (
        "Total params: 2,196,192\nTrainable params: 2,193,952\nNon-trainable params: 2,240\nMultiply-adds: 364,666,880"
    )


@pytest.mark.one_case
@pytest.mark.parametrize("name", ["facenet_nn1", "efficientnet_b0_frozen", "shufflenet_v2"])
def test_single_network_json_matches_spec_and_layer_totals(familiar: Familiar, name):
    document = json.loads(familiar("models", name, "--json").out)
    assert list(document) == [*KEYS, "summary", "layers"]
    spec = NETWORKS[name]
    values = (name, spec.input_px, spec.embedding_dim, *dataclasses.astuple(spec.size()))
    assert tuple(document[key] for key in KEYS) == values
    assert document["summary"] == spec.summary
    assert all(list(layer) == ["layer", "kind", "output", "parameters"] for layer in document["layers"])
    assert sum(layer["parameters"] for layer in document["layers"]) == document["total"]
    assert document["layers"][-1]["output"] == [document["embedding_dim"]]


def test_unknown_network_error_lists_known_networks(familiar: Familiar):
    answer = familiar("models", "resnet9000")
    assert answer.code == 1
    assert answer.out == ""
    assert answer.err.startswith("familiar: unknown network 'resnet9000'; choose one of mobilenetv3_small_100, ")
    assert answer.err.count("\n") == 1


def test_shipped_lists_bundles_and_prints_model_card(familiar: Familiar, our_zoo: Path):
    bundle = load_bundle(our_zoo / "color.onnx")
    row = {
        "name": "color",
        "size_bytes": len(bundle.onnx),
        "input_px": 32,
        "embedding_dim": 3,
        "precision": "float32",
        "network": "mean color",
        "trained_on": [],
        "license": "Apache-2.0",
        "space_id": "mean-color",
    }
    assert json.loads(familiar("models", "--shipped", "--json").out) == [row]
    head, line = familiar("models", "--shipped").out.splitlines()
    assert head.split() == ["name", "bytes", "input", "dim", "weights", "trained", "on"]
    assert line.split() == ["color", f"{row['size_bytes']:,}", "32", "3", "float32"]
    card = (our_zoo / "color.md").read_text(encoding="utf-8")
    assert familiar("models", "color", "--shipped").out == card
    assert json.loads(familiar("models", "--shipped", "color", "--json").out) == row | {"card": card}


def test_unknown_shipped_bundle_error_lists_shipped_bundles(familiar: Familiar, our_zoo: Path):
    answer = familiar("models", "--shipped", "colr")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err == "familiar: no shipped bundle is named 'colr'; available: color\n"
    (our_zoo / "color.onnx").unlink()
    assert familiar("models", "--shipped", "color").err.endswith("available: none\n")
    assert familiar("models", "--shipped", "--json").out == "[]\n"


@pytest.mark.usefixtures("our_zoo")
def test_shipped_list_works_without_torch(familiar: Familiar, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "familiar.models.catalog", None)  # not to be imported
    assert familiar("models", "--shipped").code == 0


def test_every_command_accepts_a_shipped_bundle_name(familiar: Familiar, our_zoo: Path):
    photos = color_folder(our_zoo.parent / "photos", identities=6)
    first, second, *_ = sorted((photos / "Person_00").iterdir())
    verified = familiar("verify", first, second, "--model", "color", "--json")
    assert 0.9 < json.loads(verified.out)["similarity"] <= 1

    embedded = familiar("embed", photos, "--model", "color", "--output", "v.npz")
    assert embedded.code == 0, embedded.err
    with np.load("v.npz") as stored:
        assert str(stored["space_id"]) == "mean-color"

    evaluated = familiar("evaluate", "color", photos, "--output", "e", "--suite", "retrieval", "--json")
    assert evaluated.code == 0, evaluated.err
    assert json.loads(evaluated.out)["model"]["file_id"] == load_bundle("color").file_id

    written = familiar("species", "one=color", "--output", "family.json")
    assert written.code == 0, written.err
    assert json.loads(Path("family.json").read_text()) == {"one": "color"}
    unknown = familiar("verify", first, second, "--model", "colr")
    assert unknown.code == 1
    assert unknown.err.endswith("or a shipped bundle: color\n")
