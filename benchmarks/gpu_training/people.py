"""Train the people's networks on a GPU, taught by SFace.

    people.py PACKS OUTPUT --until SECONDS [--tiny]

A student learns the vectors that SFace gives to photos as they are, while it sees them changed: turned, coarse, gray,
covered. Half of each batch are blended faces, which SFace looks at in the same step: so nobody is seen twice, and four
thousand people become any number.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn
from torch.nn.functional import batch_norm, conv2d, interpolate, linear, normalize, prelu

from familiar.losses.classifiers import ArcFace
from familiar.models.backbones import TimmTrunk
from familiar.models.catalog import NETWORKS, NetworkSpec
from familiar.models.network import EmbeddingNetwork
from familiar.models.weights import load_network_file, load_weights_file, reinflate_batch_norm
from gpu_training.images import FACES, change, plain
from gpu_training.packs import labels_of
from gpu_training.pets import Work
from gpu_training.steps import Clock, draw_batches, embed, optimizer_of, pair_scores, save, step

FINE = "efficientnet_lite0_fine"
LAST_STRIDE = 5  # the stage that begins with it


class FineLiteTrunk(TimmTrunk):
    """EfficientNet-Lite0 without its last stride, whose map at 112 px is one of 7 x 7."""

    def __init__(self) -> None:
        super().__init__("tf_efficientnet_lite0")
        self.backbone.blocks[LAST_STRIDE][0].conv_dw.stride = (1, 1)


FINE_SPEC = NetworkSpec("EfficientNet-Lite0 for faces at 112 px", 112, 128, 0.0, FineLiteTrunk, "gdconv")


class SFace(nn.Module):
    """OpenCV's file, layer by layer, for crops standardized to [-1, 1]."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        graph = onnx.load(file).graph
        self.nodes = list(graph.node)
        for tensor in graph.initializer:
            self.register_buffer(tensor.name, torch.from_numpy(numpy_helper.to_array(tensor).astype(np.float32)))

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Compute unit vectors; the first two nodes, which standardize values of 0 to 255, are part of the file."""
        values: dict[str, Tensor] = {self.nodes[0].input[0]: (images + 1) * 127.5}
        for node in self.nodes:
            x, *names = node.input
            inputs = [values[x], *(getattr(self, name) for name in names)]
            options = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
            values[node.output[0]] = self.layer(node.op_type, inputs, options)
        return normalize(values[self.nodes[-1].output[0]].float())

    def layer(self, kind: str, inputs: list[Tensor], options: dict[str, Any]) -> Tensor:
        match kind:
            case "Sub":
                return inputs[0] - inputs[1]
            case "Mul":
                return inputs[0] * inputs[1]
            case "Conv":
                bias = inputs[2] if len(inputs) > 2 else None
                top = options["pads"][0]
                return conv2d(inputs[0], inputs[1], bias, options["strides"], top, groups=options.get("group", 1))
            case "BatchNormalization":
                weight, bias, mean, variance = inputs[1:]
                return batch_norm(inputs[0], mean, variance, weight, bias, eps=options["epsilon"])
            case "PRelu":
                return prelu(inputs[0], inputs[1].flatten())
            case "Flatten":
                return inputs[0].flatten(1)
            case "Gemm":
                return linear(inputs[0], inputs[1], inputs[2])
            case "Dropout":
                return inputs[0]
        raise ValueError(kind)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packs", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--until", type=float, default=500)
    parser.add_argument("--tiny", action="store_true", help="a few photos and steps, to see that it runs")
    parser.add_argument("--go-on", action="store_true", help="with the larger network, whose weights are there")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    work = Work(options.packs, options.output, options.until, options.tiny)
    teacher = SFace(work.file("sface.onnx")).eval().to(work.device)
    names, photos = work.pack("people.npz", 112)
    labels = torch.from_numpy(labels_of(names)).to(work.device)
    targets = normalize(sum(embed_all(teacher, photos, mirrored=each) for each in (False, True)))
    judge = Judge(work)
    judge("sface", teacher)
    if options.go_on:
        network = lite_fine(work)
        load_network_file(network, work.output / "person-mobile.safetensors")
        learn(network, teacher, photos, targets, labels, 1.2e-3, work.seconds_left() - 8, "mobile, longer", judge, work)
        save(network, work.output / "person-mobile-longer.safetensors")
        return
    for name, network, lr, share in (
        ("mobile", lite_fine(work), 2e-3, 0.62),
        ("nano", mobile_network("nano_mobile", work), 3e-3, 0.55),
        ("small", mobile_network("mobilenetv3_small_fine", work), 3e-3, 1.0),
    ):
        seconds = share * (work.seconds_left() - 12)
        learn(network, teacher, photos, targets, labels, lr, seconds, name, judge, work)
        save(network, work.output / f"person-{name}.safetensors")
    work.note(done="people")


class Judge:
    """The pairs of people outside the training."""

    def __init__(self, work: Work) -> None:
        self.work = work
        names, self.photos = work.pack("tested_people.npz", 112)
        with np.load(work.file("tested_pairs.npz")) as pairs:
            inside = (pairs["left"] < len(names)) & (pairs["right"] < len(names))  # all, unless few photos are tried
            self.left, self.right = (torch.from_numpy(pairs[each][inside]) for each in ("left", "right"))
            self.same = pairs["same"][inside]

    def __call__(self, name: str, network: nn.Module, **more: Any) -> None:
        vectors = embed_all(network, self.photos).cpu()
        values = (vectors[self.left] * vectors[self.right]).sum(1).numpy()
        auc, accuracy = pair_scores(values, self.same)
        self.work.note(model=name, auc=round(auc, 4), accuracy=round(accuracy, 4), **more)


@torch.no_grad()
def embed_all(network: nn.Module, photos: Tensor, *, mirrored: bool = False) -> Tensor:
    network.eval()
    prepare = (lambda part: plain(part).flip(3)) if mirrored else plain
    if isinstance(network, EmbeddingNetwork):
        return embed(network, photos, prepare)
    return torch.cat([network(prepare(part)) for part in photos.split(256)])


def lite_fine(work: Work) -> EmbeddingNetwork:
    """Build the larger network with ImageNet's weights."""
    network = FINE_SPEC.build()
    load_weights_file(network.trunk, work.file("lite0.pth"))
    return network.to(device=work.device).to(memory_format=torch.channels_last)


def mobile_network(name: str, work: Work) -> EmbeddingNetwork:
    """Build a part of MobileNetV3-Small with ImageNet's weights."""
    network = NETWORKS[name].build(112, 128, 0.0)
    load_weights_file(network.trunk, work.file("mobilenet.npz"))
    _, photos = work.pack("people.npz", 112)
    reinflate_batch_norm(network.trunk, [plain(part.cpu()) for part in photos[:512].split(64)])
    return network.to(device=work.device).to(memory_format=torch.channels_last)


def learn(
    student: EmbeddingNetwork,
    teacher: SFace,
    photos: Tensor,
    targets: Tensor,
    labels: Tensor,
    lr: float,
    seconds: float,
    name: str,
    judge: Judge,
    work: Work,
) -> None:
    """Train a student, and leave it with the mean of its weights over the last steps."""
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    counts = torch.bincount(labels)
    classes = ArcFace(128, len(counts), scale=32.0, margin_rad=0.2).to(work.device)
    groups = [
        {"params": list(student.trunk.parameters()), "lr": lr / 2},
        {"params": [*student.head.parameters(), *classes.parameters()], "lr": lr},
    ]
    optimizer = optimizer_of(groups, 0.02)
    average = torch.optim.swa_utils.AveragedModel(
        student, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.998), use_buffers=True
    )
    half = min(256, len(photos))
    batches = draw_batches(draw, len(photos), half)
    clock, checked = Clock(4 if work.tiny else 10**9, seconds), 0.3
    student.train()
    loss = torch.zeros(())
    for share in clock:
        rows = torch.from_numpy(next(batches)).to(work.device)
        others = torch.from_numpy(draw.integers(len(photos), size=half)).to(work.device)
        mixed_u8 = blended(photos[rows], photos[others])
        target = torch.cat([targets[rows], teacher(plain(mixed_u8))])
        images = change(torch.cat([photos[rows], mixed_u8]), FACES, 112)
        with torch.autocast(images.device.type, torch.bfloat16, enabled=images.is_cuda):
            raw = student.raw(images)
        vectors = normalize(raw.float())
        loss = (1 - (vectors * target).sum(1)).mean()
        loss = loss + 20 * (vectors @ vectors.T - target @ target.T).square().mean()
        named = counts[labels[rows]] > 1
        loss = loss + 0.03 * classes(vectors[:half][named], labels[rows][named])
        step(optimizer, loss, share)
        average.update_parameters(student)
        if share > checked:
            judge(f"{name} at {share:.2f}", average.module, steps=clock.done)
            checked += 0.3
    student.load_state_dict(average.module.state_dict())
    judge(name, student, steps=clock.done, loss=round(loss.item(), 4), photos=clock.done * 2 * half)


def blended(first: Tensor, second: Tensor) -> Tensor:
    """Blend faces, which are aligned: as a whole, or with a soft border between two parts."""
    count, side = len(first), first.shape[1]
    coarse = torch.rand(count, 1, 3, 3, device=first.device)
    parts = interpolate(coarse, (side, side), mode="bicubic", align_corners=True).sub(0.5).mul(4).add(0.5).clamp(0, 1)
    whole = torch.rand(count, 1, 1, 1, device=first.device).mul(0.6).add(0.2).expand_as(parts)
    share = torch.where(torch.rand(count, 1, 1, 1, device=first.device) < 0.5, whole, parts).permute(0, 2, 3, 1)
    return (first.float() * share + second.float() * (1 - share)).round().to(torch.uint8)


if __name__ == "__main__":
    main()
