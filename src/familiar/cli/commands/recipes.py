"""`familiar recipes`: list the training recipes."""

import click

from familiar.cli.console import print_json
from familiar.cli.options import json_option


@click.command()
@json_option
def recipes(
    as_json: bool,
) -> None:
    """List training recipes (all settings: --json).

    \b
    Example:
      familiar recipes
    """
    from familiar.recipes import RECIPES

    if as_json:
        print_json({name: make().to_primitive() for name, make in RECIPES.items()})
        return
    for name, make in RECIPES.items():
        click.echo(f"{name:32} {(make.__doc__ or '').splitlines()[0]}")
    click.echo("\nChange a setting with --set, for example: --set optimizer.lr=1e-3 (all: --json)")
