"""`familiar inspect`: what is in a folder of labelled photos."""

from pathlib import Path

import click

from familiar.app.console import list_skipped, print_json
from familiar.app.options import data_argument, data_spec, json_option, limit_options


@click.command()
@data_argument
@limit_options
@json_option
def inspect(
    data: tuple[str, ...],
    identities: Path | None,
    max_identities: int | None,
    max_photos: int | None,
    as_json: bool,
) -> None:
    """What is in a folder of labelled photos.

    Counts identities and photos, measures sizes, and lists what cannot be read.

    \b
    Example:
      familiar inspect photos/cats
    """
    from familiar.datasets.inspection import inspect_table

    found = inspect_table(data_spec(data, identities, max_identities, max_photos).read())
    if as_json:
        print_json(found.as_dict())
        return
    list_skipped(found.unreadable)
    click.echo(
        f"{found.photos} photos of {found.identities} identities, {found.single} of them with one photo only"
    )
    low, middle, high = found.photos_per_identity
    click.echo(f"photos per identity: {low} to {high}, median {middle:g}")
    for name, (low, middle, high) in (("width", found.width_px), ("height", found.height_px)):
        click.echo(f"{name}: {low} to {high} px, median {middle:g}")
    click.echo(f"unreadable: {len(found.unreadable)}")
    for reason, count in sorted(found.ignored.items()):
        click.echo(f"ignored, {reason}: {count}")
