"""The `familiar` command: a table of commands, and one place where expected failures become one line."""

import sys

import typer

from familiar.app.commands import (
    embed,
    evaluate,
    export,
    inspect,
    models,
    quickstart,
    recipes,
    train,
    verify,
)
from familiar.core.errors import FamiliarError

app = typer.Typer(
    name="familiar",
    help="Identity embeddings for the faces of people and pets: train, prove, ship, use.",
    epilog="Begin with: familiar quickstart",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (quickstart, inspect, recipes, models, train, evaluate, export, embed, verify):
    name = command.__name__.rsplit(".", 1)[1]
    app.command(name)(getattr(command, name))


def main() -> None:
    """Exit 0 on success, 1 with one line for an expected failure, 2 for wrong usage."""
    try:
        app()
    except FamiliarError as error:
        typer.echo(f"familiar: {error}", err=True)
        sys.exit(1)
    except ModuleNotFoundError as error:
        extra = _EXTRA_OF.get((error.name or "").split(".")[0])
        if extra is None:
            raise
        typer.echo(f"familiar: this needs {error.name}: pip install 'familiar-faces[{extra}]'", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        typer.echo("familiar: stopped", err=True)
        sys.exit(130)


_EXTRA_OF = {
    "torch": "train",
    "torchvision": "train",
    "timm": "train",
    "onnx": "train",
    "onnxscript": "train",
    "safetensors": "train",
    "matplotlib": "evaluate",
    "sklearn": "evaluate",
}
