"""`familiar push`: publish a bundle on the Hugging Face Hub."""

from pathlib import Path

import click

from familiar.cli.console import print_json
from familiar.cli.options import FILE, json_option


@click.command()
@click.argument("bundle", type=FILE)
@click.argument("repository", metavar="ORG/REPO")
@click.option("--private", is_flag=True, help="A new repository is seen by its owners only.")
@click.option("--message", "-m", help="Message of the commit.")
@json_option
def push(bundle: Path, repository: str, private: bool, message: str | None, as_json: bool) -> None:
    """Publish a bundle on the Hugging Face Hub.

    Writes model.onnx, its weights as model.safetensors, and a model card into ORG/REPO, which is created if it is
    missing. BUNDLE is a bundle or a run folder. Log in first, with hf auth login or the variable HF_TOKEN. Wherever a
    bundle is taken, hf://ORG/REPO or hf://ORG/REPO@REVISION is one.

    \b
    Example:
      familiar push runs/cats my-shelter/cats
      familiar verify a.jpg b.jpg --model hf://my-shelter/cats
    """
    from familiar.hub import push as push_bundle

    name = push_bundle(bundle, repository, private=private, message=message)
    if as_json:
        print_json({"name": name})
        return
    click.echo(f"published. Use it as --model {name.partition('@')[0]}, or this very version as --model {name}")
