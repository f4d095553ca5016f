"""`familiar embed`: write embeddings of photos to a file."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from familiar.cli.console import StatusLine, list_skipped, print_json
from familiar.cli.options import FILE, embedding_options, json_option, model_option, require_parent_folder

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.embedding.species.routed_embeddings import RoutedEmbeddings
    from familiar.embedding.species.router import RoutedEmbedder


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
    detector: str | None,
    detector_model: Path | None,
    as_json: bool,
) -> None:
    """Write embeddings of photos to a file.

    The .npz file holds `embeddings` (float32, one row of length 1 per photo), `paths`, and the model's `space_id`.
    With a router (a .json file that picks a bundle by species) it holds the `paths`, the `species` and `probability`
    of each, and for each species NAME: `NAME_embeddings`, `NAME_rows` (for each embedding the index of its photo in
    `paths`) and `NAME_space_id`.

    \b
    Example:
      familiar embed photos/ --model runs/cats/model.onnx --output cats.npz
    """
    import numpy as np

    from familiar.core.errors import UnreadablePhoto
    from familiar.core.files import write_atomically
    from familiar.embedding.model import embed_photos
    from familiar.embedding.species.router import RoutedEmbedder
    from familiar.embedding.species.router_file import open_model
    from familiar.photos.decoding import find_photos

    require_parent_folder(output)
    opened = open_model(model)
    paths = find_photos(photos)
    status = StatusLine()

    def show(done: int) -> None:
        status.show(f"embedded {done}/{len(paths)} photos")

    face_detector = opened.detector(detector, detector_model)
    if isinstance(opened, RoutedEmbedder):
        routed = opened.embed_photos(paths, face_detector, flip=tta, on_batch=show)
        rows, skipped = [row for row, _, _ in routed.by_row()], routed.skipped
        arrays: dict[str, Any] = _routed_arrays(routed, opened)
    else:
        embedded = embed_photos(opened, paths, face_detector, flip=tta, on_batch=show)
        rows, skipped = embedded.rows.tolist(), embedded.skipped
        arrays = {"embeddings": embedded.embeddings, "space_id": np.array(opened.metadata.space_id)}
    status.clear()
    list_skipped(skipped)
    if not rows:
        raise UnreadablePhoto(f"none of the {len(paths)} photos could be embedded; nothing was written")
    content = io.BytesIO()
    np.savez(content, paths=np.array([str(paths[row]) for row in rows]), **arrays)
    write_atomically(output, content.getvalue())
    if as_json:
        print_json({"output": output, "photos": len(rows), "skipped": [str(error) for error in skipped]})
    else:
        click.echo(f"{output}: {len(rows)} embeddings, {len(skipped)} photos skipped")


def _routed_arrays(routed: "RoutedEmbeddings", router: "RoutedEmbedder") -> dict[str, Any]:
    """Collect each photo's species, and the embeddings of each species, which cannot be compared with each other."""
    import numpy as np

    by_row = routed.by_row()
    index_of_row = {row: index for index, (row, _, _) in enumerate(by_row)}
    arrays = {
        "species": np.array([name for _, name, _ in by_row]),
        "probability": np.array([probability for _, _, probability in by_row], np.float32),
    }
    for name, embedded in routed.by_species.items():
        arrays[f"{name}_embeddings"] = embedded.embeddings
        arrays[f"{name}_rows"] = np.array([index_of_row[row] for row in embedded.rows.tolist()], np.int64)
        arrays[f"{name}_space_id"] = np.array(router.embedders[name].metadata.space_id)
    return arrays
