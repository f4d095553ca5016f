"""Draw the pictures of docs/how-to/sort-an-album.md: synthetic pets, clustered, reviewed and corrected.

gallery.py pictures MODEL FOLDER
"""

import argparse
import io
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from familiar.core.files import write_atomically
from familiar.datasets.synthetic import SyntheticSource
from familiar.embedding.embedder import Embedder
from familiar.evaluation.plots.chart import LIGHT, TEXT_PT, png
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.enroll.enroll import enroll
from familiar.gallery.review.questions import answer_question, propose_questions
from familiar.gallery.same.assignments import UNASSIGNED, load_assignments
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.photos.decoding import load_photo, save_photo
from familiar.photos.listing import find_photos

ALBUM = "synthetic:cats:7x6:seed=3:difficulty=0.35"
QUESTIONS = 4
WIDEST = 8  # faces shown of a cluster
FACE_IN = 0.75
DPI = 120


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    out, embedder = options.folder, Embedder(options.model)
    with tempfile.TemporaryDirectory() as folder:
        album = draw_album(Path(folder, "album"))
        with Store.create(Path(folder, "gallery"), Space.from_metadata(embedder.metadata)) as gallery:
            enroll(gallery, embedder, find_photos([album]))
            print(cluster(gallery))
            save_png(groups(gallery), out / "gallery-groups.png")
            save_png(questions(gallery), out / "gallery-questions.png")
            for _ in range(6):
                for question in propose_questions(gallery, QUESTIONS):
                    answer_question(
                        gallery,
                        question,
                        cat(gallery, question.first_face) == cat(gallery, question.second_face),
                    )
            save_png(groups(gallery), out / "gallery-corrected.png")


def draw_album(folder: Path) -> Path:
    """Write the album as files, CAT/PHOTO.png."""
    source = SyntheticSource.parse(ALBUM)
    for cat in range(source.identities):
        (folder / f"cat-{cat + 1}").mkdir(parents=True)
        for index, photo in enumerate(source.photos(cat)):
            save_photo(photo.draw(), folder / f"cat-{cat + 1}" / f"{index + 1}.png")
    return folder


def path_of(gallery: Store, face: int) -> Path:
    with gallery.read() as repository:
        query = "SELECT path FROM faces JOIN photos ON photos.id = photo_id WHERE faces.id = ?"
        return Path(os.fsdecode(repository.connection.value(query, (face,))))


def cat(gallery: Store, face: int) -> str:
    return path_of(gallery, face).parent.name


def groups(gallery: Store) -> Figure:
    """Draw a row of faces for each cluster, largest first; unassigned faces in the last rows."""
    assignments = load_assignments(gallery)
    numbers, sizes = np.unique(assignments.identity[assignments.identity != UNASSIGNED], return_counts=True)
    rows = [
        (f"#{number}", assignments.rows_of_identity(number)) for number in numbers[np.argsort(-sizes, kind="stable")]
    ]
    unassigned = np.flatnonzero(assignments.identity == UNASSIGNED)
    rows += [("single", unassigned[start : start + WIDEST]) for start in range(0, len(unassigned), WIDEST)]
    figure = Figure(figsize=(FACE_IN * (WIDEST + 1), FACE_IN * len(rows)), facecolor=LIGHT.paper)
    for index, (title, faces) in enumerate(rows):
        y = 1 - (index + 1) / len(rows)
        for column, row in enumerate(faces[:WIDEST]):
            box = ((column + 1) / (WIDEST + 1), y, 0.94 / (WIDEST + 1), 0.94 / len(rows))
            _show(figure, box, path_of(gallery, int(assignments.faces.ids[row])))
        figure.text(0.01, y + 0.45 / len(rows), title, color=LIGHT.ink, fontsize=TEXT_PT)
    return figure


def questions(gallery: Store) -> Figure:
    """Draw the first questions side by side."""
    proposed = propose_questions(gallery, QUESTIONS)
    figure = Figure(figsize=(2 * len(proposed), 1.35), facecolor=LIGHT.paper)
    for index, question in enumerate(proposed):
        for side, face in enumerate((question.first_face, question.second_face)):
            box = ((index + 0.04 + 0.46 * side) / len(proposed), 0.02, 0.44 / len(proposed), 0.72)
            _show(figure, box, path_of(gallery, face))
        prompt = "assigned correctly?" if question.kind == "outlier" else "the same?"
        title = f"{prompt} {question.probability:.0%}"
        figure.text((index + 0.04) / len(proposed), 0.82, title, color=LIGHT.ink, fontsize=TEXT_PT)
    return figure


def _show(figure: Figure, box: tuple[float, float, float, float], photo: Path) -> None:
    axes = figure.add_axes(box)
    axes.imshow(load_photo(photo).rgb_u8)
    axes.axis("off")


def save_png(figure: Figure, path: Path) -> None:
    """Save a PNG of 256 colors: a third of the bytes, with no visible difference at this size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(io.BytesIO(png(figure, DPI))) as drawn, io.BytesIO() as content:
        drawn.convert("RGB").quantize(256).save(content, "PNG", optimize=True)
        write_atomically(path, content.getvalue())
