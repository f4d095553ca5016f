"""A run's weights in torch give the same embeddings as its bundle in ONNX Runtime."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from familiar.core.errors import BadBundle, BadRun, SpaceMismatch
from familiar.datasets.folders import DataSpec, IdentityTable, open_photo
from familiar.embedding import bundle as bundle_format
from familiar.embedding.bundle import load_bundle, serialize_bundle
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from familiar.embedding.verification import verify
from familiar.training.checkpoint import load_weights, save_weights
from familiar.training.network import build_network
from familiar.training.run import RunFolder
from familiar.training.torch_embedder import torch_embedder
from support.tiny_run import TINY

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")


@pytest.fixture
def run(shared_run: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy of the shared run that a test may change."""
    return RunFolder(shutil.copytree(shared_run.path, tmp_path / "run"))


@pytest.fixture(scope="module")
def drawn() -> IdentityTable:
    """Pets the network was not trained on."""
    return DataSpec(("synthetic:dogs:5x2",)).read()


def change_space(run: RunFolder, space_id: str) -> None:
    """Rewrite the run's bundle with another space id."""
    bundle = load_bundle(run.bundle)
    network, _ = bundle_format._verify_metadata(bundle.onnx, bundle.path)
    run.bundle.write_bytes(serialize_bundle(network, replace(bundle.metadata, space_id=space_id)))


@pytest.mark.parametrize("flip", [False, True])
def test_embeddings_match_bundle(shared_run: RunFolder, drawn: IdentityTable, flip: bool):
    torch_based = torch_embedder(shared_run.path, CPU, threads=2)
    assert torch_based.metadata == load_bundle(shared_run.bundle).metadata
    actual, expected = (
        embed_photos(embedder, drawn.photos, open_photo=open_photo, flip=flip, batch_size=3)
        for embedder in (torch_based, Embedder(shared_run.bundle, threads=1))
    )
    assert actual.embeddings.dtype == np.float32
    np.testing.assert_allclose(actual.embeddings, expected.embeddings, atol=1e-4)
    assert not np.array_equal(actual.embeddings, expected.embeddings), "torch computed these, not ONNX Runtime"
    # The embeddings differ enough for the agreement to be significant.
    assert np.abs(expected.embeddings - expected.embeddings[0]).max() > 1e-2


def test_verification_matches_bundle(shared_run: RunFolder, cats: DataSpec):
    torch_based, onnx = torch_embedder(str(shared_run.path), CPU), Embedder(shared_run.bundle)
    first, second, *_ = cats.read().photos
    assert isinstance(first, Path)
    assert isinstance(second, Path)
    answer, expected = (verify(first, second, embedder) for embedder in (torch_based, onnx))
    assert answer.similarity == pytest.approx(expected.similarity, abs=1e-4)
    assert answer.threshold == expected.threshold
    assert torch_based.embed([]).shape == (0, 16)
    assert torch_based.batch_size == onnx.batch_size


def test_dropout_and_batch_statistics_are_off(shared_run: RunFolder, drawn: IdentityTable):
    embedder = torch_embedder(shared_run.path, CPU)
    together, single = (
        embed_photos(embedder, photos, open_photo=open_photo).embeddings for photos in (drawn.photos, drawn.photos[:1])
    )
    np.testing.assert_allclose(together[:1], single, atol=1e-5)


def test_computes_on_requested_device(shared_run: RunFolder):
    size_px = TINY.input.size_px
    embedder = torch_embedder(shared_run.path, torch.device("meta"))
    with pytest.raises(NotImplementedError, match="meta"):  # the meta device computes shapes only
        embedder.run(np.ones((2, size_px, size_px, 3), np.uint8))


@pytest.mark.parametrize("name", ["recipe.json", "embedder.safetensors", "model.onnx", "data.json"])
def test_rejects_missing_file(run: RunFolder, name: str):
    (run.path / name).unlink()
    with pytest.raises(BadRun, match=name.replace(".", r"\.")):
        torch_embedder(run.path, CPU)


def test_rejects_damaged_files(run: RunFolder):
    whole = run.embedder.read_bytes()
    for damaged in (b"", b"no tensors", whole[:-1]):
        run.embedder.write_bytes(damaged)
        with pytest.raises(BadRun, match=r"embedder\.safetensors: cannot read weights"):
            torch_embedder(run.path, CPU)
    # With a flipped bit the file is still valid, but its weights are others than the bundle's.
    run.embedder.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(SpaceMismatch):
        torch_embedder(run.path, CPU)
    run.embedder.write_bytes(whole)
    run.bundle.write_bytes(run.bundle.read_bytes()[:-1])
    with pytest.raises(BadBundle, match=r"model\.onnx"):
        torch_embedder(run.path, CPU)


@pytest.mark.exhaustive
def test_rejects_weights_that_differ_from_bundle(run: RunFolder):
    network = build_network(run.recipe())
    load_weights(run.embedder, network=network)
    with torch.no_grad():
        next(network.parameters()).mul_(1.1)
    save_weights(run.embedder, network=network)
    with pytest.raises(SpaceMismatch, match=r"model\.onnx.*export it again: familiar export"):
        torch_embedder(run.path, CPU)


def test_run_space_matches_exported_bundle(run: RunFolder):
    assert run.space_id == load_bundle(run.bundle).metadata.space_id


def test_compatible_run_uses_old_space(run: RunFolder):
    record = json.loads(run.data_json.read_text())
    record["compatible"] = {"space_id": "the old one", "components": 16}
    run.data_json.write_text(json.dumps(record))
    with pytest.raises(SpaceMismatch):
        torch_embedder(run.path, CPU)
    change_space(run, "the old one")
    assert torch_embedder(run.path, CPU).metadata.space_id == "the old one"
