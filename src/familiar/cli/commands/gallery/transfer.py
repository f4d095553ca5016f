"""`familiar gallery import` and `export`."""

from dataclasses import asdict
from pathlib import Path

import click

from familiar.cli.commands.gallery.arguments import folder_argument, open_to_correct
from familiar.cli.console import list_skipped, print_json
from familiar.cli.options import FILE, json_option, require_parent_folder
from familiar.core.plural import pluralize

TABLE_SUFFIX = ".csv"


@click.command("import")
@folder_argument
@click.argument("source", metavar="SOURCE", type=FILE)
@json_option
def import_(folder: Path, source: Path, as_json: bool) -> None:
    """Import identity labels from a CSV file or folders.

    SOURCE is a CSV file with the columns path and name (and left_px, top_px, right_px, bottom_px or face, where photos
    show several faces), or a folder with one subfolder of photos per identity. Imported labels count as confirmed;
    one `undo` takes the whole import back.

    \b
    Example:
      familiar gallery import album names.csv
      familiar gallery import album sorted-photos/
    """
    from familiar.core.errors import BadDataset
    from familiar.gallery.transfer.import_export import import_csv, import_folders

    with open_to_correct(folder) as gallery:
        result = import_folders(gallery, source) if source.is_dir() else import_csv(gallery, source)
    list_skipped(result.skipped)
    if result.skipped and not result.faces:
        raise BadDataset(f"{source}: no row matches a face in {folder}; nothing was imported")
    if as_json:
        print_json(asdict(result))
        return
    followers = f"; {pluralize(result.propagated_faces, 'other face')} followed" if result.propagated_faces else ""
    click.echo(
        f"{folder}: {pluralize(result.faces, 'face')} of {pluralize(result.identities, 'identity')}, "
        f"{len(result.skipped):,} skipped{followers}"
    )


@click.command()
@folder_argument
@click.option("--output", "-o", required=True, type=FILE, help="The .csv file or the new folder to write.")
@click.option("--copy", is_flag=True, help="Copy the photos into the folder instead of linking to them.")
@json_option
def export(folder: Path, output: Path, copy: bool, as_json: bool) -> None:
    """Export identity labels as a CSV file or folders.

    The CSV file has one row per face, and `familiar gallery import` reads it. Folders of unnamed identities are called
    #12.

    \b
    Example:
      familiar gallery export album --output names.csv
      familiar gallery export album --output sorted-photos
    """
    from familiar.gallery.database.connection import GalleryDatabase
    from familiar.gallery.transfer.import_export import export_csv, export_folders

    if output.suffix.lower() == TABLE_SUFFIX:
        if copy:
            raise click.UsageError("--copy is for folders")
        require_parent_folder(output)
        with GalleryDatabase.open(folder) as gallery:
            faces = export_csv(gallery, output)
        summary, document = pluralize(faces, "face"), {"faces": faces}
    else:
        with GalleryDatabase.open(folder) as gallery:
            result = export_folders(gallery, output, "copy" if copy else "link")
        list_skipped([f"{path}: missing" for path in result.missing])
        summary = f"{pluralize(result.photos, 'photo')} of {pluralize(result.identities, 'identity')}"
        document = asdict(result)
    if as_json:
        print_json({"output": output} | document)
    else:
        click.echo(f"{output}: {summary}")
