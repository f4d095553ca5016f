"""Judge a detector of heads on every bound that it has to keep, and print each with its bound.

    head_bounds.py PHOTOS [--network HEADS.ONNX] [--sface SFACE.ONNX] [--identities]

Recall is that of photos that were held back; the thresholds were chosen by false detections in those of other animals
among them. Faces of people are found without YuNet. With --sface it also measures how well that network (`familiar
download sface`) recognizes the faces that are found, and with --identities how well the package's models recognize
cats and dogs: ROC AUC / recall@1.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import cv2
import numpy as np
import onnxruntime as ort
from heads_and_identities import PETS, cells, first, whole
from left_out import read_row
from pet_detector.judging import Findings, find, from_source, people_photos, pets_in, to_gray, turned_by_exif
from pet_detector.labels import Head, LabeledPhoto, head_of_tight, is_held_back, kept_dogs, other_animals
from pet_detector.scenes import quarter_turned
from pet_detector.teachers import overlap

from familiar import Detector, Embedder, Face, Photo, align, find_photos, load_photo
from familiar.datasets import read_lfw_pairs, scan_folders
from familiar.datasets.folders import open_photo
from familiar.detection import HeadDetector, PetsAndPeople
from familiar.detection.heads import LABELS, NETWORK_FILE
from familiar.photos.preprocessing import Preprocessing

SMALL = 1 / 5  # longer side of a head, in long sides of the photo
CUT = 0.1  # of each side of a tight face
# Width and height of a photo, and the longer side of the head in it.
LARGE = {"30,000 x 2,000": (30_000, 2_000, 1_500), "6,000 x 4,000": (6_000, 4_000, 200)}
LARGE_PHOTOS, TIMED_PHOTOS = 25, 75
MARGIN = 0.3  # of the package's models for pets
FACE_PX, FACE_TEMPLATE = 112, Preprocessing(size_px=112)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("--network", type=Path, default=NETWORK_FILE)
    parser.add_argument("--sface", type=Path)
    parser.add_argument("--identities", action="store_true")
    options = parser.parse_args()
    photos_folder, network = options.photos_folder, options.network
    held_back = held_back_photos(photos_folder)
    pets = HeadDetector(network=network)
    say("bytes of the file", f"{network.stat().st_size:,}", "at most 2,000,000")
    judge_held_back(pets, photos_folder, held_back)
    judge_crops(pets, photos_folder)
    judge_large(pets, photos_folder, [photo for photo in held_back if pets_in(photo) == 1])
    judge_speed(pets, photos_folder, held_back)
    if options.sface:
        judge_people(people_detector(network), photos_folder, options.sface)
    if options.identities:
        judge_identities(pets, photos_folder)


def held_back_photos(photos_folder: Path) -> list[LabeledPhoto]:
    """Return the photos that were not learned from: pets with boxes drawn by hand, and other animals."""
    photos = [photo for photo in other_animals(photos_folder) if photo.held_back]
    for row in json.loads((photos_folder / "pet_heads" / "heads.json").read_text()):
        file, is_tight = f"pet_heads/{row['file']}", row["kind"] == "face_tight"
        if is_held_back(file):
            boxes = [
                (head_of_tight(box) if is_tight else box, box if is_tight else None) for box in row["boxes_xyxy_px"]
            ]
            heads = [Head(row["species"], box, None, tight_box) for box, tight_box in boxes]
            photos.append(LabeledPhoto(file, row["file"].split("/")[0], True, heads))
    return photos


def say(what: str, value: str, bound: str) -> None:
    """Print a line of the table."""
    print(f"| {what} | {value} | {bound} |", flush=True)


def judge_held_back(detector: HeadDetector, photos_folder: Path, held_back: Sequence[LabeledPhoto]) -> None:
    """Judge recall and false detections on photos that were not learned from."""
    pets, animals = [photo for photo in held_back if photo.heads], from_source(held_back, "other_animals")
    look: Callable[..., Findings] = partial(find, detector, photos_folder)
    as_they_are = look(pets)
    say("cats, Oxford", as_they_are.recall("cat", "oxford"), "at least .965")
    say("cats, Dogs-vs-Cats", as_they_are.recall("cat", "dogsvscats"), "")
    say("all cats", as_they_are.recall("cat"), "")
    say("dogs", as_they_are.recall("dog"), "at least .965")
    say("false detections a photo of other animals", f"{look(animals).false_share():.3f}", "at most .05")
    people = look(people_photos(photos_folder))
    say("false detections a photo of people", f"{people.false_share():.3f}", "at most .05")
    say("small heads", as_they_are.recall(side=(0, SMALL)), "at least .92")
    say("two or more in one photo", look([photo for photo in pets if pets_in(photo) > 1]).recall(), "at least .818")
    say("gray", look(pets, change=to_gray).recall(), "at least .940")
    say("turned by EXIF", look(pets, change=turned_by_exif).recall(), "at least .948")
    sides = [on_their_side(detector, photos_folder, pets, turns) for turns in (1, 3)]
    for name, label in (("all", None), ("cats", "cat"), ("dogs", "dog")):
        recalls = [share_found(side, label) for side in sides]
        upright = share_found(as_they_are, label)
        say(
            f"on their side without EXIF, in shares of upright: {name}",
            f"{np.mean(recalls) / upright:.3f}",
            "at least .9",
        )


def share_found(findings: Findings, label: str | None = None) -> float:
    """Return the share of heads that are found."""
    return float(np.mean([score >= 0.5 for its, _, _, score, _ in findings.heads if label in (None, its)]))


def on_their_side(detector: HeadDetector, photos_folder: Path, photos: Iterable[LabeledPhoto], turns: int) -> Findings:
    """Look for heads in photos that are turned counterclockwise by right angles, which no EXIF data say."""
    findings = Findings()
    with tempfile.TemporaryDirectory() as folder:
        for labeled in photos:
            turned, pixels = quarter_turned(labeled, load_photo(photos_folder / labeled.file).rgb_u8, turns)
            cv2.imwrite(f"{folder}/turned.png", pixels[..., ::-1])
            turned.file = "turned.png"
            findings.heads += find(detector, Path(folder), [turned]).heads
    return findings


def judge_crops(detector: HeadDetector, photos_folder: Path) -> None:
    """Judge photos that a face fills: dogs are found, people are no pets."""
    held_back = kept_dogs()
    dogs = [path for path in find_photos(photos_folder / "dogfacenet900") if path.parent.name in held_back]
    labels_of_dogs = [[face.label for face in detector.detect(load_photo(path))] for path in dogs]
    say(
        "kept dogs that are found",
        f"{np.mean([bool(labels) for labels in labels_of_dogs]):.4f} of {len(dogs)}",
        "at least .995",
    )
    as_dogs = np.mean([labels[0] == "dog" for labels in labels_of_dogs if labels])
    say("of these, as dogs", f"{as_dogs:.4f}", "")
    table = scan_folders(photos_folder / "lfw_photos_devtest")
    faces = [photos_folder / "lfw_112" / Path(str(path)).parent.name / Path(str(path)).name for path in table.photos]
    for name, share in (("as they are", 0.0), (f"less {CUT:.0%} at each side", CUT)):
        called = [bool(detector.detect(inner(load_photo(path), share))) for path in faces]
        say(f"people's tight faces called pets, {name}", f"{np.mean(called):.4f} of {len(faces)}", "at most .005")


def inner(photo: Photo, share: float) -> Photo:
    """Cut a share of its sides from each edge of a photo."""
    width, height = photo.size_px
    x, y = round(share * width), round(share * height)
    pixels = np.ascontiguousarray(photo.rgb_u8[y : height - y, x : width - x])
    return Photo(pixels, photo.source, (width - 2 * x, height - 2 * y))


def judge_large(detector: HeadDetector, photos_folder: Path, photos: Sequence[LabeledPhoto]) -> None:
    """Judge heads that are small because the photo is large: those of other photos, laid on a large one."""
    for name, (width, height, side_px) in LARGE.items():
        hits: list[bool] = []
        seconds: list[float] = []
        for number, labeled in enumerate(photos[:LARGE_PHOTOS]):
            photo, box = laid_on_large(
                labeled, load_photo(photos_folder / labeled.file), (width, height), side_px, number
            )
            started = time.perf_counter()
            heads = detector.detect(photo)
            seconds.append(time.perf_counter() - started)
            hits.append(any(overlap(head.box_xyxy_px, box) >= 0.5 for head in heads))
        what = f"a head of {side_px:,} px in {name}"
        say(what, f"{sum(hits)} of {len(hits)}, {1000 * median(seconds):.0f} ms", "found, at most twice the time")


def laid_on_large(
    labeled: LabeledPhoto, photo: Photo, size: tuple[int, int], side_px: int, seed: int
) -> tuple[Photo, tuple[float, ...]]:
    """Lay a photo, scaled so that its pet's head has a side of `side_px`, on a large one without contours."""
    rng = np.random.default_rng(seed)
    (box,) = (np.array(head.box) for head in labeled.heads if head.label != "person")
    scale = side_px / max(box[2] - box[0], box[3] - box[1])
    pixels = cv2.resize(photo.rgb_u8, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
    box = box * scale
    # A part of the photo that fits, with the head in it.
    low = np.maximum(0, np.ceil(box[2:] - size).astype(int))
    starts = [
        int(rng.integers(lowest, max(lowest, int(corner)) + 1)) for lowest, corner in zip(low, box[:2], strict=True)
    ]
    if pixels.shape[1] <= size[0]:
        starts[0] = 0
    if pixels.shape[0] <= size[1]:
        starts[1] = 0
    pixels = pixels[starts[1] : starts[1] + size[1], starts[0] : starts[0] + size[0]]
    box = box - np.tile(starts, 2)
    colors = rng.uniform(90, 180, (3, 4, 3)).astype(np.float32)
    canvas = cv2.resize(colors, size, interpolation=cv2.INTER_LINEAR).astype(np.uint8)
    height, width = pixels.shape[:2]
    x, y = int(rng.integers(0, size[0] - width + 1)), int(rng.integers(0, size[1] - height + 1))
    canvas[y : y + height, x : x + width] = pixels
    return Photo(canvas, photo.source, size), tuple(box + np.tile([x, y], 2))


def judge_speed(detector: HeadDetector, photos_folder: Path, held_back: Sequence[LabeledPhoto]) -> None:
    """Measure the time of a photo, reading it not counted; one core, if OMP_NUM_THREADS says so."""
    seconds: list[float] = []
    for labeled in [photo for photo in held_back if photo.heads][:TIMED_PHOTOS]:
        photo = load_photo(photos_folder / labeled.file)
        started = time.process_time()
        detector.detect(photo)
        seconds.append(time.process_time() - started)
    say("ms of a core, a photo", f"{1000 * median(seconds):.1f}", "at most 15")


def people_detector(network: Path) -> Detector:
    """Return `auto` without YuNet."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FAMILIAR_MODELS"] = folder
        detector = PetsAndPeople()
    detector._heads = HeadDetector(LABELS, network=network)
    return detector


def judge_people(detector: Detector, photos_folder: Path, sface: Path) -> None:
    """Measure how well SFace recognizes the faces that are found; a pair with a face that is not is wrong."""
    table = scan_folders(photos_folder / "lfw_photos_devtest")
    pairs = read_lfw_pairs(photos_folder / "lfw_112" / "pairsDevTest.txt", table)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(sface, options)
    name = session.get_inputs()[0].name
    embeddings = np.full((len(table), 128), np.nan, np.float32)
    for row, path in enumerate(table.photos):
        photo = load_photo(Path(str(path)))
        face = next((each for each in detector.detect(photo) if each.label == "person"), None)
        if face is not None:
            pixels = align(photo, face, FACE_TEMPLATE).rgb_u8
            embeddings[row] = np.asarray(
                session.run(None, {name: pixels.transpose(2, 0, 1)[None].astype(np.float32)})[0]
            )
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    similarities = (embeddings[pairs.left] * embeddings[pairs.right]).sum(1)
    known = ~np.isnan(similarities)
    scores, same = similarities[known], pairs.same[known]
    best = max(((scores >= threshold) == same).sum() for threshold in scores) / len(similarities)
    faces = int((~np.isnan(embeddings[:, 0])).sum())
    say("SFace on people found by auto", f"{best:.3f}, {faces} of {len(table)} found", "at least .987")


def judge_identities(detector: HeadDetector, photos_folder: Path) -> None:
    """Measure how well pets are recognized by the heads that are found, as `heads_and_identities.py` does."""
    tables = {name: read_row(photos_folder, name) for name in PETS}
    photos = {name: [open_photo(photo) for photo in table.photos] for name, table in tables.items()}
    heads: dict[str, list[Face | None]] = {
        name: [first(detector, photo) for photo in each] for name, each in photos.items()
    }
    for model in ("pet-mobile", "pet-nano"):
        row = cells(Embedder(model), tables, photos, heads, whole, MARGIN)
        say(f"{model}: " + " | ".join(PETS), row, "not below before")


if __name__ == "__main__":
    main()
