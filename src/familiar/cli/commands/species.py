"""`familiar species`: write down which bundle embeds faces of which species."""

from pathlib import Path

import click

from familiar.cli.console import print_json
from familiar.cli.options import FILE, json_option, require_parent_folder


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option("--output", "-o", required=True, type=FILE, help="The .json file to write.")
@json_option
def species(models: tuple[str, ...], output: Path, as_json: bool) -> None:
    """Write down which bundle is for which species.

    The file takes the place of a --model: each face is embedded by the bundle of its species, which the detector tells,
    or --species. MODEL is for the species that it was made for, SPECIES=MODEL for those that are named, with commas
    between them.

    \b
    Example:
      familiar species pet-mobile person-mobile --output family.json
      familiar species cat,dog=pet-mobile person=sface.onnx --output family.json
    """
    from familiar.embedding.species import SUFFIX, assign_species, write_species_file

    require_parent_folder(output)
    if output.suffix != SUFFIX:
        raise click.BadParameter(f"the name of a species file ends in {SUFFIX}: {output.name}", param_hint="--output")
    assigned = assign_species(models)
    write_species_file(output, assigned)
    if as_json:
        print_json({"output": output, "species": {name: str(model) for name, model in assigned.items()}})
        return
    for name, model in assigned.items():
        click.echo(f"{name}: {model}")
    click.echo(f"{output} written")
