"""`familiar embed`: write embeddings of photos to a file."""

import io
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from familiar.cli.console import StatusLine, list_skipped, note_passed_over, print_json
from familiar.cli.options import (
    FILE,
    embedding_options,
    exclude_option,
    json_option,
    model_option,
    require_parent_folder,
    species_option,
)

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.embedding.embedder import Embedder
    from familiar.embedding.photos import EmbedResult
    from familiar.integrations.ray.worker import EmbeddingSettings


@click.command()
@click.argument("photos", nargs=-1, required=True, metavar="PHOTOS...")  # not paths, which have no "//" of a URL
@model_option
@click.option("--output", "-o", required=True, type=FILE, help="The .npz file to write; with --engine ray a folder.")
@species_option
@exclude_option
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
    models: tuple[str, ...],
    output: Path,
    species: str | None,
    exclude: tuple[str, ...],
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
    With bundles of several species it holds the `paths`, the `species` of each, and for each species NAME:
    `NAME_embeddings`, `NAME_rows` (for each embedding the index of its photo in `paths`) and `NAME_space_id`.

    With --engine ray, PHOTOS may also be shards (see familiar pack), and the output is a folder of Parquet files with a
    row for each face: photo, box, quality, embedding, and the bundle's `file_id`; or for a photo without one the error.
    A repeated command embeds only what is missing or has changed.

    \b
    Example:
      familiar embed photos/ --model runs/cats/model.onnx --output cats.npz
      familiar embed photos/ --model pet-mobile --engine ray --output embeddings/
    """
    if engine == "ray":
        from familiar.integrations.ray.worker import EmbeddingSettings

        settings = EmbeddingSettings(models, detector, detector_model, tta, species, providers)
        _embed_with_ray(settings, photos, exclude, output, workers, as_json)
        return
    if workers is not None:
        raise click.UsageError("--workers needs --engine ray")

    import numpy as np

    from familiar.core.errors import UnreadablePhoto
    from familiar.core.files import write_atomically
    from familiar.embedding.embedder import Embedder
    from familiar.embedding.photos import detector_for, embed_photos
    from familiar.photos.listing import find_photos

    require_parent_folder(output)
    embedder = Embedder(models, providers=providers)
    passed_over = Counter[str]()
    paths = find_photos(photos, exclude=exclude, passed_over=passed_over)
    status = StatusLine()
    embedded = embed_photos(
        embedder,
        paths,
        detector_for(embedder, paths, detector, detector_model),
        species=species,
        flip=tta,
        on_photo=lambda done: status.show(f"embedded {done}/{len(paths)} photos"),
    )
    rows, skipped = embedded.rows.tolist(), embedded.skipped
    arrays: dict[str, Any] = {"embeddings": embedded.embeddings, "space_id": np.array(embedder.space[0])}
    if embedder.species is not None:
        arrays = _arrays_by_species(embedder, embedded)
    status.clear()
    list_skipped(skipped)
    note_passed_over(passed_over)
    if not rows:
        raise UnreadablePhoto(f"none of the {len(paths)} photos could be embedded; nothing was written")
    content = io.BytesIO()
    np.savez(content, paths=np.array([str(paths[row]) for row in rows]), **arrays)
    write_atomically(output, content.getvalue())
    if as_json:
        print_json(
            {"output": output, "photos": len(rows), "skipped": [str(error) for error in skipped]}
            | {"passed_over": passed_over}
        )
    else:
        click.echo(f"{output}: {len(rows)} embeddings, {len(skipped)} photos skipped")


def _embed_with_ray(
    settings: "EmbeddingSettings",
    photos: tuple[str, ...],
    exclude: tuple[str, ...],
    output: Path,
    workers: int | None,
    as_json: bool,
) -> None:
    from familiar.core.plural import pluralize
    from familiar.integrations.ray.engine import embed_with_ray

    status = StatusLine()
    result = embed_with_ray(
        settings,
        photos,
        output,
        workers=workers,
        exclude=exclude,
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


def _arrays_by_species(embedder: "Embedder", embedded: "EmbedResult") -> dict[str, Any]:
    """Collect each photo's species, and the embeddings of each species, which cannot be compared with each other."""
    import numpy as np

    species = np.array([str(name) for name in embedded.species])
    arrays: dict[str, Any] = {"species": species}
    for name in embedder.species or ():
        only, columns = embedder.only(name)
        rows = np.flatnonzero(species == name)
        arrays[f"{name}_embeddings"] = embedded.embeddings[rows, columns]
        arrays[f"{name}_rows"] = rows
        arrays[f"{name}_space_id"] = np.array(only.space[0])
    return arrays
