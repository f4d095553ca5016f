"""The pictures of docs/gallery.md: drawn pets, grouped, asked about and corrected.

gallery.py pictures FOLDER
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rows.plots import DPI

from familiar.core.files import write_atomically
from familiar.datasets.synthetic import SyntheticSource
from familiar.evaluation.pictures.chart import LIGHT, TEXT_PT, png
from familiar.faces.embedder import Embedder
from familiar.faces.photo import find_photos, load_photo, save_photo
from familiar.gallery.enrol import enrol
from familiar.gallery.group import group
from familiar.gallery.store import Gallery, Space
from familiar.gallery.suggest import answer, suggest
from familiar.gallery.who import NOBODY, who_is_who

ALBUM = "synthetic:cats:7x6:seed=3:difficulty=0.35"
MODEL = "pet-nano"
QUESTIONS = 4


def main(given: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    out = parser.parse_args(given).folder
    embedder = Embedder(MODEL)
    with tempfile.TemporaryDirectory() as folder:
        album = drawn(Path(folder, "album"))
        with Gallery.create(Path(folder, "gallery"), Space.of(embedder.metadata)) as gallery:
            enrol(gallery, embedder, find_photos([album]))
            print(group(gallery))
            save(groups(gallery), out / "gallery-groups.png")
            save(questions(gallery), out / "gallery-questions.png")
            for _ in range(6):
                for question in suggest(gallery, QUESTIONS):
                    answer(
                        gallery,
                        question,
                        cat(gallery, question.first_face) == cat(gallery, question.second_face),
                    )
            save(groups(gallery), out / "gallery-corrected.png")


def drawn(folder: Path) -> Path:
    """The album as files, CAT/PHOTO.png."""
    source = SyntheticSource.parse(ALBUM)
    for cat in range(source.identities):
        (folder / f"cat-{cat + 1}").mkdir(parents=True)
        for place, photo in enumerate(source.photos(cat)):
            save_photo(photo.draw(), folder / f"cat-{cat + 1}" / f"{place + 1}.png")
    return folder


def path_of(gallery: Gallery, face: int) -> Path:
    with gallery.reading() as connection:
        query = "SELECT path FROM faces JOIN photos ON photos.id = photo_id WHERE faces.id = ?"
        return Path(connection.execute(query, (face,)).fetchone()[0])


def cat(gallery: Gallery, face: int) -> str:
    return path_of(gallery, face).parent.name


def groups(gallery: Gallery) -> Figure:
    """A row of faces for each group, largest first; those alone in the last rows."""
    who = who_is_who(gallery)
    numbers, sizes = np.unique(who.identity[who.identity != NOBODY], return_counts=True)
    rows = [
        (f"#{number}", who.rows_of_identity(number)) for number in numbers[np.argsort(-sizes, kind="stable")]
    ]
    alone = np.flatnonzero(who.identity == NOBODY)
    rows += [("alone", alone[start : start + 8]) for start in range(0, len(alone), 8)]
    widest = max(len(faces) for _, faces in rows)
    figure = Figure(figsize=(0.62 * widest + 0.6, 0.66 * len(rows)), facecolor=LIGHT.paper)
    for place, (title, faces) in enumerate(rows):
        for column, row in enumerate(faces):
            axes = figure.add_axes(
                (
                    (0.6 + 0.62 * column) / figure.get_figwidth(),
                    1 - (place + 0.97) / len(rows),
                    0.58 / figure.get_figwidth(),
                    0.9 / len(rows),
                )
            )
            axes.imshow(load_photo(path_of(gallery, int(who.faces.ids[row]))).rgb_u8)
            axes.axis("off")
        figure.text(
            0.03 / figure.get_figwidth() * 4,
            1 - (place + 0.55) / len(rows),
            title,
            color=LIGHT.ink,
            fontsize=TEXT_PT - 2,
        )
    return figure


def questions(gallery: Gallery) -> Figure:
    """The first questions, side by side."""
    asked = suggest(gallery, QUESTIONS)
    figure = Figure(figsize=(1.9 * len(asked), 1.35), facecolor=LIGHT.paper)
    for place, question in enumerate(asked):
        for side, face in enumerate((question.first_face, question.second_face)):
            axes = figure.add_axes(((place + 0.04 + 0.46 * side) / len(asked), 0.02, 0.44 / len(asked), 0.72))
            axes.imshow(load_photo(path_of(gallery, face)).rgb_u8)
            axes.axis("off")
        said = "in the right group?" if question.about == "doubt" else "the same?"
        figure.text(
            (place + 0.04) / len(asked),
            0.82,
            f"{said} {question.probability:.0%}",
            color=LIGHT.ink,
            fontsize=TEXT_PT - 2,
        )
    return figure


def save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, png(figure, DPI))
