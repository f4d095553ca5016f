"""`familiar gallery enroll`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from familiar.cli.commands.gallery.arguments import bundle_option, folder_argument, open_or_create
from familiar.cli.commands.gallery.indexing import update_index
from familiar.cli.console import StatusLine, list_skipped, print_json
from familiar.cli.options import FILE, embedding_options, json_option
from familiar.core.plural import pluralize

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.gallery.enrollment.enroll import EnrollResult


@click.command()
@folder_argument
@click.argument("photos", nargs=-1, required=True, metavar="PHOTOS...", type=FILE)
@bundle_option
@click.option("--species", metavar="NAME", help="Species to store with each new face.")
@click.option("--float32", is_flag=True, help="Store embeddings of a new gallery as float32, not float16.")
@embedding_options
@json_option
def enroll(
    folder: Path,
    photos: tuple[Path, ...],
    model: Path,
    species: str | None,
    float32: bool,
    tta: bool,
    detector: str | None,
    detector_model: Path | None,
    providers: tuple[str, ...] | None,
    as_json: bool,
) -> None:
    """Add photos to a gallery.

    Creates the gallery where it is missing, and embeds every face of every photo. Photos that are in the gallery
    already are not read again, so an interrupted
    run resumes when the command is repeated; photos that were moved or edited are recognized.

    \b
    Example:
      familiar gallery enroll album photos/ --model pet-nano --detector none
    """
    from familiar.embedding.species.router_file import open_model
    from familiar.gallery.enrollment.enroll import enroll as enroll_photos
    from familiar.photos.decoding import find_photos

    embedder = open_model(model, providers=providers)
    face_detector = embedder.detector(detector, detector_model)
    paths = find_photos(photos)
    status = StatusLine()
    with open_or_create(folder, embedder, float32=float32) as gallery:
        result = enroll_photos(
            gallery,
            embedder,
            paths,
            face_detector,
            flip=tta,
            species=species,
            on_batch=lambda done, _: status.show(f"enrolled {done:,}/{len(paths):,} photos"),
        )
        status.clear()
        list_skipped((*result.skipped, *result.skipped_faces))
        update_index(gallery)
    if as_json:
        skipped = {name: [*map(str, getattr(result, name))] for name in ("skipped", "skipped_faces")}
        print_json({"gallery": folder} | asdict(result) | skipped)
    else:
        _print_result(folder, result)


def _print_result(folder: Path, result: "EnrollResult") -> None:
    click.echo(f"{folder}: {pluralize(result.photos, 'new photo')} with {pluralize(result.faces, 'face')}")
    for count, description in (
        (result.without_face, "show no face"),
        (result.known, "were enrolled already"),
        (result.moved, "of these have moved"),
        (result.copies, "of these are copies"),
        (result.edited, "have been edited"),
        (len(result.skipped), "were skipped"),
        (len(result.skipped_faces), "faces were left out: there is no bundle for them"),
    ):
        if count:
            click.echo(f"  {count:,} {description}")
