"""Make the package's detector of heads again from the photos, and judge it on those that were held back.

    heads.py PHOTOS OUTPUT [--scenes-share 1] [--from-file HEADS.ONNX]

PHOTOS is the folder of photos; it contains `weights` with the teachers and the ImageNet weights of MobileNetV3-Small.
Besides familiar[train] this needs ai-edge-litert, for a teacher that is a TFLite file. What is in OUTPUT already is not
done again:

- `labels`: heads that were drawn by hand, and what teachers see in other photos (`pet_detector/labels.py`);
- `stage1.pt` to `stage6.pt`: the network, trained on scenes made of these photos (`scenes.py`, `training.py`), of which
  most show photos as they are in stages 2, 4 and 6. A stage that was interrupted goes on from its `unfinished` file.
  Stages 5 and 6 came later: they began with the file of the package (--from-file), whose training had seen neither
  faces of dogs that fill the picture nor turned photos;
- `heads.onnx`: the file of the package, its scores scaled by thresholds that were chosen on half of the photos held
  back; `heads.png`: what it finds in drawn pets; and `results.json`: recall and false detections on the other half.
"""

import argparse
import json
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
    for number, stage in enumerate(STAGES, 1):
        if options.from_file and number < FIRST_FROM_FILE:
            continue
        file = output / f"stage{number}.pt"
        if not file.exists():
            scenes = Scenes(photos, labeled, int(options.scenes_share * stage.scenes), number, at_last=stage.at_last)
            if number == 1:
                network = initial_network(scenes, photos / "weights" / INITIAL_WEIGHTS)
            elif options.from_file and number == FIRST_FROM_FILE:
                network = read_network(options.from_file, scenes)
            state = output / f"unfinished{number}.pt"
            torch.save(train(network, scenes, state, stage.lr, options.workers).state_dict(), file)
            state.unlink(missing_ok=True)
        network.load_state_dict(torch.load(file))
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
