"""`familiar gallery migrate`."""

from dataclasses import asdict
from pathlib import Path

import click

from familiar.cli.commands.gallery.arguments import folder_argument, open_gallery
from familiar.cli.commands.gallery.indexing import update_index
from familiar.cli.console import StatusLine, list_skipped, print_json
from familiar.cli.options import json_option, max_megapixels_option, model_option, provider_option
from familiar.core.plural import pluralize


@click.command()
@folder_argument
@model_option
@click.option(
    "--tta", is_flag=True, help="Average the embeddings of each face and its mirror image, at twice the cost."
)
@provider_option
@max_megapixels_option
@json_option
def migrate(folder: Path, models: tuple[str, ...], tta: bool, providers: tuple[str, ...] | None, as_json: bool) -> None:
    """Embed a gallery's faces again with another model, which it remembers.

    Keeps every name, constraint and correction. For faces whose photos are missing, the new embedding is
    estimated from the old one by a linear map, fitted on the other faces; with a model that was trained to be
    compatible with the old one (loss.compatible_with) they may also keep it. The gallery stays unchanged until the
    end; an interrupted run resumes when the command is repeated.

    If the new model can use faces that the old one could not, such as those of people, all photos are searched again
    for them.

    \b
    Example:
      familiar gallery migrate album --model runs/better
    """
    from familiar.embedding.embedder import Embedder

    with open_gallery(folder) as gallery:
        embedder, status = Embedder(models, providers=providers), StatusLine()
        result = gallery.migrate(
            embedder, flip=tta, on_batch=lambda done: status.show(f"processed {done:,} faces or photos")
        )
        status.clear()
        list_skipped((*result.redetection.skipped, *result.redetection.skipped_faces))
        update_index(gallery)
    if as_json:
        document = {"gallery": folder, "space_id": embedder.space[0]} | asdict(result)
        skipped = {name: [*map(str, getattr(result.redetection, name))] for name in ("skipped", "skipped_faces")}
        print_json(document | {"redetection": document["redetection"] | skipped})
        return
    click.echo(f"{folder}: has embeddings of the space {embedder.space[0]} now")
    for count, method in (
        (result.reembedded_faces, "embedded again from their photos"),
        (result.truncated_faces, "shortened to the new length"),
        (result.kept_faces, "without a photo keep their embeddings, which the new model is compatible with"),
        (
            result.mapped_faces,
            f"estimated by the linear map (cosine with the model's own: {result.mapped_mean_cosine or 0:.3f})",
        ),
    ):
        if count:
            click.echo(f"  {pluralize(count, 'face')} {method}")
    if result.detector is not None:
        searched = pluralize(result.redetection.searched_again, "photo")
        click.echo(
            f"  {pluralize(result.redetection.faces, 'new face')}: {searched} searched again ({result.detector})"
        )
