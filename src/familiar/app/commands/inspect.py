"""`familiar inspect`: what is in a folder of labelled photos."""

import typer

from familiar.app.console import list_skipped, print_json
from familiar.app.options import Data, Identities, Json, MaxIdentities, MaxPhotos


def inspect(
    data: Data,
    identities: Identities = None,
    max_identities: MaxIdentities = None,
    max_photos: MaxPhotos = None,
    as_json: Json = False,
) -> None:
    """What is in a folder of labelled photos.

    Counts identities and photos, measures sizes, and lists what cannot be read.

    Example: familiar inspect photos/cats
    """
    from familiar.datasets.folders import DataSpec, read_identity_list
    from familiar.datasets.inspection import inspect_table

    listed = None if identities is None else tuple(sorted(read_identity_list(identities)))
    found = inspect_table(DataSpec(tuple(data), listed, max_identities, max_photos).read())
    if as_json:
        print_json(found.as_dict())
        return
    list_skipped(found.unreadable)
    typer.echo(
        f"{found.photos} photos of {found.identities} identities, {found.single} of them with one photo only"
    )
    low, middle, high = found.photos_per_identity
    typer.echo(f"photos per identity: {low} to {high}, median {middle:g}")
    for name, (low, middle, high) in (("width", found.width_px), ("height", found.height_px)):
        typer.echo(f"{name}: {low} to {high} px, median {middle:g}")
    typer.echo(f"unreadable: {len(found.unreadable)}")
    for reason, count in sorted(found.ignored.items()):
        typer.echo(f"ignored, {reason}: {count}")
