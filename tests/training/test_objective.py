import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import normalize

from familiar.core.errors import BadRecipe, BadRun
from familiar.embedding.bundle import load_bundle
from familiar.export.bundle import export_run
from familiar.losses import CenterLoss, CompatibleLoss, HarmonicLoss, PartialFC, SemiHard, active_fraction
from familiar.models.catalog import network_spec
from familiar.training.fit import fit
from familiar.training.loss_settings import CLASSIFIERS, LOSSES, MINING_LOSSES
from familiar.training.objective import LOSS_BUILDERS, Objective
from familiar.training.optimizer import build_optimizer
from familiar.training.run import RunFolder
from familiar.training.schedule import Schedule
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


def test_every_loss_has_a_builder():
    assert LOSS_BUILDERS.keys() == LOSSES.keys()


@pytest.mark.parametrize("name", LOSSES)
def test_losses_take_hyperparameters_from_schedules(name):
    made = objective(f"loss.name={name}")
    settings = made.settings
    moving = [key for key in settings.setting_names if isinstance(getattr(settings, key), Schedule)]
    moved = {key: 1.5 if key == "margin_factor" else getattr(settings, key).extremes[-1] / 2 or 0.5 for key in moving}
    changed = replace(settings, **{key: Schedule(value) for key, value in moved.items()})
    made = Objective(changed, 8, 4)
    made.start_epoch(0, 10)
    assert made.hyperparameters == {key: getattr(changed, key).start for key in moving}
    of_loss = [key for key in moving if key not in ("center_weight", "triplet_weight", "compatible_weight")]
    assert all(getattr(made.loss, key) == getattr(changed, key).start for key in of_loss)


@pytest.mark.parametrize("name", LOSSES)
def test_every_constant_setting_reaches_its_loss(name):
    settings = LOSSES[name][0]
    for key in settings.setting_names:
        value = getattr(settings, key)
        others = {
            bool: not value,
            int: 5,
            float: 0.7,
            str: {"branch": "continuous", "reduction": "all", "select": "random", "mining": "semi_hard"}.get(key),
        }
        if key in ("name", "compatible_with", "mined_on", "raw_embeddings") or type(value) not in others:
            continue
        other = others[type(value)]
        loss = Objective(replace(settings, **{key: other}), 8, 4).loss
        if key == "bias":
            assert loss.bias is None
        elif key == "centers_per_class":
            assert loss.centers.shape == (5, 4, 8)
        else:
            assert getattr(loss, key) == other


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["loss.name=cosface", "loss.margin=3.5"], r"loss\.margin 3\.5 is out of range"),
        (["loss.name=combined_margin", "loss.margin_factor=1 to 4 over 0.5"], r"loss\.margin_factor 4\.0"),
    ],
)
def test_rejects_invalid_loss_setting_before_starting(tmp_path, cats, settings, message):
    with pytest.raises(BadRecipe, match=message):
        fit(TINY.with_settings(settings), cats, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_circle_loss_schedules_match_seed_002():
    made = objective("loss.name=circle_triplets", "loss.margin=0.2 + 0.02 every 5 to 1", "loss.gamma=64 + 32 every 5")
    made.start_epoch(12, 60)
    assert (made.loss.margin, made.loss.gamma) == (pytest.approx(0.24), 128.0)
    assert made.hyperparameters["gamma"] == 128.0


def test_center_loss_is_added_with_its_weight():
    embeddings, labels, rows = batch()
    alone, beside = objective("loss.name=softmax"), objective("loss.name=softmax", "loss.center_weight=0.5")
    beside.of_batch.load_state_dict(alone.of_batch.state_dict())
    center = CenterLoss(8, 4)
    wanted = alone(embeddings, labels, rows) + 0.5 * center(embeddings, labels)
    assert beside(embeddings, labels, rows).item() == pytest.approx(wanted.item())
    assert beside.center.centers.any(), "its centers move"
    assert not alone.center.centers.any()


@pytest.mark.parametrize("loss", ["arcface", "softmax"])
def test_triplet_loss_is_added_with_its_weight(loss):
    embeddings, labels, rows = batch()
    alone, beside = objective(f"loss.name={loss}"), objective(f"loss.name={loss}", "loss.triplet_weight=0.5")
    beside.of_batch.load_state_dict(alone.of_batch.state_dict())
    triplets = SemiHard()(embeddings, labels)
    assert triplets > 0
    for length in (1.0, 3.0):  # plain softmax sees embeddings of any length, triplets those of length 1
        wanted = alone(length * embeddings, labels, rows) + 0.5 * triplets
        assert beside(length * embeddings, labels, rows).item() == pytest.approx(wanted.item(), rel=1e-5)


def test_triplet_weight_needs_batches_by_identity():
    assert not TINY.batches_by_identity
    for weight in ("1", "0 to 1 over 0.5", "0 + 0.1 every 5"):
        assert TINY.with_settings([f"loss.triplet_weight={weight}"]).batches_by_identity
    with pytest.raises(BadRecipe, match="triplet_weight"):
        TINY.with_settings(["loss.name=semi_hard", "loss.triplet_weight=1"])


def test_prefixes_and_old_bundle_wrap_the_loss():
    old = normalize(torch.randn(20, 4, generator=torch.Generator().manual_seed(1))).numpy()
    made = objective(
        "loss.name=arcface",
        "loss.prefixes=4,8",
        "loss.prefix_weights=0.5,0.5",
        "loss.compatible_weight=0 to 2 over 0.5",
        old=old,
    )
    made.start_epoch(1, 4)
    assert isinstance(made.of_batch, CompatibleLoss)
    assert made.of_batch.weight == 1.0
    assert isinstance(made.of_batch.loss, HarmonicLoss)
    assert made.of_batch.loss.loss is made.loss
    assert list(dict(made.named_parameters())) == ["of_batch.loss.loss.centers"], "saved once"
    assert not any("old" in key for key in made.state_dict()), "the vectors are the bundle's to keep"
    embeddings, labels, rows = batch()
    value = made(embeddings, labels, rows + 8)
    wanted = made.of_batch(embeddings, labels, torch.from_numpy(old[8:20]))
    assert value.item() == wanted.item()


def test_active_triplets_describe_last_batch():
    made = objective("loss.name=semi_hard", "loss.margin=0.5")
    assert made.active_triplets() is None
    embeddings, labels, rows = batch()
    made(embeddings, labels, rows)
    assert made.active_triplets() == active_fraction(embeddings, labels, 0.5)
    made(embeddings[:1], labels[:1], rows[:1])
    assert made.active_triplets() is None
    assert objective("loss.name=circle").active_triplets() is None


@pytest.mark.exhaustive
def test_only_mining_run_saves_triplet_picture(tmp_path, cats):
    recipe = SMALL.with_settings(["budget.epochs=1", "loss.name=semi_hard"])
    fit(recipe, cats, tmp_path / "mines")
    with Image.open(RunFolder(tmp_path / "mines").triplets_png) as picture:
        assert min(picture.size) > 600
    fit(recipe.with_settings(["loss.name=circle"]), cats, tmp_path / "does not")
    assert not RunFolder(tmp_path / "does not").triplets_png.exists()


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
    alone = SMALL.with_settings(["model.name=simple_v2", "model.blocks=3", "loss.name=batch_all", "seed=1"])
    recipe = alone.with_settings([f"loss.compatible_with={bundle.path}"])
    found, without = [], []
    fit(recipe, cats, tmp_path / "new", on_epoch=found.append)
    fit(alone, cats, tmp_path / "alone", on_epoch=without.append)
    assert found[0].loss > without[0].loss, "meeting the old vectors costs something"
    new = export_run(tmp_path / "new", tmp_path / "new.onnx")
    assert new.metadata.space_id == bundle.metadata.space_id
    assert new.metadata.space_id != export_run(tmp_path / "alone", tmp_path / "alone.onnx").metadata.space_id
    assert new.metadata.prefixes == (16,)
    longer = recipe.with_settings(["model.embedding_dim=8"])
    with pytest.raises(BadRecipe, match=r"16 components.*model\.embedding_dim"):
        fit(longer, cats, tmp_path / "shorter")
    with pytest.raises(BadRecipe, match=r"^nothing\.onnx: no such file; .* --set loss\.compatible_with=FILE$"):
        fit(recipe.with_settings(["loss.compatible_with=nothing.onnx"]), cats, tmp_path / "none")
    assert not (tmp_path / "none").exists(), "nothing was begun"
    bundle.path.write_bytes((tmp_path / "alone.onnx").read_bytes())
    with pytest.raises(BadRun, match="another bundle to be compatible with"):
        fit(recipe, cats, tmp_path / "new", resume=True)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_curves")
def test_bundle_reports_trained_prefixes(tmp_path, cats):
    recipe = SMALL.with_settings(["loss.name=batch_all", "loss.prefixes=4,8,16", "loss.prefix_weights=0.2,0.3,0.5"])
    fit(recipe, cats, tmp_path / "run")
    assert export_run(tmp_path / "run", tmp_path / "model.onnx").metadata.prefixes == (4, 8, 16)


def test_sparse_centers_have_their_own_optimizer():
    torch.manual_seed(0)
    network, made = (
        network_spec("mobilenetv3_small_050").build(32, 8, 0.0),
        objective("loss.name=partial_fc", classes=40),
    )
    optimizer = build_optimizer(network, made, SMALL.optimizer, 4)
    assert isinstance(made.loss, PartialFC)
    assert optimizer.sparse is not None
    assert [id(each) for each in optimizer.sparse.param_groups[0]["params"]] == [id(made.loss.centers)]
    assert all(each is not made.loss.centers for group in optimizer.dense.param_groups for each in group["params"])
    optimizer.set_rates(2)
    assert optimizer.sparse.param_groups[0]["lr"] == optimizer.current_rates[0] > 0
    before = made.loss.centers.detach().clone()
    embeddings = network(torch.randn(4, 3, 32, 32))
    made(embeddings, torch.tensor([0, 1, 2, 3]), torch.arange(4)).backward()
    norm = optimizer.step()
    moved = (made.loss.centers.detach() != before).any(dim=1)
    assert norm > 0
    assert moved[:4].all()
    assert moved.sum() == 4, "a tenth of forty"
