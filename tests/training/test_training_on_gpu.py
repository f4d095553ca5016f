"""Training on a GPU: in bfloat16, in chunks, resumed, and embedding with the trained weights."""

import copy

import numpy as np
import pytest
import torch

from familiar.datasets.folders import DataSpec
from familiar.embedding.embedder import Embedder
from familiar.export.run_export import export_bundle
from familiar.losses import BatchAll
from familiar.models.catalog import network_spec
from familiar.training.fitting import fit
from familiar.training.run import RunFolder
from familiar.training.torch_embedder import torch_embedder
from support.chunks import backward_in_chunks
from support.tiny_run import TINY, Interrupted, history, stop_after

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

LEARNING = TINY.with_settings(
    [
        *("loss.margin_rad=0", "model.dropout=0"),
        *("budget.epochs=20", "validation.every_epochs=10"),
    ]
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, cats):
    run = RunFolder(tmp_path_factory.mktemp("runs") / "trained")
    fit(LEARNING, cats, run.path, workers=2)
    return run


def test_learns(trained):
    losses = [float(row["loss"]) for row in history(trained)]
    assert losses[-1] < 0.7 * losses[0]


def test_embeds_like_the_exported_bundle(trained):
    """On the CPU, ONNX Runtime computes the embeddings of the network that a GPU trained."""
    export_bundle(trained.path, trained.bundle)
    crops_u8 = np.random.default_rng(2).integers(0, 256, (40, 32, 32, 3), np.uint8)
    on_gpu = torch_embedder(trained.path).run(crops_u8)
    on_cpu = torch_embedder(trained.path, torch.device("cpu")).run(crops_u8)
    from_bundle = Embedder(trained.bundle).run(crops_u8)
    assert np.linalg.norm(on_gpu - on_cpu, axis=1).max() < 1e-3
    assert np.linalg.norm(on_gpu - from_bundle, axis=1).max() < 1e-3


@pytest.mark.parametrize("save_every_steps", [0, 1])
def test_resumed_run_learns_what_an_uninterrupted_one_learns(tmp_path, cats, save_every_steps):
    """Up to the order of sums, which a GPU does not fix."""
    unbroken, resumed = RunFolder(tmp_path / "unbroken"), RunFolder(tmp_path / "resumed")
    fit(TINY, cats, unbroken.path, workers=1)

    def stop_in_epoch_2(progress):
        if (progress.record.epoch, progress.step) == (2, 2):
            raise Interrupted

    stop = {"on_step": stop_in_epoch_2} if save_every_steps else {"on_epoch": stop_after(2)}
    with pytest.raises(Interrupted):
        fit(TINY, cats, resumed.path, workers=1, save_every_steps=save_every_steps, **stop)
    torch.rand(7, device="cuda")  # whatever the process that resumes drew before
    fit(TINY, cats, resumed.path, workers=1, resume=True)
    expected, actual = (
        [[float(row[name]) for name in ("loss", "gradient_norm", "lr")] for row in history(run)]
        for run in (unbroken, resumed)
    )
    assert actual == pytest.approx(np.array(expected), rel=0.02)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_gradients_of_chunks_are_those_of_the_cpu(dropout):
    """With dropout, the second pass through a chunk draws what the first drew: compared with one pass in chunks."""
    torch.manual_seed(0)
    network = network_spec("simple_v2").build(32, 8, dropout, blocks=4).double().train()
    images = torch.randn(11, 3, 32, 32).double()
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 0])
    on_gpu, one_pass = copy.deepcopy(network).cuda(), copy.deepcopy(network).cuda()
    torch.manual_seed(1)
    value = backward_in_chunks(on_gpu, on_gpu, lambda rows: BatchAll(0.5)(rows, labels.cuda()), images.cuda(), 6)

    torch.manual_seed(1)
    parts = [one_pass(images.cuda()[first::2]) for first in range(2)]
    order = torch.cat([torch.arange(11)[first::2] for first in range(2)]).argsort()
    expected = BatchAll(0.5)(torch.cat(parts)[order.cuda()], labels.cuda())
    expected.backward()
    assert value == pytest.approx(expected.item(), rel=1e-5)
    compare(on_gpu, one_pass)
    if not dropout:
        backward_in_chunks(network, network, lambda rows: BatchAll(0.5)(rows, labels), images, 6)
        compare(on_gpu, network)


def compare(network, expected):
    for name, _ in expected.named_parameters():
        gradient, reference = (each.get_parameter(name).grad.cpu() for each in (network, expected))
        assert (gradient - reference).norm() <= 1e-4 * reference.norm() + 1e-8, name


def test_networks_in_bfloat16_embed_nearly_alike():
    """What training computes with: nothing overflows, and the embedding hardly turns."""
    torch.manual_seed(0)
    for name in ("mobilenetv3_small_100", "facenet_nn2", "simple_v2"):
        network = network_spec(name).build(112, 64, 0.0).cuda().eval().to(memory_format=torch.channels_last)
        images = torch.rand(8, 3, 112, 112, device="cuda").to(memory_format=torch.channels_last)
        with torch.no_grad():
            expected = network(images)
            with torch.autocast("cuda", torch.bfloat16):
                embeddings = network(images).float()
        assert torch.isfinite(embeddings).all()
        assert (embeddings * expected).sum(1).min() > 0.99, name


def test_data_may_be_drawn(tmp_path):
    """Without a cache, workers draw and decode photos while the GPU computes."""
    fit(TINY, DataSpec(("synthetic:cats:12x4",)), tmp_path, workers=2)
    assert len(history(RunFolder(tmp_path))) == 3
