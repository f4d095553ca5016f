"""Arguments and options that several commands share, said once."""

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.datasets.folders import DataSpec

Command = TypeVar("Command", bound=Callable[..., Any])


class InOrder(click.Group):
    """Lists its commands in the order they were added, that of a first visit, not of the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.commands)


FILE = click.Path(readable=False, path_type=Path)  # what cannot be read is said by whoever reads it

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
data_argument = click.argument("data", nargs=-1, required=True, metavar="DATA...")
model_option = click.option(
    "--model",
    "-m",
    required=True,
    type=FILE,
    help="A bundle (.onnx), the folder of a run, the name of a shipped bundle (familiar models --shipped) or, for "
    "embed and verify, a router (.json).",
)
license_option = click.option("--license", help="Terms of use to write into the bundle.")


def data_spec(
    data: tuple[str, ...], identities: Path | None, max_identities: int | None, max_photos: int | None
) -> "DataSpec":
    """What `data_argument` and `limit_options` ask for."""
    from familiar.datasets.folders import DataSpec, read_identity_list

    listed = None if identities is None else tuple(sorted(read_identity_list(identities)))
    return DataSpec(data, listed, max_identities, max_photos)


def all_of(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator, listed in the help in this order."""
    return lambda command: reduce(lambda made, decorate: decorate(made), reversed(decorators), command)


def require_folder_of(output: Path) -> None:
    """Wrong usage where a file is to be written into a folder that is not there: said before anything is done."""
    if not output.parent.is_dir():
        raise click.BadParameter(f"{output.parent} is no folder", param_hint="--output")


recipe_options = all_of(
    click.option("--recipe", "-r", default="pet-mobile", show_default=True, help="See `familiar recipes`."),
    click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a setting of the recipe."),
)

limit_options = all_of(
    click.option(
        "--identities",
        type=FILE,
        help="Keep only the identities listed in this file, one folder name a line.",
    ),
    click.option("--max-identities", type=click.IntRange(min=1), help="Keep at most so many identities."),
    click.option("--max-photos", type=click.IntRange(min=1), help="Keep at most so many photos of each."),
)

detector_options = all_of(
    click.option(
        "--detector",
        default="none",
        show_default=True,
        help="none (photos are crops already), center, haar, haar-cat, or yunet.",
    ),
    click.option("--detector-model", type=FILE, help="The ONNX file of the yunet detector."),
)

embedding_options = all_of(
    click.option("--tta", is_flag=True, help="Average each photo with its mirror image, at twice the cost."),
    detector_options,
)
