import dataclasses
import json
import re

import pytest

from command import Familiar
from familiar.models.catalog import NETWORKS

KEYS = ["name", "input_px", "embedding_dim", "trainable", "total", "flops"]


@pytest.fixture
def rows(familiar: Familiar):
    answer = familiar("models", "--json")
    assert (answer.code, answer.err) == (0, "")
    return {row["name"]: row for row in json.loads(answer.out)}


def test_every_network_is_listed_with_its_sizes(rows):
    assert list(rows) == list(NETWORKS)
    assert all(list(row) == KEYS for row in rows.values())
    rebuilt = rows["efficientnet_b0_rebuilt"]
    assert (rebuilt["input_px"], rebuilt["embedding_dim"]) == (112, 128)
    assert (rebuilt["trainable"], rebuilt["total"]) == (4_189_948, 4_231_971)
    assert rows["facenet_nn1"]["flops"] == pytest.approx(1.6e9, rel=0.02)


def test_the_plain_list_says_the_same_and_what_each_is(familiar: Familiar, rows):
    head, *lines = familiar("models").out.splitlines()
    assert head.split() == ["name", "input", "dim", "trainable", "total", "flops"]
    for line, (name, spec) in zip(lines, NETWORKS.items(), strict=True):
        assert line.endswith(f"  {spec.summary}")
        told = line.removesuffix(spec.summary).split()
        assert told == [name, *(f"{rows[name][key]:,}" for key in KEYS[1:])]


def test_one_network_layer_by_layer_as_keras_does(familiar: Familiar):
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


@pytest.mark.parametrize("name", ["facenet_nn1", "efficientnet_b0_frozen", "shufflenet_v2"])
def test_one_network_as_json(familiar: Familiar, name):
    found = json.loads(familiar("models", name, "--json").out)
    assert list(found) == [*KEYS, "summary", "layers"]
    spec = NETWORKS[name]
    told = (name, spec.input_px, spec.embedding_dim, *dataclasses.astuple(spec.size()))
    assert tuple(found[key] for key in KEYS) == told
    assert found["summary"] == spec.summary
    assert all(list(layer) == ["layer", "kind", "output", "parameters"] for layer in found["layers"])
    assert sum(layer["parameters"] for layer in found["layers"]) == found["total"]
    assert found["layers"][-1]["output"] == [found["embedding_dim"]]


def test_a_network_that_is_not_there(familiar: Familiar):
    answer = familiar("models", "resnet9000")
    assert answer.code == 1
    assert answer.out == ""
    assert answer.err.startswith(
        "familiar: no network is called 'resnet9000'; there are mobilenetv3_small_100, "
    )
    assert answer.err.count("\n") == 1
