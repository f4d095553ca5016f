"""Train the people's networks on a GPU, taught by SFace.

    people.py PACKS OUTPUT --until SECONDS [--only mobile narrow nano] [--tiny]

A student learns the vectors that SFace gives to photos as they are, while it sees them changed: turned, coarse, gray,
covered. Half of each batch are blended faces, which SFace looks at in the same step: so nobody is seen twice, and four
thousand people become any number. `mobile` goes on with `person-mobile.safetensors` if PACKS has it.
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
from familiar.models.backbones import STAGES_TO_STRIDE_16, NarrowGateMobileNetV3Trunk
from familiar.models.catalog import NETWORKS, NetworkSpec
from familiar.models.network import EmbeddingNetwork
from familiar.models.weights import load_network_file, load_weights_file, reinflate_batch_norm
from gpu_training.images import FACES, change, plain
from gpu_training.packs import labels_of
from gpu_training.pets import Work
from gpu_training.steps import (
    Clock,
    draw_batches,
    embed,
    fastest_layout,
    optimizer_of,
    pair_scores,
    round_while_training,
    rounded,
    save,
    step,
)

SHARES = {"mobile": 0.4, "narrow": 0.6, "nano": 0.3}  # of the time, relative to the others'


class NarrowFineTrunk(NarrowGateMobileNetV3Trunk):
    """MobileNetV3-Small with narrow gates, without its last stride and its last 1x1 convolution."""

    def __init__(self) -> None:
        super().__init__("mobilenetv3_small_100")
        blocks = self.backbone.blocks
        blocks[STAGES_TO_STRIDE_16][0].conv_dw.stride = (1, 1)
        self.backbone.blocks = blocks[:-1]
        self.channels = blocks[-2][-1].conv_pwl.out_channels


NARROW_SPEC = NetworkSpec(
    "MobileNetV3-Small with narrow gates, for faces at 112 px, for at most 308,000 bytes with int4-weights",
    112,
    128,
    0.0,
    NarrowFineTrunk,
    "gdconv",
    head_options={"width": 224},
)


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
        values: dict[str, Tensor] = {self.nodes[0].input[0]: (images.contiguous() + 1) * 127.5}
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
    parser.add_argument("--only", nargs="+", choices=list(SHARES), default=list(SHARES), help="networks, in order")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    work = Work(options.packs, options.output, options.until, options.tiny)
    teacher = SFace(work.file("sface.onnx")).eval().to(work.device)
    names, photos = work.pack("people.npz", 112)
    labels = torch.from_numpy(labels_of(names)).to(work.device)
    targets = normalize(sum(embed_all(teacher, photos, mirrored=each) for each in (False, True)))
    judge = Judge(work)
    judge("sface", teacher)
    for number, name in enumerate(options.only):
        share = SHARES[name] / sum(SHARES[each] for each in options.only[number:])
        seconds = share * (work.seconds_left() - 12)
        network, lr = network_named(name, work)
        learn(network, teacher, photos, targets, labels, lr, seconds, name, judge, work)
        if name == "narrow":
            save(network, work.output / "person-narrow-before-rounding.safetensors")
            network = rounded(network)
            judge("narrow, rounded", network)
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


def network_named(name: str, work: Work) -> tuple[EmbeddingNetwork, float]:
    """Build a network with ImageNet's weights, or those that it had before, and return it with its learning rate."""
    lr = 3e-3
    if name == "mobile":
        network, lr = NETWORKS["efficientnet_lite0_fine"].build(), 2e-3
        if (work.packs / "person-mobile.safetensors").exists():
            load_network_file(network, work.packs / "person-mobile.safetensors")
            lr = 1.2e-3
        else:
            load_weights_file(network.trunk, work.file("lite0.pth"))
    elif name == "narrow":
        network = NARROW_SPEC.build()
        load_weights_file(network.trunk, work.file("narrow.safetensors"))
    else:
        network = NETWORKS["nano_mobile"].build(112, 128, 0.0)
        load_weights_file(network.trunk, work.file("mobilenet.npz"))
        _, photos = work.pack("people.npz", 112)
        reinflate_batch_norm(network.trunk, [plain(part.cpu()) for part in photos[:512].split(64)])
    return network.to(work.device), lr


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
    """Train a student, and leave it with the mean of its weights over the last steps.

    The weights of `narrow` are rounded to 4 bits in the second half; what is left are those before rounding.
    """
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
    layout, step_seconds = fastest_layout(student, change(torch.cat([photos[:half]] * 2), FACES, 112))
    work.note(layout=str(layout), step_seconds=step_seconds)
    loss, in_few_bits = torch.zeros(()), False
    for share in clock:
        if name == "narrow" and share > 0.5 and not in_few_bits:
            round_while_training(student)
            in_few_bits = True
        rows = torch.from_numpy(next(batches)).to(work.device)
        others = torch.from_numpy(draw.integers(len(photos), size=half)).to(work.device)
        mixed_u8 = blended(photos[rows], photos[others])
        target = torch.cat([targets[rows], teacher(plain(mixed_u8))])
        images = change(torch.cat([photos[rows], mixed_u8]), FACES, 112)
        vectors = normalize(layout.raw(student, images))
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
    for layer in student.modules():
        layer.__dict__.pop("forward", None)
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
