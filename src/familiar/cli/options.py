"""Arguments and options that several commands share."""

import contextlib
import copy
import os
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.datasets.folders import DataSpec
    from familiar.training.recipe import Recipe

Command = TypeVar("Command", bound=Callable[..., Any])


class InOrder(click.Group):
    """A command group that lists its commands in the order they were added, and refuses options that are repeated."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name, and check the others."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and not ctx.resilient_parsing:
            _refuse_repeated_options(click.Context(command, parent=ctx, info_name=name), rest)
        return name, command, rest


def _refuse_repeated_options(context: click.Context, args: Sequence[str]) -> None:
    """Refuse an option that takes one value and is given twice: click would silently take the last."""
    parser = context.command.make_parser(context)
    single = [
        option
        for option in context.command.params
        if isinstance(option, click.Option) and not (option.multiple or option.is_flag or option.count)
    ]
    for option in single:
        repeatable = copy.copy(option)
        repeatable.multiple = True
        repeatable.add_to_parser(parser, context)
    parsed, _, _ = parser.parse_args(list(args))
    for option in single:
        values = parsed.get(option.name or "", [])
        if isinstance(values, list) and len(values) > 1:
            listed = ", ".join(map(str, values))
            times = "twice" if len(values) == 2 else f"{len(values)} times"
            raise click.UsageError(f"{option.opts[0]} was given {times}: {listed}; give one", context)


FILE = click.Path(readable=False, path_type=Path)  # the function that reads a file reports why it cannot

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
data_argument = click.argument("data", nargs=-1, required=True, metavar="DATA...")
_MODELS = (
    "a bundle (.onnx), a run folder, the name of a shipped bundle (familiar models --shipped) or hf://ORG/REPO of the "
    "Hugging Face Hub. Repeat it for bundles of several species, as SPECIES=MODEL where a bundle does not say which it "
    "is for; or give a .json file that familiar species wrote."
)
_FAMILY = "pet-mobile for cats and dogs, person-mobile for people"
model_option = click.option("--model", "-m", "models", required=True, multiple=True, help=f"A{_MODELS[1:]}")
verify_model_option = click.option(
    "--model", "-m", "models", multiple=True, help=f"A{_MODELS[1:]} [default: {_FAMILY}]"
)
album_model_option = click.option(
    "--model",
    "-m",
    "models",
    multiple=True,
    help=f"Of a new gallery, which remembers it, or if it is at another place now: {_MODELS} [default: the gallery's; "
    f"of a new one {_FAMILY}]",
)
species_option = click.option("--species", metavar="NAME", help="Of all faces. [default: what the detector says]")
license_option = click.option("--license", help="License to store in the bundle.")


def data_spec(
    data: tuple[str, ...],
    identities: Path | None,
    max_identities: int | None,
    max_photos: int | None,
    exclude: tuple[str, ...],
) -> "DataSpec":
    """Collect the values of `data_argument` and `limit_options`."""
    from familiar.datasets.folders import DataSpec, read_identity_list

    listed = None if identities is None else tuple(sorted(read_identity_list(identities)))
    return DataSpec(data, listed, max_identities, max_photos, exclude=exclude)


def recipe_with(name: str, settings: tuple[str, ...], function: str | None) -> "Recipe":
    """Return the recipe that the values of `recipe_options` describe."""
    from familiar.recipes import recipe_named

    custom = () if function is None else (f"augmentation.custom={function}",)
    return recipe_named(name).with_settings((*settings, *custom))


def all_of(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Combine several options into one decorator; help lists them in this order."""
    return lambda command: reduce(lambda decorated, decorate: decorate(decorated), reversed(decorators), command)


def require_parent_folder(output: Path) -> None:
    """Refuse an output file in a folder that does not exist, before any work is done."""
    if not output.parent.is_dir():
        raise click.BadParameter(f"{output.parent} is not a folder", param_hint="--output")


recipe_options = all_of(
    click.option(
        "--recipe",
        "-r",
        default="pet-mobile",
        show_default=True,
        help="Name of the recipe; `familiar recipes` lists them.",
    ),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Change a recipe setting, such as loss.name=cosface; may be repeated.",
    ),
    click.option(
        "--augment",
        "function",
        metavar="MODULE:FUNCTION",
        help="Also change each training photo by this Python function, such as my_photos:sharpen.",
    ),
)

exclude_option = click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Leave out files and folders of this name, such as '*_edited.*', or with a slash of this path within the "
    "folder; may be repeated.",
)


def _limit_megapixels(context: click.Context, _: click.Parameter, megapixels: float | None) -> None:
    """Set the limit for this process and those that it starts, until the command ends."""
    if megapixels is not None:
        context.with_resource(_environment("FAMILIAR_MAX_MEGAPIXELS", str(megapixels)))


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


max_megapixels_option = click.option(
    "--max-megapixels",
    type=click.FloatRange(min=1e-6, max=1e6),
    metavar="N",
    expose_value=False,
    callback=_limit_megapixels,
    help="Leave out photos of which more megapixels would be decoded. [default: 250]",
)

limit_options = all_of(
    click.option(
        "--identities",
        type=FILE,
        help="Keep only the identities listed in this file, one folder name per line.",
    ),
    click.option("--max-identities", type=click.IntRange(min=1), help="Maximum number of identities."),
    click.option("--max-photos", type=click.IntRange(min=1), help="Maximum number of photos per identity."),
    exclude_option,
)

detector_options = all_of(
    click.option(
        "--detector",
        help="pets (cats and dogs), people, auto (both), none (photos are cropped already), center (the central "
        "square) or yunet. [default: the gallery's, or the model's]",
    ),
    click.option("--detector-model", type=FILE, help="ONNX file of YuNet. [default: the downloaded one]"),
    max_megapixels_option,
)

_PROVIDERS = {
    name.lower(): f"{name}ExecutionProvider"
    for name in ("CPU", "CUDA", "TensorRT", "CoreML", "OpenVINO", "ROCm", "MIGraphX", "QNN", "XNNPACK", "WebGPU")
} | {"directml": "DmlExecutionProvider", "tensorrt": "TensorrtExecutionProvider", "rocm": "ROCMExecutionProvider"}


def _full_names(_: click.Context, __: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the names of execution providers as ONNX Runtime has them; None: the default."""
    return tuple(_PROVIDERS.get(name.lower(), name) for name in names) or None


provider_option = click.option(
    "--provider",
    "providers",
    multiple=True,
    metavar="NAME",
    callback=_full_names,
    help="Run the network on cuda, tensorrt, coreml, directml, openvino or another execution provider of ONNX Runtime; "
    "may be repeated, for what the first cannot do. [default: cpu]",
)

embedding_options = all_of(
    click.option(
        "--tta",
        is_flag=True,
        help="Test-time augmentation: average the embeddings of each photo and its mirror image, at twice the cost.",
    ),
    detector_options,
    provider_option,
)
