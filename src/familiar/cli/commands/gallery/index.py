"""`familiar gallery index`."""

from dataclasses import asdict
from pathlib import Path

import click

from familiar.cli.commands.gallery.arguments import folder_argument, open_gallery
from familiar.cli.commands.gallery.indexing import sync_index
from familiar.cli.console import print_json
from familiar.cli.options import json_option


@click.command()
@folder_argument
@click.option(
    "--index",
    "address",
    metavar="INDEX",
    help="Search with Milvus from now on: milvus:http://HOST:19530, or milvus:FILE.db for a file of Milvus Lite; or "
    "local, to remove it there and search without it.",
)
@json_option
def index(folder: Path, address: str | None, as_json: bool) -> None:
    """Build a gallery's search index, or make it equal to the gallery again.

    Without --index, the index that the gallery has: Milvus, or for galleries of 50,000 faces and more a file in its
    folder. The gallery remains the truth: an index can be built again at any time. The token of a Milvus server is read
    from the environment variable MILVUS_TOKEN.

    \b
    Example:
      familiar gallery index album --index milvus:http://localhost:19530
    """
    with open_gallery(folder) as gallery:
        result = sync_index(gallery, address).external
    if as_json:
        print_json({"gallery": folder, "milvus": None if result is None else asdict(result)})
    elif result is not None:
        click.echo(
            f"{folder}: {result.faces:,} faces in Milvus, {result.written:,} written, {result.removed:,} removed"
        )
    else:
        click.echo(f"{folder}: no index outside its folder")
