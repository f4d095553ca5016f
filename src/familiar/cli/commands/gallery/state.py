"""How a gallery is: `stats`, `check`, `repair`."""

from dataclasses import asdict
from pathlib import Path

import click

from familiar.cli.commands.gallery.arguments import called, counted, folder_argument
from familiar.cli.console import print_json
from familiar.cli.options import FILE, json_option
from familiar.core.terminal_text import printable

LISTED = 50  # identities, or photos; --json has them all


@click.command()
@folder_argument
@json_option
def stats(folder: Path, as_json: bool) -> None:
    """What is in a gallery.

    Photos, faces, who they are, and the last decisions.

    \b
    Example:
      familiar gallery stats album
    """
    from familiar.gallery.database.connection import Gallery
    from familiar.gallery.search.statistics import gallery_statistics

    with Gallery.open(folder) as gallery:
        seen = gallery_statistics(gallery)
    if as_json:
        print_json({"gallery": folder} | asdict(seen))
        return
    click.echo(
        f"{folder}: {counted(seen.photos, 'photo')}, {counted(seen.faces, 'face')}, "
        f"{counted(len(seen.identities), 'identity')}, {seen.unassigned:,} alone"
    )
    click.echo(f"space      {seen.space.space_id} ({seen.space.embedding_dim} numbers)")
    whose = "the gallery's own" if seen.grouping.own else "the model's"
    click.echo(f"threshold  {seen.grouping.threshold:.3f}, {whose}")
    click.echo(f"on disk    {seen.size_bytes / 1e6:.2f} MB{', indexed' if seen.indexed else ''}")
    for one in seen.identities[:LISTED]:
        shown = f"like {printable(one.path)} (face {one.face})" if one.path else ""
        name = called(one.number, one.name)
        click.echo(f"  {name:24} {counted(one.faces, 'face'):>12}, {one.confirmed:,} confirmed  {shown}")
    if len(seen.identities) > LISTED:
        click.echo(f"  ... and {len(seen.identities) - LISTED:,} more: --json lists all")
    for decision in seen.decisions:
        click.echo(f"{decision.decided_at}  {decision.kind} ({counted(decision.changes, 'row')})")


@click.command()
@folder_argument
@json_option
def check(folder: Path, as_json: bool) -> None:
    """Is a gallery whole? Exit 1 where it is not.

    Every page, every reference, every embedding. Photos that are not where they were are listed, and no problem.

    \b
    Example:
      familiar gallery check album
    """
    from familiar.gallery.database.connection import Gallery
    from familiar.gallery.integrity.check import ERASURE_DUE
    from familiar.gallery.integrity.check import check as look

    with Gallery.open(folder, check=False) as gallery:
        seen = look(gallery)
    if as_json:
        print_json(asdict(seen))
    else:
        for what, some in (("problem", seen.problems), ("missing", seen.missing), ("changed", seen.changed)):
            for text in some[:LISTED]:
                click.echo(f"{what}: {printable(text)}")
            if len(some) > LISTED:
                click.echo(f"{what}: ... and {len(some) - LISTED:,} more: --json lists all")
        said = f"{counted(len(seen.problems), 'problem')}" if seen.problems else "whole"
        click.echo(f"{folder}: {said}; {counted(seen.photos, 'photo')}, {counted(seen.faces, 'face')}")
        if set(seen.problems) - {ERASURE_DUE}:
            click.echo(f"save what can be saved with: familiar gallery repair {folder}", err=True)
    if seen.problems:
        raise SystemExit(1)


@click.command()
@folder_argument
@click.option("--model", "-m", type=FILE, help="The gallery's model, where the file does not tell any more.")
@json_option
def repair(folder: Path, model: Path | None, as_json: bool) -> None:
    """Make a whole gallery of what can be read of a damaged one.

    The damaged file is kept beside it. The log of decisions is not saved, so they cannot be undone any more.

    \b
    Example:
      familiar gallery repair album
    """
    from familiar.embedding.bundle import load_bundle
    from familiar.gallery.database.connection import Space
    from familiar.gallery.integrity.check import repair as save

    repaired = save(folder, None if model is None else Space.from_metadata(load_bundle(model).metadata))
    if as_json:
        print_json(asdict(repaired))
        return
    saved = ", ".join(f"{count:,} {table}" for table, count in repaired.saved.items() if table != "gallery")
    click.echo(f"{folder}: whole again with {saved or 'nothing in it'}; the damaged file is in {repaired.kept_in}")
