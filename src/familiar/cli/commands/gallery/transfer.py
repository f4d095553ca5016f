"""Who is who, in and out: `import`, `export`."""

from dataclasses import asdict
from pathlib import Path

import click

from familiar.cli.commands.gallery.arguments import counted, folder_argument
from familiar.cli.console import list_skipped, print_json
from familiar.cli.options import FILE, json_option, require_folder_of

TABLE = ".csv"


@click.command("import")
@folder_argument
@click.argument("source", metavar="FROM", type=FILE)
@json_option
def import_(folder: Path, source: Path, as_json: bool) -> None:
    """Say who is who by a table or by folders.

    FROM is a CSV file with the columns path and name (and left_px, top_px, right_px, bottom_px or face, where photos
    show several faces), or a folder that holds one of photos per identity. It counts as your word; one `undo` takes
    it back.

    \b
    Example:
      familiar gallery import album names.csv
      familiar gallery import album sorted-photos/
    """
    from familiar.core.errors import BadDataset
    from familiar.gallery.database.connection import Gallery
    from familiar.gallery.transfer.import_export import import_csv, import_folders

    with Gallery.open(folder) as gallery:
        imported = import_folders(gallery, source) if source.is_dir() else import_csv(gallery, source)
    list_skipped(imported.skipped)
    if imported.skipped and not imported.faces:
        raise BadDataset(f"{source}: says nothing of any face in {folder}; nothing was imported")
    if as_json:
        print_json(asdict(imported))
        return
    others = f"; {counted(imported.propagated_faces, 'other face')} carried along" if imported.propagated_faces else ""
    click.echo(
        f"{folder}: {counted(imported.faces, 'face')} of {counted(imported.identities, 'identity')}, "
        f"{len(imported.skipped):,} skipped{others}"
    )


@click.command()
@folder_argument
@click.option("--output", "-o", required=True, type=FILE, help="The .csv file to write, or a new folder.")
@click.option("--copy", is_flag=True, help="Copy the photos into the folder, instead of linking to them.")
@json_option
def export(folder: Path, output: Path, copy: bool, as_json: bool) -> None:
    """Write down who is who, as a table or folders.

    The table has one row per face, and `familiar gallery import` reads it. In the folder identities without a name
    are called #12.

    \b
    Example:
      familiar gallery export album --output names.csv
      familiar gallery export album --output sorted-photos
    """
    from familiar.gallery.database.connection import Gallery
    from familiar.gallery.transfer.import_export import export_csv, export_folders

    if output.suffix.lower() == TABLE:
        if copy:
            raise click.UsageError("--copy is for folders")
        require_folder_of(output)
        with Gallery.open(folder) as gallery:
            faces = export_csv(gallery, output)
        said, document = counted(faces, "face"), {"faces": faces}
    else:
        with Gallery.open(folder) as gallery:
            made = export_folders(gallery, output, "copy" if copy else "link")
        list_skipped([f"{path}: not there any more" for path in made.missing])
        said, document = (
            f"{counted(made.photos, 'photo')} of {counted(made.identities, 'identity')}",
            asdict(made),
        )
    if as_json:
        print_json({"output": output} | document)
    else:
        click.echo(f"{output}: {said}")
