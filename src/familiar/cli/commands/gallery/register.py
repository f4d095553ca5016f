"""`familiar gallery register`."""

from pathlib import Path

import click

from familiar.cli.commands.gallery.arguments import folder_argument, label, open_gallery
from familiar.cli.console import list_skipped, print_json
from familiar.cli.options import FILE, json_option, require_parent_folder
from familiar.core.errors import BadDataset
from familiar.core.plural import pluralize
from familiar.core.terminal_text import printable


@click.command()
@folder_argument
@click.argument("table", metavar="[FILE.csv]", type=FILE, required=False)
@click.option(
    "--status", type=click.Choice(["lost", "found", "home"]), help="List only pets that are lost, found, or home again."
)
@click.option("--output", type=FILE, help="Write the register to this CSV file, which this command can read again.")
@json_option
def register(folder: Path, table: Path | None, status: str | None, output: Path | None, as_json: bool) -> None:
    """List the lost and found pets, or enter where and when they were lost or found.

    FILE.csv has the columns name, status, species, place, date, contact, note, or only name and some of the others. A
    name is that of an identity of the gallery, or its number as #12. The status is lost, found or home; a named
    identity without an entry is lost. Rows that cannot be entered are listed. Without FILE.csv the register is listed.

    \b
    Example:
      familiar gallery register missing pets.csv
      familiar gallery register missing --status lost
    """
    from familiar.integrations.lost_pets.register_table import export_register, import_register, report_fields
    from familiar.integrations.lost_pets.reports import list_pets, read_status

    if table is not None and (status or output):
        raise click.UsageError("FILE.csv goes without --status and --output")
    if output is not None:
        require_parent_folder(output)
    with open_gallery(folder) as gallery:
        if table is not None:
            result = import_register(gallery, table)
            list_skipped(result.skipped)
            if result.skipped and not result.reports:
                raise BadDataset(f"{table}: no row could be entered; the lines above say why")
            if as_json:
                print_json({"entered": result.reports, "skipped": result.skipped})
            else:
                others = f", {len(result.skipped):,} skipped" if result.skipped else ""
                click.echo(f"{pluralize(result.reports, 'report')} entered{others}")
            return
        if output is not None:
            pets = export_register(gallery, output)
            print_json({"output": output, "pets": pets}) if as_json else click.echo(
                f"{output}: {pluralize(pets, 'pet')}"
            )
            return
        listed = list_pets(gallery, None if status is None else read_status(status))
    if as_json:
        print_json(
            [
                {"identity": pet.identity, "name": pet.name, "photos": pet.faces} | report_fields(pet.report)
                for pet in listed
            ]
        )
        return
    for pet in listed:
        details = [
            pet.report.status,
            pet.species,
            pet.report.reported_on,
            pet.report.location,
            pet.report.contact,
            pet.report.note,
        ]
        shown = ", ".join(printable(text) for text in details if text)
        click.echo(f"{label(pet.identity, pet.name)}: {shown}, {pluralize(pet.faces, 'photo')}")
