"""Make the package's detector of heads again from the photos, and judge it on those that were held back.

    heads.py PHOTOS OUTPUT [--scenes 120000]

PHOTOS is the folder of photos; it contains `weights` with the teachers and the ImageNet weights of MobileNetV3-Small.
Besides familiar[train] this needs ai-edge-litert, for a teacher that is a TFLite file. What is in OUTPUT already is not
done again:

- `labels.json`: heads that were drawn by hand, and what teachers see in other photos (`pet_detector/labels.py`);
- `first.pt` and `network.pt`: the network, trained on scenes made of these photos (`scenes.py`, `training.py`), at last
  of photos that are mostly as they are;
- `heads.onnx`: the file of the package, its scores scaled by thresholds that were chosen on half of the photos held
  back, and `results.json`: recall and false detections on the other half.
"""

import argparse
import json
from pathlib import Path

import torch
from pet_detector.deploy import deploy
from pet_detector.judging import choose_thresholds, judge
from pet_detector.labels import label_photos
from pet_detector.network import DetectorNetwork
from pet_detector.scenes import Scenes
from pet_detector.training import LAST_LR, initial_network, standardized, train

from familiar.detection.heads import LABELS

ROUNDING_SCENES = 128
INITIAL_WEIGHTS = "mobilenet_v3_small_imagenet_dequant_torchvision_keys.npz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("output", type=Path)
    parser.add_argument("--scenes", type=int, default=120_000)
    options = parser.parse_args()
    photos, output = options.photos_folder, options.output
    output.mkdir(parents=True, exist_ok=True)
    labeled = label_photos(photos, photos / "weights", output / "labels.json")
    network, first, last = DetectorNetwork(), output / "first.pt", output / "network.pt"
    if not first.exists():
        scenes = Scenes(photos, labeled, options.scenes)
        train(initial_network(scenes, photos / "weights" / INITIAL_WEIGHTS), scenes, output / "unfinished.pt")
        (output / "unfinished.pt").rename(first)
    if not last.exists():
        network.load_state_dict(torch.load(first))
        scenes = Scenes(photos, labeled, options.scenes // 2, seed=1, at_last=True)
        train(network, scenes, output / "unfinished.pt", LAST_LR)
        (output / "unfinished.pt").rename(last)
    network.load_state_dict(torch.load(last))
    held_back = [photo for photo in labeled if photo.held_back]
    unscaled, scaled = output / "unscaled.onnx", output / "heads.onnx"
    few = Scenes(photos, labeled, ROUNDING_SCENES, seed=2, at_last=True)
    images = standardized(torch.stack([few[index][0] for index in range(ROUNDING_SCENES)])).contiguous().numpy()
    unscaled.write_bytes(deploy(network, dict.fromkeys(LABELS, 0.5), images))
    thresholds = choose_thresholds(unscaled, photos, held_back)
    scaled.write_bytes(deploy(network, thresholds, images))
    results = {"thresholds": thresholds, "bytes": scaled.stat().st_size, **judge(scaled, photos, held_back)}
    (output / "results.json").write_text(json.dumps(results, indent=1))
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
