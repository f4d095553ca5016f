"""Replay what an Immich server does with the answers of `familiar serve --immich`: who becomes a person there.

    immich_replay.py PHOTOS [--models person-mobile pet-nano] [--albums cats23 ...] [--cache FOLDER]

Albums are the collections cats23 and dogs29, LFW's DevTest, and all of them as one album. Each photo is posted as
Immich posts it, and `ImmichDouble` stores and groups the faces by the published rules of Immich: its distance, minimum
of faces and nightly run. An individual is recognized if a person has more than half of its photos, and most of that
person's faces are its. Faces beside the individual in a photo count as strangers. At last two individuals at a time.
"""

import argparse
import hashlib
import json
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from clustering import COLLECTIONS, f_scores
from left_out import COLLECTIONS as MAX_PHOTOS

from familiar import Box
from familiar.datasets import DataSpec
from familiar.integrations.immich.service import parse_models
from familiar.web.immich import ImmichSettings, make_immich_app

MIN_FACES, MAX_DISTANCE, MIN_SCORE = 3, 0.5, 0.7  # Immich's defaults
ALBUMS = ("cats23", "dogs29", "lfw")
PAIRS = 100
MACHINE_LEARNING, EXIF = "machine-learning", "exif"  # Immich's sources of faces
SAME_FACE = 0.5  # intersection over union
Ask = Callable[[bytes], Mapping[str, Any]]


@dataclass(eq=False)
class StoredFace:
    """A face in Immich's database.

    Attributes:
        photo: its name.
        box: as a share of the photo's width and height.
        source: whether it was detected, or read from the photo's metadata.
        embedding: None: only read from the metadata so far.
        person: its number; None: nobody.
    """

    photo: str
    box: Box
    source: str
    embedding: np.ndarray | None = None
    person: int | None = None


@dataclass
class ImmichDouble:
    """Stores and groups faces as an Immich server does (its docs: "Facial Recognition", "XMP Sidecars").

    Attributes:
        ask: posts a photo to the machine-learning server, and returns the answer.
        max_distance: "Maximum recognition distance".
        min_faces: "Minimum recognized faces".
        photos: content by name.
        faces: of all photos.
        names: of people, by number.
    """

    ask: Ask
    max_distance: float = MAX_DISTANCE
    min_faces: int = MIN_FACES
    photos: dict[str, bytes] = field(default_factory=dict[str, bytes])
    faces: list[StoredFace] = field(default_factory=list[StoredFace])
    names: dict[int, str] = field(default_factory=dict[int, str])
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _searched: set[str] = field(default_factory=set[str])

    def read_metadata(self, photo: str, regions: Sequence[tuple[str, Box]]) -> None:
        """Take the names of a photo's metadata: a person for each name, however it is capitalized."""
        self.faces = [face for face in self.faces if (face.photo, face.source) != (photo, EXIF)]
        for name, box in regions:
            known = {each.lower(): number for number, each in self.names.items()}
            person = known.get(name.lower()) or next(self._numbers)
            self.names.setdefault(person, name)
            self.faces.append(StoredFace(photo, box, EXIF, None, person))

    def detect(self, job: str) -> None:
        """Run "Face detection": "reset", "refresh" or "missing"."""
        if job == "reset":
            self.faces = [face for face in self.faces if face.source != MACHINE_LEARNING]
            self._forget_empty_people()
        for photo in self.photos:
            if job != "missing" or photo not in self._searched:
                self._detect_in(photo)
        if job == "refresh":
            self._forget_empty_people()

    def _detect_in(self, photo: str) -> None:
        self._searched.add(photo)
        answer = self.ask(self.photos[photo])
        width, height = answer["imageWidth"], answer["imageHeight"]
        stored = [face for face in self.faces if face.photo == photo]
        outdated = [face for face in stored if face.source == MACHINE_LEARNING]
        for each in answer["facial-recognition"]:
            corners = each["boundingBox"]
            box = Box(corners["x1"] / width, corners["y1"] / height, corners["x2"] / width, corners["y2"] / height)
            embedding = np.array(json.loads(each["embedding"]), np.float32)
            match = next((face for face in stored if face.box.intersection_over_union(box) > SAME_FACE), None)
            if match is None:
                self.faces.append(StoredFace(photo, box, MACHINE_LEARNING, embedding))
            elif match in outdated:
                outdated.remove(match)  # a refresh keeps the embedding that it has
            else:
                match.embedding = embedding
        self.faces = [face for face in self.faces if face not in outdated]

    def recognize(self, job: str) -> None:
        """Run "Facial recognition": "reset", or "missing", as every night."""
        if job == "reset":
            for face in self.faces:
                face.person = None if face.source == MACHINE_LEARNING else face.person
            self._forget_empty_people()
        rows = [face for face in self.faces if face.embedding is not None]
        if not rows:
            return
        vectors = np.stack([face.embedding for face in rows if face.embedding is not None])
        waiting = [row for row, face in enumerate(rows) if face.person is None and face.source == MACHINE_LEARNING]
        queue = deque((row, False) for row in waiting)
        while queue:
            row, is_deferred = queue.popleft()
            distances = 1 - vectors @ vectors[row]
            order = np.argsort(distances, kind="stable")
            near = [rows[each] for each in order[: self.min_faces] if distances[each] <= self.max_distance]
            if self.min_faces > 1 and len(near) <= 1:
                continue
            is_core = len(near) >= self.min_faces
            if not is_core and not is_deferred:
                queue.append((row, True))
                continue
            with_person = [each for each in order if rows[each].person is not None][:1]
            near += [rows[each] for each in with_person if distances[each] <= self.max_distance]
            person = next((face.person for face in near if face.person is not None), None)
            if person is None and is_core:
                person = next(self._numbers)
            rows[row].person = person

    def _forget_empty_people(self) -> None:
        present = {face.person for face in self.faces}
        self.names = {person: name for person, name in self.names.items() if person in present}

    def people(self) -> dict[int, list[StoredFace]]:
        """Return the people whom Immich shows, with their faces: those with enough faces or a name."""
        faces: dict[int, list[StoredFace]] = {}
        for face in self.faces:
            if face.person is not None:
                faces.setdefault(face.person, []).append(face)
        return {person: each for person, each in faces.items() if len(each) >= self.min_faces or person in self.names}


class Outcome(NamedTuple):
    """What became of an album: counts of individuals, people and faces, and both F of the faces' people."""

    individuals: int
    recognized: int
    people: int
    pure: int
    f: tuple[float, float]


@contextmanager
def answers(models: Sequence[str], cache: Path | None) -> Iterator[Ask]:
    """Post photos to the server, as Immich does; what was answered before is read from the cache."""
    from starlette.testclient import TestClient

    task = {"detection": {"modelName": "buffalo_l", "options": {"minScore": MIN_SCORE}}}
    entries = json.dumps({"facial-recognition": task | {"recognition": {"modelName": "buffalo_l"}}})
    app = make_immich_app(ImmichSettings(models=parse_models(models)))
    with TestClient(app, base_url="http://127.0.0.1:3003", client=("127.0.0.1", 5000)) as client:

        def ask(photo: bytes) -> Mapping[str, Any]:
            key = hashlib.sha256(photo + " ".join(models).encode()).hexdigest()
            file = None if cache is None else cache / f"{key}.json"
            if file is not None and file.exists():
                return json.loads(file.read_text())
            parts = {"entries": (None, entries), "image": ("blob", photo, "application/octet-stream")}
            answer = client.post("/predict", files=parts).raise_for_status().json()
            if file is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(answer))
            return answer

        yield ask


def read_album(folder: Path, name: str) -> dict[str, tuple[str, bytes]]:
    """Return the individual and the content of each photo."""
    collection = COLLECTIONS[name]
    table = DataSpec((str(folder / collection),), max_photos=MAX_PHOTOS.get(collection)).read()
    photos: dict[str, tuple[str, bytes]] = {}
    for photo, label in zip(table.photos, table.labels, strict=True):
        assert isinstance(photo, Path)
        photos[str(photo)] = f"{name}/{table.names[label]}", photo.read_bytes()
    return photos


def judge(immich: ImmichDouble, individuals: Mapping[str, str]) -> Outcome:
    """Compare the people with the individuals that the photos show."""
    shown = {id(face): each for each, face in shown_faces(immich, individuals)}
    labels = [shown.get(id(face), f"stranger {number}") for number, face in enumerate(immich.faces)]
    people = immich.people()
    clusters = [face.person if face.person in people else -1 - number for number, face in enumerate(immich.faces)]
    photos = Counter(individuals.values())
    countable = {name for name, photos_of in photos.items() if photos_of >= immich.min_faces}
    recognized, pure = set[str](), 0
    for faces in people.values():
        name, right = Counter(shown.get(id(face), "") for face in faces).most_common(1)[0]
        pure += right == len(faces)
        if name in countable and 2 * right > max(len(faces), photos[name]):
            recognized.add(name)
    return Outcome(len(countable), len(recognized), len(people), pure, f_scores(np.array(labels), np.array(clusters)))


def shown_faces(immich: ImmichDouble, individuals: Mapping[str, str]) -> Iterator[tuple[str, StoredFace]]:
    """Return the individual of a photo with its face that is nearest to the middle."""
    nearest: dict[str, StoredFace] = {}
    for face in sorted(immich.faces, key=lambda face: -_from_middle(face.box)):
        nearest[face.photo] = face
    for photo, face in nearest.items():
        yield individuals[photo], face


def _from_middle(box: Box) -> float:
    return abs(box.left + box.right - 1) + abs(box.top + box.bottom - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("--models", nargs="+", default=["person-mobile", "pet-nano"])
    parser.add_argument("--albums", nargs="+", default=[*ALBUMS, "all"])
    parser.add_argument("--pairs", nargs="+", default=["cats23", "dogs29"])
    parser.add_argument("--distances", nargs="+", type=float, default=[0.5, 0.4, 0.35, 0.3, 0.25, 0.2])
    parser.add_argument("--cache", type=Path, help="folder of answers to keep")
    options = parser.parse_args()
    stored = {name: read_album(options.photos_folder, name) for name in ALBUMS}
    albums = stored | {"all": {photo: each for album in stored.values() for photo, each in album.items()}}
    with answers(options.models, options.cache) as ask:
        print("| album | photos | with a face | distance | recognized | people | of one individual | F |")
        print("|---|--:|--:|--:|--:|--:|--:|---|")
        for name in options.albums:
            for distance in options.distances:
                immich, result = replay(albums[name], ask, distance)
                with_face = len({face.photo for face in immich.faces})
                print(
                    f"| {name} | {len(albums[name]):,} | {with_face:,} | {distance:g} | "
                    f"{result.recognized} of {result.individuals} | {result.people} | {result.pure} | "
                    f"{result.f[0]:.3f} / {result.f[1]:.3f} |",
                    flush=True,
                )
        for name in options.pairs:
            individuals = sorted({individual for individual, _ in albums[name].values()})
            rng = random.Random(0)
            pairs = [rng.sample(individuals, 2) for _ in range(PAIRS)]
            for distance in options.distances:
                drawn = ({photo: each for photo, each in albums[name].items() if each[0] in pair} for pair in pairs)
                both = sum(replay(album, ask, distance)[1].recognized == 2 for album in drawn)
                print(f"two of {name}, distance {distance:g}: both recognized in {both} of {PAIRS}", flush=True)


def replay(album: Mapping[str, tuple[str, bytes]], ask: Ask, distance: float) -> tuple[ImmichDouble, Outcome]:
    """Let Immich search an album's photos, and group the faces by day and at night."""
    immich = ImmichDouble(ask, distance, photos={photo: content for photo, (_, content) in album.items()})
    immich.detect("missing")
    immich.recognize("missing")
    immich.recognize("missing")
    return immich, judge(immich, {photo: individual for photo, (individual, _) in album.items()})


if __name__ == "__main__":
    main()
