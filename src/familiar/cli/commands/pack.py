"""`familiar pack`: write photos into shards."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import click

from familiar.cli.console import StatusLine, list_skipped, print_json
from familiar.cli.options import FILE, data_argument, data_spec, json_option, limit_options, max_megapixels_option


@click.command()
@data_argument
@click.option("--output", "-o", required=True, type=FILE, help="Folder of the shards; one subfolder for each DATA.")
@click.option(
    "--format",
    "shard_format",
    type=click.Choice(["tar", "parquet"]),
    default="tar",
    show_default=True,
    help="Tar files as WebDataset has them, or Parquet files.",
)
@click.option(
    "--shard-mb",
    type=click.FloatRange(0.001, 100_000),
    default=256,
    show_default=True,
    help="Size at which a shard ends.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the photos' order.")
@limit_options
@max_megapixels_option
@json_option
def pack(
    data: tuple[str, ...],
    output: Path,
    shard_format: Literal["tar", "parquet"],
    shard_mb: float,
    seed: int,
    identities: Path | None,
    max_identities: int | None,
    max_photos: int | None,
    exclude: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write photos into shards: a few large files in place of many small ones.

    Each folder of shards can be used as DATA, from a disk or a URL such as s3://bucket/shards/cats, and gives the
    same training as the photos it was made from.

    \b
    Example:
      familiar pack photos/cats photos/dogs --output shards
      familiar train shards/cats shards/dogs --output runs/pets
    """
    from familiar.datasets.shards.packing import pack as pack_table
    from familiar.datasets.sources import parse_sources

    spec = data_spec(data, identities, max_identities, max_photos, exclude)
    status = StatusLine()
    results: list[dict[str, object]] = []
    skipped: list[str] = []
    for source in data:
        (root,) = parse_sources([source])
        table = replace(spec, sources=(source,)).read()
        packed = pack_table(
            table,
            output / root.replace(":", "-"),
            format=shard_format,
            shard_bytes=int(shard_mb * 1e6),
            seed=seed,
            on_photo=lambda done, total: status.show(f"packing photos  {done:,}/{total:,}"),
        )
        status.clear()
        folder = packed.shards[0].parent
        size = sum(shard.stat().st_size for shard in packed.shards)
        results.append({"folder": folder, "shards": len(packed.shards), "photos": packed.photos, "bytes": size})
        skipped += map(str, packed.skipped)
        if not as_json:
            click.echo(
                f"{folder}: {packed.photos:,} photos of {len(table.names):,} identities in {len(packed.shards):,} "
                f"shards, {size / 1e6:.1f} MB"
            )
    if as_json:
        print_json({"packed": results, "skipped": skipped})
        return
    list_skipped(skipped)
