"""A run's weights, through torch, are what its bundle is through ONNX Runtime."""

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
from familiar.embedding.bundle import load_bundle, seal
from familiar.embedding.embedder import Embedder, embed_photos
from familiar.embedding.verification import verify_photos
from familiar.training.checkpoint import load_weights, save_weights
from familiar.training.network import build_network
from familiar.training.run import RunFolder
from familiar.training.torch_embedder import torch_embedder
from support.tiny_run import TINY

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")


@pytest.fixture
def run(shared_run: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy to spoil."""
    return RunFolder(shutil.copytree(shared_run.path, tmp_path / "run"))


@pytest.fixture(scope="module")
def drawn() -> IdentityTable:
    """Pets it was not trained on."""
    return DataSpec(("synthetic:dogs:5x2",)).read()


def respaced(run: RunFolder, space_id: str) -> None:
    """The run's bundle, sealed anew, as one of another space."""
    bundle = load_bundle(run.bundle)
    network, _ = bundle_format._open_seals(bundle.onnx, bundle.path)
    run.bundle.write_bytes(seal(network, replace(bundle.metadata, space_id=space_id)))


@pytest.mark.parametrize("flip", [False, True])
def test_embeddings_match_bundle(shared_run: RunFolder, drawn: IdentityTable, flip: bool):
    through_torch = torch_embedder(shared_run.path, CPU, threads=2)
    assert through_torch.metadata == load_bundle(shared_run.bundle).metadata
    found, expected = (
        embed_photos(embedder, drawn.photos, open_photo=open_photo, flip=flip, batch_size=3)
        for embedder in (through_torch, Embedder(shared_run.bundle, threads=1))
    )
    assert found.embeddings.dtype == np.float32
    np.testing.assert_allclose(found.embeddings, expected.embeddings, atol=1e-4)
    assert not np.array_equal(found.embeddings, expected.embeddings), "torch computed it, not ONNX Runtime"
    # The pets lie far enough apart for the agreement to mean something.
    assert np.abs(expected.embeddings - expected.embeddings[0]).max() > 1e-2


def test_verification_matches_bundle(shared_run: RunFolder, cats: DataSpec):
    ours, onnx = torch_embedder(str(shared_run.path), CPU), Embedder(shared_run.bundle)
    first, second, *_ = cats.read().photos
    assert isinstance(first, Path)
    assert isinstance(second, Path)
    answer, expected = (verify_photos(embedder, first, second) for embedder in (ours, onnx))
    assert answer.similarity == pytest.approx(expected.similarity, abs=1e-4)
    assert answer.threshold == expected.threshold
    assert ours.embed([]).shape == (0, 16)
    assert ours.batch_size == onnx.batch_size


def test_dropout_and_batch_statistics_are_off(shared_run: RunFolder, drawn: IdentityTable):
    embedder = torch_embedder(shared_run.path, CPU)
    one, again = (
        embed_photos(embedder, photos, open_photo=open_photo).embeddings for photos in (drawn.photos, drawn.photos[:1])
    )
    np.testing.assert_allclose(one[:1], again, atol=1e-5)


def test_computes_on_requested_device(shared_run: RunFolder):
    size_px = TINY.input.size_px
    nowhere = torch_embedder(shared_run.path, torch.device("meta"))
    with pytest.raises(NotImplementedError, match="meta"):  # which computes shapes, and has no numbers to give back
        nowhere.run(np.ones((2, 3, size_px, size_px), np.float32))


@pytest.mark.parametrize("name", ["recipe.json", "embedder.safetensors", "model.onnx", "data.json"])
def test_rejects_missing_file(run: RunFolder, name: str):
    (run.path / name).unlink()
    with pytest.raises(BadRun, match=name.replace(".", r"\.")):
        torch_embedder(run.path, CPU)


def test_rejects_damaged_files(run: RunFolder):
    whole = run.embedder.read_bytes()
    for damaged in (b"", b"no tensors", whole[:-1]):
        run.embedder.write_bytes(damaged)
        with pytest.raises(BadRun, match=r"embedder\.safetensors: no weights can be read"):
            torch_embedder(run.path, CPU)
    # A flipped bit of a weight is no error of the format, but these are other weights.
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
    described = json.loads(run.data_json.read_text())
    described["compatible"] = {"space_id": "the old one", "components": 16}
    run.data_json.write_text(json.dumps(described))
    with pytest.raises(SpaceMismatch):
        torch_embedder(run.path, CPU)
    respaced(run, "the old one")
    assert torch_embedder(run.path, CPU).metadata.space_id == "the old one"
