"""`familiar gallery`: a searchable collection of photos, its identities and their corrections."""

import click

from familiar.cli.commands.gallery.backup import backup, restore
from familiar.cli.commands.gallery.check import check
from familiar.cli.commands.gallery.cluster import cluster
from familiar.cli.commands.gallery.editing import confirm, merge, move, name, reject, split, undo
from familiar.cli.commands.gallery.enroll import enroll
from familiar.cli.commands.gallery.forget import forget
from familiar.cli.commands.gallery.index import index
from familiar.cli.commands.gallery.migrate import migrate
from familiar.cli.commands.gallery.register import register
from familiar.cli.commands.gallery.repair import repair
from familiar.cli.commands.gallery.review import review
from familiar.cli.commands.gallery.search import search
from familiar.cli.commands.gallery.stats import stats
from familiar.cli.commands.gallery.transfer import export, import_
from familiar.cli.commands.gallery.verify import verify
from familiar.cli.options import InOrder

COMMANDS = (
    enroll,
    search,
    verify,
    cluster,
    review,
    name,
    confirm,
    merge,
    split,
    move,
    reject,
    undo,
    forget,
    register,
    stats,
    migrate,
    index,
    check,
    repair,
    backup,
    restore,
    import_,
    export,
)


@click.group(cls=InOrder)
def gallery() -> None:
    """Manage a searchable gallery of photos.

    A gallery is a folder. An IDENTITY is given by its name, or by its number as #12; a face by its number, or by the
    path of a photo that shows one face.

    \b
    Example:
      familiar gallery enroll album photos/ --model pet-nano
      familiar gallery cluster album
      familiar gallery review album --interactive
    """


for command in COMMANDS:
    gallery.add_command(command)
