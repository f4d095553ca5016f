"""`familiar embed`: write embeddings of photos to a file."""

import io
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from familiar.cli.console import StatusLine, list_skipped, print_json
from familiar.cli.options import FILE, embedding_options, json_option, model_option, require_parent_folder

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.embedding.distributed.worker import EmbeddingSettings
    from familiar.embedding.species.routed_embeddings import RoutedEmbeddings
    from familiar.embedding.species.router import RoutedEmbedder


@click.command()
@click.argument("photos", nargs=-1, required=True, metavar="PHOTOS...")  # not paths, which have no "//" of a URL
@model_option
@click.option("--output", "-o", required=True, type=FILE, help="The .npz file to write; with --engine ray a folder.")
@embedding_options
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="This process, or the workers of a Ray cluster, which write all faces to Parquet files.",
)
@click.option("--workers", type=click.IntRange(1), help="Number of Ray's workers (default: one per core).")
@json_option
def embed(
    photos: tuple[str, ...],
    model: Path,
    output: Path,
    tta: bool,
    detector: str | None,
    detector_model: Path | None,
    providers: tuple[str, ...] | None,
    engine: Literal["local", "ray"],
    workers: int | None,
    as_json: bool,
) -> None:
    """Write embeddings of photos to a file.

    The .npz file holds `embeddings` (float32, one row of length 1 per photo), `paths`, and the model's `space_id`.
    With a router (a .json file that picks a bundle by species) it holds the `paths`, the `species` and `probability`
    of each, and for each species NAME: `NAME_embeddings`, `NAME_rows` (for each embedding the index of its photo in
    `paths`) and `NAME_space_id`.

    With --engine ray, PHOTOS may also be shards (see familiar pack), and the output is a folder of Parquet files with a
    row for each face: photo, box, quality, embedding, and the bundle's `file_id`; or for a photo without one the error.
    A repeated command embeds only what is missing or has changed.

    \b
    Example:
      familiar embed photos/ --model runs/cats/model.onnx --output cats.npz
      familiar embed photos/ --model pet-mobile --engine ray --output embeddings/
    """
    if engine == "ray":
        from familiar.embedding.distributed.worker import EmbeddingSettings

        detector_file = None if detector_model is None else str(detector_model)
        _embed_with_ray(
            EmbeddingSettings(str(model), detector, detector_file, tta, providers=providers),
            photos,
            output,
            workers,
            as_json,
        )
        return
    if workers is not None:
        raise click.UsageError("--workers needs --engine ray")

    import numpy as np

    from familiar.core.errors import UnreadablePhoto
    from familiar.core.files import write_atomically
    from familiar.embedding.model import detector_for, embed_photos
    from familiar.embedding.species.router import RoutedEmbedder
    from familiar.embedding.species.router_file import open_model
    from familiar.photos.decoding import find_photos

    require_parent_folder(output)
    opened = open_model(model, providers=providers)
    paths = find_photos(photos)
    status = StatusLine()

    def show(done: int) -> None:
        status.show(f"embedded {done}/{len(paths)} photos")

    face_detector = detector_for(opened, paths, detector, detector_model)
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


def _embed_with_ray(
    settings: "EmbeddingSettings", photos: tuple[str, ...], output: Path, workers: int | None, as_json: bool
) -> None:
    from familiar.core.plural import pluralize
    from familiar.embedding.distributed.ray_engine import embed_with_ray

    status = StatusLine()
    result = embed_with_ray(
        settings,
        photos,
        output,
        workers=workers,
        on_photos=lambda done, total: status.show(f"embedded {done}/{total} photos"),
    )
    status.clear()
    if as_json:
        print_json({"output": output, **asdict(result)})
        return
    click.echo(
        f"{output}: {result.faces} faces in {pluralize(result.photos, 'photo')}, {result.without_embedding} without an "
        f"embedding; {result.known} embedded before"
        + (f", {result.changed} again since they have changed" if result.changed else "")
    )


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
