"""`familiar cluster`: cluster the faces that `familiar embed` has written to a folder."""

from dataclasses import asdict
from pathlib import Path

import click

from familiar.cli.console import StatusLine, print_json
from familiar.cli.options import FILE, json_option, model_option, require_parent_folder


class _Share(click.ParamType):
    name = "K/N"

    def convert(
        self, value: str | tuple[int, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        share, _, shares = value.partition("/")
        if not (share.isdecimal() and shares.isdecimal() and 1 <= int(share) <= int(shares)):
            self.fail(f"{value} is not a share such as 2/8", param, ctx)
        return int(share) - 1, int(shares)


@click.command()
@click.argument("embeddings", type=FILE)
@model_option
@click.option("--output", "-o", required=True, type=FILE, help="The Parquet file to write.")
@click.option(
    "--share",
    type=_Share(),
    default="1/1",
    show_default=True,
    help="Do only share K of the search for neighbors, of N that run at the same time.",
)
@json_option
def cluster(embeddings: Path, models: tuple[str, ...], output: Path, share: tuple[int, int], as_json: bool) -> None:
    """Cluster faces without a gallery: millions of them, on a disk.

    EMBEDDINGS is a folder that familiar embed --engine ray has written, and --model the one that it used. Each species
    is clustered by itself, from the threshold that the faces themselves suggest. The output has a row for each face:
    photo, face, species and cluster (-1: its quality is too low).

    A command that was interrupted goes on when it is repeated; until then its files are in the folder OUTPUT.work.
    With more than 100,000 faces, several commands may divide the search among them, also on several machines with a
    common disk: each with another --share. The last one to end writes the output.

    \b
    Example:
      familiar cluster embeddings/ --model pet-mobile --output clusters.parquet
    """
    from familiar.core.plural import pluralize
    from familiar.embedding.embedder import Embedder
    from familiar.integrations.ray.clusters import cluster_parts

    require_parent_folder(output)
    status = StatusLine()
    results = cluster_parts(
        embeddings,
        Embedder(models),
        output,
        share=share[0],
        shares=share[1],
        on_progress=lambda what, done, total: status.show(f"{what}  {done:,}/{total:,}"),
    )
    status.clear()
    if as_json:
        print_json({"output": output, "species": None if results is None else [asdict(each) for each in results]})
        return
    if results is None:
        click.echo(f"share {share[0] + 1} of {share[1]} is done, others are not; the last one writes {output}")
        return
    for each in results:
        origin = "estimated from the faces" if each.is_estimated else "the model's"
        name = each.species or ("all faces" if len(results) == 1 else "unknown species")
        click.echo(
            f"{name}: {pluralize(each.faces, 'face')} in {pluralize(each.clusters, 'cluster')}; threshold "
            f"{each.threshold:.3f}, {origin}"
        )
    click.echo(f"{output} written")
