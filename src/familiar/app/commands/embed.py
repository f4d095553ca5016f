"""`familiar embed`: vectors for photos."""

import io
from pathlib import Path

import click

from familiar.app.console import StatusLine, list_skipped, print_json
from familiar.app.options import FILE, embedding_options, json_option, model_option, require_folder_of


@click.command()
@click.argument("photos", nargs=-1, required=True, metavar="PHOTOS...", type=FILE)
@model_option
@click.option("--output", "-o", required=True, type=FILE, help="The .npz file to write.")
@embedding_options
@json_option
def embed(
    photos: tuple[Path, ...],
    model: Path,
    output: Path,
    tta: bool,
    detector: str,
    detector_model: Path | None,
    as_json: bool,
) -> None:
    """Vectors for photos.

    The .npz file holds `embeddings` (float32, n x d, unit rows), `paths`, and the model's `space_id`.

    \b
    Example:
      familiar embed photos/ --model runs/cats/model.onnx --output cats.npz
    """
    import numpy as np

    from familiar.core.errors import UnreadablePhoto
    from familiar.core.files import write_atomically
    from familiar.faces.detect import build_detector
    from familiar.faces.embedder import Embedder, embed_photos
    from familiar.faces.photo import find_photos

    require_folder_of(output)
    embedder = Embedder(model)
    paths = find_photos(photos)
    status = StatusLine()
    embedded = embed_photos(
        embedder,
        paths,
        build_detector(detector, detector_model),
        flip=tta,
        on_batch=lambda done: status.show(f"embedded {done}/{len(paths)} photos"),
    )
    status.clear()
    list_skipped(embedded.skipped)
    if not len(embedded.rows):
        raise UnreadablePhoto(f"not one of the {len(paths)} photos could be embedded; nothing was written")
    content = io.BytesIO()
    np.savez(
        content,
        embeddings=embedded.embeddings,
        paths=np.array([str(paths[row]) for row in embedded.rows]),
        space_id=np.array(embedder.metadata.space_id),
    )
    write_atomically(output, content.getvalue())
    if as_json:
        skipped = [str(error) for error in embedded.skipped]
        print_json({"output": output, "photos": len(embedded.rows), "skipped": skipped})
    else:
        click.echo(f"{output}: {len(embedded.rows)} embeddings, {len(embedded.skipped)} photos skipped")
