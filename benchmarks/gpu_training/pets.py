"""Train the pet bundles' networks on a GPU: teachers, `pet-mobile` in several ways, and `pet-nano`.

    pets.py PACKS OUTPUT mobile|nano --until SECONDS [--tiny]

Everything is judged on collections that no training sees; the figures are lines of JSON in OUTPUT. `mobile` trains
EfficientNet-Lite0 with labels: the last stages, more of them, or all with rates that fall with depth, with and without
the similarities of the frozen network kept on pets without labels, for three seeds, and means of their weights. `nano`
trains the teachers likewise, unless PACKS has `teacher-lite0.safetensors` and so on, and then MobileNetV3-Small with
narrow gates on what they see; its weights are rounded to 4 bits in the second half.
"""

import argparse
import copy
import json
import time
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from familiar.losses.classifiers import ArcFace
from familiar.models.network import EmbeddingNetwork
from familiar.models.weights import load_network_file, load_weights_file
from familiar.recipes import recipe_named
from familiar.training.network import build_network
from gpu_training.images import MILD, MILDER, STRONG, change, plain
from gpu_training.packs import labels_of, read_pack
from gpu_training.steps import (
    Clock,
    Layout,
    draw_batches,
    embed,
    fastest_layout,
    less_the_mean,
    optimizer_of,
    relation_loss,
    round_while_training,
    rounded,
    save,
    scores,
    soup,
    step,
)

SIZES = {0: (224, 160), 1: (240, 160), 2: (260, 180)}
DRAWN_PER_SEED = 2  # collections of drawn pets
STAGES = 7  # of an EfficientNet-Lite
DEPTH_FACTOR = 0.6  # by which the rate falls from a stage to the one before
VERSIONS = 8  # of each photo, changed, that teachers look at
BATCH = 448  # photos whose similarities a student learns at once


class Work:
    """Photos in the GPU's memory, and where results go."""

    def __init__(self, packs: Path, output: Path, until: float, tiny: bool) -> None:
        self.packs, self.output, self.tiny = packs, output, tiny
        self.began, self.until = time.monotonic(), until
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        output.mkdir(parents=True, exist_ok=True)

    def file(self, name: str) -> Path:
        """Wait for a file, which may be sent later."""
        while not (file := self.packs / name).exists():
            time.sleep(0.5)
        return file

    def pack(self, name: str, size_px: int) -> tuple[list[str], Tensor]:
        names, photos = read_pack(self.file(name), size_px)
        if self.tiny:
            names, photos = names[:16], photos[:16]
        return names, torch.from_numpy(photos).to(self.device)

    def seconds_left(self) -> float:
        return self.until - (time.monotonic() - self.began)

    def note(self, **figures: Any) -> None:
        line = json.dumps({"second": round(time.monotonic() - self.began), **figures})
        print(line, flush=True)
        with (self.output / "figures.jsonl").open("a") as file:
            file.write(line + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packs", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("what", choices=["mobile", "nano"])
    parser.add_argument("--until", type=float, default=500)
    parser.add_argument("--tiny", action="store_true", help="a few photos and steps, to see that it runs")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    work = Work(options.packs, options.output, options.until, options.tiny)
    {"mobile": mobile, "nano": nano}[options.what](work)
    work.note(done=options.what)


# --- What is trained on ----------------------------------------------------------------------------------------------


def labeled(work: Work, size_px: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return dogs, people and the seed's drawn pets, with labels."""
    parts = [work.pack(f"{name}.npz", size_px) for name in ("dogs", "orl", "drawn")]
    names = [name for part, _ in parts for name in part]
    photos = torch.cat([photos for _, photos in parts])
    drawn = sorted({name.split("/")[0] for name in parts[2][0]})
    chosen_drawings = [each for each in drawn if each.endswith(f"seed={seed}")] or drawn[:DRAWN_PER_SEED]
    chosen = [
        row
        for row, name in enumerate(names)
        if name.split("/")[0] in chosen_drawings or not name.startswith("synthetic")
    ]
    labels = labels_of([names[row] for row in chosen])
    return photos[chosen], torch.from_numpy(labels).to(work.device)


class Judge:
    """The collections that no training sees; they are read when the first network is finished."""

    def __init__(self, work: Work) -> None:
        self.work = work

    @cached_property
    def rows(self) -> tuple[list[str], Tensor]:
        return self.work.pack("rows.npz", 224)

    def __call__(self, name: str, network: EmbeddingNetwork, **more: Any) -> None:
        names, photos = self.rows
        embeddings = embed(network, photos, plain)
        collections = np.array([name.split("/")[0] for name in names])
        figures = {}
        for collection in sorted(set(collections.tolist())):
            rows = np.flatnonzero(collections == collection)
            labels = labels_of([names[row] for row in rows])
            part = embeddings[torch.from_numpy(rows).to(embeddings.device)]
            centered = scores(less_the_mean(part), labels)
            figures[collection] = [round(each, 4) for each in (*scores(part, labels), *centered)]
        self.work.note(model=name, rows=figures, **more)


# --- Training with labels --------------------------------------------------------------------------------------------


def lite(number: int, work: Work, trained: Path | None = None) -> EmbeddingNetwork:
    """Build EfficientNet-Lite as `pet-lite` has it, with ImageNet's weights or those of a file."""
    size, smaller = SIZES[number]
    settings = [
        f"model.name=efficientnet_lite{number}",
        f"input.size_px={size}",
        f"input.resize_px={size}",
        f"input.views=1@{size},1@{smaller}m,0.8@{size}",
        "model.frozen_stages=0",
    ]
    network = build_network(recipe_named("pet-lite").with_settings(settings))
    if trained:
        load_network_file(network, trained)
    else:
        load_weights_file(network.trunk, work.file(f"lite{number}.pth"))
    return network.to(device=work.device).to(memory_format=torch.channels_last)


def train_with_labels(
    network: EmbeddingNetwork,
    photos: Tensor,
    labels: Tensor,
    size_px: int,
    *,
    frozen: int,
    epochs: float,
    lr: float,
    seed: int,
    seconds: float,
    keep: Tensor | None = None,
    batch: int = 128,
    tiny: bool = False,
) -> EmbeddingNetwork:
    """Train with ArcFace, whose centers start at the individuals' means; `keep`: photos whose similarities stay."""
    torch.manual_seed(seed)
    draw = np.random.default_rng(seed)
    before = copy.deepcopy(network).eval()
    batch = min(batch, len(photos))
    blocks = network.trunk.backbone.blocks
    network.requires_grad_(requires_grad=True)
    if frozen:
        network.freeze_stages(frozen)
    network.eval()  # the statistics of batch norms stay
    centers = centers_at_means(before, photos, labels)
    groups: list[dict[str, Any]] = [{"params": list(centers.parameters()), "lr": 3e-3}]
    for name, child in network.trunk.backbone.named_children():
        if name == "blocks":
            continue
        depth = 0 if name in ("conv_head", "bn2") else STAGES
        groups.append(group_of(child, lr, depth, frozen))
    groups += [group_of(block, lr, STAGES - 1 - index, frozen) for index, block in enumerate(blocks)]
    optimizer = optimizer_of(groups, 1e-4)
    batches = draw_batches(draw, len(photos), batch)
    kept_batches = draw_batches(draw, len(keep), min(96, len(keep))) if keep is not None else None
    for share in Clock(4 if tiny else int(epochs * len(photos) / batch), seconds):
        rows = torch.from_numpy(next(batches)).to(photos.device)
        images = change(photos[rows], STRONG, size_px)
        with torch.autocast(images.device.type, torch.bfloat16, enabled=images.is_cuda):
            raw = network.raw(images)
        loss = centers(normalize(raw.float()), labels[rows])
        if keep is not None and kept_batches is not None:
            images = change(keep[torch.from_numpy(next(kept_batches)).to(photos.device)], MILD, size_px)
            with torch.autocast(images.device.type, torch.bfloat16, enabled=images.is_cuda):
                now = network.raw(images)
                with torch.no_grad():
                    then = before.raw(images)
            now, then = normalize(now.float()), normalize(then.float())
            loss = loss + 100 * (now @ now.T - then @ then.T).square().mean()
        step(optimizer, loss, share)
    return network.requires_grad_(requires_grad=False).eval()


def group_of(module: nn.Module, lr: float, depth: int, frozen: int) -> dict[str, Any]:
    """Return a group of parameters whose rate falls with depth if all stages are trained."""
    parameters = [each for each in module.parameters() if each.requires_grad]
    return {"params": parameters, "lr": lr * (DEPTH_FACTOR**depth if frozen < 3 else 1)}


def centers_at_means(network: EmbeddingNetwork, photos: Tensor, labels: Tensor) -> ArcFace:
    """Build a classifier whose centers are the means of the individuals' embeddings, of whole crops."""
    whole_crop = copy.copy(network)
    whole_crop.views = ()
    embeddings = embed(whole_crop, photos, plain)
    dim = embeddings.shape[1]
    classifier = ArcFace(dim, int(labels.max()) + 1, scale=24.0, margin_rad=0.2).to(photos.device)
    sums = torch.zeros_like(classifier.centers).index_add_(0, labels, embeddings)
    classifier.centers.data.copy_(normalize(sums) * 0.01 * dim**0.5)  # as long as random ones
    return classifier


def mobile(work: Work) -> None:
    """Train EfficientNet-Lite0 in several ways, for three seeds."""
    initial = lite(0, work)
    ways: dict[str, dict[str, Any]] = {
        "two": {"frozen": 5, "epochs": 6, "lr": 4e-4},
        "four": {"frozen": 3, "epochs": 10, "lr": 4e-4},
        "all": {"frozen": 0, "epochs": 12, "lr": 6e-4},
    }
    trained: dict[str, list[EmbeddingNetwork]] = {}
    judge = Judge(work)
    keep: Tensor | None = None
    for seed in range(3):
        photos, labels = labeled(work, 224, seed)
        for name in ("four", "two", "all", "four-kept", "all-kept"):
            if work.seconds_left() < 40:
                break
            if name.endswith("kept") and keep is None:
                keep = work.pack("unlabeled.npz", 224)[1]
            began = time.monotonic()
            way = ways[name.removesuffix("-kept")]
            limit = max(20.0, work.seconds_left() / 6)
            network = train_with_labels(
                copy.deepcopy(initial),
                photos,
                labels,
                224,
                **way,
                seed=seed,
                seconds=limit,
                keep=keep if name.endswith("kept") else None,
                tiny=work.tiny,
            )
            trained.setdefault(name, []).append(network)
            if name == "four" and not seed:
                judge("untrained", initial)
            judge(f"{name} {seed}", network, seconds=round(time.monotonic() - began))
        del photos
    mixtures = {
        "two+four": ("two", "four"),
        "two+four+all": ("two", "four", "all"),
        "four+all": ("four", "all"),
        "kept": ("four-kept", "all-kept"),
        "four+all+kept": ("four", "all", "four-kept", "all-kept"),
        "everything": ("two", "four", "all", "four-kept", "all-kept"),
    }
    for seed in range(3):
        for name, parts in mixtures.items():
            members = [trained[part][seed] for part in parts if len(trained.get(part, [])) > seed]
            if len(members) < len(parts):
                continue
            mean = soup(members)
            judge(f"{name} {seed}", mean)
            save(mean, work.output / f"{name} {seed}.safetensors")
            if not seed:
                judge(f"{name}, a quarter untrained {seed}", soup([mean, initial], [0.75, 0.25]))
    for name, networks in trained.items():
        if len(networks) > 1:
            judge(f"{name}, mean of seeds", soup(networks))
        for seed, network in enumerate(networks):
            save(network, work.output / f"{name} {seed}.safetensors")


# --- Training by teachers --------------------------------------------------------------------------------------------


def nano(work: Work) -> None:
    """Train the teachers, unless they are there, and `pet-nano`, for three seeds of its second half."""
    judge = Judge(work)
    teachers = [teacher(number, work, judge) for number in SIZES]
    (dogs, dog_photos), *others = (work.pack(f"{name}.npz", 240) for name in ("dogs", "drawn", "orl", "unlabeled"))
    photos = torch.cat([dog_photos, *(part for _, part in others)])
    labels = torch.full((len(photos),), -1, dtype=torch.long, device=work.device)
    labels[: len(dogs)] = torch.from_numpy(labels_of(dogs)).to(work.device)
    changed, seen = seen_by(teachers, photos, work)
    work.note(photos=len(photos), versions=len(changed), seconds_left=round(work.seconds_left()))
    student = narrow(work)
    layout, step_seconds = fastest_layout(student, plain(changed[0][:BATCH, :224, :224]))
    work.note(layout=str(layout), step_seconds=step_seconds)
    remaining = work.seconds_left() - 15
    follow_teachers(student, changed, seen, labels, 2e-3, 400, 0.43 * remaining, seed=0, work=work, layout=layout)
    judge("nano, taught", student)
    save(student, work.output / "nano-taught.safetensors")
    seeds = []
    for seed in range(3):
        last = copy.deepcopy(student)
        round_while_training(last)
        way: dict[str, Any] = {"seed": seed, "work": work, "layout": layout, "label_weight": 0.05}
        follow_teachers(last, changed, seen, labels, 1e-3, 200, 0.19 * remaining, **way)
        seeds.append(last)
        judge(f"nano, rounded {seed}", rounded(last))
        save(rounded(last), work.output / f"pet-nano {seed}.safetensors")
        save(last, work.output / f"nano-before-rounding {seed}.safetensors")
    mean = rounded(soup(seeds))
    judge("nano, mean of seeds, rounded", mean)
    save(mean, work.output / "pet-nano.safetensors")


def teacher(number: int, work: Work, judge: Judge) -> EmbeddingNetwork:
    """Train a network twice, and take the mean of the weights, unless it is there."""
    file = work.packs / f"teacher-lite{number}.safetensors"
    if file.exists():
        return lite(number, work, file).requires_grad_(requires_grad=False).eval()
    size = SIZES[number][0]
    photos, labels = labeled(work, size, 0)
    initial, networks = lite(number, work), []
    for frozen, epochs in ((5, 6), (3, 10)):
        way: dict[str, Any] = {"frozen": frozen, "epochs": epochs, "lr": 4e-4, "seed": frozen, "tiny": work.tiny}
        seconds = work.until / 14
        networks.append(train_with_labels(copy.deepcopy(initial), photos, labels, size, seconds=seconds, **way))
    mean = soup(networks)
    judge(f"teacher lite{number}", mean)
    save(mean, work.output / f"teacher-lite{number}.safetensors")
    return mean


@torch.no_grad()
def seen_by(teachers: list[EmbeddingNetwork], photos: Tensor, work: Work) -> tuple[list[Tensor], list[Tensor]]:
    """Change each photo in some ways, and embed the results with the teachers."""
    torch.manual_seed(0)
    changed, seen = [], []
    for version in range(VERSIONS):
        if version and (work.seconds_left() < 0.75 * work.until or work.tiny):
            break
        parts, vectors = [], []
        for part in photos.split(256):
            images = plain(part) if not version else change(part, STRONG if version % 2 else MILD, 240)
            with torch.autocast(part.device.type, torch.bfloat16, enabled=part.is_cuda):
                each = [network(images).float() for network in teachers]
            vectors.append(normalize(torch.cat(each, 1)).half())
            parts.append(((images + 1) * 127.5).round().to(torch.uint8).permute(0, 2, 3, 1))
        changed.append(torch.cat(parts))
        seen.append(torch.cat(vectors))
    return changed, seen


def narrow(work: Work) -> EmbeddingNetwork:
    """Build MobileNetV3-Small with narrow gates, with the weights of `narrow_gates.py`."""
    settings = ["input.views=1@224,1@224m", "model.initial_share=0"]
    network = build_network(recipe_named("pet-lite-nano").with_settings(settings))
    load_weights_file(network.trunk, work.file("narrow.safetensors"))
    return network.to(device=work.device).to(memory_format=torch.channels_last)


def follow_teachers(
    student: EmbeddingNetwork,
    changed: list[Tensor],
    seen: list[Tensor],
    labels: Tensor,
    lr: float,
    epochs: float,
    seconds: float,
    *,
    seed: int,
    work: Work,
    layout: Layout,
    label_weight: float = 0.0,
) -> None:
    """Learn the similarities that teachers see in a batch."""
    torch.manual_seed(seed)
    draw = np.random.default_rng(seed)
    batch = min(BATCH, len(labels))
    dogs = torch.flatten((labels >= 0).nonzero())
    by_dog = [torch.flatten((labels == dog).nonzero()).tolist() for dog in range(int(labels.max()) + 1)]
    classifier = centers_at_means(student, changed[0][dogs], labels[dogs]) if label_weight else None
    student.requires_grad_(requires_grad=True).train()
    groups = [{"params": list(student.trunk.parameters()), "lr": lr}]
    if classifier:
        groups.append({"params": list(classifier.parameters()), "lr": 3e-3})
    optimizer = optimizer_of(groups, 1e-2)
    size = student.views[0].size_px
    photos_each = 4  # photos of a dog in a batch, which fill a quarter of it
    batches = draw_batches(draw, len(labels), batch - batch // 4)
    clock = Clock(4 if work.tiny else int(epochs * len(labels) / batch), seconds)
    for share in clock:
        chosen = draw.permutation(len(by_dog))[: batch // 4 // photos_each]
        dog_rows = [row for dog in chosen for row in draw.permutation(by_dog[dog])[:photos_each]]
        # Always as many photos: cuDNN plans each convolution anew, for seconds, for a number that it has not met.
        dog_rows += draw.integers(len(labels), size=batch // 4 - len(dog_rows)).tolist()
        rows = torch.from_numpy(np.concatenate([next(batches), np.array(dog_rows, np.int64)])).to(work.device)
        version = int(draw.integers(len(changed)))
        images, target = changed[version][rows], seen[version][rows].float()
        images = change(images, MILDER, size)
        embeddings = normalize(layout.raw(student, images))
        loss = relation_loss(embeddings, target)
        if classifier:
            named = labels[rows] >= 0
            loss = loss + label_weight * classifier(embeddings[named], labels[rows][named])
        step(optimizer, loss, share)
        if clock.done % 500 == 0:
            work.note(step=clock.done, share=round(share, 3), loss=round(loss.item(), 4))
    work.note(steps=clock.done, loss=round(loss.item(), 4), photos=clock.done * batch)
    student.requires_grad_(requires_grad=False).eval()


if __name__ == "__main__":
    main()
