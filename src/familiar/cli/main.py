"""The `familiar` command: a table of commands, and one place where expected failures become one line."""

import os
import sys

import click

from familiar import __version__
from familiar.cli.commands.augment import augment
from familiar.cli.commands.cluster import cluster
from familiar.cli.commands.download import download
from familiar.cli.commands.embed import embed
from familiar.cli.commands.evaluate import evaluate
from familiar.cli.commands.export import export
from familiar.cli.commands.gallery import gallery
from familiar.cli.commands.import_network import import_network
from familiar.cli.commands.inspect import inspect
from familiar.cli.commands.match import match
from familiar.cli.commands.models import models
from familiar.cli.commands.pack import pack
from familiar.cli.commands.push import push
from familiar.cli.commands.quickstart import quickstart
from familiar.cli.commands.recipes import recipes
from familiar.cli.commands.serve import serve
from familiar.cli.commands.species import species
from familiar.cli.commands.train import train
from familiar.cli.commands.verify import verify
from familiar.cli.commands.watch import watch
from familiar.cli.console import prepare
from familiar.cli.options import InOrder
from familiar.core.errors import FailedOnMain, FamiliarError, TrainingFailed
from familiar.core.terminal_text import one_line

COMMANDS = (
    quickstart,
    download,
    inspect,
    recipes,
    models,
    pack,
    augment,
    train,
    evaluate,
    export,
    push,
    import_network,
    embed,
    cluster,
    verify,
    match,
    species,
    gallery,
    watch,
    serve,
)

TRAINING_FAILED = 3
EXTRA_OF = {  # which extra brings a package that may be missing
    "torch": "train",
    "torchvision": "train",
    "timm": "train",
    "onnx": "train",
    "onnxscript": "train",
    "safetensors": "train",
    "matplotlib": "evaluate",
    "sklearn": "evaluate",
    "threadpoolctl": "evaluate",
    "pandas": "data",
    "fsspec": "data",
    "pyarrow": "data",
    "ray": "ray",
    "filelock": "ray",
    "pymilvus": "milvus",
    "huggingface_hub": "hub",
    "accelerate": "track",
    "fastapi": "serve",
    "httptools": "serve",
    "httpx2": "serve",
    "python_multipart": "serve",
    "uvicorn": "serve",
}


@click.group(cls=InOrder, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def familiar() -> None:
    """Identity embeddings for the faces of people and pets.

    Begin with: familiar quickstart
    """


for command in COMMANDS:
    familiar.add_command(command)


def main() -> None:
    """Exit 0 on success, 1 with one line for an expected failure, 2 for wrong usage, 3 where training itself failed."""
    prepare()
    try:
        familiar()
    except FailedOnMain:
        sys.exit(1)  # rank 0 reports it
    except TrainingFailed as error:
        _fail(str(error), TRAINING_FAILED)
    except FamiliarError as error:
        _fail(str(error))
    except OSError as error:
        if error.strerror is None:  # not raised by the operating system, so a bug
            raise
        _fail(f"{os.fsdecode(error.filename)}: {error.strerror}" if error.filename else error.strerror)
    except ModuleNotFoundError as error:
        extra = EXTRA_OF.get((error.name or "").split(".")[0])
        if extra is None:
            raise
        _fail(f"this needs {error.name}: pip install 'familiar-faces[{extra}]'")


def _fail(message: str, status: int = 1) -> None:
    click.echo(f"familiar: {one_line(message)}", err=True)
    sys.exit(status)
