"""Bundles by name: published on a Hub on this machine, fetched from it, and used offline from the cache."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
from safetensors.numpy import load

from familiar.core.errors import BadBundle, FamiliarError
from familiar.embedding.bundle import load_bundle
from familiar.embedding.embedder import Embedder
from familiar.embedding.hub_download import fetch_bundle
from familiar.embedding.species import read_species_file, write_species_file
from familiar.hub import model_card, push
from support.loopback_hub import LoopbackHub, loopback_hub

# Of huggingface_hub's own requests.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    """A Hub, and an empty cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_PROGRESS_BARS", True)
    monkeypatch.setenv("HF_TOKEN", "hf_of_this_test")
    with loopback_hub() as running:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", running.url)
        monkeypatch.setattr(
            "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE",
            running.url + "/{repo_id}/resolve/{revision}/{filename}",
        )
        yield running


def test_published_bundle_is_used_by_its_name(hub: LoopbackHub, mean_color_bundle: Path):
    name = push(mean_color_bundle, "shelter/colors", private=True)
    assert re.fullmatch(r"hf://shelter/colors@[0-9a-f]{40}", name)
    repository = hub.repositories["shelter/colors"]
    assert repository.private
    _, files = repository.files("main") or ("", {})
    assert set(files) == {"README.md", "model.onnx", "model.safetensors"}
    assert all(isinstance(tensor, np.ndarray) for tensor in load(files["model.safetensors"]).values())
    embedder = Embedder("hf://shelter/colors")
    assert embedder.bundle.file_id == load_bundle(mean_color_bundle).file_id
    assert embedder.names == (name,), "with its commit, so that a gallery goes on with this very bundle"
    assert load_bundle(Path("hf://shelter/colors")).path == embedder.bundle.path, "as a command line's path"
    requests = len(hub.requests)
    assert Embedder(name).bundle.path == embedder.bundle.path
    assert len(hub.requests) == requests, "a commit in the cache is not asked for again"


def test_newer_commit_is_fetched_and_older_one_by_its_name(
    hub: LoopbackHub, mean_color_bundle: Path, uncalibrated_bundle: Path
):
    first = push(mean_color_bundle, "hf://shelter/colors")
    assert load_bundle("hf://shelter/colors").metadata.calibration.fitted
    push(uncalibrated_bundle, "shelter/colors", message="without thresholds")
    hub.repositories["shelter/colors"].references["v1"] = first.rpartition("@")[2]
    assert not load_bundle("hf://shelter/colors").metadata.calibration.fitted
    assert load_bundle("hf://shelter/colors@v1").metadata.calibration.fitted


def test_without_a_network_the_cache_is_used_and_said(
    hub: LoopbackHub, mean_color_bundle: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    push(mean_color_bundle, "shelter/colors")
    online = fetch_bundle("hf://shelter/colors")
    assert not caplog.messages
    for url in ("http://127.0.0.1:9", hub.url):
        caplog.clear()
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", url == hub.url)
        assert fetch_bundle("hf://shelter/colors") == online
        (message,) = caplog.messages
        assert message.startswith("hf://shelter/colors: the Hub cannot be reached; the bundle in the cache is used")
        with pytest.raises(
            BadBundle, match="hf://shelter/dogs: the Hub cannot be reached, and the bundle is not in the"
        ):
            fetch_bundle("hf://shelter/dogs")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hf://shelter/dogs", "the Hub has no such repository or revision, or it is private"),
        ("hf://shelter/colors@v9", "the Hub has no such repository or revision"),
        ("hf://shelter/empty", r"the repository has no model\.onnx"),
        ("hf://shelter", "write a model of the Hub as hf://ORG/REPO"),
        ("hf://shelter/../etc", "write a model of the Hub as hf://ORG/REPO"),
    ],
)
def test_what_the_hub_lacks_is_named(hub: LoopbackHub, mean_color_bundle: Path, name: str, message: str):
    push(mean_color_bundle, "shelter/colors")
    huggingface_hub.HfApi(endpoint=hub.url).create_repo("shelter/empty")
    with pytest.raises(BadBundle, match=message):
        load_bundle(name)


def test_hub_that_refuses_is_said(mean_color_bundle: Path, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"{hub.url}/elsewhere")
    with pytest.raises(FamiliarError, match=r"hf://shelter/colors: cannot be published .*hf auth login"):
        push(mean_color_bundle, "shelter/colors")


def test_model_card_states_license_tags_and_metrics(mean_color_bundle: Path):
    bundle = load_bundle(mean_color_bundle)
    metadata = replace(bundle.metadata, license="Apache-2.0", results={"auc": 0.98765, "on": "12 cats", "photos": 3})
    _, front, text = model_card(replace(bundle, metadata=metadata), "shelter/colors").split("---\n", 2)
    values = {key: json.loads(value) for key, value in (line.split(": ", 1) for line in front.splitlines())}
    assert values["license"] == "apache-2.0"
    assert "face-recognition" in values["tags"]
    (result,) = values["model-index"][0]["results"]
    assert result["metrics"] == [{"type": "roc_auc", "name": "ROC AUC", "value": 0.9877}]
    assert result["dataset"]["name"] == "12 cats"
    assert "--model hf://shelter/colors" in text
    other = replace(bundle, metadata=replace(metadata, license="the terms of its photos", results={}))
    card = model_card(other, "shelter/colors")
    assert 'license: "other"' in card
    assert "the terms of its photos" in card
    assert "model-index" not in card


def test_species_file_keeps_names_of_the_hub(tmp_path: Path, mean_color_bundle: Path):
    write_species_file(tmp_path / "family.json", {"cat": "hf://shelter/cats@v1", "dog": mean_color_bundle})
    assert read_species_file(tmp_path / "family.json")["cat"] == "hf://shelter/cats@v1"
