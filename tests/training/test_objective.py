import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from torch.nn.functional import normalize

from familiar.core.errors import BadRecipe, BadRun
from familiar.embedding.bundle import load_bundle
from familiar.export.run_export import export_bundle
from familiar.loading.crops import read_table
from familiar.loading.dataset import FaceDataset
from familiar.losses import CenterLoss, CompatibleLoss, HarmonicLoss, PartialFC, SemiHard, active_fraction
from familiar.models.catalog import network_spec
from familiar.training.checkpoint import load_weights
from familiar.training.fitting import fit
from familiar.training.loss_catalog import CLASSIFIERS, LOSSES, MINING_LOSSES
from familiar.training.network import build_network
from familiar.training.objective import Objective
from familiar.training.optimizer import build_optimizer
from familiar.training.run import RunFolder
from familiar.training.schedule import Schedule
from familiar.training.validation import embed_dataset
from support.tiers import all_exhaustive_but, small_and_exhaustive
from support.tiny_run import TINY, Interrupted, history, stop_after

pytestmark = pytest.mark.slow

SMALL = TINY.with_settings(["sampler.identities=4", "sampler.photos=3", "budget.epochs=2"])


def batch(n=12, k=3, d=8):
    generator = torch.Generator().manual_seed(0)
    return normalize(torch.randn(n, d, generator=generator)), torch.arange(n) // k, torch.arange(n)


def objective(*settings, d=8, classes=4, **parts):
    recipe = TINY.with_settings([f"model.embedding_dim={d}", *settings])
    return Objective(recipe.loss, d, classes, **parts)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_take_hyperparameters_from_schedules(name):
    built = objective(f"loss.name={name}")
    settings = built.settings
    moving = [key for key in settings.settings() if isinstance(getattr(settings, key), Schedule)]
    moved = {key: 1.5 if key == "margin_factor" else getattr(settings, key).extremes[-1] / 2 or 0.5 for key in moving}
    changed = replace(settings, **{key: Schedule(value) for key, value in moved.items()})
    built = Objective(changed, 8, 4)
    built.start_epoch(0, 10)
    assert built.hyperparameters == {key: getattr(changed, key).start for key in moving}
    own_keys = [key for key in moving if key not in ("center_weight", "triplet_weight", "compatible_weight")]
    assert all(getattr(built.loss, key) == getattr(changed, key).start for key in own_keys)


@pytest.mark.parametrize("name", LOSSES)
def test_every_constant_setting_reaches_its_loss(name):
    settings = LOSSES[name]()
    for key in settings.settings():
        value = getattr(settings, key)
        others = {
            bool: not value,
            int: 5,
            float: 0.7,
            str: {"branch": "continuous", "reduction": "all", "select": "random", "mining": "semi_hard"}.get(key),
        }
        if key in ("name", "compatible_with", "mined_on", "raw_embeddings", "start") or type(value) not in others:
            continue
        other = others[type(value)]
        loss = Objective(replace(settings, **{key: other}), 8, 4).loss
        if key == "bias":
            assert loss.biases is None
        elif key == "centers_per_class":
            assert loss.centers.shape == (5, 4, 8)
        else:
            assert getattr(loss, key) == other


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["loss.name=circle", "loss.margin=3.5"], r"loss\.margin must be in \[0, 1\], not 3\.5"),
        (["loss.name=combined_margin", "loss.margin_factor=1 to 4 over 0.5"], r"loss\.margin_factor must be in"),
    ],
)
def test_rejects_invalid_loss_setting_before_starting(tmp_path, cats, settings, message):
    with pytest.raises(BadRecipe, match=message):
        fit(TINY.with_settings(settings), cats, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_circle_loss_schedules_match_published_coursework():
    built = objective("loss.name=circle_triplets", "loss.margin=0.2 + 0.02 every 5 to 1", "loss.gamma=64 + 32 every 5")
    built.start_epoch(12, 60)
    assert (built.loss.margin, built.loss.gamma) == (pytest.approx(0.24), 128.0)
    assert built.hyperparameters["gamma"] == 128.0


def test_center_loss_is_added_with_its_weight():
    embeddings, labels, rows = batch()
    plain, combined = objective("loss.name=softmax"), objective("loss.name=softmax", "loss.center_weight=0.5")
    combined.batch_loss.load_state_dict(plain.batch_loss.state_dict())
    center = CenterLoss(8, 4)
    expected = plain(embeddings, labels, rows) + 0.5 * center(embeddings, labels)
    assert combined(embeddings, labels, rows).item() == pytest.approx(expected.item())
    assert combined.center.centers.any(), "its centers move"
    assert plain.center is None, "no centers where they have no weight"


@pytest.mark.parametrize("loss", ["arcface", "softmax"])
def test_triplet_loss_is_added_with_its_weight(loss):
    embeddings, labels, rows = batch()
    plain, combined = objective(f"loss.name={loss}"), objective(f"loss.name={loss}", "loss.triplet_weight=0.5")
    combined.batch_loss.load_state_dict(plain.batch_loss.state_dict())
    triplets = SemiHard()(embeddings, labels)
    assert triplets > 0
    for length in (1.0, 3.0):  # softmax takes embeddings of any length, the triplet loss normalizes them
        expected = plain(length * embeddings, labels, rows) + 0.5 * triplets
        assert combined(length * embeddings, labels, rows).item() == pytest.approx(expected.item(), rel=1e-5)


def test_triplet_weight_needs_batches_by_identity():
    assert not TINY.batches_by_identity
    for weight in ("1", "0 to 1 over 0.5", "0 + 0.1 every 5"):
        assert TINY.with_settings([f"loss.triplet_weight={weight}"]).batches_by_identity
    with pytest.raises(BadRecipe, match="triplet_weight"):
        TINY.with_settings(["loss.name=semi_hard", "loss.triplet_weight=1"])


def test_prefixes_and_old_bundle_wrap_the_loss():
    old = normalize(torch.randn(20, 4, generator=torch.Generator().manual_seed(1))).numpy()
    built = objective(
        "loss.name=arcface",
        "loss.prefixes=4,8",
        "loss.prefix_weights=0.5,0.5",
        "loss.compatible_weight=0 to 2 over 0.5",
        reference_embeddings=old,
    )
    built.start_epoch(1, 4)
    assert isinstance(built.batch_loss, CompatibleLoss)
    assert built.batch_loss.weight == 1.0
    assert isinstance(built.batch_loss.loss, HarmonicLoss)
    assert built.batch_loss.loss.loss is built.loss
    assert list(dict(built.named_parameters())) == ["batch_loss.loss.loss.centers"], "saved once"
    assert not any("embeddings" in key for key in built.state_dict()), "checkpoints must not contain the old vectors"
    embeddings, labels, rows = batch()
    value = built(embeddings, labels, rows + 8)
    expected = built.batch_loss(embeddings, labels, torch.from_numpy(old[8:20]))
    assert value.item() == expected.item()


def test_active_triplets_describe_last_batch():
    built = objective("loss.name=semi_hard", "loss.margin=0.5")
    assert built.active_triplets() is None
    embeddings, labels, rows = batch()
    built(embeddings, labels, rows)
    assert built.active_triplets() == active_fraction(embeddings, labels, 0.5)
    built(embeddings[:1], labels[:1], rows[:1])
    assert built.active_triplets() is None
    assert objective("loss.name=circle").active_triplets() is None


@pytest.mark.exhaustive
def test_only_mining_run_saves_triplet_picture(tmp_path, cats):
    recipe = SMALL.with_settings(["budget.epochs=1", "loss.name=semi_hard"])
    fit(recipe, cats, tmp_path / "mining")
    with Image.open(RunFolder(tmp_path / "mining").triplets_png) as picture:
        assert min(picture.size) > 600
    fit(recipe.with_settings(["loss.name=circle"]), cats, tmp_path / "not mining")
    assert not RunFolder(tmp_path / "not mining").triplets_png.exists()


@pytest.mark.one_case
@pytest.mark.usefixtures("without_curves")
@pytest.mark.parametrize("name", all_exhaustive_but(["softmax", "partial_fc", "semi_hard", "circle"], LOSSES))
def test_every_loss_trains_a_network(tmp_path, cats, name):
    epochs = []
    recipe = SMALL.with_settings([f"loss.name={name}"])
    fit(recipe, cats, tmp_path, on_epoch=epochs.append)
    assert all(np.isfinite((record.loss, record.gradient_norm)).all() for record in epochs)
    assert epochs[0].gradient_norm > 0
    assert (epochs[-1].active_triplets is not None) == (name in MINING_LOSSES and name != "circle_triplets")
    assert recipe.batches_by_identity == (name not in CLASSIFIERS)
    assert RunFolder(tmp_path).recipe().loss == recipe.loss


@pytest.mark.usefixtures("without_curves")
@pytest.mark.parametrize(
    "settings",
    small_and_exhaustive(
        ["loss.name=partial_fc", "loss.rate=0.5"],
        ["loss.name=softmax", "loss.center_weight=0.1"],
        ["loss.name=semi_hard", "loss.select=random"],
        ["loss.name=semi_hard", "loss.select=random", "sampler.chunk_size=5"],
        ["loss.name=batch_all", "optimizer.name=adagrad", "optimizer.schedule=exponential"],
        ["loss.name=circle_triplets", "loss.gamma=64 + 32 every 1"],
        ["loss.name=arcface", "loss.prefixes=4,16", "loss.prefix_weights=0.5,0.5"],
    ),
)
def test_resumed_run_equals_uninterrupted_run(tmp_path, cats, settings):
    recipe = SMALL.with_settings(settings)
    whole, broken = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "broken")
    fit(recipe, cats, whole.path)
    with pytest.raises(Interrupted):
        fit(recipe, cats, broken.path, on_epoch=stop_after(1))
    fit(recipe, cats, broken.path, resume=True)
    assert whole.last.read_bytes() == broken.last.read_bytes()
    assert history(whole) == history(broken)


@pytest.mark.usefixtures("without_curves")
def test_compatible_run_is_exported_in_old_space(tmp_path, cats, shared_bundle):
    bundle = load_bundle(Path(shutil.copy(shared_bundle, tmp_path / "old.onnx")))
    plain = SMALL.with_settings(["model.name=simple_v2", "model.blocks=3", "loss.name=batch_all", "seed=1"])
    recipe = plain.with_settings([f"loss.compatible_with={bundle.path}"])
    records, plain_records = [], []
    fit(recipe, cats, tmp_path / "new", on_epoch=records.append)
    fit(plain, cats, tmp_path / "plain", on_epoch=plain_records.append)
    assert records[0].loss > plain_records[0].loss, "the old vectors add to the loss"
    new = export_bundle(tmp_path / "new", tmp_path / "new.onnx")
    assert new.metadata.space_id == bundle.metadata.space_id
    assert new.metadata.space_id != export_bundle(tmp_path / "plain", tmp_path / "plain.onnx").metadata.space_id
    assert new.metadata.prefixes == (16,)
    longer = recipe.with_settings(["model.embedding_dim=8"])
    with pytest.raises(BadRecipe, match=r"16 components.*model\.embedding_dim"):
        fit(longer, cats, tmp_path / "shorter")
    with pytest.raises(BadRecipe, match=r"^missing\.onnx: no such file; .* --set loss\.compatible_with=FILE$"):
        fit(recipe.with_settings(["loss.compatible_with=missing.onnx"]), cats, tmp_path / "none")
    assert not (tmp_path / "none").exists(), "no run was started"
    bundle.path.write_bytes((tmp_path / "plain.onnx").read_bytes())
    with pytest.raises(BadRun, match=r"another bundle in loss\.compatible_with"):
        fit(recipe, cats, tmp_path / "new", resume=True)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_curves")
def test_bundle_reports_trained_prefixes(tmp_path, cats):
    recipe = SMALL.with_settings(["loss.name=batch_all", "loss.prefixes=4,8,16", "loss.prefix_weights=0.2,0.3,0.5"])
    fit(recipe, cats, tmp_path / "run")
    assert export_bundle(tmp_path / "run", tmp_path / "model.onnx").metadata.prefixes == (4, 8, 16)


def test_sparse_centers_have_their_own_optimizer():
    torch.manual_seed(0)
    network, built = (
        network_spec("mobilenetv3_small_050").build(32, 8, 0.0),
        objective("loss.name=partial_fc", classes=40),
    )
    optimizer = build_optimizer(network, built, SMALL.optimizer, 4)
    assert isinstance(built.loss, PartialFC)
    assert len(optimizer.parts) == 2
    assert [id(parameter) for parameter in optimizer.parts[1].param_groups[0]["params"]] == [id(built.loss.centers)]
    assert all(
        parameter is not built.loss.centers
        for group in optimizer.parts[0].param_groups
        for parameter in group["params"]
    )
    optimizer.set_rates(2)
    assert optimizer.parts[1].param_groups[0]["lr"] == optimizer.current_rates[0] > 0
    before = built.loss.centers.detach().clone()
    embeddings = network(torch.randn(4, 3, 32, 32))
    built(embeddings, torch.tensor([0, 1, 2, 3]), torch.arange(4)).backward()
    norm = optimizer.step()
    moved = (built.loss.centers.detach() != before).any(dim=1)
    assert norm > 0
    assert moved[:4].all()
    assert moved.sum() == 4, "a tenth of forty"


@pytest.mark.parametrize("name", ["arcface", "normface", "softmax", "partial_fc"])
def test_class_centers_start_at_mean_embeddings(name):
    built = objective(f"loss.name={name}", "loss.start=means")
    embeddings, labels, _ = batch()
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    built.set_class_centers(embeddings[order], labels[order])
    means = torch.stack([embeddings[labels == label].mean(0) for label in range(4)])
    torch.testing.assert_close(built.loss.centers.detach(), normalize(means))
    assert built.loss.centers.requires_grad


@pytest.mark.parametrize("name", ["subcenter_arcface", "semi_hard"])
def test_means_need_one_center_per_class(name):
    with pytest.raises(BadRecipe, match=f"loss.start=means: {name} does not have one center for each class"):
        objective(f"loss.name={name}").set_class_centers(*batch()[:2])


@pytest.mark.usefixtures("without_curves")
def test_training_that_changes_nothing_keeps_centers_at_means(tmp_path, cats):
    """The first epoch's network is the initial one, and its centers are the means of the photos' embeddings."""
    still = ["optimizer.lr=0", "optimizer.backbone_lr=0", "budget.epochs=1", "model.frozen_statistics=true"]
    recipe = TINY.with_settings([*still, "model.projection=pca", "model.embedding_dim=8", "loss.start=means"])
    recipe = recipe.with_settings(["model.head=average_bias"])
    fit(recipe, cats, tmp_path)
    weights = safetensors.torch.load_file(RunFolder(tmp_path).last)
    network = build_network(recipe)
    load_weights(RunFolder(tmp_path).last, network=network)
    table = cats.read().select_identities(RunFolder(tmp_path).split().train)
    read = read_table(table, RunFolder(tmp_path).recipe().input.preprocessing())
    embeddings = torch.from_numpy(embed_dataset(network, FaceDataset(read.table, read.crops)))
    labels = torch.from_numpy(read.table.labels)
    means = torch.stack([embeddings[labels == label].mean(0) for label in range(len(table.names))])
    torch.testing.assert_close(weights["objective.batch_loss.centers"], normalize(means), rtol=0, atol=1e-5)
