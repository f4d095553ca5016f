"""Compare recognition of people, from JPEG files to vectors and groups, with DeepFace and face_recognition.

    people.py PHOTOS [PEER_ENVIRONMENT] --networks sface.onnx person-mobile [--detector yunet] [--rounds 5] [--photos N]

PHOTOS contains `lfw_photos_devtest` and `lfw_112` with LFW's protocol files. PEER_ENVIRONMENT is a virtual environment
with deepface and face_recognition; without it, only ours are measured. The photos are divided among the rounds; in each
round, all take the same photos, by turns. A ratio is the median over the rounds. "Bare" is the time of the two networks
alone: the detector on decoded photos, and the network on ready crops, each in the faster of two ways in that round: by
the threads of its own library (ONNX Runtime on batches of 32), or in one thread per core.

DeepFace runs YuNet and SFace from the same two files. Accuracy is that of the 1,000 pairs of `pairsDevTest`; a pair
with a photo in which no face was found counts as wrong. A bundle that was never calibrated is calibrated on LFW's
`peopleDevTrain`, other people than these.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import median

import cv2
import numpy as np
import onnxruntime as ort
from clustering import noise_as_singletons
from peers.process import PACKAGES, Peers, running_peers
from sklearn.cluster import DBSCAN

from familiar import Detector, Embedder, Gallery, build_detector, embed_photos, load_photo, metrics
from familiar.conversion import calibrate_bundle
from familiar.core.cpu import available_cores
from familiar.core.errors import NoFaceFound
from familiar.core.gallery_types import GalleryFace
from familiar.core.published_files import published_path
from familiar.core.vectors import normalize
from familiar.datasets import DataSpec, IdentityTable, read_lfw_pairs, scan_folders
from familiar.datasets.folders import read_identity_list
from familiar.embedding.bundle import resolve_model
from familiar.gallery.search.listing import photos as gallery_photos
from familiar.metrics import Pairs

DEEPFACE_SFACE_DISTANCE = 0.593  # cosine distance: deepface/config/threshold.py, 0.0.103
DLIB_DISTANCE = 0.6  # Euclidean: dlib's face_recognition_model_v1, and face_recognition's `tolerance`
BATCH_SIZE = 32
CALIBRATION_PHOTOS = 5  # per person
WARM_UP = 8  # photos
LIBRARIES = ("deepface", "face_recognition")

Job = Callable[[Sequence[Path]], tuple[float, np.ndarray | None]]  # seconds; vectors, NaN where no face was found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("peer_environment", type=Path, nargs="?", metavar="PEER_ENVIRONMENT")
    parser.add_argument("--networks", nargs="+", required=True)
    parser.add_argument("--detector", default="yunet", help="of our networks")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--photos", type=int, help="only this many")
    parser.add_argument("--yunet", type=Path, default=published_path("yunet"))
    parser.add_argument("--sface", type=Path, default=published_path("sface"))
    options = parser.parse_args()
    table = scan_folders(options.photos_folder / "lfw_photos_devtest")
    pairs = read_lfw_pairs(options.photos_folder / "lfw_112" / "pairsDevTest.txt", table)
    photos = [Path(str(photo)) for photo in table.photos][: options.photos]
    detector = build_detector(options.detector, options.yunet if options.detector == "yunet" else None)
    with (
        tempfile.TemporaryDirectory() as folder,
        running_peers(options.peer_environment, options.yunet, options.sface)
        if options.peer_environment
        else nullcontext() as peers,
    ):
        embedders = {name: calibrated(name, options.photos_folder, Path(folder)) for name in options.networks}
        jobs: dict[str, Job] = {name: ours(embedder, detector) for name, embedder in embedders.items()}
        jobs |= {f"{name}, bare": bare(embedder, detector, options.yunet) for name, embedder in embedders.items()}
        if peers:
            jobs |= {library: partial(peers.embed, library) for library in LIBRARIES}
            versions = peers.ask("versions", packages=PACKAGES)
            print(", ".join(f"{name} {version}" for name, version in versions.items()))
        print(f"here: onnxruntime {ort.__version__}, OpenCV {cv2.__version__}, {available_cores()} cores\n")
        speeds, vectors = alternate(jobs, photos, options.rounds)
        print_speeds(speeds, embedders)
        print_accuracy(vectors, embedders, pairs, len(photos))
        print_clusters(vectors, embedders, detector, table, photos, peers, Path(folder))


def calibrated(model: str, data: Path, folder: Path) -> Embedder:
    """Open a bundle; if it was never calibrated, calibrate a copy on the people of DevTrain."""
    embedder = Embedder(model)
    if embedder.metadata.calibration.fitted:
        return embedder
    copy = folder / f"{len(list(folder.iterdir()))}.onnx"
    shutil.copy(resolve_model(model), copy)
    people = tuple(sorted(read_identity_list(data / "lfw_112" / "peopleDevTrain.txt")))
    spec = DataSpec((str(data / "lfw_112"),), people, max_photos=CALIBRATION_PHOTOS)
    bundle = calibrate_bundle(Embedder(copy).bundle, spec)
    print(f"{model}: calibrated on {bundle.metadata.calibration.pairs_same} pairs of peopleDevTrain")
    return Embedder(bundle)


# --- Speed ---------------------------------------------------------------------------------------------------------


def ours(embedder: Embedder, detector: Detector) -> Job:
    def run(photos: Sequence[Path]) -> tuple[float, np.ndarray]:
        started = time.perf_counter()
        result = embed_photos(embedder, photos, detector)
        seconds = time.perf_counter() - started
        vectors = np.full((len(photos), embedder.metadata.embedding_dim), np.nan, np.float32)
        vectors[result.rows] = result.embeddings
        return seconds, vectors

    return run


def bare(embedder: Embedder, detector: Detector, yunet: Path) -> Job:
    """Run the two networks alone; what is prepared for them takes no time."""

    def run(photos: Sequence[Path]) -> tuple[float, None]:
        decoded = [load_photo(photo) for photo in photos]
        crops: list[np.ndarray] = []
        for photo in photos:
            try:
                face = embedder.detect_faces(photo, detector, choice="best").faces[0]
            except NoFaceFound:
                continue
            crops.append(face.crop.rgb_u8)
        pixels = np.stack(crops)
        images = [np.ascontiguousarray(photo.rgb_u8[..., ::-1]) for photo in decoded]
        ways = (1, available_cores())
        detection = min(detection_seconds(yunet, images, threads) for threads in ways)
        return detection + min(network_seconds(embedder, pixels, threads) for threads in ways), None

    return run


def detection_seconds(yunet: Path, images: Sequence[np.ndarray], threads: int) -> float:
    """Detect with one detector in each of several threads of ours."""
    networks = [cv2.FaceDetectorYN.create(str(yunet), "", (64, 64), 0.6) for _ in range(threads)]

    def detect(first: int) -> None:
        for image in images[first::threads]:
            networks[first].setInputSize(image.shape[1::-1])
            networks[first].detect(image)

    with ThreadPoolExecutor(threads) as pool:
        started = time.perf_counter()
        list(pool.map(detect, range(threads)))
        return time.perf_counter() - started


def network_seconds(embedder: Embedder, pixels: np.ndarray, threads: int) -> float:
    """Run the network in one thread of ours, which uses all cores, or in several, which use one core each."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1 if threads > 1 else 0
    session = ort.InferenceSession(embedder.bundle.onnx, options, providers=["CPUExecutionProvider"])
    size = BATCH_SIZE // threads
    starts = range(0, len(pixels), size)

    def compute(start: int) -> None:
        session.run(None, {session.get_inputs()[0].name: pixels[start : start + size]})

    compute(0)  # the first run reserves memory
    with ThreadPoolExecutor(threads) as pool:
        started = time.perf_counter()
        list(pool.map(compute, starts))
        return time.perf_counter() - started


def alternate(
    jobs: dict[str, Job], photos: Sequence[Path], rounds: int
) -> tuple[dict[str, list[float]], dict[str, np.ndarray]]:
    """Return photos a second of each job in each round, and its vectors of all photos."""
    for job in jobs.values():
        job(photos[:WARM_UP])
    speeds: dict[str, list[float]] = {name: [] for name in jobs}
    vectors: dict[str, np.ndarray] = {}
    names = list(jobs)
    for turn in range(rounds):
        rows = list(range(turn, len(photos), rounds))
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            seconds, part = jobs[name]([photos[row] for row in rows])
            speeds[name].append(len(rows) / seconds)
            if part is not None:
                vectors.setdefault(name, np.full((len(photos), part.shape[1]), np.nan))[rows] = part
    return speeds, vectors


def print_speeds(speeds: dict[str, list[float]], embedders: dict[str, Embedder]) -> None:
    print("| | photos/s | of bare | times deepface | times face_recognition |\n|---|---|---|---|---|")
    for name, rates in speeds.items():
        others = [f"{name}, bare" if name in embedders else "", *LIBRARIES]
        cells = [ratio(rates, speeds[other]) if other in speeds else "-" for other in others]
        print(f"| {name} | {median(rates):.1f} | {' | '.join(cells)} |")
    print(flush=True)


def ratio(rates: Sequence[float], others: Sequence[float]) -> str:
    ratios = sorted(rate / other for rate, other in zip(rates, others, strict=True))
    return f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


# --- Accuracy ------------------------------------------------------------------------------------------------------


def print_accuracy(vectors: dict[str, np.ndarray], embedders: dict[str, Embedder], pairs: Pairs, photos: int) -> None:
    inside = (pairs.left < photos) & (pairs.right < photos)
    left, right, same = pairs.left[inside], pairs.right[inside], pairs.same[inside]
    print("| | faces found | pairs with both | ROC AUC | best accuracy | accuracy at its own threshold |")
    print("|---|---|---|---|---|---|")
    for name, rows in vectors.items():
        has_face = ~np.isnan(rows[:, 0])
        both = has_face[left] & has_face[right]
        scores = similarities(name, rows[left[both]], rows[right[both]])
        counts = metrics.roc_counts(scores[same[both]], scores[~same[both]])
        threshold = own_threshold(name, embedders)
        best, at_threshold = (
            accuracy * both.mean()
            for accuracy in (metrics.best_accuracy(counts)[0], metrics.accuracy_at(counts, threshold))
        )
        print(
            f"| {name} | {has_face.sum()} of {photos} | {both.sum()} of {len(both)} | {metrics.roc_auc(counts):.4f} "
            f"| {best:.3f} | {at_threshold:.3f} |"
        )
    print(flush=True)


def similarities(name: str, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Compute cosines, or for dlib's vectors, which are no unit vectors, negative distances."""
    if name == "face_recognition":
        return -np.linalg.norm(left - right, axis=1)
    return (normalize(left) * normalize(right)).sum(axis=1)


def own_threshold(name: str, embedders: dict[str, Embedder]) -> float:
    """Return the balanced threshold of a bundle, or what the library publishes."""
    if name in embedders:
        return embedders[name].metadata.calibration.balanced.similarity
    return -DLIB_DISTANCE if name == "face_recognition" else 1 - DEEPFACE_SFACE_DISTANCE


# --- Groups --------------------------------------------------------------------------------------------------------


def print_clusters(
    vectors: dict[str, np.ndarray],
    embedders: dict[str, Embedder],
    detector: Detector,
    table: IdentityTable,
    photos: Sequence[Path],
    peers: Peers | None,
    folder: Path,
) -> None:
    labels = table.labels[: len(photos)]
    print("| | pairwise P / R / F | B-cubed P / R / F | groups of two and more |\n|---|---|---|---|")
    groups = {
        f"{name}, gallery": gallery_clusters(folder / f"gallery {number}", embedder, detector, photos)
        for number, (name, embedder) in enumerate(embedders.items())
    }
    if peers:
        for minimum in (2, 3):
            clusters = dbscan(vectors["deepface"], minimum)
            groups[f"deepface, DBSCAN {DEEPFACE_SFACE_DISTANCE}, {minimum} photos at least"] = clusters
        has_face = ~np.isnan(vectors["face_recognition"][:, 0])
        whispered = peers.chinese_whispers(vectors["face_recognition"][has_face], DLIB_DISTANCE)
        groups[f"face_recognition, Chinese whispers {DLIB_DISTANCE}"] = singletons_elsewhere(has_face, whispered)
    for name, clusters in groups.items():
        pairwise, bcubed = metrics.pairwise(labels, clusters), metrics.bcubed(labels, clusters)
        cells = (f"{part.precision or 0:.3f} / {part.recall:.3f} / {part.f:.3f}" for part in (pairwise, bcubed))
        print(f"| {name} | {' | '.join(cells)} | {(np.bincount(clusters) > 1).sum()} |")


def gallery_clusters(
    folder: Path, models: Embedder | Sequence[str] | None, detector: Detector | None, photos: Sequence[Path]
) -> np.ndarray:
    """Cluster by the gallery's default settings; each photo counts with its best face."""
    with Gallery.create(folder) if models is None else Gallery.create(folder, models) as gallery:
        gallery.enroll(photos, detector)
        gallery.cluster()
        listed = gallery_photos(gallery.store, limit=len(photos))
    best = {Path(photo.path): max(photo.faces, key=score_x_area).identity for photo in listed if photo.faces}
    identities = np.array([best.get(photo.resolve()) or -1 for photo in photos])
    return singletons_elsewhere(identities >= 0, identities[identities >= 0])


def score_x_area(face: GalleryFace) -> float:
    left, top, right, bottom = face.box_xyxy_px
    return face.score * (right - left) * (bottom - top)


def dbscan(vectors: np.ndarray, minimum: int) -> np.ndarray:
    has_face = ~np.isnan(vectors[:, 0])
    model = DBSCAN(eps=DEEPFACE_SFACE_DISTANCE, min_samples=minimum, metric="cosine")
    return singletons_elsewhere(has_face, noise_as_singletons(model.fit_predict(vectors[has_face])))


def singletons_elsewhere(has_face: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Give every photo without a face a group of its own."""
    groups = np.empty(len(has_face), np.int64)
    groups[has_face] = clusters
    groups[~has_face] = clusters.max(initial=0) + 1 + np.arange((~has_face).sum())
    return groups


if __name__ == "__main__":
    main()
