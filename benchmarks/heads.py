"""Make the package's detector of heads again from the photos, and judge it on those that were held back.

    heads.py PHOTOS OUTPUT [--scenes-share 1] [--from-file HEADS.ONNX]

PHOTOS is the folder of photos; it contains `weights` with the teachers and the ImageNet weights of MobileNetV3-Small.
Besides familiar[train] this needs ai-edge-litert, for a teacher that is a TFLite file. What is in OUTPUT already is not
done again:

- `labels`: heads that were drawn by hand, and what teachers see in other photos (`pet_detector/labels.py`);
- `stage1.pt` to `stage6.pt`: the network, trained on scenes made of these photos (`scenes.py`, `training.py`), of which
  most show photos as they are in stages 2, 4 and 6. A stage that was interrupted goes on from its `unfinished` file.
  Stages 5 and 6 came later: they began with the file of the package (--from-file), whose training had seen neither
  faces of dogs that fill the picture nor turned photos. The weights are means of those before, between and after
  these two (Wortsman et al. 2022, arXiv 2203.05482 and 2109.01903): each alone finds fewer heads;
- `heads.onnx`: the file of the package, its scores scaled by thresholds that were chosen by the photos of other animals
  that were held back; `heads.png`: what it finds in drawn pets; and `results.json`: recall and false detections.
"""

import argparse
import json
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import torch
from pet_detector.deploy import deploy
from pet_detector.judging import choose_thresholds, judge
from pet_detector.labels import label_photos
from pet_detector.network import DetectorNetwork
from pet_detector.pictures import draw_heads
from pet_detector.scenes import Scenes
from pet_detector.training import AGAIN_LR, LAST_LR, LR, initial_network, read_network, standardized, train
from torch import Tensor

from familiar.detection.heads import LABELS


class Stage(NamedTuple):
    """A part of the training: number of scenes, learning rate, and whether most photos are as they are."""

    scenes: int
    lr: float
    at_last: bool


STAGES = (
    Stage(120_000, LR, at_last=False),
    Stage(60_000, LAST_LR, at_last=True),
    Stage(100_000, AGAIN_LR, at_last=False),
    Stage(50_000, LAST_LR, at_last=True),
    Stage(64_000, LAST_LR, at_last=False),
    Stage(32_000, LAST_LR, at_last=True),
)
FIRST_FROM_FILE = 5  # the stage that `--from-file` begins with
SHARES = (0.5, 0.25, 0.25)  # in the average, of the weights before that stage and after each from it on
ROUNDING_SCENES, ROUNDING_SEED = 128, 0
INITIAL_WEIGHTS = "mobilenet_v3_small_imagenet_dequant_torchvision_keys.npz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("output", type=Path)
    parser.add_argument("--scenes-share", type=float, default=1.0, help="of the scenes of each stage")
    parser.add_argument("--from-file", type=Path, help="begin stage 5 with the network of this file")
    parser.add_argument("--workers", type=int, default=1, help="processes that draw scenes; 0: the one that trains")
    options = parser.parse_args()
    photos, output = options.photos_folder, options.output
    output.mkdir(parents=True, exist_ok=True)
    labeled = label_photos(photos, photos / "weights", output / "labels")
    network = DetectorNetwork()
    averaged: list[dict[str, Tensor]] = []
    for number, stage in enumerate(STAGES, 1):
        if options.from_file and number < FIRST_FROM_FILE:
            continue
        scenes = Scenes(photos, labeled, int(options.scenes_share * stage.scenes), number, at_last=stage.at_last)
        if number == FIRST_FROM_FILE:
            if options.from_file:
                network = read_network(options.from_file, scenes)
            averaged.append(deepcopy(network.state_dict()))
        file = output / f"stage{number}.pt"
        if not file.exists():
            if number == 1:
                network = initial_network(scenes, photos / "weights" / INITIAL_WEIGHTS)
            state = output / f"unfinished{number}.pt"
            torch.save(train(network, scenes, state, stage.lr, options.workers).state_dict(), file)
            state.unlink(missing_ok=True)
        network.load_state_dict(torch.load(file))
        if number >= FIRST_FROM_FILE:
            averaged.append(deepcopy(network.state_dict()))
    network.load_state_dict(
        {
            name: sum((share * each[name] for share, each in zip(SHARES, averaged, strict=True)), torch.zeros(()))
            if values.is_floating_point()
            else values
            for name, values in network.state_dict().items()
        }
    )
    held_back = [photo for photo in labeled if photo.held_back]
    unscaled, scaled = output / "unscaled.onnx", output / "heads.onnx"
    few = Scenes(photos, labeled, ROUNDING_SCENES, ROUNDING_SEED, at_last=True)
    images = standardized(torch.stack([few[index][0] for index in range(ROUNDING_SCENES)])).contiguous().numpy()
    unscaled.write_bytes(deploy(network, dict.fromkeys(LABELS, 0.5), images))
    thresholds = choose_thresholds(unscaled, photos, held_back)
    scaled.write_bytes(deploy(network, thresholds, images))
    draw_heads(output / "heads.png", scaled)
    results = {"thresholds": thresholds, "bytes": scaled.stat().st_size, **judge(scaled, photos, held_back)}
    (output / "results.json").write_text(json.dumps(results, indent=1))
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
