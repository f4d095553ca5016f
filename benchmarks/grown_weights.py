"""Initial weights for a larger network from a trained smaller one: its layers where they fit, ImageNet's elsewhere.

    grown_weights.py RUN IMAGENET PHOTOS --network mobilenetv3_small_fine --output grown.safetensors
    familiar train ... --recipe person-mobile --set model.initial_weights=grown.safetensors \\
        --set input.normalization=symmetric

(Weights from a file do not tell what images they expect; Keras's are from -1 to 1.)

RUN is of `nano_mobile`, the first half of MobileNetV3-Small; IMAGENET are the weights that its training began with, as
a file; PHOTOS are crops, for the statistics of ImageNet's batch norms.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from familiar import find_photos, load_photo
from familiar.models.catalog import network_spec
from familiar.models.weights import load_weights_file, read_tensors, reinflate_batch_norm

STATISTICS_PHOTOS, BATCH_SIZE = 384, 64
TRUNK = "network.trunk."
BACKBONE = "backbone."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("imagenet", type=Path)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--network", required=True)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    trunk = network_spec(args.network).build(112, 128, 0.0).trunk
    load_weights_file(trunk, args.imagenet)
    reinflate_batch_norm(trunk, images_of(args.photos))
    state = trunk.state_dict()
    trained = {key.removeprefix(TRUNK): value for key, value in read_tensors(args.run / "embedder.safetensors").items()}
    fitting = {key: value for key, value in trained.items() if key in state and state[key].shape == value.shape}
    state.update(fitting)
    save_file({key.removeprefix(BACKBONE): value.contiguous() for key, value in state.items()}, args.output)
    print(f"{len(fitting)} of {len(state)} tensors are the run's")


def images_of(folder: Path) -> list[torch.Tensor]:
    """Return batches of photos as a network with Keras's weights takes them: from -1 to 1."""
    paths = find_photos(folder)
    rows = np.random.default_rng(0).permutation(len(paths))[:STATISTICS_PHOTOS]
    crops = np.stack([load_photo(paths[row]).rgb_u8 for row in rows])
    images = torch.from_numpy(crops).permute(0, 3, 1, 2).float() / 127.5 - 1
    return list(images.split(BATCH_SIZE))


if __name__ == "__main__":
    main()
