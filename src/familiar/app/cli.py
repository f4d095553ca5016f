"""The `familiar` command: a table of commands, and one place where expected failures become one line."""

import sys

import click

from familiar import __version__
from familiar.app.commands.embed import embed
from familiar.app.commands.evaluate import evaluate
from familiar.app.commands.export import export
from familiar.app.commands.inspect import inspect
from familiar.app.commands.models import models
from familiar.app.commands.quickstart import quickstart
from familiar.app.commands.recipes import recipes
from familiar.app.commands.train import train
from familiar.app.commands.verify import verify
from familiar.core.errors import FamiliarError

COMMANDS = (quickstart, inspect, recipes, models, train, evaluate, export, embed, verify)

EXTRA_OF = {  # which extra brings a package that may be missing
    "torch": "train",
    "torchvision": "train",
    "timm": "train",
    "onnx": "train",
    "onnxscript": "train",
    "safetensors": "train",
    "matplotlib": "evaluate",
    "sklearn": "evaluate",
}


class InOrder(click.Group):
    """Lists its commands in the order of a first visit, not of the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return [command.name or "" for command in COMMANDS]


@click.group(cls=InOrder, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def familiar() -> None:
    """Identity embeddings for the faces of people and pets.

    Begin with: familiar quickstart
    """


for command in COMMANDS:
    familiar.add_command(command)


def main() -> None:
    """Exit 0 on success, 1 with one line for an expected failure, 2 for wrong usage."""
    try:
        familiar()
    except FamiliarError as error:
        _fail(str(error))
    except ModuleNotFoundError as error:
        extra = EXTRA_OF.get((error.name or "").split(".")[0])
        if extra is None:
            raise
        _fail(f"this needs {error.name}: pip install 'familiar-faces[{extra}]'")


def _fail(message: str) -> None:
    # A file's name may hold a newline; the message is one line whatever it holds.
    click.echo(f"familiar: {' '.join(message.splitlines())}", err=True)
    sys.exit(1)
