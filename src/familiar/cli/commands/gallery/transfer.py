"""`familiar gallery import` and `export`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from familiar.cli.commands.gallery.arguments import folder_argument, open_gallery
from familiar.cli.console import list_skipped, note, print_json
from familiar.cli.options import FILE, exclude_option, json_option, require_parent_folder
from familiar.core.plural import pluralize

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.gallery import Gallery, ImportResult

TABLE_SUFFIX = ".csv"


@click.command("import")
@folder_argument
@click.argument("sources", metavar="[SOURCE]...", nargs=-1, type=FILE)
@click.option(
    "--xmp",
    is_flag=True,
    help="Import the names in the photos' own metadata. SOURCE are photos or folders. [default: all of the gallery]",
)
@exclude_option
@json_option
def import_(folder: Path, sources: tuple[Path, ...], xmp: bool, exclude: tuple[str, ...], as_json: bool) -> None:
    """Import identity labels from a CSV file, from folders, or from the photos' metadata.

    SOURCE is a CSV file with the columns path and name (and left_px, top_px, right_px, bottom_px or face, where photos
    show several faces), or a folder with one subfolder of photos per identity. With --xmp, names are read from the face
    regions in XMP sidecars, in photos and in .picasa.ini (digiKam, Lightroom, Windows Photo Gallery, Picasa). Imported
    labels count as confirmed; one `undo` takes the whole import back.

    \b
    Example:
      familiar gallery import album names.csv
      familiar gallery import album sorted-photos/
      familiar gallery import album --xmp
    """
    from familiar.core.errors import BadDataset

    if not xmp and len(sources) != 1:
        raise click.UsageError("Give one SOURCE, or --xmp." if sources else "Missing argument 'SOURCE', or --xmp.")
    if exclude and not any(source.is_dir() for source in sources):
        raise click.UsageError("--exclude leaves out files of a folder, and no SOURCE is one.")
    with open_gallery(folder) as gallery:
        result = _import_xmp(gallery, sources, exclude) if xmp else gallery.import_labels(sources[0], exclude)
    list_skipped(result.skipped)
    if result.skipped and not result.faces:
        raise BadDataset(
            f"{folder}: no name in the photos' metadata matches a face; nothing was imported"
            if xmp
            else f"{sources[0]}: nothing in it could be imported into {folder}; the lines above say why"
        )
    if as_json:
        print_json(asdict(result))
        return
    followers = f"; {pluralize(result.propagated_faces, 'other face')} followed" if result.propagated_faces else ""
    click.echo(
        f"{folder}: {pluralize(result.faces, 'face')} of {pluralize(result.identities, 'identity')}, "
        f"{len(result.skipped):,} skipped{followers}"
    )


def _import_xmp(gallery: "Gallery", sources: tuple[Path, ...], exclude: tuple[str, ...]) -> "ImportResult":
    from familiar.integrations.xmp.import_names import import_xmp

    return import_xmp(gallery, sources, exclude)


@click.command()
@folder_argument
@click.option("--output", "-o", type=FILE, help="The .csv file or the new folder to write.")
@click.option("--identity", metavar="IDENTITY", help="Export only this one.")
@click.option("--link", is_flag=True, help="Link to the photos instead of copying them into the folder.")
@click.option("--xmp", is_flag=True, help="Write the names into the photos' metadata: XMP sidecars beside them.")
@click.option("--in-place", is_flag=True, help="With --xmp: write into JPEGs themselves; other formats get sidecars.")
@json_option
def export(
    folder: Path, output: Path | None, identity: str | None, link: bool, xmp: bool, in_place: bool, as_json: bool
) -> None:
    """Export identity labels as a CSV file, as folders, or into the photos' metadata.

    The CSV file has one row per face, and `familiar gallery import` reads it. The photos are copied into a folder for
    each identity, called #12 or the like if it has no name; in an album of several species, within one for each. With
    --identity the photos of one identity are copied into the folder itself. With --xmp, named faces become face regions
    and keywords that digiKam, Lightroom and others read; repeat it after changes, and the files follow the gallery.

    \b
    Example:
      familiar gallery export album --output names.csv
      familiar gallery export album --output sorted-photos
      familiar gallery export album --identity Mia --output mia
      familiar gallery export album --xmp
    """
    if xmp == (output is not None):
        raise click.UsageError("Give one of --output and --xmp.")
    if in_place and not xmp:
        raise click.UsageError("--in-place is for --xmp")
    if xmp and (link or identity is not None):
        raise click.UsageError("--link and --identity are for --output")
    if output is None:
        _export_xmp(folder, in_place, as_json)
    else:
        _export_files(folder, output, identity, link, as_json)


def _export_xmp(folder: Path, in_place: bool, as_json: bool) -> None:
    from familiar.integrations.xmp.export import export_xmp

    with open_gallery(folder) as gallery:
        result = export_xmp(gallery, in_place=in_place)
    list_skipped(result.skipped)
    if result.skipped and not (result.photos or result.removed):
        raise _nothing_exported(folder)
    for reason in result.not_in_place:
        note(f"a sidecar instead: {reason}")
    if as_json:
        print_json(asdict(result))
        return
    written = [
        f"{pluralize(count, noun)} {verb}"
        for count, noun, verb in (
            (result.sidecars, "sidecar", "written"),
            (result.jpegs, "JPEG", "changed"),
            (result.removed, "sidecar", "removed"),
        )
        if count
    ]
    click.echo(
        f"{folder}: {pluralize(result.faces, 'named face')} in {pluralize(result.photos, 'photo')}; "
        f"{', '.join(written) or 'nothing to change'}; {len(result.skipped):,} skipped"
    )


def _export_files(folder: Path, output: Path, identity: str | None, link: bool, as_json: bool) -> None:
    if output.suffix.lower() == TABLE_SUFFIX:
        if link:
            raise click.UsageError("--link is for folders")
        require_parent_folder(output)
    with open_gallery(folder) as gallery:
        result = gallery.export(output, link=link, identity=identity)
    if isinstance(result, int):
        summary, document = pluralize(result, "face"), {"faces": result}
    else:
        missing = [f"{path}: missing; enroll the folder that it is in now" for path in result.missing]
        list_skipped([*missing, *result.skipped])
        if not result.photos and (missing or result.skipped):
            raise _nothing_exported(folder)
        summary = f"{pluralize(result.photos, 'photo')} of {pluralize(result.identities, 'identity')}"
        document = asdict(result)
    if as_json:
        print_json({"output": output} | document)
    else:
        click.echo(f"{output}: {summary}")


def _nothing_exported(folder: Path) -> Exception:
    from familiar.core.errors import UnreadablePhoto

    return UnreadablePhoto(
        f"{folder}: no photo could be exported, as the lines above say; if photos were moved, first enroll the folder "
        f"that they are in now: familiar gallery enroll {folder} PHOTOS"
    )
