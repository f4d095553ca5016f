"""Lost and found pets: entered in a gallery, and in folders of drawn photos, as a shelter has them."""

import zlib
from pathlib import Path

from familiar.datasets.synthetic import SyntheticPhoto
from familiar.gallery import Gallery
from familiar.gallery.edits import corrections
from familiar.gallery.store.store import Store
from familiar.integrations.lost_pets.register import set_reports
from familiar.integrations.lost_pets.reports import Report
from familiar.photos.decoding import save_photo
from support.small_gallery import draw_individuals, enroll_vectors

LOST_PHOTOS, FOUND_PHOTOS = 3, 2


def add_pet(gallery: Store, axis: int, photos: int, name: str, report: Report | None = None) -> int:
    """Enroll photos of an individual on one axis, and name it; without a report it has only the name."""
    embeddings = draw_individuals([0] * axis + [photos], seed=zlib.crc32(name.encode()))
    identity = corrections.split(gallery, enroll_vectors(gallery, embeddings, name), name).identity
    if report is not None:
        set_reports(Gallery(gallery), {identity: report})
    return identity


def draw_register(folder: Path, lost: int, found_lost: int, unknown: int) -> dict[str, str | None]:
    """Draw FOLDER/lost/NAME and FOLDER/found/LABEL, cats and dogs in turn.

    Args:
        folder: to write to.
        lost: number of lost pets.
        found_lost: number of found pets that are lost ones.
        unknown: number of found pets that nobody misses.

    Returns:
        The name of the lost pet that each found one is; None: of none.
    """
    names: dict[str, str | None] = {}
    for number in range(lost + unknown):
        species, individual = ("cats", "dogs")[number % 2], number // 2
        photos = [SyntheticPhoto(species, individual, index, seed=0, size_px=128) for index in range(5)]
        name = f"{species[:3]}-{individual}"
        if number < lost:
            _save(folder / "lost" / name, photos[:LOST_PHOTOS])
        if number < found_lost or number >= lost:
            label = f"found-{len(names):02}"
            _save(folder / "found" / label, photos[LOST_PHOTOS:])
            names[label] = name if number < lost else None
    return names


def _save(folder: Path, photos: list[SyntheticPhoto]) -> None:
    folder.mkdir(parents=True)
    for index, photo in enumerate(photos):
        save_photo(photo.draw(), folder / f"{index}.png")
