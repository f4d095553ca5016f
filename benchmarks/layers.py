"""What each layer between an embedding and "the same individual" gains: the table of docs/explanation/clustering.md.

    layers.py PHOTOS PEOPLE_MODEL --cache FOLDER [--output TABLE.json] [--answers 20 100] [--models pet-mobile ...]

Albums are collections that their models have not learned from, in parts with half of the individuals drawn at random;
small albums of 4 to 12 individuals; and collections with one photo of three in five individuals. Each is clustered
with all layers, and with one of them missing, unasked and after answers to the gallery's own questions. A figure is
the mean of pairwise and B-cubed F. What a layer gains is the mean over draws of the difference, with the 95 % interval
for a whole collection: a half varies about as much as the whole does from what there is (delete-half jackknife).
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
from clustering import COLLECTIONS, PEOPLE, Labeled, embed_collection, f_scores, seen_once
from pet_detector.labels import kept_dogs

import familiar.gallery.cluster.cluster as gallery_clustering
import familiar.gallery.same.album as gallery_album
import familiar.neighbors.album as album
import familiar.neighbors.clustering as linkage
from familiar.datasets.folders import open_photo, scan_folders
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from familiar.gallery.enroll.enroll import enroll_embeddings
from familiar.gallery.review.questions import answer_question, propose_questions
from familiar.gallery.same import decisions
from familiar.gallery.same.assignments import UNASSIGNED, load_assignments
from familiar.gallery.same.calibration import calibrate
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.metrics.calibration import uncalibrated

DRAWS, SMALL_DRAWS, ANSWER_DRAWS = 12, 24, 4
SMALL = (4, 12)  # individuals
PER_ROUND = 10
Layer = Callable[[ExitStack], None]


def _replace(stack: ExitStack, module: object, name: str, value: object) -> None:
    stack.enter_context(patch.object(module, name, value))


def no_whitening(stack: ExitStack) -> None:
    def fit(embeddings: np.ndarray) -> album.AlbumWhitening:
        length = embeddings.shape[1]
        return album.AlbumWhitening(np.zeros(length, np.float32), np.eye(length, dtype=np.float32))

    _replace(stack, album.AlbumWhitening, "fit", staticmethod(fit))


def no_album_threshold(stack: ExitStack) -> None:
    for module in (album, gallery_album):
        _replace(stack, module, "measure_album", lambda *_: None)


def no_split(stack: ExitStack) -> None:
    for module in (album, gallery_clustering):
        _replace(stack, module, "split_mixed", lambda _rows, clusters, *_: clusters)


def no_domains(stack: ExitStack) -> None:
    def plain(rows, threshold, _domains=None, _whitened=None, constraints=None, searched=None):
        prepared = linkage.prepare_linkage(rows, constraints=constraints, searched=searched)
        return prepared.clusters_at([threshold])[0], np.zeros(len(rows), np.int64)

    for module in (album, gallery_clustering):
        _replace(stack, module, "cluster_by_domain", plain)


def no_size_penalty(stack: ExitStack) -> None:
    _replace(stack, linkage, "SIZE_PENALTY", 0.0)


def no_learning(stack: ExitStack) -> None:
    _replace(stack, gallery_album, "learn", lambda *_: None)


UNASKED: dict[str, Layer] = {
    "whitening": no_whitening,
    "album's threshold": no_album_threshold,
    "size penalty": no_size_penalty,
    "split of mixed clusters": no_split,
    "out-of-domain groups": no_domains,
}
ANSWERED: dict[str, Layer] = {**UNASKED, "learned from answers": no_learning}


def several(*layers: Layer) -> Layer:
    def without(stack: ExitStack) -> None:
        for layer in layers:
            layer(stack)

    return without


TOGETHER: dict[str, Layer] = {"both": several(no_split, no_domains)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("people_model", type=Path, metavar="PEOPLE_MODEL")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--answers", nargs="*", type=int, default=[])
    options = parser.parse_args()
    done = json.loads(options.output.read_text()) if options.output.exists() else {}
    for model in options.models or ["pet-mobile", "pet-nano", str(options.people_model), "person-nano"]:
        embedder = Embedder(model)
        is_people = embedder.metadata.species_means is None
        for name, draws in albums(embedder, options, is_people=is_people):
            for stage in [0, *options.answers]:
                key = f"{Path(model).stem}|{name}|{stage}"
                if key in done or (stage and name.startswith(("small", "all"))):
                    continue
                done[key] = measure(embedder, draws, stage)
                options.output.write_text(json.dumps(done, indent=1))
                print(key, {layer: [round(each, 3) for each in row] for layer, row in done[key].items()}, flush=True)


def albums(embedder: Embedder, options: argparse.Namespace, *, is_people: bool) -> Iterator[tuple[str, list[Labeled]]]:
    """Yield the albums of a model, each drawn several times. Embeddings are not centered yet."""
    stored = {n: embed_collection(embedder, n, options) for n in COLLECTIONS if (n in PEOPLE) == is_people}
    if not is_people:
        stored["kept dogs"] = embed_kept_dogs(embedder, options)
    for name, rows in stored.items():
        yield name, [part(rows, draw, len(np.unique(rows.identities)) // 2) for draw in range(DRAWS)]
    for name in ("cats23", "dogs29", "kept dogs", "orl", "lfw"):
        if name in stored:
            rows = several_photos(stored[name])
            counts = np.random.default_rng(0).integers(*SMALL, SMALL_DRAWS, endpoint=True).tolist()
            yield f"small {name}", [part(rows, draw, count) for draw, count in enumerate(counts)]
            yield f"once {name}", [seen_once(stored[name], draw) for draw in range(DRAWS)]
    if not is_people:
        pooled = [stored[name] for name in ("cats23", "dogs29", "pandas31", "lions94", "cows82")]
        merged = Labeled(*(np.concatenate(each) for each in zip(*pooled, strict=True)))
        yield "all species", [part(merged, draw, len(np.unique(merged.identities)) // 2) for draw in range(6)]


def embed_kept_dogs(embedder: Embedder, options: argparse.Namespace) -> Labeled:
    file = options.cache / f"{embedder.bundle.file_id}-kept.npz"
    if not file.exists():
        table = scan_folders(options.photos_folder / "dogfacenet900")
        chosen = kept_dogs()
        table = table.select_identities([name for name in table.names if name.split("/")[-1] in chosen])
        result = embed_photos(embedder, table.photos, "none", open_photo=open_photo)
        np.savez(file, embeddings=result.embeddings, identities=np.array(table.names)[table.labels[result.rows]])
    stored = np.load(file)
    return Labeled(stored["embeddings"], stored["identities"])


def several_photos(rows: Labeled) -> Labeled:
    """Leave out individuals with fewer than four photos."""
    names, counts = np.unique(rows.identities, return_counts=True)
    kept_rows = np.isin(rows.identities, names[counts > 3])
    return Labeled(rows.embeddings[kept_rows], rows.identities[kept_rows])


def part(rows: Labeled, draw: int, count: int) -> Labeled:
    """Draw individuals, with all of their photos."""
    names = np.unique(rows.identities)
    chosen = np.random.default_rng((1, draw)).permutation(names)[:count]
    kept_rows = np.isin(rows.identities, chosen)
    return Labeled(rows.embeddings[kept_rows], rows.identities[kept_rows])


def measure(embedder: Embedder, draws: Sequence[Labeled], answers: int) -> dict[str, list[float]]:
    """Return the F of each draw with all layers, and without each of them."""
    space = Space.from_metadata(embedder.metadata)
    draws = draws[: ANSWER_DRAWS if answers else None]
    layers = ANSWERED if answers else UNASKED | TOGETHER
    without: dict[str, list[float]] = {"all layers": [score(space, rows, answers) for rows in draws]}
    for layer, leave_out in layers.items():
        with ExitStack() as stack:
            leave_out(stack)
            without[layer] = [score(space, rows, answers) for rows in draws]
    if space.species_means is not None and not answers:
        bare = replace(space, species_means=None)
        without["species' mean"] = [score(bare, rows, answers) for rows in draws]
    if answers:
        without["+ user's calibration"] = [score(space, rows, answers, calibrated=True) for rows in draws]
        foreign = replace(space, calibration=uncalibrated(), species_means=None, prefix_calibrations={})
        without["not calibrated"] = [score(foreign, rows, answers) for rows in draws]
        with ExitStack() as stack:
            _replace(stack, decisions, "calibrate_if_due", lambda *_: None)
            without["automatic calibration"] = [score(foreign, rows, answers) for rows in draws]
    return without


def score(space: Space, rows: Labeled, answers: int, *, calibrated: bool = False) -> float:
    labels = np.unique(rows.identities, return_inverse=True)[1]
    with tempfile.TemporaryDirectory() as folder, Store.create(Path(folder, "gallery"), space) as store:
        names = [f"{row}.jpg" for row in range(len(labels))]
        faces = np.array(enroll_embeddings(store, rows.embeddings, names, space.space_id))
        truth = dict(zip(faces.tolist(), labels.tolist(), strict=True))
        gallery_clustering.cluster(store)
        for _ in range(answers // PER_ROUND):
            for question in propose_questions(store, PER_ROUND):
                answer_question(store, question, truth[question.first_face] == truth[question.second_face])
        if calibrated:
            with suppress(Exception):
                calibrate(store)
        if answers:
            gallery_clustering.cluster(store, rebuild=True)
        identity = load_assignments(store).identity
    groups = np.where(identity == UNASSIGNED, -1 - np.arange(len(identity)), identity)
    return float(np.mean(f_scores(rows.identities, groups)))


def interval(differences: Sequence[float], *, whole: bool) -> tuple[float, float]:
    """Return the mean difference, and half of its 95 % interval."""
    values = np.array(differences)
    spread = 1.96 * float(values.std(ddof=1))
    return float(values.mean()), spread if whole else spread / len(values) ** 0.5


if __name__ == "__main__":
    main()
