"""`familiar gallery stats`."""

from dataclasses import asdict
from pathlib import Path

import click

from familiar.cli.commands.gallery.arguments import folder_argument, label, open_gallery
from familiar.cli.console import print_json
from familiar.cli.options import json_option
from familiar.core.plural import pluralize
from familiar.core.terminal_text import printable

LISTED = 50  # identities; --json has them all


@click.command()
@folder_argument
@json_option
def stats(folder: Path, as_json: bool) -> None:
    """Summarize a gallery.

    Prints how many photos and faces it has, its identities, and the last changes that can be undone.

    \b
    Example:
      familiar gallery stats album
    """
    with open_gallery(folder) as gallery:
        statistics = gallery.statistics()
    if as_json:
        print_json({"gallery": folder} | asdict(statistics))
        return
    identities = statistics.identities
    click.echo(
        f"{folder}: {pluralize(statistics.photos, 'photo')}, {pluralize(statistics.faces, 'face')}, "
        f"{pluralize(len(identities), 'identity')}, {statistics.unassigned:,} unassigned"
    )
    click.echo(f"space      {statistics.space.space_id} ({statistics.space.embedding_dim} dimensions)")
    for threshold in statistics.thresholds:
        species = f"{printable(threshold.species)}: " if threshold.species else ""
        click.echo(f"threshold  {species}{threshold.decided}")
        if threshold.false_match_rate is not None:
            click.echo(
                f"           at most {100 * threshold.false_match_rate:.2g} % of pairs of two individuals reach it"
            )
        if threshold.learned_gain is not None:
            click.echo(
                f"           {pluralize(threshold.learned_individuals, 'confirmed individual')} taught how to compare "
                f"faces: average precision of others +{threshold.learned_gain:.3f}"
            )
        if threshold.same_photo_pairs:
            click.echo(
                f"           {pluralize(threshold.same_photo_pairs, 'pair')} of faces in one photo: "
                f"{threshold.same_photo_matches:,} would reach it"
            )
        if threshold.burst_pairs:
            click.echo(
                f"           {pluralize(threshold.burst_pairs, 'pair')} of photos taken within seconds: "
                f"{threshold.burst_matches:,} reach it"
            )
    click.echo(f"on disk    {statistics.size_bytes / 1e6:.2f} MB{', indexed' if statistics.indexed else ''}")
    for identity in identities[:LISTED]:
        example = f"for example {printable(identity.path)} (face {identity.face})" if identity.path else ""
        name = label(identity.number, identity.name)
        doubt = "  maybe two individuals" if identity.doubtful else ""
        click.echo(
            f"  {name:24} {pluralize(identity.faces, 'face'):>12}, {identity.confirmed:,} confirmed  {example}{doubt}"
        )
    if len(identities) > LISTED:
        click.echo(f"  ... and {len(identities) - LISTED:,} more: --json lists all")
    for decision in statistics.decisions:
        rows = pluralize(decision.changes, "row")
        click.echo(f"{decision.decided_at}  {decision.kind} ({rows}), change {decision.number}")
