"""`familiar gallery`: a photo collection, its groups, and what the user says of them."""

import click

from familiar.cli.commands.gallery.clustering import calibrate, group, suggest
from familiar.cli.commands.gallery.editing import (
    confirm,
    forget,
    merge,
    move,
    name,
    reject,
    split,
    undo,
)
from familiar.cli.commands.gallery.photos import enroll, migrate, search, verify
from familiar.cli.commands.gallery.state import check, repair, stats
from familiar.cli.commands.gallery.transfer import export, import_
from familiar.cli.options import InOrder

COMMANDS = (
    enroll,
    search,
    verify,
    group,
    suggest,
    name,
    confirm,
    merge,
    split,
    move,
    reject,
    undo,
    forget,
    stats,
    calibrate,
    migrate,
    check,
    repair,
    import_,
    export,
)


@click.group(cls=InOrder)
def gallery() -> None:
    """A photo collection: who is on which photo.

    A gallery is a folder. An identity is given by its name, or by its number as #12; a face by its number, or by
    the path of a photo that shows one face.

    \b
    Example:
      familiar gallery enroll album photos/ --model pet-nano
      familiar gallery group album
      familiar gallery suggest album --ask
    """


for command in COMMANDS:
    gallery.add_command(command)
