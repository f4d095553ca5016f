"""Two processes compute the same as one process with the joined batch.

Starting a process costs seconds, so two are started once and make every check; the file is their program too.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.parallel import DistributedDataParallel

from familiar.losses import (
    AcrossRanks,
    ArcFace,
    BatchAll,
    BatchHard,
    CirclePairs,
    CircleTriplets,
    Contrastive,
    HardNegative,
    HarmonicLoss,
    PartialFC,
    SemiHard,
    gather_batch,
)

pytestmark = pytest.mark.slow  # two processes that import torch

ROWS, DIM, CLASSES, STEPS = 12, 5, 4, 3
SPLITS = [(6, 6), (9, 3), (1, 11), (12, 0), (0, 12)]
WEIGHTS = torch.arange(ROWS * DIM, dtype=torch.float64).reshape(ROWS, DIM)
DTYPES = [torch.float64, torch.float32]
# float32's version of 1e-6 when rows are summed in another order.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-5}


def squared_similarities(embeddings: Tensor, labels: Tensor) -> Tensor:
    """Compute the mean over the pairs of each identity, a smooth function."""
    pairs = torch.triu(labels[:, None] == labels, diagonal=1)
    return (embeddings @ embeddings.T)[pairs].square().sum() / max(int(pairs.sum()), 1)


def arcface(dtype: torch.dtype) -> ArcFace:
    torch.manual_seed(7)
    objective = ArcFace(DIM, CLASSES, scale=8.0, label_smoothing=0.1)
    nn.init.normal_(
        objective.centers
    )  # the short initial centers have large gradients, which lose precision in float32
    return objective.to(dtype)


def loss_named(name: str, dtype: torch.dtype) -> Callable[..., Tensor]:
    return {"ArcFace": lambda: arcface(dtype)}.get(name, lambda: FUNCTIONS[name])()


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "squared similarities": squared_similarities,
    "batch-all": BatchAll(margin=0.5),
    "semi-hard": SemiHard(margin=0.5),
    "batch-hard": BatchHard(margin=0.5),
    "hard-negative": HardNegative(margin=0.5),
    "contrastive": Contrastive(margin=2.0),
    "circle": CirclePairs(gamma=8.0),
    "circle, mined": CircleTriplets(mining="semi_hard", mining_margin=0.5),
    "prefixes": HarmonicLoss(BatchAll(margin=0.5), (2, DIM), (0.5, 0.5)),
}
LOSSES = [*FUNCTIONS, "ArcFace"]


def joined_batch(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    embeddings = normalize(torch.randn(ROWS, DIM, generator=generator, dtype=torch.float64)).to(dtype)
    return embeddings, torch.randint(CLASSES, (ROWS,), generator=generator)


def share(rows: Tensor, split: tuple[int, int], rank: int) -> Tensor:
    return rows.split(split)[rank]


def network(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(8)
    return nn.Sequential(nn.Linear(DIM, 7), nn.Tanh(), nn.Linear(7, DIM)).to(dtype)


def train(net: nn.Module, objective: nn.Module, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return the gradients of the first of a few steps, and the parameters after the last."""
    actual: dict[str, Tensor] = {}
    parameters = dict([*net.named_parameters(prefix="network"), *objective.named_parameters(prefix="objective")])
    optimizer = torch.optim.SGD(parameters.values(), lr=0.5, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = objective(normalize(net(images)), labels)
        loss.backward()
        if step == 0:
            actual |= {f"gradient of {plain(name)}": p.grad.clone() for name, p in parameters.items()}
        optimizer.step()
        actual[f"loss {step}"] = loss.detach()
    return actual | {plain(name): parameter.detach() for name, parameter in parameters.items()}


def plain(name: str) -> str:
    """Remove the wrappers' prefixes from a parameter's name."""
    return name.replace("module.", "").replace("loss.", "")


# Run by each of the two processes


def results_of(rank: int) -> dict[str, object]:
    results: dict[str, object] = {}
    for dtype in DTYPES:
        embeddings, labels = joined_batch(dtype)
        for split in SPLITS:
            rows, own_labels = share(embeddings, split, rank), share(labels, split, rank)
            results[f"gathered {split} {dtype}"] = gather_batch(rows, own_labels)
            for name in LOSSES:
                results[f"{name} {split} {dtype}"] = value_and_gradients(
                    AcrossRanks(loss_named(name, dtype)), rows, own_labels
                )
            for wrapped in (False, True):
                objective = AcrossRanks(arcface(dtype))
                results[f"trained {split} {dtype} {wrapped}"] = train(
                    DistributedDataParallel(network(dtype)),
                    DistributedDataParallel(objective) if wrapped else objective,
                    rows,
                    own_labels,
                )
    for check in (
        half_precision,
        gradient_on_one,
        different_losses,
        twice,
        strided,
        random_draws,
        sharded_losses,
        old_vectors,
        without_gradient,
        empty,
    ):
        results[check.__name__] = check(rank)
    for check in (different_dimensions, different_floats):
        with pytest.raises(ValueError, match="rows have different dimensions") as caught:
            check(rank)
        results[check.__name__] = str(caught.value)
    return results


def value_and_gradients(
    loss: Callable[..., Tensor], embeddings: Tensor, labels: Tensor, *others: Tensor
) -> dict[str, Tensor]:
    embeddings = embeddings.detach().clone().requires_grad_()
    value = loss(embeddings, labels, *others)
    value.backward()
    assert embeddings.grad is not None
    actual = {"value": value.detach(), "embeddings": embeddings.grad}
    if isinstance(loss, nn.Module):
        actual |= {plain(name): parameter.grad.to_dense() for name, parameter in loss.named_parameters()}
    return actual


def half(rank: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    embeddings, labels = joined_batch(dtype)
    return share(embeddings, SPLITS[0], rank), share(labels, SPLITS[0], rank)


def half_precision(rank: int) -> dict[str, Tensor]:
    return value_and_gradients(AcrossRanks(arcface(torch.float32)), *half(rank, torch.bfloat16))


def gradient_on_one(rank: int) -> Tensor | None:
    embeddings, labels = half(rank)
    embeddings.requires_grad_(rank == 0)
    AcrossRanks(squared_similarities)(embeddings, labels).backward()
    return embeddings.grad


def different_losses(rank: int) -> Tensor:
    return value_and_gradients(AcrossRanks(lambda *batch: (rank + 1) * squared_similarities(*batch)), *half(rank))[
        "embeddings"
    ]


def twice(rank: int) -> Tensor:
    def both(embeddings: Tensor, labels: Tensor) -> Tensor:
        loss = AcrossRanks(squared_similarities)
        return loss(embeddings, labels) + loss(embeddings[:, :2], labels)

    return value_and_gradients(both, *half(rank))["embeddings"]


def strided(rank: int) -> Tensor:
    """Neither the rows nor their gradient are contiguous; the caller's gradient must not change."""
    embeddings, labels = half(rank)
    embeddings = embeddings.T.contiguous().T.detach().requires_grad_()
    turned, spread = WEIGHTS.T.contiguous().T, WEIGHTS[:, :1].expand(ROWS, DIM)
    for gradients in ((WEIGHTS, turned), (turned, WEIGHTS), (spread, spread)):
        gradient = gradients[rank]
        before = gradient.clone()
        embeddings.grad = None
        gather_batch(embeddings, labels)[0].backward(gradient)
        assert torch.equal(gradient, before)
        assert embeddings.grad is not None
        assert torch.equal(embeddings.grad, 2 * share(gradient, SPLITS[0], rank))
    return embeddings.grad


def partial_fc() -> PartialFC:
    torch.manual_seed(9)
    return PartialFC(DIM, 200, rate=0.2).double()


# Two ranks have 2 and 3 of 5 classes, 0 and 1 of a single one.
SHARDED = {
    "all classes": (CLASSES, {"rate": 1.0}),
    "some classes": (200, {"rate": 0.2}),
    "smoothed": (200, {"rate": 0.5, "label_smoothing": 0.1}),
    "uneven": (5, {"rate": 0.9, "margin_rad": 0.0}),
    "more in the batch than drawn": (7, {"rate": 0.01}),
    "a rank without classes": (1, {"rate": 1.0}),
}


def sharded_loss(name: str) -> PartialFC:
    torch.manual_seed(9)
    classes, settings = SHARDED[name]
    return PartialFC(DIM, classes, scale=8.0, **settings).double()


def sharded_batch(name: str, components: int) -> tuple[Tensor, Tensor]:
    embeddings, labels = joined_batch(torch.float64)
    return embeddings[:, :components], labels % SHARDED[name][0]


def sharded_losses(rank: int) -> dict[str, object]:
    results: dict[str, object] = {}
    for name in SHARDED:
        for split in SPLITS:
            for components in (DIM, 3):
                batch = [share(rows, split, rank) for rows in sharded_batch(name, components)]
                objective = AcrossRanks(sharded_loss(name))
                torch.manual_seed(rank)
                results[f"{name} {split} {components}"] = value_and_gradients(objective, *batch)
    return results


def random_draws(rank: int) -> dict[str, Tensor]:
    objective = AcrossRanks(partial_fc())
    torch.manual_seed(rank)
    return value_and_gradients(objective, *half(rank)) | {"drawn next": torch.rand(1)}


def similarity_to_old(embeddings: Tensor, labels: Tensor, old: Tensor, old_labels: Tensor) -> Tensor:
    same = labels[:, None] == old_labels
    return (embeddings[:, :3] @ old.T)[same].square().mean()


def old_batch() -> tuple[Tensor, Tensor]:
    """A batch with another number of rows than the new one, and fewer components."""
    embeddings, labels = joined_batch(torch.float32)
    return embeddings[:8, 1:4].clone(), labels[:8]


def old_vectors(rank: int) -> dict[str, Tensor]:
    embeddings, labels = half(rank, torch.float32)
    old = [share(rows, (7, 1), rank) for rows in old_batch()]
    return value_and_gradients(AcrossRanks(similarity_to_old), embeddings, labels, *old)


def without_gradient(rank: int) -> list[bool]:
    embeddings, labels = half(rank)
    plain_rows, _ = gather_batch(embeddings, labels)
    with torch.no_grad():
        unwatched, _ = gather_batch(embeddings.clone().requires_grad_(), labels)
    return [plain_rows.requires_grad, unwatched.requires_grad]


def empty(_rank: int) -> dict[str, Tensor]:
    nothing = torch.empty(0, DIM), torch.empty(0, dtype=torch.int64)
    return value_and_gradients(AcrossRanks(arcface(torch.float32)), *nothing)


def different_dimensions(rank: int) -> None:
    gather_batch(torch.ones(2, DIM + rank), torch.zeros(2, dtype=torch.int64))


def different_floats(rank: int) -> None:
    gather_batch(torch.ones(2, DIM, dtype=DTYPES[rank]), torch.zeros(2, dtype=torch.int64))


# Run in a new process: as in the tests, warnings are errors and signatures are checked.
LAUNCH = """
import runpy, sys
from jaxtyping import install_import_hook
sys.path.insert(0, {tests!r})
install_import_hook("familiar.losses", "support.typecheck.beartype")
runpy.run_path({program!r}, run_name="__main__")
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """Results of both processes."""
    folder = tmp_path_factory.mktemp("ranks")
    launch = LAUNCH.format(tests=str(Path(__file__).parents[1]), program=__file__)
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", launch, str(rank), str(folder)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for process in processes:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


# The tests


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("split", SPLITS)
def test_gather_keeps_rank_order(ranks, split, dtype):
    for actual in ranks:
        embeddings, labels = actual[f"gathered {split} {dtype}"]
        assert torch.equal(embeddings, joined_batch(dtype)[0])
        assert torch.equal(labels, joined_batch(dtype)[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradient_match_joined_batch(ranks, name, split, dtype):
    """Also the gradient of the loss's own parameters; that of the rows is multiplied by the number of ranks."""
    expected = value_and_gradients(loss_named(name, dtype), *joined_batch(dtype))
    assert expected["value"] > 0.01, "a batch that shows something"
    for rank, results in enumerate(ranks):
        actual = results[f"{name} {split} {dtype}"]
        scaled_expected = expected | {"embeddings": 2 * share(expected["embeddings"], split, rank)}
        torch.testing.assert_close(actual, scaled_expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("wrapped", [False, True], ids=["centers alone", "centers averaged"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("split", SPLITS)
def test_training_matches_single_process(ranks, split, dtype, wrapped):
    expected = train(network(dtype), arcface(dtype), *joined_batch(dtype))
    assert len(expected) == 5 + STEPS + 5
    for results in ranks:
        torch.testing.assert_close(
            results[f"trained {split} {dtype} {wrapped}"],
            expected,
            rtol=TOLERANCE[dtype],
            atol=TOLERANCE[dtype],
        )


def test_half_precision_gradient_equals_single_process(ranks):
    expected = value_and_gradients(arcface(torch.float32), *joined_batch(torch.bfloat16))
    for rank, results in enumerate(ranks):
        actual = results["half_precision"]
        assert actual["embeddings"].dtype == torch.bfloat16
        assert torch.equal(actual["embeddings"], 2 * share(expected["embeddings"], SPLITS[0], rank))
        torch.testing.assert_close(actual["value"], expected["value"])


def test_rank_without_gradient_keeps_gradient_for_other_rank(ranks):
    expected = value_and_gradients(squared_similarities, *joined_batch(torch.float64))["embeddings"]
    torch.testing.assert_close(ranks[0]["gradient_on_one"], 2 * share(expected, SPLITS[0], 0))
    assert ranks[1]["gradient_on_one"] is None


def test_gradient_is_sum_over_ranks(ranks):
    expected = value_and_gradients(squared_similarities, *joined_batch(torch.float64))["embeddings"]
    for rank, results in enumerate(ranks):
        torch.testing.assert_close(results["different_losses"], (1 + 2) * share(expected, SPLITS[0], rank))


def test_two_losses_in_one_step_match_joined_batch(ranks):
    def both(embeddings, labels):
        return squared_similarities(embeddings, labels) + squared_similarities(embeddings[:, :2], labels)

    expected = value_and_gradients(both, *joined_batch(torch.float64))["embeddings"]
    for rank, results in enumerate(ranks):
        torch.testing.assert_close(results["twice"], 2 * share(expected, SPLITS[0], rank))


def test_accepts_noncontiguous_rows_and_gradients(ranks):
    for rank, results in enumerate(ranks):
        assert torch.equal(results["strided"], 2 * share(WEIGHTS[:, :1].expand(ROWS, DIM), SPLITS[0], rank))


def test_random_draws_come_from_first_rank(ranks):
    objective = partial_fc()
    torch.manual_seed(0)
    drawn_next = []
    for rank in range(2):
        torch.manual_seed(rank)
        seed = int(torch.randint(2**62, (1,)))
        drawn_next.append(torch.rand(1))
        if rank == 0:
            torch.manual_seed(seed)
            expected = value_and_gradients(objective, *joined_batch(torch.float64))
    for rank, results in enumerate(ranks):
        expected_here = {
            "embeddings": 2 * share(expected["embeddings"], SPLITS[0], rank),
            "centers": expected["centers"].chunk(2)[rank],
            "drawn next": drawn_next[rank],
        }
        torch.testing.assert_close(results["random_draws"], expected | expected_here)


@pytest.mark.parametrize("components", [DIM, 3])
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", SHARDED)
def test_sharded_classes_give_loss_and_gradients_of_one_process(ranks, name, split, components):
    """Each rank has the centers of some classes; the draws of classes are those that rank 0 seeds."""
    objective = sharded_loss(name)
    torch.manual_seed(0)
    torch.manual_seed(int(torch.randint(2**62, (1,))))
    expected = value_and_gradients(objective, *sharded_batch(name, components))
    assert expected["value"] > 0.01 or SHARDED[name][0] == 1, "a batch that shows something"
    classes = SHARDED[name][0]
    for rank, results in enumerate(ranks):
        expected_here = {
            "embeddings": 2 * share(expected["embeddings"], split, rank),
            "centers": expected["centers"][classes * rank // 2 : classes * (rank + 1) // 2],
        }
        torch.testing.assert_close(
            results["sharded_losses"][f"{name} {split} {components}"], expected | expected_here, rtol=1e-12, atol=1e-12
        )


def test_initial_centers_are_drawn_for_all_classes():
    torch.manual_seed(9)
    drawn = torch.randn(200, DIM) * 0.01
    assert torch.equal(sharded_loss("some classes").centers.float(), drawn)


def test_loss_with_old_embeddings_matches_joined_batch(ranks):
    expected = value_and_gradients(similarity_to_old, *joined_batch(torch.float32), *old_batch())
    for rank, results in enumerate(ranks):
        scaled_expected = expected | {"embeddings": 2 * share(expected["embeddings"], SPLITS[0], rank)}
        torch.testing.assert_close(results["old_vectors"], scaled_expected)


def test_gathers_without_gradient_when_none_is_required(ranks):
    assert [results["without_gradient"] for results in ranks] == 2 * [[False, False]]


def test_empty_batch_on_all_ranks_is_differentiable_zero(ranks):
    for results in ranks:
        assert not any(part.any() for part in results["empty"].values())


def test_all_ranks_reject_mismatched_dimensions_or_dtypes(ranks):
    for results in ranks:
        assert results["different_dimensions"].endswith(": [5] of torch.float32, [6] of torch.float32")
        assert results["different_floats"].endswith(": [5] of torch.float64, [5] of torch.float32")


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("name", LOSSES)
def test_single_rank_equals_plain_loss(name):
    check_that_nothing_changes(name)


@pytest.mark.parametrize("name", LOSSES)
def test_without_process_group_equals_plain_loss(name):
    assert not dist.is_initialized(), "nothing happens at import"
    check_that_nothing_changes(name)


def check_that_nothing_changes(name):
    for dtype in DTYPES:
        embeddings, labels = joined_batch(dtype)
        gathered = gather_batch(embeddings, labels)
        assert gathered[0] is embeddings
        assert gathered[1] is labels
        expected = value_and_gradients(loss_named(name, dtype), embeddings, labels)
        actual = value_and_gradients(AcrossRanks(loss_named(name, dtype)), embeddings, labels)
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def test_wrapping_module_returns_module_with_its_parameters():
    inner = arcface(torch.float32)
    outer = AcrossRanks(inner)
    assert isinstance(outer, nn.Module)
    assert outer.loss is inner
    assert list(outer.parameters()) == [inner.centers]
    assert list(outer.state_dict()) == ["loss.centers"]
    assert not outer.eval().loss.training
    assert not list(AcrossRanks(squared_similarities).parameters())


TORCHRUN_SCRIPT = """
import runpy, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

test = runpy.run_path({program!r})
dist.init_process_group("gloo")
rank = dist.get_rank()
images, labels = (test["share"](rows, (9, 3), rank) for rows in test["joined_batch"](torch.float64))
objective = test["AcrossRanks"](test["arcface"](torch.float64))
found = test["train"](DistributedDataParallel(test["network"](torch.float64)), objective, images, labels)
if rank == 0:
    torch.save(found, {output!r})
dist.destroy_process_group()
"""


@pytest.mark.exhaustive
def test_torchrun_training_matches_single_process(tmp_path):
    script, output = tmp_path / "train.py", tmp_path / "found.pt"
    script.write_text(TORCHRUN_SCRIPT.format(program=__file__, output=str(output)))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ended = subprocess.run([*command, str(script)], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    expected = train(network(torch.float64), arcface(torch.float64), *joined_batch(torch.float64))
    torch.testing.assert_close(torch.load(output), expected, rtol=1e-6, atol=1e-6)


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    torch.save(results_of(rank), folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
