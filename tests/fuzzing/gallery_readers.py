"""Readers of tables and files that are imported into a gallery, and of those beside its database."""

from pathlib import Path
from typing import Any

from fuzzing.mutators import CSV_TOKENS, token_mutator
from fuzzing.reader import Read, Reader, reading_file

LABELS = (
    b"path,left_px,top_px,right_px,bottom_px,name,face,identity\n"
    b"photo 0.jpg,,,,,Mia,1,\nphoto 1.jpg,,,,,,2,7\nphoto 2.jpg,0,0,0,0,Tom,,\nnone.jpg,1,2,3,4,Tom,,\n"
)
REGISTER = b"name,status,species,place,date,contact,note\nMia,lost,cat,Home,2024-01-02,me,shy\n#2,,,,,,\n"


def _gallery(folder: Path) -> Any:
    from familiar.gallery.edits.corrections import Individual, assign
    from familiar.gallery.store.store import Store
    from support.small_gallery import SPACE, draw_individuals, enroll_vectors

    gallery = Store.create(folder / "album", SPACE)
    faces = enroll_vectors(gallery, draw_individuals([2, 2]))
    assign(gallery, [Individual("Mia", tuple(faces[:2])), Individual("Tom", tuple(faces[2:]))])
    return gallery


def _prepare_labels(folder: Path) -> Read:
    from familiar.gallery.transfer.import_export import import_csv

    gallery = _gallery(folder)
    return reading_file(folder / "labels.csv", lambda path: import_csv(gallery, path))


def _prepare_register(folder: Path) -> Read:
    from familiar.gallery import Gallery
    from familiar.integrations.lost_pets.register_table import import_register

    gallery = Gallery(_gallery(folder))
    return reading_file(folder / "register.csv", lambda path: import_register(gallery, path))


_csv = token_mutator(CSV_TOKENS)

READERS = {
    "labels": Reader(_prepare_labels, lambda: [LABELS], _csv),
    "register": Reader(_prepare_register, lambda: [REGISTER], _csv),
}
