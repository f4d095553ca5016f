"""`familiar gallery enroll`."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from familiar.cli.commands.gallery.arguments import folder_argument, open_gallery, open_or_create
from familiar.cli.commands.gallery.indexing import update_index
from familiar.cli.console import StatusLine, list_skipped, note, note_passed_over, print_json
from familiar.cli.options import (
    FILE,
    album_model_option,
    embedding_options,
    exclude_option,
    json_option,
    species_option,
)
from familiar.core.plural import pluralize

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.core.gallery_types import StoredType
    from familiar.gallery import EnrollResult


@click.command()
@folder_argument
@click.argument("photos", nargs=-1, metavar="[PHOTOS...]", type=FILE)
@album_model_option
@click.option(
    "--redetect",
    is_flag=True,
    help="Look again at the photos, or without PHOTOS at those of the gallery, in which nothing was found; with "
    "another --detector at all photos of the gallery.",
)
@species_option
@click.option(
    "--embeddings",
    type=click.Choice(["float16", "float32", "int8"]),
    default="float16",
    show_default=True,
    help="How a new gallery stores embeddings; int8 takes half the bytes of float16.",
)
@exclude_option
@embedding_options
@json_option
def enroll(
    folder: Path,
    photos: tuple[Path, ...],
    models: tuple[str, ...],
    redetect: bool,
    species: str | None,
    embeddings: "StoredType",
    exclude: tuple[str, ...],
    tta: bool,
    detector: str | None,
    detector_model: Path | None,
    providers: tuple[str, ...] | None,
    as_json: bool,
) -> None:
    """Add photos to a gallery.

    Creates the gallery where it is missing, and embeds every face of every photo: heads of cats and dogs, and people's
    faces, unless another --model is named. The gallery remembers its models and its detector: later commands need
    neither. Photos that are in the gallery already are not read again, so an
    interrupted run resumes when the command is repeated; photos that were moved or edited are recognized.

    With --redetect all faces, names and decisions stay, and faces that were deleted do not come back. Without PHOTOS it
    is for all photos of the gallery. Another --detector is remembered.

    \b
    Example:
      familiar gallery enroll album photos/
      familiar gallery enroll album new-photos/
      familiar gallery enroll crops cropped/ --model pet-nano --detector none
      familiar gallery enroll album --redetect
    """
    from familiar.detection.detector import looked_for
    from familiar.photos.listing import find_photos

    if not photos and not redetect:
        raise click.UsageError("Missing argument 'PHOTOS...'.")
    passed_over = Counter[str]()
    paths: list[Path] = []
    if photos:
        paths = find_photos(photos, exclude=exclude, passed_over=passed_over)  # raises before a gallery is created
        gallery = open_or_create(folder, models, detector, detector_model, providers, embeddings=embeddings)
    else:
        gallery = open_gallery(folder, models or None, providers=providers)
    status = StatusLine()
    with gallery:
        result = gallery.enroll(
            paths,
            detector,
            detector_model=detector_model,
            redetect=redetect,
            flip=tta,
            species=species,
            on_batch=lambda done, _: status.show(f"processed {done:,} photos"),
        )
        status.clear()
        list_skipped((*result.skipped, *result.skipped_faces))
        update_index(gallery)
        reference, what = gallery.model_reference, looked_for(gallery.detector())
        others = gallery.not_searched_for()
        if unsuited := gallery.unsuited_for():
            note(
                f"warning: the model of {folder} is not made for {unsuited}, whom its detector finds too, and mixes "
                f"them up; a model that is: {gallery.command_to_find_more()}"
            )
    if as_json:
        used = {"gallery": folder, "models": reference.models, "detector": reference.detector, "looked_for": what}
        print_json(used | {"passed_over": passed_over} | _to_json(result))
    else:
        _print_result(folder, result, what + others)
    note_passed_over(passed_over)


def _to_json(result: "EnrollResult") -> dict[str, Any]:
    skipped = {name: [*map(str, getattr(result, name))] for name in ("skipped", "skipped_faces")}
    return asdict(result) | skipped


def _print_result(folder: Path, result: "EnrollResult", looked_for: str) -> None:
    click.echo(f"{folder}: {pluralize(result.photos, 'new photo')} with {pluralize(result.faces, 'face')}")
    for count, description in (
        (result.searched_again, "were looked at again; all faces in them that are new are counted above"),
        (result.not_detected, "of their faces were not found again, and stay"),
        (result.without_face, f"show no {looked_for}"),
        (result.without_bundle, "show only faces of a species without a model"),
        (result.known, "were enrolled already"),
        (result.moved, "of these have moved"),
        (result.copies, "of these are copies"),
        (result.edited, "have been edited"),
        (len(result.skipped), "were skipped"),
        (len(result.skipped_faces), "faces were left out: there is no model for their species"),
    ):
        if count:
            click.echo(f"  {count:,} {description}")
