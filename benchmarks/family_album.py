"""Group the album of a family, pets and people, and count the actions until it is right.

    family_album.py PHOTOS [--people-models person-mobile person-nano sface.onnx] [--pet-model pet-mobile] [--seed 0]

PHOTOS contains the collections. The album has 20 people of LFW's DevTest with at least five photos, whole ones, five
cats and five dogs, at most ten photos each: drawn by the seed. The detector `auto` finds faces and heads, and its label
chooses the bundle of each; first with no model named, as the commands do it. All is clustered with default settings. A
photo counts with its best face; one in which nothing was found is a group of its own. A bundle that was never
calibrated is calibrated on `peopleDevTrain`.

Then a user who knows everybody answers what the page of questions asks, by the same methods of the gallery as the
pages, until every individual has a name and B-cubed F is .97. An action is one form that is sent: a batch with its name
and ticks, a question, a name for faces that were selected among the unassigned ones; two, where a name is taken and the
page asks whether both are the same. Ticks are counted apart: faces that are ticked or unticked. The first action also
measures the album, as the first page does after a server has started. Other faces than a photo's best one, such as
those of passers-by, show an individual of their own, who gets no name.
"""

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import numpy as np
from people import calibrated, gallery_clusters, score_x_area

from familiar import Embedder, Gallery, build_detector, metrics
from familiar.datasets import IdentityTable, scan_folders
from familiar.gallery import Batch, Question

PEOPLE, MIN_PHOTOS = 20, 5
PETS, MAX_PHOTOS = 5, 10  # of each species; photos of an individual
FOLDERS = {"cat": "cats23_gpriamo", "dog": "dogs29_stdove", "person": "lfw_photos_devtest"}
RIGHT = 0.97  # B-cubed F of an album that is right
MAX_ACTIONS = 200
MIN_GAIN = 0.6  # of a question that matters
LOOKED_AT = 4  # best faces of an individual, which the page shows beside the others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("--people-models", nargs="+", default=["person-mobile", "person-nano"])
    parser.add_argument("--pet-model", default="pet-mobile")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    photos_folder = options.photos_folder
    album = draw_album(photos_folder, options.seed)
    photos = [Path(str(photo)) for table in album.values() for photo in table.photos]
    names = [f"{species}/{table.names[label]}" for species, table in album.items() for label in table.labels]
    labels = np.unique(names, return_inverse=True)[1]
    species = np.array([name.partition("/")[0] for name in names])
    counts = ", ".join(f"{len(table.names)} of {species}, {len(table)} photos" for species, table in album.items())
    print(f"Individuals of the album, seed {options.seed}: {counts}\n")
    pets = Embedder(options.pet_model)
    reviews: list[str] = []
    print("| people by | all | cats | dogs | people | people, pairwise | groups of people / true |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for number, model in enumerate(["no model named", *options.people_models]):
            models, detector = None, None
            if number:
                people = calibrated(model, photos_folder, Path(folder))
                models = Embedder({"cat": pets.bundle, "dog": pets.bundle, "person": people.bundle})
                detector = build_detector("auto")
            gallery = Path(folder, f"gallery {number}")
            groups = gallery_clusters(gallery, models, detector, photos)
            rows = [np.arange(len(photos)), *(np.flatnonzero(species == each) for each in FOLDERS)]
            figures = [f"{metrics.bcubed(labels[each], groups[each]).f:.3f}" for each in rows]
            pairwise = metrics.pairwise(labels[rows[-1]], groups[rows[-1]]).f
            sizes = f"{len(np.unique(groups[rows[-1]]))} / {len(np.unique(labels[rows[-1]]))}"
            print(f"| {model} | {' | '.join(figures)} | {pairwise:.3f} | {sizes} |", flush=True)
            with Gallery.open(gallery, models) as opened:
                reviews.append(f"| {model} | {User(opened, photos, names).review()} |")
    print("\n| people by | actions | of which | ticks | individuals named | F | first action, s | median | slowest |")
    print("|---|---|---|---|---|---|---|---|---|")
    print("\n".join(reviews))


def draw_album(photos_folder: Path, seed: int) -> dict[str, IdentityTable]:
    """Draw individuals of each species, and photos of theirs if there are many."""
    draw = np.random.default_rng(seed)
    album = {}
    for species, folder in FOLDERS.items():
        table = scan_folders(photos_folder / folder).with_min_photos(MIN_PHOTOS)
        count = PEOPLE if species == "person" else PETS
        chosen = sorted(draw.permutation(len(table.names))[:count].tolist())
        album[species] = table.select_identities([table.names[each] for each in chosen]).with_max_photos(MAX_PHOTOS)
    return album


class User:
    """A user who knows every individual of an album, and answers what the pages ask."""

    def __init__(self, gallery: Gallery, photos: Sequence[Path], names: Sequence[str]) -> None:
        self.gallery = gallery
        self.labels = np.unique(list(names), return_inverse=True)[1]
        self.individuals = set(names)
        name_of_photo = dict(zip((photo.resolve() for photo in photos), names, strict=True))
        self.name_of: dict[int, str | None] = {}  # of each face; None: of nobody in the album
        best: dict[Path, int] = {}
        for photo in gallery.photos(limit=len(photos)):
            path = Path(photo.path)
            for face in sorted(photo.faces, key=score_x_area):
                best[path] = face.face
                self.name_of[face.face] = None
            if photo.faces:
                self.name_of[best[path]] = name_of_photo[path]
        self.faces = [best.get(photo.resolve()) for photo in photos]
        self.actions: Counter[str] = Counter()
        self.ticks, self.seconds = 0, list[float]()
        self.skipped: set[int] = set()  # groups of nobody in the album

    def review(self) -> str:
        """Answer until the album is right, and return the cells of a table."""
        for action, extra in self._answers():
            self.actions[action] += 1
            self.actions[extra] += bool(extra)
            if self._is_right() or self.actions.total() >= MAX_ACTIONS:
                break
        actions = ", ".join(f"{count} {kind}" for kind, count in self.actions.items() if count)
        named = len(self.individuals & set(self.gallery.names().values()))
        shares = f"{named} of {len(self.individuals)} | {self._f():.3f}"
        first, *others = self.seconds
        seconds = f"{first:.2f} | {median(others):.2f} | {max(others):.2f}"
        return f"{self.actions.total()} | {actions} | {self.ticks} | {shares} | {seconds}"

    def _answers(self) -> Iterator[tuple[str, str]]:
        """Give one answer after another, as the pages ask; yield what it was, and what else was asked then."""
        answered: set[tuple[int, int]] = set()
        while True:
            started = time.perf_counter()
            batches = self.gallery.batches(len(self.skipped) + 1)
            batch = next((each for each in batches if each.identity not in self.skipped), None)
            pairs = self.gallery.questions(len(answered) + 1) if batch is None else []
            question = next((each for each in pairs if (each.first_face, each.second_face) not in answered), None)
            if batch is not None:
                done = self._answer_batch(batch)
            elif question is not None and question.expected_gain >= MIN_GAIN:
                answered.add((question.first_face, question.second_face))
                done = self._answer(question)
            else:
                done = self._name_unassigned() or (question and self._answer(question))
                if question is not None:
                    answered.add((question.first_face, question.second_face))
            if done is None:
                return
            if done[0]:
                self.seconds.append(time.perf_counter() - started)
                yield done

    def _answer_batch(self, batch: Batch) -> tuple[str, str]:
        names = self.gallery.names()
        shown = [*self.gallery.identity(batch.identity).best[:LOOKED_AT], *batch.members]
        known = names.get(batch.identity)
        name = known or Counter(self.name_of[face] for face in shown).most_common(1)[0][0]
        if name is None:
            self.skipped.add(batch.identity)
            return "", ""
        same = [face for face in (*batch.members, *batch.candidates) if self.name_of[face] == name]
        self.ticks += len({*batch.members} ^ {*same})  # the members are ticked already
        is_taken = known is None and name in names.values()
        self.gallery.answer_batch(batch, same, None if known or is_taken else name, same_photo=True)
        if is_taken:
            self.gallery.merge(name, [batch.identity], same_photo=True)
        return "batches", "merges of one name" if is_taken else ""

    def _answer(self, question: Question) -> tuple[str, str]:
        first, second = self.name_of[question.first_face], self.name_of[question.second_face]
        self.gallery.answer(question, first is not None and first == second)
        return "questions", ""

    def _name_unassigned(self) -> tuple[str, str] | None:
        """Select the faces of one individual among the unassigned ones, and enter its name."""
        unassigned = self.gallery.unassigned_faces(limit=len(self.name_of))
        names = {face.face: self.name_of[face.face] for face in unassigned}
        counts = Counter(name for name in names.values() if name is not None)
        if not counts:
            return None
        name = counts.most_common(1)[0][0]
        faces = [face for face, shown in names.items() if shown == name]
        self.ticks += len(faces)
        if name in self.gallery.names().values():
            self.gallery.move(faces, name, same_photo=True)
        else:
            self.gallery.split(faces, name, same_photo=True)
        return "names of unassigned faces", ""

    def _is_right(self) -> bool:
        return self.individuals <= set(self.gallery.names().values()) and self._f() >= RIGHT

    def _f(self) -> float:
        """Compute B-cubed F of the photos as they are grouped now."""
        identities = [None if face is None else self.gallery.face(face).identity for face in self.faces]
        groups = [-1 - row if identity is None else identity for row, identity in enumerate(identities)]
        return metrics.bcubed(self.labels, np.unique(groups, return_inverse=True)[1]).f


if __name__ == "__main__":
    main()
