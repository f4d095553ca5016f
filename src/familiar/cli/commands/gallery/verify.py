"""`familiar gallery verify`."""

from dataclasses import asdict
from pathlib import Path

import click

from familiar.cli.commands.gallery.arguments import (
    embed_best_face,
    face_option,
    folder_argument,
    format_similarity,
    identity_argument,
    label_of,
    open_gallery,
)
from familiar.cli.console import print_json
from familiar.cli.options import FILE, album_model_option, embedding_options, json_option


@click.command()
@folder_argument
@click.argument("photo", metavar="PHOTO", type=FILE)
@identity_argument
@album_model_option
@face_option
@embedding_options
@json_option
def verify(
    folder: Path,
    photo: Path,
    identity: str,
    models: tuple[str, ...],
    face: int | None,
    tta: bool,
    detector: str | None,
    detector_model: Path | None,
    providers: tuple[str, ...] | None,
    as_json: bool,
) -> None:
    """Decide whether a photo shows an identity.

    Compares the best face of PHOTO with the mean of the identity's faces. Only the similarity is printed if the
    model was never calibrated.

    \b
    Example:
      familiar gallery verify album cat.jpg Tom
    """
    with open_gallery(folder, models or None, providers=providers) as gallery:
        number = gallery.resolve_identity(identity)
        query = embed_best_face(gallery, photo, detector, detector_model, flip=tta, face=face)
        result = gallery.verify(query, number)
        name = label_of(gallery, number)
    if as_json:
        print_json({"identity": number} | asdict(result))
        return
    if result.same is None:
        click.echo(
            f"{photo}: {format_similarity(result.similarity, None)} to {name}; the model was never calibrated, "
            "so there is no verdict: import its network with familiar import --calibrate DATA"
        )
        return
    click.echo(
        f"{photo}: {'shows' if result.same else 'does not show'} {name} "
        f"({format_similarity(result.similarity, result.probability)}, threshold {result.threshold:.3f})"
    )
